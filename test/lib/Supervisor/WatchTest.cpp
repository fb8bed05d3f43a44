#include "Views.h"

#include "heddle/Supervisor/Watch.h"

#include <gtest/gtest.h>

#include <random>

using namespace heddle::supervisor;

namespace {

constexpr double kLook = 0.05;

/// Ranks that run steps of so many seconds, in ten operations each.
class Ranks {
public:
  explicit Ranks(int ranks, double limit = 2)
      : watch({.step = limit}), views(makeRanks(ranks)) {}

  /// Goes on for some seconds; the moment of a verdict, or -1.
  double go(double seconds, double stepSeconds, int except = -1) {
    for (const double end = now + seconds; now < end; now += kLook) {
      for (RankView &view : views) {
        if (view.rank == except)
          continue;
        view.sequence = uint64_t(now / stepSeconds * 10);
        view.step = int64_t(now / stepSeconds);
      }
      if (auto found = watch.look(now, views)) {
        verdict = *found;
        return now;
      }
    }
    return -1;
  }

  Watch watch;
  std::vector<RankView> views;
  double now = 1;
  Verdict verdict;
};

TEST(Watch, AStoppedRankWithinTheLimit) {
  for (int rank = 0; rank < 4; ++rank) {
    Ranks run(4);
    ASSERT_EQ(run.go(5, 0.3), -1);
    const double at = run.now;
    run.views[size_t(rank)].state = Process::Stopped;
    for (RankView &view : run.views)
      if (view.rank != rank)
        waitIn(view, "all_reduce(dp)", 8);
    const auto look = [&] { return run.watch.look(run.now, run.views); };
    std::optional<Verdict> found;
    while (!(found = look()) && run.now < at + 20)
      run.now += kLook;
    ASSERT_TRUE(found);
    EXPECT_LT(run.now, at + 2 + 3 * kLook);
    EXPECT_GE(run.now, at + 2 - kLook);
    EXPECT_EQ(found->blame.ranks, std::vector<int>{rank});
    EXPECT_EQ(found->limit, 2);
  }
}

TEST(Watch, WhoWaitsForAWorkingRankHangsNot) {
  Ranks run(2);
  ASSERT_EQ(run.go(5, 0.3), -1);
  waitIn(run.views[0], "all_reduce(dp)", 8);
  EXPECT_EQ(run.go(100, 3, 0), -1); // rank 1 goes on slowly
}

TEST(Watch, UsualSilenceRaisesTheLimit) {
  Ranks run(2);
  // Steps of one operation each: silent for 1.5 s again and again.
  ASSERT_EQ(run.go(60, 15), -1);
  EXPECT_GT(run.watch.limitOf(Section::Step), 6.5);
  EXPECT_LT(run.watch.limitOf(Section::Step), 9);
  // And never above ten times what was asked for.
  Ranks slow(2);
  ASSERT_EQ(slow.go(400, 100), -1);
  EXPECT_EQ(slow.watch.limitOf(Section::Step), 20);
}

TEST(Watch, FirstStepSavesAndLoadsMayTakeLonger) {
  Ranks run(2);
  for (RankView &view : run.views)
    view.section = Section::Load;
  for (; run.now < 19; run.now += kLook)
    ASSERT_FALSE(run.watch.look(run.now, run.views));
  for (RankView &view : run.views)
    view.section = Section::Step;
  for (; run.now < 38; run.now += kLook)
    ASSERT_FALSE(run.watch.look(run.now, run.views));
  for (; run.now < 41; run.now += kLook)
    if (run.watch.look(run.now, run.views))
      return;
  FAIL() << "a first step without an end";
}

TEST(Watch, NeverWhereNoLimitIsWanted) {
  Ranks run(2, 0);
  ASSERT_EQ(run.go(5, 0.3), -1);
  for (; run.now < 1e5; run.now += 100)
    ASSERT_FALSE(run.watch.look(run.now, run.views));
}

TEST(Watch, ADeathAtOnce) {
  Ranks run(3);
  ASSERT_EQ(run.go(5, 0.3), -1);
  run.views[1].state = Process::Gone;
  run.views[1].signal = 11;
  ASSERT_EQ(run.go(kLook, 0.3), run.now);
  EXPECT_EQ(run.verdict.blame.cause, Cause::Died);
  EXPECT_EQ(run.verdict.blame.ranks, std::vector<int>{1});
}

TEST(Watch, WhoEndsByItsOwnWordIsNoDeath) {
  Ranks run(3);
  ASSERT_EQ(run.go(5, 0.3), -1);
  run.views[0].state = Process::Gone;
  run.views[0].ended = true;
  EXPECT_EQ(run.go(1, 0.3, 0), -1);
  // One fails and says so; the launcher ends the others.
  run.views[1].ended = run.views[1].failed = true;
  for (RankView &view : run.views)
    view.state = Process::Gone;
  EXPECT_EQ(run.go(1, 0.3), -1);
}

TEST(Watch, NoFalseAlarmInAThousandCleanRuns) {
  // Steps whose operations take drawn times, now and then ten times as long.
  std::mt19937 draw(1);
  std::exponential_distribution<double> seconds(20);
  for (int i = 0; i < 1000; ++i) {
    Watch watch({.step = 2});
    auto views = makeRanks(2);
    double now = 0, next = 0;
    for (; now < 60; now += kLook) {
      while (next <= now) {
        for (RankView &view : views) {
          ++view.sequence;
          view.step = int64_t(view.sequence / 10);
        }
        next += std::min(1.9, seconds(draw) * (draw() % 50 == 0 ? 10 : 1));
      }
      ASSERT_FALSE(watch.look(now, views)) << i << " at " << now;
    }
  }
}

} // namespace
