#include "Views.h"

#include "heddle/Supervisor/Blame.h"

#include <gtest/gtest.h>

using namespace heddle::supervisor;

namespace {

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

Blame blame(const std::vector<RankView> &views) {
  return blameForHang(views, std::vector<bool>(views.size(), true));
}

TEST(Blame, ThreadsOfOneProcessDieTogether) {
  auto views = makeRanks(4);
  for (RankView &view : views) {
    view.process = view.rank < 3 ? 7 : 8;
    view.state = view.rank < 3 ? Process::Gone : Process::Running;
  }
  views[2].signal = 11;
  const Blame found = blameForDeath(views);
  EXPECT_EQ(found.cause, Cause::Died);
  EXPECT_EQ(found.ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(
      has(found.sentence, "process 7, whose threads were ranks 0, 1, 2"))
      << found.sentence;
  EXPECT_TRUE(has(found.sentence, "signal 11")) << found.sentence;
}

TEST(Blame, StoppedOneWhateverItDid) {
  auto views = makeRanks(4);
  for (RankView &view : views)
    waitIn(view, "all_reduce(dp)", 64);
  views[2].state = Process::Stopped;
  const Blame found = blame(views);
  EXPECT_EQ(found.cause, Cause::Stopped);
  EXPECT_EQ(found.ranks, std::vector<int>{2});
  EXPECT_TRUE(has(found.sentence, "rank 2 (process 1002)")) << found.sentence;
  EXPECT_TRUE(has(found.sentence, "all_reduce(dp), its call 5, of 64 f32"))
      << found.sentence;
}

TEST(Blame, OneThatDoesNotWaitWhileOthersDo) {
  auto views = makeRanks(4);
  for (int i : {0, 1, 2})
    waitIn(views[size_t(i)], "all_reduce(dp)", 64);
  const Blame found = blame(views);
  EXPECT_EQ(found.cause, Cause::Endless);
  EXPECT_EQ(found.ranks, std::vector<int>{3});
  EXPECT_TRUE(has(found.sentence, "layers.0.norm")) << found.sentence;
}

TEST(Blame, CallsThatDifferNamedWithBothSizes) {
  auto views = makeRanks(3);
  waitIn(views[0], "all_reduce(dp)", 64);
  waitIn(views[1], "all_reduce(dp)", 64);
  waitIn(views[2], "all_reduce(dp)", 32);
  const Blame found = blame(views);
  EXPECT_EQ(found.cause, Cause::Mismatch);
  EXPECT_EQ(found.ranks, (std::vector<int>{0, 2}));
  EXPECT_TRUE(has(found.sentence, "64 f32")) << found.sentence;
  EXPECT_TRUE(has(found.sentence, "32 f32")) << found.sentence;
  EXPECT_TRUE(has(found.sentence, "communicator dp")) << found.sentence;
}

TEST(Blame, OrderThatDiffersIsACircle) {
  // Rank 0 begins with dp, rank 1 with tp, and neither comes to the other's.
  auto views = makeRanks(2);
  for (RankView &view : views)
    view.comms.push_back({"tp", 2, 0, view.rank, 2, 7});
  waitIn(views[0], "all_reduce(dp)", 64, 0);
  waitIn(views[1], "all_gather(tp)", 16, 1);
  const Blame found = blame(views);
  EXPECT_EQ(found.cause, Cause::Circle);
  EXPECT_EQ(found.ranks, (std::vector<int>{0, 1}));
  EXPECT_TRUE(has(found.sentence, "rank 0 waits for rank 1")) << found.sentence;
  EXPECT_TRUE(has(found.sentence, "all_gather(tp)")) << found.sentence;
}

TEST(Blame, NetworkOfTheRankThatNobodyHears) {
  auto views = makeRanks(4);
  for (RankView &view : views) {
    waitIn(view, "all_reduce(dp)", 64);
    view.pending =
        view.rank == 1 ? std::vector<int>{0, 2, 3} : std::vector<int>{1};
    view.pendingCount = int(view.pending.size());
  }
  const Blame found = blame(views);
  EXPECT_EQ(found.cause, Cause::Network);
  EXPECT_EQ(found.ranks, std::vector<int>{1});
  EXPECT_TRUE(has(found.sentence, "ranks 0, 2, 3")) << found.sentence;
  EXPECT_TRUE(has(found.sentence, "communicator dp")) << found.sentence;
}

TEST(Blame, BetweenTwoRanksBothAreNamed) {
  auto views = makeRanks(2);
  for (RankView &view : views) {
    waitIn(view, "all_reduce(dp)", 64);
    view.pending = {1 - view.rank};
    view.pendingCount = 1;
  }
  EXPECT_EQ(blame(views).ranks, (std::vector<int>{0, 1}));
}

TEST(Blame, BothEndsOfAMessageAreNoCircle) {
  auto views = makeRanks(2);
  for (RankView &view : views) {
    waitIn(view, view.rank == 0 ? "send(dp)" : "receive(dp)", 64);
    view.operations[0].call = 0;
    view.operations[0].peer = 1 - view.rank;
    view.pending = {1 - view.rank};
    view.pendingCount = 1;
  }
  EXPECT_EQ(blame(views).cause, Cause::Network);
}

// Rank 3 is cut off; ranks 1 and 2 have given to rank 0, which waits for it.
TEST(Blame, WhoWaitsForAWaitingRankSaysNothingOfTheNetwork) {
  auto views = makeRanks(4);
  for (RankView &view : views) {
    waitIn(view, "all_reduce(dp)", 1);
    view.pending = {view.rank == 0 ? 3 : 0};
    view.pendingCount = 1;
  }
  const Blame found = blame(views);
  EXPECT_EQ(found.cause, Cause::Network);
  EXPECT_EQ(found.ranks, (std::vector<int>{0, 3}));
  EXPECT_TRUE(has(found.sentence, "between rank 0 and rank 3 in"))
      << found.sentence;
}

TEST(Blame, NumbersOfNoRankAreNobody) {
  auto views = makeRanks(2);
  for (RankView &view : views) {
    waitIn(view, "all_reduce(dp)", 64);
    view.pending = {99, -5};
    view.pendingCount = 2;
  }
  views[0].operations[0].comm = 77;
  EXPECT_EQ(blame(views).cause, Cause::Unexplained);
}

TEST(Blame, TheFirstDeathAndNotThoseThatALauncherEnds) {
  auto views = makeRanks(4);
  for (RankView &view : views) {
    view.state = Process::Gone;
    view.signal = 15;
    view.signalSent = true;
    view.died = 5;
  }
  views[2].signal = 9;
  views[2].signalSent = false;
  views[2].died = 5.1; // clocks need not agree with causes
  const Blame found = blameForDeath(views);
  EXPECT_EQ(found.cause, Cause::Died);
  EXPECT_EQ(found.ranks, std::vector<int>{2});
  EXPECT_TRUE(has(found.sentence, "signal 9 (Killed)")) << found.sentence;
  EXPECT_TRUE(has(found.sentence, "step 3")) << found.sentence;
}

} // namespace
