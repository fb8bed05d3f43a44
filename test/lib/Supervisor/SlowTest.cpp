#include "Views.h"

#include "heddle/Supervisor/Slow.h"

#include <gtest/gtest.h>

#include <random>

using namespace heddle::supervisor;

namespace {

/// Ranks whose steps compute for 1 s, give or take a tenth.
class Steps {
public:
  explicit Steps(int n, unsigned seed = 1) : views(makeRanks(n)), draw(seed) {}

  std::vector<SlowRank> next(SlowRanks &slow) {
    ++step;
    std::normal_distribution<double> noise(1, 0.05);
    for (RankView &view : views) {
      const bool isSlow = view.rank == slowRank;
      const double usual = usualOf.empty() ? 1 : usualOf[size_t(view.rank)];
      view.steps = {{step, usual * noise(draw) * (isSlow ? 1.5 : 1), 0, 0}};
    }
    return slow.look(views);
  }

  std::vector<RankView> views;
  std::vector<double> usualOf;
  int slowRank = -1;
  int64_t step = 0;

private:
  std::mt19937 draw;
};

TEST(Slow, OneAndAHalfTimesWithinFiveWindows) {
  for (int n : {2, 3, 4, 8})
    for (unsigned seed = 1; seed <= 20; ++seed) {
      SlowRanks slow;
      Steps steps(n, seed);
      for (int i = 0; i < 10; ++i)
        ASSERT_TRUE(steps.next(slow).empty());
      steps.slowRank = int(seed) % n;
      const int64_t before = slow.windows();
      std::vector<SlowRank> found;
      while (found.empty() && slow.windows() < before + 20)
        found = steps.next(slow);
      ASSERT_EQ(found.size(), 1u);
      EXPECT_EQ(found[0].rank, steps.slowRank);
      EXPECT_NEAR(found[0].factor, 1.5, 0.2);
      EXPECT_GE(found[0].windows, 3);
      EXPECT_EQ(found[0].of, 5);
      // One step is a window here; the first one warms caches.
      EXPECT_EQ(found[0].first, steps.step - 4);
      EXPECT_EQ(found[0].step, steps.step);
      EXPECT_LE(slow.windows() - before, 5);
    }
}

TEST(Slow, NoneInAThousandCleanWindows) {
  SlowRanks slow;
  Steps steps(4);
  while (slow.windows() < 1000)
    ASSERT_TRUE(steps.next(slow).empty());
}

TEST(Slow, OnlyRanksOfOneRoleAreCompared) {
  SlowRanks slow;
  Steps steps(4);
  steps.usualOf = {1, 1, 3, 3}; // the head's stage has more to do
  for (int rank : {2, 3})
    steps.views[size_t(rank)].role = 1;
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(steps.next(slow).empty());
  steps.slowRank = 3;
  std::vector<SlowRank> found;
  for (int i = 0; i < 6 && found.empty(); ++i)
    found = steps.next(slow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].role, 1);
}

TEST(Slow, ShortStepsAreJoinedToWindows) {
  SlowRanks slow({.seconds = 10});
  Steps steps(3);
  for (int i = 0; i < 101; ++i)
    (void)steps.next(slow);
  EXPECT_GE(slow.windows(), 8);
  EXPECT_LE(slow.windows(), 10);
}

TEST(Slow, ToldOnceUntilItIsWellAgain) {
  SlowRanks slow;
  Steps steps(4);
  const auto told = [&](int windows) {
    size_t count = 0;
    for (int i = 0; i < windows; ++i)
      count += steps.next(slow).size();
    return count;
  };
  steps.slowRank = 1;
  EXPECT_EQ(told(50), 1u);
  steps.slowRank = -1;
  EXPECT_EQ(told(20), 0u);
  steps.slowRank = 1;
  EXPECT_EQ(told(50), 1u);
}

} // namespace
