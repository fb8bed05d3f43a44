#include "PlannerProblems.h"

#include "heddle/Planner/Space.h"
#include "heddle/Planner/Verify.h"

#include <gmock/gmock.h>

#include <set>

using namespace heddle;
using namespace heddle::test;
using testing::HasSubstr;

TEST(Demands, AreReadAndWrittenAlike) {
  for (const char *text : {"tp=8", "tp=4,8", "zero!=3", "order=dp.pp.cp.tp",
                           "sp=true", "schedule=zb_v", "prefetch=0"})
    EXPECT_EQ(must(parseDemand(text)).text(), text);
  const PlanDemand four = must(parseDemand("tp=4,8"));
  EXPECT_TRUE(four.allows("8"));
  EXPECT_FALSE(four.allows("2"));
  const PlanDemand notThree = must(parseDemand("zero!=3"));
  EXPECT_TRUE(notThree.allows("2"));
  EXPECT_FALSE(notThree.allows("3"));
}

TEST(Demands, SayWhatIsWrong) {
  const std::pair<const char *, const char *> rows[] = {
      {"tp", "found \"tp\", expected a choice and its value"},
      {"=8", "expected a choice and its value"},
      {"tp=", "expected a choice and its value"},
      {"tp=0", "tp: found \"0\", expected an integer of at least 1"},
      {"tp=-1", "expected an integer of at least 1"},
      {"tp=8x", "found \"8x\""},
      {"tp=08", "found \"08\""},
      {"tp=8,", "tp: found \"\""},
      {"zero=4", "zero: found \"4\", expected one of 0, 1, 2, 3"},
      {"sp=yes", "expected one of true, false"},
      {"order=tp.pp", "expected pp, dp, cp and tp, outermost first"},
      {"schedul=gpipe", "did you mean 'schedule'?"},
      {"order=pp.pp.cp.tp", "order: found"}};
  for (const auto &[text, message] : rows) {
    Result<PlanDemand> demand = parseDemand(text);
    ASSERT_FALSE(demand) << text;
    EXPECT_THAT(demand.message(), HasSubstr(message));
  }
}

TEST(Problems, CheckWhatNoPlanCanMend) {
  PlanProblem problem;
  problem.model = publicModel("llama-3-8b");
  problem.train = adamW(8192, 8);
  problem.cluster = exampleCluster("8xh100");
  EXPECT_TRUE(problem.check());
  problem.cluster.device.peakFlops.clear();
  EXPECT_THAT(problem.check().message(), HasSubstr("has no peak_tflops"));
  problem.cluster = exampleCluster("8xh100");
  problem.model = publicModel("gpt2");
  EXPECT_THAT(problem.check().message(), HasSubstr("learned positions"));
}

// One number more than stages is on the first one; the head counts as layers.
TEST(Space, CutsLayers) {
  using Layers = std::vector<std::int64_t>;
  PlanPoint point = {.pp = 4};
  EXPECT_EQ(cutLayers(9, point, 0), (Layers{3, 2, 2, 2}));
  EXPECT_EQ(cutLayers(8, point, 1.2), (Layers{3, 2, 2, 1}));
  point.chunks = 2;
  EXPECT_EQ(cutLayers(8, point, 0), (Layers{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(cutLayers(7, point, 1), (Layers{1, 1, 1, 1, 1, 1, 1, 0}));
  // 405B: 128256 x 16384 against a layer's 3.19 x 10^9 and its attention.
  EXPECT_NEAR(headInLayers(publicModel("llama-3.1-405b"), 8192), 0.61, 0.02);
}

static std::set<std::string> textsOf(const PlanSpace &space,
                                     std::int64_t &number) {
  std::set<std::string> texts;
  for (const PlanPoint &mesh : space.meshes())
    for (const PlanPoint &schedule : space.schedules(mesh))
      for (const PlanStorage &each : space.storages(schedule)) {
        const PlanPoint storage = each.on(schedule);
        ++number;
        std::string text;
        for (int key = 0; key < planKeys; ++key)
          text += choiceOf(storage, static_cast<PlanKey>(key)) + " ";
        for (std::int64_t layers : storage.layers)
          text += std::to_string(layers) + ",";
        texts.insert(text);
      }
  return texts;
}

TEST(Space, ListsEachPlanOnceAndOnlyLegalOnes) {
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    const PlanProblem problem = randomProblem(random);
    const PlanSpace space(problem);
    std::int64_t number = 0;
    EXPECT_EQ(std::ssize(textsOf(space, number)), number);
    for (const PlanPoint &mesh : space.meshes()) {
      EXPECT_LE(mesh.ranks(), problem.cluster.devices());
      EXPECT_EQ(mesh.dp * mesh.microBatch * mesh.microBatches,
                problem.train.globalBatch);
    }
  }
}

TEST(Space, KeepsDemands) {
  PlanProblem problem;
  problem.model = publicModel("llama-3-8b");
  problem.train = adamW(8192, 16);
  problem.cluster = exampleCluster("8xh100");
  for (const char *text : {"tp=2,4", "pp!=4", "zero=1", "sp=false",
                           "schedule!=zb_h1", "micro_batch=1"})
    demand(problem, text);
  const PlanSpace space(problem);
  int plans = 0;
  for (const PlanPoint &mesh : space.meshes())
    for (const PlanPoint &schedule : space.schedules(mesh))
      for (const PlanStorage &storage : space.storages(schedule)) {
        EXPECT_TRUE(problem.allows(storage.on(schedule)))
            << storage.on(schedule).text();
        ++plans;
      }
  EXPECT_GT(plans, 0);
  // Two demands that nothing meets; a tp that pads heads where it is asked for.
  demand(problem, "tp!=2,4");
  EXPECT_TRUE(PlanSpace(problem).meshes().empty());
  problem.demands.clear();
  demand(problem, "tp=3");
  problem.cluster.nodes = 3;
  problem.train.globalBatch = 8;
  EXPECT_FALSE(PlanSpace(problem).meshes().empty());
}

// A point is told as a plan.json; nothing of it is lost on the way there and
// back, nor in the text.
TEST(Space, PointsAndPlansAreTheSame) {
  std::mt19937 random(11);
  std::int64_t points = 0;
  for (int i = 0; i < 12; ++i) {
    PlanProblem problem = randomProblem(random);
    if (i % 3 == 0) {
      problem.model = publicModel("qwen2-moe-a2.7b");
      problem.cluster.device.memoryBytes = std::int64_t{60} << 30;
    }
    for (const char *text :
         {"schedule=none,gpipe,one_f_one_b,interleaved_1f1b,zb_h1,zb_h2,zb_v,"
          "v_half,v_min,dualpipe_v",
          "chunks=1,2,3", "context!=ulysses", "gradients=fp32,bf16",
          "reduce_format=fp32,bf16"})
      if (i % 2)
        demand(problem, text);
    const Planned planned(problem);
    const PlanSpace space(problem);
    auto check = [&](const PlanPoint &point) {
      const Plan plan = planOf(point, problem.model);
      Result<PlanPoint> again = pointOf(plan, problem.model);
      ASSERT_TRUE(again) << point.text() << ": " << again.message();
      ASSERT_EQ(*again, point) << point.text();
      ++points;
      if (points % 50)
        return;
      Result<Plan> read =
          readPlan(parseJson(writePlan(plan), "plan.json"), &problem.model);
      ASSERT_TRUE(read) << point.text() << ": " << read.message();
      ASSERT_EQ(*read, plan);
    };
    for (const PlanPoint &mesh : space.meshes())
      for (const PlanPoint &schedule : space.schedules(mesh)) {
        if (random() % 50 || points > 150 * (i + 1))
          continue;
        for (const PlanStorage &storage : space.storages(schedule)) {
          const PlanPoint point = storage.on(schedule);
          for (PointRecompute kind : space.recomputes()) {
            PlanPoint fitted = point;
            fitted.recompute = kind;
            if (!planned.memory.recomputeToFit(
                    fitted, problem.cluster.planBytesPerDevice()))
              continue;
            for (const auto &order : space.orders(fitted)) {
              fitted.order = order;
              check(fitted);
            }
          }
        }
      }
  }
  EXPECT_GT(points, 1000);
}

// bf16 is a format of gradients where it is asked for and the settings list it.
TEST(Space, HasFormatsOfGradientsThatAreAskedFor) {
  PlanProblem problem;
  problem.model = publicModel("llama-3-8b");
  problem.train = adamW(8192, 128);
  problem.cluster = exampleCluster("8xh100");
  auto formats = [&] {
    std::set<std::string> found;
    for (const PlanPoint &mesh : PlanSpace(problem).meshes())
      found.insert(mesh.gradients + " " + mesh.reduceFormat);
    return found;
  };
  using Formats = std::set<std::string>;
  EXPECT_EQ(formats(), Formats{"fp32 fp32"});
  const double whole = Planned(problem).find({.top = 1}).best.front().seconds;
  demand(problem, "reduce_format=fp32,bf16");
  EXPECT_EQ(formats(), (Formats{"fp32 fp32", "fp32 bf16"}));
  const PlanAnswer answer = Planned(problem).find({.top = 1});
  EXPECT_LE(answer.best.front().seconds, whole);
  EXPECT_TRUE(
      verifyPlan(problem, answer.best.front(), Planned(problem).memory));
  demand(problem, "gradients=bf16");
  EXPECT_EQ(formats(), (Formats{"bf16 fp32", "bf16 bf16"}));
  problem.train.precision = {"fp8"};
  EXPECT_EQ(formats(), Formats{});
}

// 7 devices: no legal plan has 7 of 8 sequences; 4 of them are used.
TEST(Space, UsesAsManyDevicesAsItCan) {
  PlanProblem problem;
  problem.model = publicModel("llama-3-8b");
  problem.train = adamW(8192, 8);
  problem.cluster = exampleCluster("8xh100");
  problem.cluster.devicesPerNode = 7;
  demand(problem, "pp=1");
  demand(problem, "cp=1");
  for (const PlanPoint &mesh : PlanSpace(problem).meshes())
    EXPECT_EQ(mesh.ranks(), 4);
  EXPECT_FALSE(PlanSpace(problem).meshes().empty());
}
