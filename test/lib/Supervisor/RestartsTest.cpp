#include "heddle/Supervisor/Restarts.h"

#include <gtest/gtest.h>

using namespace heddle::supervisor;

namespace {

TEST(Restarts, NoneWhereNoneIsAllowed) {
  Restarts restarts(0);
  const Decision decision = restarts.next({3, 2});
  EXPECT_FALSE(decision.again);
  EXPECT_EQ(decision.why, "");
}

TEST(Restarts, AsManyAsAreAllowed) {
  Restarts restarts(2);
  EXPECT_TRUE(restarts.next({3, 2}).again);
  EXPECT_TRUE(restarts.next({5, 4}).again);
  const Decision last = restarts.next({7, 6});
  EXPECT_FALSE(last.again);
  EXPECT_NE(last.why.find("2 times"), std::string::npos) << last.why;
  EXPECT_EQ(restarts.count(), 2);
}

TEST(Restarts, LongerDelaysWhileNothingIsCommitted) {
  Restarts restarts(100);
  EXPECT_EQ(restarts.next({3, 2}).delay, 1);
  EXPECT_EQ(restarts.next({4, 2}).delay, 2);
  EXPECT_EQ(restarts.next({3, 2}).delay, 4);
  EXPECT_EQ(restarts.next({9, 8}).delay, 1);
}

TEST(Restarts, ACrashLoopStops) {
  Restarts restarts(100);
  EXPECT_TRUE(restarts.next({3, 2}).again);
  EXPECT_TRUE(restarts.next({4, 2}).again);
  EXPECT_TRUE(restarts.next({3, 2}).again);
  const Decision stop = restarts.next({4, 2});
  EXPECT_FALSE(stop.again);
  EXPECT_NE(stop.why.find("without a new checkpoint"), std::string::npos);
}

TEST(Restarts, TheSameStepThreeTimes) {
  Restarts restarts(100);
  EXPECT_FALSE(restarts.next({7, 6}).setAside);
  const Decision second = restarts.next({7, 6});
  EXPECT_TRUE(second.again);
  EXPECT_TRUE(second.setAside);
  const Decision third = restarts.next({7, 4});
  EXPECT_FALSE(third.again);
  EXPECT_NE(third.why.find("step 7 3 times"), std::string::npos) << third.why;
}

TEST(Restarts, WhatIsNotThereIsNotSetAside) {
  Restarts restarts(100);
  EXPECT_TRUE(restarts.next({1, -1}).again);
  const Decision second = restarts.next({1, -1});
  EXPECT_TRUE(second.again);
  EXPECT_FALSE(second.setAside);
}

TEST(Restarts, ManyFailuresOfALongRun) {
  Restarts restarts(1000);
  for (int64_t step = 1; step <= 500; ++step)
    ASSERT_TRUE(restarts.next({step * 10 + 3, step * 10}).again);
}

} // namespace
