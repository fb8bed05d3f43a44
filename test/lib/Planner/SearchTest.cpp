#include "PlannerProblems.h"

#include "heddle/Planner/Verify.h"

#include <gmock/gmock.h>

using namespace heddle;
using namespace heddle::test;

// All plans of 30 small spaces, costed one by one.
TEST(Search, EqualsBruteForce) {
  std::mt19937 random(1);
  int fitting = 0;
  for (int i = 0; i < 30; ++i) {
    const Planned planned(randomProblem(random));
    SCOPED_TRACE(i);
    const std::vector<CostedPlan> all =
        bruteForce(planned.problem, planned.times, planned.memory);
    const PlanAnswer answer = planned.find({.top = 3});
    ASSERT_EQ(answer.fits(), !all.empty());
    if (all.empty())
      continue;
    ++fitting;
    EXPECT_EQ(answer.best.front().seconds, all.front().seconds)
        << answer.best.front().point.text() << "\n"
        << all.front().point.text();
    EXPECT_TRUE(answer.isExact());
    EXPECT_EQ(answer.gap(), 0);
    for (const CostedPlan &plan : answer.best)
      if (Result<void> done = verifyPlan(planned.problem, plan, planned.memory);
          !done)
        ADD_FAILURE() << done.message();
  }
  EXPECT_GE(fitting, 20);
}

// No bound is above what it bounds.
TEST(Search, BoundsAreBelowTimes) {
  std::mt19937 random(2);
  for (int i = 0; i < 10; ++i) {
    const Planned planned(randomProblem(random));
    const std::vector<CostedPlan> all =
        bruteForce(planned.problem, planned.times, planned.memory);
    for (std::size_t j = 0; j < all.size(); j += 1 + random() % 20) {
      const CostedPlan &plan = all[j];
      for (double bound : {planned.times.boundOfSlots(plan.point),
                           planned.times.bound(plan.point),
                           planned.times.boundOfSchedule(plan.point),
                           planned.times.boundOfMesh(plan.point)})
        EXPECT_LE(bound, plan.seconds * (1 + 1e-12)) << plan.point.text();
    }
  }
}

TEST(Search, MoreOfAnythingIsNeverSlower) {
  std::mt19937 random(3);
  constexpr int problems = 1000;
  int compared = 0;
  for (int i = 0; i < problems; ++i) {
    const PlanProblem before = randomProblem(random);
    PlanProblem after = before;
    const int change = int(random() % 3);
    if (change == 0)
      after.cluster.device.memoryBytes += after.cluster.device.memoryBytes / 2;
    if (change == 1)
      for (Link &link : after.cluster.links)
        link.bytesPerSecond *= 1.5;
    if (change == 2) {
      for (auto &[format, rate] : after.cluster.device.peakFlops)
        rate *= 1.3;
      after.cluster.device.memoryBytesPerSecond *= 1.3;
    }
    const PlanAnswer first = Planned(before).find({.top = 1});
    const PlanAnswer second = Planned(after).find({.top = 1});
    if (!first.fits())
      continue;
    ++compared;
    ASSERT_TRUE(second.fits()) << "change " << change;
    EXPECT_LE(second.best.front().seconds,
              first.best.front().seconds * (1 + 1e-9))
        << "problem " << i << ", change " << change << "\n"
        << first.best.front().point.text() << "\n"
        << second.best.front().point.text();
  }
  EXPECT_GE(compared, problems / 2);
}

TEST(Search, IsDeterministic) {
  std::mt19937 random(4);
  for (int i = 0; i < 5; ++i) {
    const PlanProblem problem = randomProblem(random);
    const PlanAnswer one = Planned(problem).find(),
                     two = Planned(problem).find();
    ASSERT_EQ(one.best.size(), two.best.size());
    for (std::size_t j = 0; j < one.best.size(); ++j)
      EXPECT_EQ(one.best[j].point, two.best[j].point);
    EXPECT_EQ(one.counts.evaluations, two.counts.evaluations);
  }
}

static PlanProblem smallProblem(const std::string &cluster) {
  PlanProblem problem;
  problem.model = publicModel("llama-3-8b");
  problem.train = adamW(8192, 512);
  problem.cluster = exampleCluster(cluster);
  return problem;
}

TEST(Search, TellsDifferentPlansAndKeepsDemands) {
  PlanProblem problem = smallProblem("8xh100");
  demand(problem, "tp=2,4");
  const PlanAnswer answer = Planned(problem).find({.top = 4});
  ASSERT_EQ(answer.best.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(problem.allows(answer.best[i].point));
    EXPECT_GE(answer.best[i].headRoom, 0);
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_NE(answer.best[i].point.text(), answer.best[j].point.text());
  }
}

TEST(Search, SaysHowFarItCanBeFromTheBest) {
  const Planned planned(smallProblem("512xh100"));
  const PlanAnswer all = planned.find({.top = 1}),
                   some = planned.find({.top = 1, .mostPlans = 1});
  ASSERT_TRUE(all.fits() && some.fits());
  EXPECT_TRUE(all.isExact());
  EXPECT_GE(some.best.front().seconds, all.best.front().seconds);
  EXPECT_LE(some.bestPossible, all.best.front().seconds);
}

TEST(Search, FrontHasTheFastestAndNoPlanThatAnotherBeats) {
  const Planned planned(smallProblem("8xh100"));
  const PlanProblem &problem = planned.problem;
  const StepTimes slow = must(StepTimes::of(problem.model, problem.train,
                                            withSlowLink(problem.cluster)));
  const PlanAnswer answer =
      findPlans(problem, planned.times, &slow, planned.memory);
  ASSERT_FALSE(answer.front.empty());
  EXPECT_EQ(answer.front.front().point, answer.best.front().point);
  for (std::size_t i = 1; i < answer.front.size(); ++i) {
    const CostedPlan &a = answer.front[i - 1], &b = answer.front[i];
    EXPECT_TRUE(b.headRoom > a.headRoom ||
                b.slowLinkSeconds < a.slowLinkSeconds ||
                b.seconds == a.seconds);
    EXPECT_GE(b.slowLinkSeconds, b.seconds);
  }
}
