// Answers that are wrong, problems without one, and why an answer is as it is.

#include "PlannerProblems.h"

#include "heddle/Planner/Conflict.h"
#include "heddle/Planner/Decisions.h"
#include "heddle/Planner/Verify.h"

#include <gmock/gmock.h>

#include <limits>

using namespace heddle;
using namespace heddle::test;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

static PlanProblem problemOf(const std::string &model, std::int64_t batch,
                             const std::string &cluster) {
  PlanProblem problem;
  problem.model = publicModel(model);
  problem.train = adamW(8192, batch);
  problem.cluster = exampleCluster(cluster);
  return problem;
}

// Where no layer is computed again, what flows on is saved once more: a place
// that fits only if some are is no place of a plan with none.
TEST(Verify, TakesAnswersThatBarelyFit) {
  const std::filesystem::path examples =
      std::filesystem::path(HEDDLE_SOURCE_DIR) / "tools/examples";
  PlanProblem problem = problemOf("llama-3-70b", 512, "512xh100");
  problem.model = must(readModelConfig(examples / "models/gpt3-175b.json"));
  problem.train = must(readTrainSettings(examples / "train/gpt3.yaml"));
  for (const char *each : {"pp=8", "tp=4", "chunks=12", "offload=false"})
    demand(problem, each);
  const Planned planned(problem);
  const PlanAnswer answer = planned.find({.top = 3});
  ASSERT_FALSE(answer.best.empty());
  for (const CostedPlan &plan : answer.best)
    if (Result<void> done = verifyPlan(problem, plan, planned.memory); !done)
      ADD_FAILURE() << done.message();
}

TEST(Verify, FindsWhatIsWrong) {
  PlanProblem problem = problemOf("llama-3-8b", 128, "8xh100");
  demand(problem, "tp=4");
  const Planned planned(problem);
  const CostedPlan good = planned.find({.top = 1}).best.front();
  auto fault = [&](auto change) {
    CostedPlan plan = good;
    change(plan);
    Result<void> done = verifyPlan(problem, plan, planned.memory);
    return done ? std::string("accepted") : done.message();
  };
  EXPECT_EQ(fault([](CostedPlan &) {}), "accepted");
  EXPECT_THAT(fault([](CostedPlan &plan) { plan.point.dp *= 2; }),
              HasSubstr("16 ranks, but 8 devices"));
  EXPECT_THAT(fault([](CostedPlan &plan) { plan.point.microBatches += 1; }),
              HasSubstr("sequences a step, expected 128"));
  EXPECT_THAT(fault([](CostedPlan &plan) { plan.point.shardGroup = 7; }),
              HasSubstr("shard group of 7"));
  EXPECT_THAT(fault([](CostedPlan &plan) { plan.point.recipe = "fp8"; }),
              HasSubstr("precision fp8"));
  EXPECT_THAT(fault([](CostedPlan &plan) {
                plan.point.tp = 8;
                plan.point.dp = 1;
                plan.point.pp = 1;
                plan.point.shardGroup = 1;
                plan.point.zeroStage = 0;
                plan.point.schedule = PlanScheduleKind::None;
                plan.point.chunks = 1;
                plan.point.layers = {32};
                plan.point.recomputed.clear();
                plan.point.microBatch = 1;
                plan.point.microBatches = 128;
              }),
              HasSubstr("tp is 8, but tp=4 was demanded"));
  EXPECT_THAT(fault([](CostedPlan &plan) {
                plan.point.recompute = PointRecompute::None;
                plan.point.recomputed.clear();
                plan.point.microBatch = 128 / plan.point.dp;
                plan.point.microBatches = 1;
              }),
              HasSubstr("bytes"));
  EXPECT_THAT(fault([](CostedPlan &plan) { plan.peakBytes = 1LL << 40; }),
              HasSubstr("bytes at the peak"));
}

TEST(Conflict, NamesTheFewestDemandsAndWhatWouldMendThem) {
  PlanProblem problem = problemOf("llama-3-70b", 1024, "512xh100");
  for (const char *text : {"micro_batch=1", "zero=0", "pp=1", "tp=2"})
    demand(problem, text);
  const Planned planned(problem);
  ASSERT_FALSE(planned.find().fits());
  const PlanConflict conflict =
      explainConflict(problem, planned.times, planned.memory);
  std::vector<std::string> names;
  for (const PlanDemand &each : conflict.demands)
    names.push_back(each.text());
  EXPECT_EQ(names, (std::vector<std::string>{"zero=0", "pp=1", "tp=2"}));
  EXPECT_GT(conflict.leastBytes, conflict.capacity);
  const std::vector<std::string> lines = conflict.lines();
  EXPECT_THAT(lines.front(), HasSubstr("no plan with zero=0, pp=1, tp=2 fits"));
  EXPECT_THAT(lines.front(), HasSubstr("of 76.0"));
  EXPECT_THAT(lines, Contains(HasSubstr("possible without zero=0")));
  EXPECT_THAT(lines, Contains(HasSubstr("possible with devices")));
}

TEST(Conflict, AModelThatIsTooLargeIsNobodysDemand) {
  const Planned planned(problemOf("llama-3.1-405b", 8, "8xh100"));
  ASSERT_FALSE(planned.find().fits());
  const PlanConflict conflict =
      explainConflict(planned.problem, planned.times, planned.memory);
  EXPECT_TRUE(conflict.demands.empty());
  EXPECT_THAT(conflict.lines(), Contains(HasSubstr("nodes")));
}

// A head that each rank has whole does not fit where its part would: the answer
// names it, the budget, and by how many bytes; with room it is whole.
TEST(Conflict, NamesAPinThatDoesNotFit) {
  PlanProblem problem = problemOf("llama-3-8b", 128, "8xh100");
  for (const char *each : {"recompute=none", "pp=1", "cp=1", "offload=false",
                           "offload_saved=none", "micro_batch=1"})
    demand(problem, each);
  const std::size_t before = problem.demands.size();
  const std::vector<PlanDemand> pin =
      must(parsePin("lm_head=replicated", problem.model));
  ASSERT_EQ(pin.size(), 2u);
  EXPECT_EQ(pin[1].text(), "lm_head=replicated (tp=1)");
  problem.demands.insert(problem.demands.end(), pin.begin(), pin.end());
  const Planned roomy(problem);
  const PlanConflict none = explainConflict(problem, roomy.times, roomy.memory);
  problem.cluster.device.memoryBytes =
      none.leastBytes + problem.cluster.memoryReserveBytes;
  const PlanAnswer answer = Planned(problem).find({.top = 1});
  ASSERT_TRUE(answer.fits());
  EXPECT_EQ(answer.best.front().point.tp, 1);
  EXPECT_LT(answer.best.front().point.zeroStage, 3);
  problem.cluster.device.memoryBytes -= 1;
  const Planned planned(problem);
  ASSERT_FALSE(planned.find({.top = 1}).fits());
  const PlanConflict conflict =
      explainConflict(problem, planned.times, planned.memory);
  EXPECT_THAT(conflict.lines().front(), AllOf(HasSubstr("lm_head=replicated"),
                                              HasSubstr("of a device's budget"),
                                              HasSubstr(", 1 bytes too many")));
  EXPECT_THAT(
      conflict.relaxations,
      Contains(testing::Field(&Relaxation::text,
                              HasSubstr("without lm_head=replicated: "))));
  problem.demands.resize(before);
  EXPECT_TRUE(Planned(problem).find({.top = 1}).fits());
}

TEST(Conflict, PinsAreOfParametersThatThereAre) {
  const ModelConfig model = publicModel("llama-3-8b");
  EXPECT_EQ(must(parsePin("model.norm.weight=replicated", model)).size(), 1u);
  for (const auto &[text, word] :
       {std::pair{"lm_heat=replicated", "unknown parameter \"lm_heat\""},
        {"lm_head", "expected a parameter that is whole"},
        {"lm_head=split", "expected a parameter that is whole"}})
    EXPECT_THAT(parsePin(text, model).message(), HasSubstr(word)) << text;
}

TEST(Decisions, SayWhatAnotherChoiceCosts) {
  const Planned planned(problemOf("llama-3-8b", 128, "8xh100"));
  const CostedPlan best = planned.find({.top = 1}).best.front();
  const std::vector<PlanDecision> decisions =
      decisionsOf(planned.problem, best, planned.times, planned.memory, 200);
  EXPECT_GE(decisions.size(), 5u);
  for (const PlanDecision &decision : decisions) {
    EXPECT_EQ(decision.choice, choiceOf(best.point, decision.key));
    if (decision.runnerUp.empty())
      continue;
    EXPECT_NE(decision.runnerUp, decision.choice);
    EXPECT_GE(decision.costSeconds, 0);
    EXPECT_EQ(choiceOf(decision.point, decision.key), decision.runnerUp);
  }
}

// One search for all of them against one for each, where both go to the end.
// (Without recompute, a demand is one for all layers; one for something on the
// host opens what memory does not ask for.)
TEST(Decisions, RunnersUpAreTheBestThatASearchWithoutTheChoiceFinds) {
  std::mt19937 random(7);
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  int compared = 0;
  for (int i = 0; i < 20; ++i) {
    const Planned planned(randomProblem(random));
    const PlanAnswer answer = planned.find({.top = 2});
    if (!answer.fits())
      continue;
    const CostedPlan &best = answer.best.front();
    for (const PlanDecision &decision :
         decisionsOf(planned.problem, best, planned.times, planned.memory, all,
                     answer.ofChoices)) {
      if (decision.key == PlanKey::Recompute ||
          (decision.key == PlanKey::OffloadedSaved &&
           decision.choice == "none"))
        continue;
      PlanProblem other = planned.problem;
      other.demands.push_back({decision.key, true, {decision.choice}});
      const PlanAnswer found =
          findPlans(other, planned.times, nullptr, planned.memory, {.top = 1});
      const std::string what = std::string(planKeyName(decision.key)) +
                               ", problem " + std::to_string(i);
      ASSERT_EQ(found.fits(), !decision.runnerUp.empty()) << what;
      if (!found.fits())
        continue;
      ++compared;
      EXPECT_EQ(found.best.front().seconds - best.seconds, decision.costSeconds)
          << what << "\n"
          << found.best.front().point.text() << "\n"
          << decision.point.text();
    }
  }
  EXPECT_GT(compared, 60);
}
