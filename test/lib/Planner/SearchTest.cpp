#include "PlannerProblems.h"

#include "heddle/Planner/Sample.h"
#include "heddle/Planner/Verify.h"

#include <gmock/gmock.h>

#include <set>

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

// Threads of a search have times and bytes of their own, which were asked for
// other plans before: the same plans have the same ones all the same. Frames of
// the first length and batch were once kept for all.
TEST(Search, AsksWhatDoesNotDependOnWhatWasAskedBefore) {
  PlanProblem problem = {publicModel("llama-3-70b"),
                         adamW(8192, 1024),
                         exampleCluster("512xh100"),
                         {}};
  const Planned before(problem);
  const PlanSampler sampler(before.problem, before.memory);
  std::mt19937_64 random(5);
  std::vector<PlanPoint> points;
  for (int i = 0; i < 60; ++i)
    points.push_back(*sampler.draw(random));
  for (const PlanPoint &point : points) {
    const Planned first(problem);
    EXPECT_EQ(must(before.memory.peak(point)), must(first.memory.peak(point)))
        << point.text();
    EXPECT_EQ(must(before.times.seconds(point)),
              must(before.times.another().seconds(point)))
        << point.text();
    EXPECT_EQ(before.times.bound(point), first.times.bound(point));
    EXPECT_EQ(before.times.boundOfSlots(point),
              first.times.boundOfSlots(point));
  }
}

// One by one by the estimate, and quickly by a table of a schedule.
TEST(Fits, AreThoseOfTheEstimate) {
  std::mt19937 random(5);
  int fitting = 0, recomputing = 0;
  for (int i = 0; i < 12; ++i) {
    PlanProblem problem = randomProblem(random);
    if (i % 3 == 0) {
      problem.model = publicModel("qwen2-moe-a2.7b");
      problem.cluster.device.memoryBytes = (random() % 60 + 20) << 30;
    }
    const Planned planned(problem);
    const PlanSpace space(problem);
    const std::int64_t capacity = problem.cluster.planBytesPerDevice();
    for (const PlanPoint &mesh : space.meshes())
      for (const PlanPoint &schedule : space.schedules(mesh)) {
        if (random() % 20)
          continue;
        FitTable table(planned.memory, schedule);
        for (const PlanStorage &storage : space.storages(schedule))
          for (PointRecompute kind : space.recomputes()) {
            PlanPoint point = storage.on(schedule);
            table.take(point);
            std::vector<std::int64_t> layers;
            const bool fits = table.fewest(kind, capacity, layers);
            point.recompute = kind;
            ASSERT_EQ(planned.memory.recomputeToFit(point, capacity), fits)
                << point.text();
            if (!fits)
              continue;
            ++fitting;
            if (point.recomputed.empty())
              point.recomputed.assign(layers.size(), 0);
            else
              ++recomputing;
            ASSERT_EQ(point.recomputed, layers) << point.text();
          }
      }
  }
  EXPECT_GT(fitting, 1000);
  EXPECT_GT(recomputing, 100);
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
    const Planned planned(before);
    const PlanAnswer first = planned.find({.top = 1});
    // What bytes are made of does not change.
    const PlanAnswer second = findPlans(
        after, must(StepTimes::of(after.model, after.train, after.cluster)),
        nullptr, planned.memory, {.top = 1});
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

// 1,000 plans that the search did not choose, costed in full: none is faster
// than what it told, and all that fit are plans.
TEST(Search, NoDrawnPlanIsFasterThanTheAnswer) {
  const std::tuple<const char *, std::int64_t, const char *> problems[] = {
      {"llama-3-8b", 128, "8xh100"},
      {"llama-3-70b", 512, "512xh100"},
      {"qwen2-moe-a2.7b", 128, "8xh100"},
      {"gpt2-xl", 64, "8xh100"}};
  std::mt19937_64 random(6);
  int drawn = 0;
  for (const auto &[model, batch, cluster] : problems) {
    PlanProblem problem;
    problem.model = publicModel(model);
    problem.train = adamW(std::string(model) == "gpt2-xl" ? 1024 : 4096, batch);
    problem.cluster = exampleCluster(cluster);
    const Planned planned(problem);
    const PlanAnswer answer = planned.find({.top = 1});
    ASSERT_TRUE(answer.isExact()) << model;
    const PlanSampler sampler(problem, planned.memory);
    for (int i = 0; i < 250; ++i) {
      const std::optional<PlanPoint> point = sampler.draw(random);
      ASSERT_TRUE(point) << model;
      ++drawn;
      CostedPlan plan;
      plan.point = *point;
      plan.peakBytes = must(planned.memory.peak(*point)).first;
      plan.seconds = must(planned.times.simulate(*point)).seconds;
      EXPECT_EQ(must(planned.times.seconds(*point)), plan.seconds);
      EXPECT_GE(plan.seconds, answer.best.front().seconds) << point->text();
      if (i % 25 == 0)
        if (Result<void> done = verifyPlan(problem, plan, planned.memory);
            !done)
          ADD_FAILURE() << point->text() << ": " << done.message();
    }
  }
  EXPECT_EQ(drawn, 1000);
}

// 70B with sequences of 8k: copies beside long layers cost less than pipelines.
TEST(Search, PutsSavedValuesOnTheHostWhereThatIsFaster) {
  PlanProblem problem;
  problem.model = publicModel("llama-3-70b");
  problem.train = adamW(8192, 1024);
  problem.cluster = exampleCluster("512xh100");
  const CostedPlan with = Planned(problem).find({.top = 1}).best.front();
  demand(problem, "offload_saved=none");
  const CostedPlan without = Planned(problem).find({.top = 1}).best.front();
  EXPECT_NE(with.point.offloaded, 0u);
  EXPECT_EQ(without.point.offloaded, 0u);
  EXPECT_LT(with.seconds, without.seconds);
  problem.demands.clear();
  demand(problem, "offload_saved=gate.up");
  const PlanAnswer both = Planned(problem).find({.top = 1});
  ASSERT_TRUE(both.fits());
  EXPECT_EQ(offloadedText(both.best.front().point.offloaded), "gate.up");
  EXPECT_GE(both.best.front().seconds, with.seconds);
}

TEST(Search, CountsEachPlanOnce) {
  std::mt19937 random(8);
  const Planned planned(randomProblem(random));
  std::set<std::string> texts;
  std::int64_t number = 0;
  visitPlans(planned.problem, planned.memory, [&](const PlanPoint &point) {
    ++number;
    std::string text;
    for (int key = 0; key < planKeys; ++key)
      text += choiceOf(point, static_cast<PlanKey>(key)) + " ";
    texts.insert(text);
  });
  EXPECT_GT(number, 1000);
  EXPECT_EQ(std::ssize(texts), number);
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
