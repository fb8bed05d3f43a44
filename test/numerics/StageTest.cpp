//===- StageTest.cpp - pipeline stages against one device, by phase -------===//
//
// Interpreter, exact reading, after every phase. What a plan with stages may
// do that one without does not is here by name, one plan each; tools/matrix
// draws others.
//
//===----------------------------------------------------------------------===//

#include "test/TestPlan.h"

#include "dialects/Transformer/Transformer.h"
#include "heddle/Schedule/CheckStages.h"
#include "passes/Interpret/Compare.h"
#include "passes/Pipelines/Pipelines.h"

#include <gtest/gtest.h>

using namespace heddle;
using test::modelOf;

namespace {

const char *const kTied =
    R"({"model_type": "qwen2", "hidden_size": 8, "intermediate_size": 13, "num_hidden_layers": 5,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 29, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";
const char *const kUntied =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 4,
      "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 24, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";
const char *const kGpt2 =
    R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 3, "n_head": 2, "n_positions": 32, "vocab_size": 22,
      "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})";

struct Case {
  const char *name;
  const char *config;
  test::PlanSizes sizes;
  const char *stages;  ///< of the plan
  const char *members; ///< other ones
  DropoutRates dropout = {};
};

const char *const kZero3 =
    R"(, "overlap": {"memory_bytes": 1000000}, "buckets": {"gradient_bytes": 300},
       "zero": {"stage": 3, "shard_group": 2, "prefetch": 1, "reduce": "every_micro_batch", "gather": "every_pass"})";

const Case kCases[] = {
    {"EqualStages",
     kUntied,
     {2, 1, 1, 1, 4},
     R"({"layers": [["0..1"], ["2..3"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"})",
     ""},
    {"OneStage",
     kTied,
     {1, 1, 2, 1, 3},
     R"({"layers": [["0..4"]], "embedding": [0, 0], "head": [0, 0], "schedule": "gpipe"})",
     ""},
    {"EndsWithoutLayers",
     kTied,
     {4, 1, 1, 1, 3},
     R"({"layers": [[""], ["0..3"], ["4"], [""]], "embedding": [0, 0], "head": [3, 0], "schedule": "zb_h1"})",
     ""},
    {"EmptyStageInside",
     kUntied,
     {3, 2, 1, 1, 2},
     R"({"layers": [["0"], [""], ["1..3"]], "embedding": [0, 0], "head": [2, 0], "schedule": "zb_h2"})",
     ""},
    {"FewerMicroBatchesThanStages",
     kGpt2,
     {4, 1, 1, 1, 1},
     R"({"layers": [["0"], ["1"], [""], ["2"]], "embedding": [0, 0], "head": [3, 0], "schedule": "one_f_one_b"})",
     ""},
    {"ThreeChunksEach",
     kTied,
     {2, 1, 2, 1, 3},
     R"({"layers": [["0", "2", ""], ["1", "", "3..4"]], "embedding": [0, 0], "head": [1, 2],
         "schedule": "interleaved_1f1b"})",
     R"(, "sequence_parallel": true)"},
    {"BothEndsAtOnePlace",
     kTied,
     {2, 2, 1, 1, 4},
     R"({"layers": [["0", "4"], ["1", "2..3"]], "embedding": [0, 0], "head": [0, 1], "schedule": "zb_v"})",
     ""},
    {"TwoStreams",
     kUntied,
     {2, 1, 2, 1, 4},
     R"({"layers": [["0", "3"], ["1", "2"]], "embedding": [0, 0], "head": [0, 1], "schedule": "dualpipe_v"})",
     R"(, "sequence_parallel": true, "save_gathered": true)"},
    {"RowsOfAUser",
     kGpt2,
     {2, 1, 1, 1, 2},
     R"({"layers": [["0"], ["1..2"]], "embedding": [0, 0], "head": [1, 0],
         "schedule": {"table": ["F1 F0 D1 B0 W0 O", "F1 B1 F0 W1 D0 O"]}})",
     ""},
    {"SharedTableGatheredAtBothEnds",
     kTied,
     {2, 2, 1, 1, 2},
     R"({"layers": [["0..1"], ["2..4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"})",
     R"(, "zero": {"stage": 3, "gather": "every_micro_batch"})"},
    {"StatesInRuns",
     kGpt2,
     {2, 2, 2, 1, 3},
     R"({"layers": [["0"], ["1..2"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"})",
     kZero3},
    {"CopiesOfRuns",
     kTied,
     {2, 4, 1, 1, 2},
     R"({"layers": [["0..3"], ["4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "gpipe"})",
     kZero3},
    {"SharedTableReducedInBf16",
     kTied,
     {2, 2, 2, 1, 3},
     R"({"layers": [["0..1"], ["2..4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "zb_h1"})",
     R"(, "precision": {"recipe": "bf16", "reduce": "bf16"}, "zero": {"stage": 1})"},
    {"ScaledProductsInBothHalves",
     kTied,
     {2, 2, 2, 1, 3},
     R"({"layers": [["0..1"], ["2..4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "zb_h1"})",
     R"(, "precision": "fp8", "recompute": ["n1", "up"])"},
    {"ScalesOfBlocksInBothHalves",
     kTied,
     {2, 2, 1, 1, 3},
     R"({"layers": [["0..1"], ["2..4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "zb_h1"})",
     R"(, "precision": {"recipe": "fp8", "scaling": "block", "block_length": 4}, "recompute": ["n1", "up"], "attention": "unfused")"},
    {"SharedTableKeptInBf16",
     kTied,
     {2, 1, 1, 1, 2},
     R"({"layers": [["0..3"], ["4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "gpipe"})",
     R"(, "precision": {"recipe": "bf16", "gradients": "bf16"})"},
    {"TwoCopies",
     kTied,
     {2, 2, 1, 1, 4},
     R"({"layers": [["0..1", "2..4"], ["2..4", "0..1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "dualpipe"})",
     R"(, "overlap": {"memory_bytes": 1000000}, "buckets": {"gradient_bytes": 300})"},
    {"TwoCopiesOnFourPlaces",
     kUntied,
     {4, 1, 2, 1, 8},
     R"({"layers": [["0", "3"], ["1", "2"], ["2", "1"], ["3", "0"]], "embedding": [0, 0], "head": [3, 0],
         "schedule": "dualpipe"})",
     R"(, "sequence_parallel": true)"},
    {"TwoCopiesInRuns",
     kTied,
     {2, 4, 1, 1, 4},
     R"({"layers": [["0..4", ""], ["", "0..4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "dualpipe"})",
     kZero3},
    {"TwoCopiesInRowsOfAUser",
     kGpt2,
     {2, 2, 1, 1, 2},
     R"({"layers": [["0", "1..2"], ["1..2", "0"]], "embedding": [0, 0], "head": [1, 0],
         "schedule": {"table": ["@0,1' F0 F1/1 D0 D1/1 O", "@1,0' F0 F1/1 B0 D1/1 W0 O"]}})",
     R"(, "overlap": {"memory_bytes": 1000000}, "zero": {"stage": 2, "reduce": "every_micro_batch"})"},
    {"Dropout",
     kGpt2,
     {2, 2, 1, 1, 4},
     R"({"layers": [["0", "1"], ["", "2"]], "embedding": [0, 0], "head": [1, 1], "schedule": "interleaved_1f1b"})",
     "",
     {0.2, 0.3, 0.4}},
    {"TwoCopiesWithDropout",
     kGpt2,
     {2, 1, 1, 1, 4},
     R"({"layers": [["0..1", "2"], ["2", "0..1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "dualpipe"})",
     "",
     {0.2, 0.3, 0.4}},
    {"RecomputedLayersThatDiffer",
     kTied,
     {2, 1, 2, 1, 3},
     R"({"layers": [["0..2"], ["3..4"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"})",
     R"(, "sequence_parallel": true, "recompute": [{"layers": "1", "full": true},
          {"layers": "2..3", "values": ["n1", "n2", "m"]}])"},
    {"RecomputedInTwoHalves",
     kUntied,
     {2, 1, 2, 1, 4},
     R"({"layers": [["0..1"], ["2..3"]], "embedding": [0, 0], "head": [1, 0], "schedule": "zb_h1"})",
     R"(, "recompute": "full")"},
    {"HalvesOfLayersThatDiffer",
     kGpt2,
     {2, 2, 1, 1, 4},
     R"({"layers": [["0", "2"], ["1", ""]], "embedding": [0, 0], "head": [0, 1], "schedule": "zb_v"})",
     R"(, "recompute": [{"layers": "0", "full": true, "prune": false}, {"layers": "2", "selective": true}])",
     {0.2, 0.3, 0.4}},
    {"RecomputedBiasesInRuns",
     kGpt2,
     {2, 2, 1, 1, 2},
     R"({"layers": [["0"], ["1..2"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"})",
     R"(, "recompute": "full", "zero": {"stage": 3, "gather": "every_pass"})"},
};

class StagePlan : public testing::TestWithParam<Case> {};

TEST_P(StagePlan, EqualsOneDeviceAfterEveryPhase) {
  const Case &c = GetParam();
  ModelConfig model = modelOf(c.config);
  model.dropout = c.dropout;
  TrainSettings train;
  train.sequenceLength = 6;
  train.globalBatch = c.sizes.dp * c.sizes.microBatches;
  train.optimizer.clipNorm = 0.5; // the norm is over all stages
  train.precision = {"fp32", "bf16", "fp8"};
  Plan one = test::planOf(model, 1, 1, c.sizes.dp, c.sizes.microBatches);
  Plan plan = test::planOf(
      model, c.sizes, std::string(R"(, "stages": )") + c.stages + c.members);
  auto checked = checkPlan(plan, model, train);
  ASSERT_TRUE(static_cast<bool>(checked)) << checked.message();
  auto stages = checkStages(plan);
  ASSERT_TRUE(static_cast<bool>(stages)) << stages.message();

  mlir::MLIRContext context;
  context.disableMultithreading();
  auto reference =
      compileUpTo(context, CompileInput{model, train, one}, Phase::Autodiff);
  ASSERT_TRUE(succeeded(reference));
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    if (phase < Phase::Collectives || phase > Phase::Overlap)
      return;
    auto comparison = interpret::compareSteps(**reference, module, {});
    ASSERT_TRUE(succeeded(comparison)) << phaseName(phase);
    EXPECT_TRUE(comparison->isEqual(1e-9)) << phaseName(phase) << "\n"
                                           << comparison->describe();
  };
  EXPECT_TRUE(succeeded(compileUpTo(context, CompileInput{model, train, plan},
                                    Phase::Overlap, observe)));
}

INSTANTIATE_TEST_SUITE_P(Plans, StagePlan, testing::ValuesIn(kCases),
                         [](const auto &info) { return info.param.name; });

} // namespace
