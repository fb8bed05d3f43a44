#include "PlanModels.h"

#include "heddle/Plan/Plan.h"
#include "heddle/Support/Files.h"

#include <filesystem>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::filesystem::path examplePath(const std::string &name) {
  return std::filesystem::path(HEDDLE_SOURCE_DIR "/tools/examples/plans") /
         name;
}

Result<Plan> parsed(const std::string &text,
                    const ModelConfig *model = nullptr) {
  Result<Document> document =
      Document::parse(text, "p.json", Document::Syntax::Json);
  if (!document)
    return document.error();
  return readPlan(*document, model);
}

/// A plan for llama10m from what differs from the defaults.
Plan planOf(const std::string &members, const ModelConfig &model) {
  Result<Plan> plan = parsed("{" + members + "}", &model);
  EXPECT_TRUE(plan) << (plan ? "" : plan.message());
  return plan ? *plan : Plan();
}

std::string mesh(std::int64_t pp, std::int64_t dp, std::int64_t cp,
                 std::int64_t tp) {
  return fmt::format(
      R"("mesh": [["pp", {}], ["dp", {}], ["cp", {}], ["tp", {}]])", pp, dp, cp,
      tp);
}

TEST(PlanText, ExamplesAreCanonical) {
  for (const char *name :
       {"llama-10m-dp2-tp4.json", "llama-10m-pp2-dp2-tp2.json",
        "llama-10m-dualpipe-pp4-tp2.json", "llama-3.1-405b-16384.json",
        "llama-3.1-405b-tp8-dp1024.json"}) {
    Result<Plan> plan = readPlan(examplePath(name));
    ASSERT_TRUE(plan) << plan.message();
    Result<std::string> text = readFile(examplePath(name));
    ASSERT_TRUE(text);
    EXPECT_EQ(writePlan(*plan), *text) << name;
  }
}

TEST(PlanText, ReadsEveryKeyOfTheFullForm) {
  Result<Plan> plan = readPlan(examplePath("llama-3.1-405b-16384.json"));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ranks(), 16384);
  EXPECT_EQ(plan->globalBatch(), 2048);
  EXPECT_EQ(plan->stages.layers.size(), 16u);
  EXPECT_TRUE(plan->stages.layers[0][0].empty());
  EXPECT_EQ(plan->stages.layers[14][6], (PlanRange{109, 109}));
  EXPECT_EQ(plan->stages.head, (PlanPlace{15, 7}));
  EXPECT_EQ(plan->stages.schedule, PlanScheduleKind::Interleaved1F1B);
  EXPECT_EQ(plan->tensor.values[0].split.at("s"),
            std::vector<std::string>{"tp"});
  EXPECT_EQ(plan->zero.stage, 1);
  EXPECT_EQ(plan->recompute[0].values,
            (std::vector<std::string>{"n1", "n2", "m"}));
  EXPECT_EQ(plan->precision.master, "fp32");
  EXPECT_EQ(plan->buckets.gradientBytes, 209715200);
}

template <typename T>
T pick(std::mt19937 &random, std::initializer_list<T> choices) {
  return *(choices.begin() + random() % choices.size());
}

std::vector<PlanRule> randomRules(std::mt19937 &random) {
  std::vector<PlanRule> rules(random() % 4);
  for (PlanRule &rule : rules) {
    rule.match = pick<std::string>(
        random, {"*", "block.n[12]", "a \"quoted\" \\ name", "tab\there"});
    if (random() % 2)
      rule.split["s"] = {"cp", "tp.kv"};
    if (random() % 2)
      rule.split["b"] = {"dp"};
    if (random() % 2)
      rule.split["f"] = {};
  }
  return rules;
}

Plan randomPlan(std::mt19937 &random) {
  auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned long>(n));
  };
  Plan plan;
  for (const char *axis : {"tp", "pp", "cp", "dp"})
    plan.mesh.emplace_back(axis, 1 + below(4));
  plan.microBatch = 1 + below(9);
  plan.microBatches = 1 + below(9);
  const std::int64_t chunks = 1 + below(3);
  std::int64_t layer = 0;
  for (std::int64_t rank = 0; rank < plan.axisSize("pp"); ++rank) {
    std::vector<PlanRange> &row = plan.stages.layers.emplace_back();
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t count = below(4);
      row.push_back(count ? PlanRange{layer, layer + count - 1} : PlanRange());
      layer += count;
    }
  }
  plan.stages.head = {below(plan.axisSize("pp")), below(chunks)};
  if (random() % 2) {
    plan.stages.schedule = PlanScheduleKind::Table;
    plan.stages.table.assign(plan.stages.layers.size(), "F0 D0 O");
  } else {
    plan.stages.schedule =
        pick(random, {PlanScheduleKind::ZbH1, PlanScheduleKind::DualPipeV,
                      PlanScheduleKind::None});
  }
  plan.tensor = {randomRules(random), randomRules(random), randomRules(random)};
  plan.context = pick(random, {PlanContext::Ring, PlanContext::Ulysses,
                               PlanContext::AllGather});
  plan.zero.stage = below(4);
  plan.zero.shardGroup = plan.axisSize("dp");
  plan.zero.prefetch = below(3);
  plan.zero.reduce =
      pick(random, {PlanReduce::EveryMicroBatch, PlanReduce::Last});
  plan.zero.gather =
      pick(random, {PlanGather::EveryPass, PlanGather::OncePerStep});
  plan.recompute = {{{0, 3}, PlanRecomputeKind::Values, {"n1", "sg"}, 0},
                    {{4, 4}, PlanRecomputeKind::Full, {}, 0, random() % 2 == 0},
                    {{5, 6}, PlanRecomputeKind::Budget, {}, below(1000)}};
  plan.offload = {{"x1"}, random() % 2 == 0};
  plan.precision = {"fp8",   "fp8", "fp32", "bf16", "fp32",
                    "block", 1,     0,      "",     {{"*norm*", "bf16"}}};
  plan.buckets = {1 + below(1000), PlanBucketOrder::Forward};
  if (random() % 2)
    plan.overlapMemoryBytes = below(1000);
  return plan;
}

TEST(PlanText, ReadingWhatWasWrittenGivesThePlan) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    Plan plan = randomPlan(random);
    std::string text = writePlan(plan);
    Result<Plan> again = parsed(text);
    ASSERT_TRUE(again) << again.message() << "\n" << text;
    EXPECT_EQ(*again, plan) << text;
    EXPECT_EQ(writePlan(*again), text);
  }
}

TEST(PlanText, ShortestPlanExpands) {
  ModelConfig model = test::llama10m();
  Plan plan = planOf(
      mesh(1, 2, 1, 4) + R"(, "micro_batch": 2, "micro_batches": 2)", model);
  Result<Plan> full = readPlan(examplePath("llama-10m-dp2-tp4.json"));
  ASSERT_TRUE(full);
  EXPECT_EQ(writePlan(plan), writePlan(*full));
  EXPECT_EQ(planOf(mesh(1, 2, 1, 4) + R"(, "micro_batch": 2, "micro_batches": 2,
                   "tensor": "megatron", "recompute": "none", "overlap": "none",
                   "precision": "fp32", "stages": {"layers": [["0..5"]],
                   "schedule": "none"})",
                   model),
            *full);
}

TEST(PlanText, SequenceParallelAndSaveGathered) {
  ModelConfig model = test::llama10m();
  const std::vector<PlanRule> values = {
      {"block.x", {{"b", {"dp"}}, {"s", {"cp", "tp"}}}},
      {"block.delta", {{"b", {"dp"}}, {"s", {"cp", "tp"}}}}};
  const std::vector<PlanRule> saved = {{"block.n[12]", {{"b", {"dp"}}}}};
  for (const char *flags :
       {R"("tensor": "megatron", "sequence_parallel": true,
           "save_gathered": true)",
        R"("tensor": {"sequence_parallel": true, "save_gathered": true})",
        R"("tensor": {"values": [{"match": "block.*", "split": {"b": ["dp"]}}],
           "saved": []}, "sequence_parallel": true, "save_gathered": true)"}) {
    Plan plan = planOf(mesh(1, 2, 1, 4) + ", " + flags, model);
    std::vector<PlanRule> last(plan.tensor.values.end() - 2,
                               plan.tensor.values.end());
    EXPECT_EQ(last, values) << flags;
    EXPECT_EQ(plan.tensor.saved, saved) << flags;
  }
  Plan off =
      planOf(mesh(1, 2, 1, 4) + R"(, "sequence_parallel": false)", model);
  EXPECT_EQ(off.tensor.values[0].split.count("s"), 0u);
}

TEST(PlanText, RecomputeAndPrecisionShortForms) {
  ModelConfig model = test::llama10m();
  auto recompute = [&](const std::string &text) {
    return planOf(mesh(1, 1, 1, 1) + ", \"recompute\": " + text, model)
        .recompute.at(0);
  };
  EXPECT_EQ(recompute(R"("full")"),
            (PlanRecompute{{0, 5}, PlanRecomputeKind::Full, {}, 0}));
  EXPECT_EQ(recompute(R"("selective")").kind, PlanRecomputeKind::Selective);
  EXPECT_EQ(recompute(R"(["n1", "m"])"),
            (PlanRecompute{{0, 5}, PlanRecomputeKind::Values, {"n1", "m"}, 0}));
  EXPECT_EQ(recompute(R"({"budget_bytes": 77})"),
            (PlanRecompute{{0, 5}, PlanRecomputeKind::Budget, {}, 77}));
  EXPECT_FALSE(recompute(R"([{"full": true, "prune": false}])").prune);
  Plan bf16 = planOf(mesh(1, 1, 1, 1) + R"(, "precision": "bf16")", model);
  EXPECT_EQ(bf16.precision,
            (PlanPrecision{
                "bf16", "bf16", "fp32", "fp32", "fp32", "", 0, 0, "", {}}));
}

TEST(PlanText, ShortFormsNeedTheModel) {
  Result<Plan> plan = parsed("{" + mesh(1, 1, 1, 1) + "}");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.message(), HasSubstr("the model is known"));
}

// Each message names file, line, what was found and what was expected.
TEST(PlanText, MalformedPlansAreRefused) {
  const std::string good = mesh(1, 2, 1, 4) + ",\n";
  struct Case {
    std::string text, message;
  };
  const Case cases[] = {
      {"[]", "p.json:1: found a list of 0"},
      {"{}", "p.json:1: key 'mesh': found nothing"},
      {"{" + mesh(1, 0, 1, 4) + "}", "axis \"dp\" has size 0"},
      {R"({"mesh": [["pp", 1], ["dp", 2], ["tp", 1]]})",
       "axis \"cp\" is missing"},
      {R"({"mesh": [["pp", 1], ["ddp", 2]]})", "did you mean \"dp\""},
      {R"({"mesh": [["pp", 1], ["pp", 2]]})", "\"pp\" is there twice"},
      {R"({"mesh": [["pp", "1"]]})", "expected an axis and its size"},
      {R"({"mesh": [["pp", 1048576], ["dp", 1048576], ["cp", 1], ["tp", 1]]})",
       "more than 2^32 ranks"},
      {"{" + good + "\"micro_batchess\": 2}",
       "p.json:2: unknown key 'micro_batchess'; did you mean 'micro_batches'?"},
      {"{" + good + "\"micro_batch\": 0}",
       "p.json:2: key 'micro_batch': found 0, expected an integer"},
      {"{" + good + "\"micro_batches\": 1.5}",
       "found 1.5, expected an integer"},
      {"{" + good + "\"version\": 2}", "p.json:2: key 'version': found 2"},
      {"{" + good + R"("stages": {"layers": [["5..0"]]}})",
       "p.json:2: key 'stages.layers': found \"5..0\""},
      {"{" + good + R"("stages": {"layers": [[0]]}})",
       "expected layers as a string"},
      {"{" + good + R"("stages": {"layers": [["0"], ["1"]]}})",
       "2 ranks of pp are listed, mesh has pp = 1"},
      {"{" + good + R"("stages": {"layers": [["0..5"]], "head": [1, 0]}})",
       "found [1, 0]"},
      {"{" + good + R"("stages": {"layers": [["0"]], "schedule": "gpip"}})",
       "key 'stages.schedule'"},
      {"{" + good +
           R"("stages": {"layers": [["0"]], "schedule": {"table": ["O", "O"]}}})",
       "2 rows, expected one per rank of pp: 1"},
      {"{" + good + R"("tensor": "megatrom"})", "key 'tensor'"},
      {"{" + good + R"("tensor": {"parameters": [{"match": "*"}]}})",
       "key 'tensor.parameters"},
      {"{" + good +
           R"("tensor": {"parameters": [{"match": "[a", "split": {}}]}})",
       "match"},
      {"{" + good +
           R"("tensor": {"parameters": [{"match": "*", "split": {"h": []}}]}})",
       "unknown factor 'h'"},
      {"{" + good +
           R"("tensor": {"values": [{"match": "*", "split": {"b": ["dq"]}}]}})",
       "unknown axis \"dq\", did you mean \"dp\""},
      {"{" + good +
           R"("tensor": {"values": [{"match": "*", "split": {"b": ["dp"], "s": ["dp"]}}]}})",
       "axis \"dp\" is used twice, on factors 'b' and 's'"},
      {"{" + good + R"("tensor": {"paramters": []}})",
       "did you mean 'parameters'"},
      {"{" + good + R"("zero": {"stage": 4}})",
       "key 'zero.stage': found 4, expected an integer from 0 to 3"},
      {"{" + mesh(1, 6, 1, 1) + R"(, "zero": {"shard_group": 4}})",
       "expected a divisor of dp x cp = 6"},
      {"{" + good + R"("recompute": [{"full": true, "values": []}]})",
       "expected one of values, selective, full, budget_bytes"},
      {"{" + good + R"("recompute": {"values": ["m"], "prune": false}})",
       "'recompute.prune': is of what \"full\" and \"selective\" compute"},
      {"{" + good + R"("precision": {"compute": "fp31"}})",
       "key 'precision.compute'"},
      {"{" + good + R"("buckets": {"gradient_bytes": -1}})",
       "key 'buckets.gradient_bytes': found -1"},
      {"{" + good + R"("overlap": {"memory_bytes": "lots"}})",
       "key 'overlap.memory_bytes': found \"lots\""},
      {"{" + good + R"("context": "rings"})", "key 'context'"},
      {"{" + good + "\"mesh\": 1}", "p.json:2:"},
  };
  ModelConfig model = test::llama10m();
  for (const Case &bad : cases) {
    Result<Plan> plan = parsed(bad.text, &model);
    ASSERT_FALSE(plan) << bad.text;
    EXPECT_THAT(plan.message(), HasSubstr(bad.message)) << bad.text;
    EXPECT_THAT(plan.message(), HasSubstr("p.json:"));
  }
}

std::string checked(const Plan &plan, const ModelConfig &model,
                    std::int64_t globalBatch,
                    const Cluster *cluster = nullptr) {
  TrainSettings train = test::batchOf(globalBatch);
  train.precision = {plan.precision.recipe};
  auto result = checkPlan(plan, model, train, cluster);
  if (!result)
    return "error: " + result.message();
  std::string text;
  for (const PlanWarning &warning : *result)
    text += "warning: " + warning.message + "\n";
  return text;
}

TEST(PlanCheck, ExamplesForDpAndTpAreLegal) {
  Result<Plan> small = readPlan(examplePath("llama-10m-dp2-tp4.json"));
  EXPECT_EQ(checked(*small, test::llama10m(), 8), "");
  Result<Plan> large = readPlan(examplePath("llama-3.1-405b-tp8-dp1024.json"));
  EXPECT_EQ(checked(*large, test::llama405b(), 2048), "");
  Result<Plan> pipelined = readPlan(examplePath("llama-3.1-405b-16384.json"));
  EXPECT_EQ(checked(*pipelined, test::llama405b(), 2048), "");
}

TEST(PlanCheck, MegatronCoversEveryFamily) {
  ModelConfig qwen2 = test::llama10m(), qwen3 = qwen2, biased = qwen2;
  qwen2.family = Family::Qwen2;
  qwen2.qkvBias = true;
  qwen2.tiedEmbeddings = true;
  qwen3.family = Family::Qwen3;
  qwen3.qkNorm = true;
  biased.qkvBias = biased.outputBias = biased.mlpBias = true;
  for (const ModelConfig &model : {test::llama10m(), qwen2, qwen3, biased}) {
    Plan plan = planOf(mesh(1, 1, 1, 4), model);
    EXPECT_EQ(checked(plan, model, 1), "");
  }
  Plan plan = planOf(mesh(1, 1, 1, 4), test::gpt2());
  EXPECT_EQ(checked(plan, test::gpt2(), 1), "");
  EXPECT_EQ(planOf(mesh(1, 1, 1, 4), test::llama10m()).tensor.parameters.size(),
            5u);
}

// Of the public configurations those that are compiled.
TEST(PlanCheck, MegatronFitsPublicModels) {
  int models = 0;
  for (const auto &file : std::filesystem::directory_iterator(
           HEDDLE_SOURCE_DIR "/test/cases/hf_configs")) {
    Result<ModelConfig> model = readModelConfig(file.path());
    if (file.path().extension() != ".json" || !model || whyNotCompiled(*model))
      continue;
    ++models;
    for (std::int64_t tp : {1, 2, 3, 8, 16}) {
      Plan plan = planOf(mesh(1, 2, 1, tp), *model);
      EXPECT_THAT(checked(plan, *model, 2), ::testing::Not(HasSubstr("error")))
          << file.path() << " tp " << tp;
      Result<Plan> again = parsed(writePlan(plan));
      ASSERT_TRUE(again);
      EXPECT_EQ(*again, plan);
    }
  }
  EXPECT_GE(models, 10);
}

TEST(PlanCheck, BatchNamesTheNumbers) {
  ModelConfig model = test::llama10m();
  Plan plan = planOf(
      mesh(1, 2, 1, 4) + R"(, "micro_batch": 3, "micro_batches": 4)", model);
  EXPECT_EQ(checked(plan, model, 8),
            "error: plan: a step has 24 sequences (dp 2 x micro_batches 4 x "
            "micro_batch 3), but global_batch is 8; change one of them");
}

TEST(PlanCheck, ClusterBoundsTheRanks) {
  ModelConfig model = test::llama10m();
  Plan plan = planOf(mesh(1, 2, 1, 4), model);
  Cluster cluster;
  cluster.name = "c";
  cluster.devicesPerNode = 4;
  EXPECT_THAT(checked(plan, model, 2, &cluster),
              HasSubstr("error: plan: mesh: 8 ranks (pp 1 x dp 2 x cp 1 x tp "
                        "4), but cluster \"c\" has 4 devices (1 nodes x 4)"));
  cluster.nodes = 3;
  EXPECT_THAT(checked(plan, model, 2, &cluster),
              HasSubstr("warning: 4 of 12 devices of cluster \"c\" are idle"));
}

TEST(PlanCheck, LayersAreCoveredOnceByEachCopy) {
  ModelConfig model = test::llama10m();
  auto withStages = [&](int pp, const std::string &stages) {
    return checked(
        planOf(mesh(pp, 1, 1, 1) + ", \"stages\": {" + stages + "}", model),
        model, 1);
  };
  auto withLayers = [&](const std::string &layers) {
    return withStages(1, "\"layers\": " + layers);
  };
  EXPECT_THAT(withLayers(R"([["0..4"]])"), HasSubstr("layer 5 is in no range"));
  EXPECT_THAT(withLayers(R"([["0..6"]])"), HasSubstr("beyond the model's 6"));
  EXPECT_THAT(withLayers(R"([["0..3", "3..5"]])"),
              HasSubstr("layer 3 is in \"3..5\" and in another range"));
  EXPECT_EQ(withLayers(R"([["0..2", "3..5"]])"), "");
  for (std::string two : {R"("dualpipe")", R"({"table": ["@0'", "O"]})"}) {
    two = R"("head": [1, 0], "schedule": )" + two + R"(, "layers": [["0..2",)";
    EXPECT_EQ(withStages(2, two + R"("3..5"], ["3..5", "0..2"]])"), "");
    EXPECT_THAT(withStages(2, two + R"("3..5"], ["3..5", "0..1"]])"),
                HasSubstr("layer 2 is in one range, expected two"));
  }
}

TEST(PlanCheck, UnsupportedFeaturesAreNamedWhereActive) {
  ModelConfig model = test::llama10m();
  auto with = [&](std::int64_t dp, std::int64_t cp, std::int64_t tp,
                  const std::string &members) {
    return checked(
        planOf(mesh(1, dp, cp, tp) + ", \"micro_batches\": 2, " + members,
               model),
        model, dp * 2);
  };
  const std::string tail = " is not supported yet";
  EXPECT_THAT(with(1, 2, 1, R"("context": "none")"),
              HasSubstr("context parallelism (cp = 2)" + tail));
  EXPECT_THAT(with(1, 1, 1, R"("context": "ring")"),
              HasSubstr("context \"ring\"" + tail));
  EXPECT_EQ(with(2, 1, 1, R"("zero": {"stage": 1})"), "");
  EXPECT_EQ(with(1, 1, 1, R"("zero": {"stage": 3})"), "");
  EXPECT_EQ(with(2, 1, 1, R"("zero": {"reduce": "every_micro_batch"})"), "");
  EXPECT_EQ(with(1, 1, 1, R"("recompute": "full")"), "");
  EXPECT_EQ(with(1, 1, 1, R"("offload": {"optimizer": true})"), "");
  EXPECT_THAT(with(1, 1, 1, R"("precision": {"reduce": "bf16"})"),
              HasSubstr("precision.reduce \"bf16\" in recipe \"fp32\"" + tail));
  EXPECT_EQ(with(1, 1, 1, R"("overlap": {"memory_bytes": 0})"), "");
  EXPECT_EQ(with(1, 1, 1, R"("stages": {"layers": [["0..5"]],
                             "schedule": "gpipe"})"),
            "");
}

TEST(PlanCheck, NarrowFormatsHaveAMasterAndAreAllowedByTheSettings) {
  ModelConfig model = test::llama10m();
  auto with = [&](const std::string &precision,
                  const std::vector<std::string> &allowed) -> std::string {
    TrainSettings train;
    train.globalBatch = 1;
    train.sequenceLength = 64;
    train.precision = allowed;
    auto result = checkPlan(
        planOf(mesh(1, 1, 1, 1) + ", \"precision\": " + precision, model),
        model, train);
    return !result           ? result.message()
           : result->empty() ? ""
                             : result->back().message;
  };
  EXPECT_EQ(with(R"({"recipe": "fp16", "reduce": "fp16"})", {"fp16"}), "");
  EXPECT_EQ(with(R"({"recipe": "fp8", "gradients": "bf16"})", {"fp8"}), "");
  EXPECT_EQ(with(R"("nvfp4")", {"bf16", "nvfp4"}), "");
  EXPECT_THAT(with(R"("nvfp4")", {"fp8"}),
              HasSubstr("precision recipe \"nvfp4\", but the training settings "
                        "allow fp8; add it to precision there"));
  EXPECT_EQ(with(R"({"recipe": "bf16", "gradients": "bf16",
                     "reduce": "bf16"})",
                 {"fp32", "bf16"}),
            "");
  EXPECT_THAT(with(R"({"recipe": "fp16", "reduce": "bf16"})", {"fp16"}),
              HasSubstr("set it to \"fp32\" or \"fp16\""));
  EXPECT_THAT(with(R"("bf16")", {"fp32", "fp8"}),
              HasSubstr("the training settings allow fp32, fp8; add it to "));
  EXPECT_THAT(with(R"({"recipe": "bf16", "master": "bf16"})", {"bf16"}),
              HasSubstr("precision.master \"bf16\" in recipe \"bf16\" is not "
                        "supported yet; set it to \"fp32\" or \"none\""));
  EXPECT_THAT(with(R"({"recipe": "bf16", "master": "none"})", {"bf16"}),
              HasSubstr("less than 1/512 of a weight is lost"));
  EXPECT_THAT(with(R"({"recipe": "fp32", "master": "fp32"})", {"fp32"}),
              HasSubstr("fp32 parameters are their own master"));
  EXPECT_THAT(with(R"({"recipe": "bf16", "compute": "fp16"})", {"bf16"}),
              HasSubstr("compute \"fp16\" in recipe \"bf16\""));
  EXPECT_THAT(with(R"({"recipe": "bf16", "reduce": "fp16"})", {"bf16"}),
              HasSubstr("precision.reduce \"fp16\" in recipe \"bf16\" is not "
                        "supported yet; set it to \"fp32\" or \"bf16\""));
}

TEST(PlanCheck, IdleRanksAreToldWhereThereAreAny) {
  ModelConfig model = test::llama10m();
  auto over = [&](const std::vector<std::string> &axes, const char *zero) {
    Plan plan = planOf(mesh(1, 4, 1, 2) + zero, model);
    for (const char *value : {"block.x", "block.delta"})
      plan.tensor.values.push_back({value, {{"b", axes}}});
    plan.microBatch = 2;
    return checked(plan, model, 8);
  };
  const char *hsdp = R"(, "zero": {"stage": 1, "shard_group": 2})";
  for (const char *zero : {"", hsdp}) {
    EXPECT_EQ(over({"dp"}, zero), "");
    EXPECT_EQ(over({"dp", "tp"}, zero), "");
  }
  EXPECT_THAT(over({"dp.shard"}, hsdp), HasSubstr("its 4 ranks do the same"));
}

TEST(PlanCheck, RulesMustFitTheModel) {
  ModelConfig model = test::llama10m();
  auto withRule = [&](const std::string &match, const std::string &split) {
    Plan plan =
        planOf(mesh(1, 1, 1, 4) + fmt::format(R"(, "tensor": {{"parameters": [
              {{"match": "*", "split": {{}}}},
              {{"match": "{}", "split": {}}}]}})",
                                              match, split),
               model);
    return checked(plan, model, 1);
  };
  EXPECT_THAT(withRule("*norm.weight", R"({"f": ["tp"]})"),
              HasSubstr("splits factor 'f' of parameter "
                        "\"model.layers.0.input_layernorm.weight\", which has "
                        "the factors d"));
  EXPECT_THAT(withRule("*.1.mlp.up_proj.weight", R"({"f": ["tp"]})"),
              HasSubstr("layers of different layouts are not supported yet"));
  EXPECT_THAT(withRule("*nothing", "{}"),
              HasSubstr("warning: rule \"*nothing\" of tensor.parameters "
                        "matches none"));
  // 4 KV heads take all of tp = 4: tp.copy is nothing.
  EXPECT_EQ(withRule("*q_proj*", R"({"g": ["tp"], "r": ["tp.copy"]})"), "");
  EXPECT_EQ(withRule("*mlp.up_proj*", R"({"d": ["tp"]})"), "");
  Plan none =
      planOf(mesh(1, 1, 1, 1) + R"(, "tensor": {"parameters": []})", model);
  EXPECT_THAT(checked(none, model, 1),
              HasSubstr("no rule of tensor.parameters matches parameter "
                        "\"model.embed_tokens.weight\""));
  Plan twice = planOf(mesh(1, 1, 1, 4), model);
  twice.tensor.parameters.push_back(
      {"*o_proj*", {{"d", {"tp"}}, {"g", {"tp"}}}});
  EXPECT_THAT(checked(twice, model, 1), HasSubstr("axis \"tp\" twice"));
  Plan block = planOf(mesh(1, 1, 1, 1), model);
  block.tensor.values.push_back({"blok.x", {}});
  EXPECT_THAT(checked(block, model, 1), HasSubstr("unknown segment \"blok\""));
  block.tensor.values.back() = {"block.x", {{"f", {"tp"}}}};
  EXPECT_THAT(checked(block, model, 1),
              HasSubstr("splits factor 'f' of value \"block.x\""));
  for (const char *axis : {"dp.shard", "ep"}) {
    block.tensor.values.back() = {"block.q", {{"b", {axis}}}};
    EXPECT_THAT(
        checked(block, model, 1),
        HasSubstr("in this mesh a tensor can be split over dp, cp, tp"));
    EXPECT_THAT(withRule("*up_proj*", fmt::format(R"({{"f": ["{}"]}})", axis)),
                HasSubstr("a tensor can be split over"));
  }
}

TEST(PlanCheck, SequencesAreCutAndKeysAreNot) {
  ModelConfig model = test::llama10m();
  for (const char *members :
       {R"("sequence_parallel": true)",
        R"("sequence_parallel": true, "save_gathered": true)"})
    for (std::int64_t tp : {1, 2, 4})
      EXPECT_EQ(
          checked(planOf(mesh(1, 2, 1, tp) + ", " + members, model), model, 2),
          "");
  auto with = [&](const std::string &factor) {
    Plan plan = planOf(mesh(1, 1, 1, 3), model);
    plan.tensor.values.push_back({"block.qr", {{factor, {"tp"}}}});
    return checked(plan, model, 1);
  };
  // Padding is no document's: nobody sees it.
  EXPECT_THAT(with("s"), HasSubstr("the sequence length is padded from 32 to "
                                   "33: 3.1 % of it is wasted"));
  EXPECT_THAT(with("k"), HasSubstr("a head is whole in every op"));
  EXPECT_THAT(with("t"), HasSubstr("the keys of attention are whole"));
}

TEST(PlanCheck, FactorsThatMayNotBePadded) {
  ModelConfig model = test::llama(2, 30, 4, 4, 6, 64, 256);
  Plan plan = planOf(mesh(1, 1, 1, 4), model);
  plan.tensor.parameters.push_back({"*mlp.up_proj*", {{"d", {"tp"}}}});
  EXPECT_THAT(checked(plan, model, 1),
              HasSubstr("factor 'd' of size 30 cannot be cut"));
  Plan batch = planOf(mesh(1, 1, 1, 4), model);
  batch.tensor.values.push_back({"block.x", {{"b", {"dp", "tp"}}}});
  EXPECT_THAT(checked(batch, model, 1),
              HasSubstr("factor 'b' of size 1 cannot be cut"));
}

TEST(PlanCheck, WasteIsNamedInPerCent) {
  ModelConfig model = test::llama(2, 32, 3, 12, 8, 96, 251);
  std::string text = checked(planOf(mesh(1, 1, 1, 8), model), model, 1);
  EXPECT_THAT(text, HasSubstr("heads are padded from 12 to 16: 33.3 %"));
  EXPECT_THAT(text, HasSubstr("the vocabulary is padded from 251 to 256: 2.0"));
  text = checked(planOf(mesh(1, 1, 1, 4), model), model, 1);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("heads")));
  Plan idle = planOf(mesh(1, 2, 1, 4) +
                         R"(, "tensor": {"values": [], "parameters":
                            [{"match": "*", "split": {}}]})",
                     model);
  text = checked(idle, model, 2);
  EXPECT_THAT(text, HasSubstr("no parameter is split over tp: its 4 ranks"));
  EXPECT_THAT(text, HasSubstr("splits block.x along b over dp: its 2 ranks"));
}

} // namespace
} // namespace heddle
