//===- StageCosts.cpp - closed formulas by stage against programs ---------===//
//
// Each place over pp: what its ranks run, walked slot by slot, and live bytes
// in the Memory pass's report of it.
//
//===----------------------------------------------------------------------===//

#include "CompareCost.h"
#include "CountProgram.h"

#include "test/TestPlan.h"

#include "heddle/Cost/Flops.h"
#include "passes/Pipelines/Pipelines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace heddle;
using test::must;
using test::PlanSizes;
using test::stagesOf;

namespace {

/// Layers, and whether embedding and head share a table.
ModelConfig modelOf(int64_t layers, bool isTied, double dropout = 0) {
  ModelConfig model = test::modelOf(R"({"model_type": "llama",
      "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4,
      "vocab_size": 37, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
      "attention_bias": true, "mlp_bias": true})");
  model.layers = layers;
  model.tiedEmbeddings = isTied;
  model.dropout = {dropout, dropout, dropout};
  return model;
}

/// gpt2: learned positions, norms with biases.
ModelConfig gpt2(int64_t layers) {
  ModelConfig model = test::modelOf(R"({"model_type": "gpt2", "n_embd": 16,
      "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 50,
      "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})");
  model.layers = layers;
  model.dropout = {};
  return model;
}

void checkPlaces(const ModelConfig &model, const PlanSizes &sizes,
                 const std::string &members, int64_t length = 8) {
  TrainSettings train;
  train.sequenceLength = length;
  train.globalBatch = sizes.dp * sizes.microBatch * sizes.microBatches;
  train.optimizer.kind = OptimizerKind::AdamW;
  train.precision = {"fp32", "bf16", "fp8"};
  const Plan plan = test::planOf(model, sizes, members);
  SCOPED_TRACE(writePlan(plan));
  const std::vector<RankSizes> places = must(placeSizes(model, train, plan));
  mlir::MLIRContext context;
  context.disableMultithreading();
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    if (phase != Phase::Memory)
      return;
    for (const RankSizes &place : places) {
      SCOPED_TRACE(fmt::format("place {}", place.stages.place));
      const Counted counted = countInStage(module, place.stages.place);
      const FlopCount flops = stepFlops(model, place);
      EXPECT_EQ(flops.products, counted.products);
      EXPECT_EQ(flops.attention, counted.attention);
      const std::vector<StepCollective> collectives = stepCollectives(place);
      expectEqual(trafficByAxes(collectives), counted.traffic);
      EXPECT_EQ(gathersAhead(collectives), counted.gathersAhead);
      const LiveMemory memory = liveMemory(model, train, place);
      expectEqual(memory, getMemoryReport(module, place.stages.place));
    }
  };
  EXPECT_TRUE(succeeded(compileUpTo(context, CompileInput{model, train, plan},
                                    Phase::Memory, observe)));
}

constexpr const char *kCut = R"(, "sequence_parallel": true)";

// Uneven: the second place has one layer more; with interleaving the ends have
// one less.
constexpr const char *kUneven = R"([["0"], ["1..2"]])";
constexpr const char *kInterleaved = R"([["0..1", "4"], ["2..3", "5"]])";

TEST(CostOfStages, EqualsTheProgram) {
  for (bool isTied : {false, true})
    for (const char *schedule : {"gpipe", "one_f_one_b"})
      for (PlanSizes sizes :
           {PlanSizes{2, 1, 1, 1, 4}, PlanSizes{2, 2, 1, 1, 3},
            PlanSizes{2, 1, 2, 2, 4}, PlanSizes{2, 2, 2, 1, 4}})
        checkPlaces(modelOf(3, isTied), sizes, stagesOf(kUneven, schedule));
}

TEST(CostOfStages, EqualsInterleavedPrograms) {
  for (PlanSizes sizes : {PlanSizes{2, 1, 1, 1, 4}, PlanSizes{2, 2, 2, 1, 3}})
    checkPlaces(modelOf(6, false), sizes,
                stagesOf(kInterleaved, "interleaved_1f1b"));
}

TEST(CostOfStages, EqualsProgramsOfCutSequences) {
  checkPlaces(modelOf(3, true), {2, 2, 2, 1, 4},
              stagesOf(kUneven, "one_f_one_b") + kCut);
  checkPlaces(gpt2(3), {2, 1, 2, 1, 4}, stagesOf(kUneven, "gpipe") + kCut);
}

// Stages of ZeRO, whole groups and parts, reductions once and each micro-batch.
TEST(CostOfStages, EqualsProgramsOfShardedStates) {
  for (int64_t stage : {0, 1, 2, 3})
    for (const char *reduce : {"last", "every_micro_batch"})
      for (int64_t group : {2, 4}) {
        const std::string zero = fmt::format(
            R"(, "zero": {{"stage": {}, "shard_group": {}, "reduce": "{}",
                 "gather": "every_pass"}})",
            stage, group, reduce);
        checkPlaces(modelOf(3, stage % 2 == 0), {2, 4, 2, 1, 3},
                    stagesOf(kUneven, "one_f_one_b") + zero);
        checkPlaces(gpt2(6), {2, 4, 1, 1, 4},
                    stagesOf(kInterleaved, "interleaved_1f1b") + zero);
      }
}

// Reductions beside slots, in the last of each chunk.
TEST(CostOfStages, EqualsProgramsThatOverlap) {
  for (int64_t stage : {0, 1, 2})
    for (bool isTied : {false, true}) {
      const std::string storage = fmt::format(
          R"(, "zero": {{"stage": {}, "shard_group": 2}},
               "buckets": {{"gradient_bytes": 2000}},
               "overlap": {{"memory_bytes": 100000}})",
          stage);
      checkPlaces(modelOf(3, isTied), {2, 2, 2, 1, 4},
                  stagesOf(kUneven, "one_f_one_b") + storage);
      checkPlaces(modelOf(6, isTied), {2, 2, 1, 1, 4},
                  stagesOf(kInterleaved, "interleaved_1f1b") + storage);
    }
}

// bf16 with a master: gradients in either format, reduced in either, over data,
// over copies and over both ends.
TEST(CostOfStages, EqualsProgramsInOtherFormats) {
  int number = 0;
  for (const char *gradients : {"fp32", "bf16"})
    for (const char *reduce : {"fp32", "bf16"}) {
      const std::string formats = fmt::format(
          R"(, "precision": {{"recipe": "bf16", "gradients": "{}",
               "reduce": "{}"}})",
          gradients, reduce);
      const std::string zero = fmt::format(
          R"(, "zero": {{"stage": {}, "shard_group": 2, "reduce": "{}",
               "gather": "every_pass"}})",
          number, number % 2 ? "every_micro_batch" : "last");
      const std::string overlap =
          R"(, "buckets": {"gradient_bytes": 2000},
               "overlap": {"memory_bytes": 100000})";
      ++number;
      checkPlaces(modelOf(3, true), {2, 1, 1, 1, 4},
                  stagesOf(kUneven, "one_f_one_b") + formats);
      checkPlaces(modelOf(3, true), {2, 2, 2, 1, 4},
                  stagesOf(kUneven, "one_f_one_b") + formats + zero);
      checkPlaces(modelOf(3, false), {2, 2, 2, 1, 4},
                  stagesOf(kUneven, "gpipe") + formats + kCut);
      checkPlaces(gpt2(6), {2, 4, 1, 1, 4},
                  stagesOf(kInterleaved, "interleaved_1f1b") + formats + zero +
                      overlap);
      checkPlaces(modelOf(6, true, 0.1), {2, 2, 1, 1, 4},
                  stagesOf(kInterleaved, "interleaved_1f1b") + formats +
                      overlap);
    }
}

// Codes of what is computed again, and on both sides of a backward in two.
TEST(CostOfStages, EqualsProgramsOfScaledProducts) {
  for (const char *recompute : {R"([])", R"("full")", R"(["n1", "up", "v"])"})
    for (const char *schedule : {"one_f_one_b", "zb_h1"}) {
      const std::string members =
          stagesOf(kUneven, schedule) +
          fmt::format(R"(, "precision": "fp8", "recompute": {})", recompute);
      checkPlaces(modelOf(3, true), {2, 1, 2, 1, 4}, members);
      checkPlaces(modelOf(3, false), {2, 2, 2, 1, 4}, members + kCut);
    }
}

// Scales of blocks that are shorter than rows, the last one of a row too; no
// codes where products stay in bf16.
TEST(CostOfStages, EqualsProgramsOfBlocks) {
  for (const char *recompute : {R"([])", R"("full")", R"(["n1", "up", "v"])"})
    for (const char *schedule : {"one_f_one_b", "zb_h1"}) {
      const std::string members =
          stagesOf(kUneven, schedule) +
          fmt::format(R"(, "recompute": {}, "precision": {{"recipe": "fp8",
                          "scaling": "block", "block_length": 4)",
                      recompute);
      const char *except = R"(, "exceptions": [
          {"match": "*v_proj.weight", "compute": "bf16"},
          {"match": "*down_proj.weight", "compute": "bf16"}]})";
      checkPlaces(modelOf(3, true), {2, 1, 2, 1, 4}, members + "}", 9);
      checkPlaces(modelOf(3, false), {2, 2, 2, 1, 4}, members + except + kCut);
    }
}

// Chunks of two layers and one, of three layers and none; more memory for
// backward's gathers than for forward's, which read biases too.
TEST(CostOfStages, EqualsProgramsThatGatherAhead) {
  for (int64_t depth : {1, 2, 3})
    for (int64_t memory : {9000, 100000}) {
      const std::string zero = fmt::format(
          R"(, "zero": {{"stage": 3, "shard_group": 2, "prefetch": {},
               "reduce": "every_micro_batch", "gather": "every_pass"}},
             "overlap": {{"memory_bytes": {}}})",
          depth, memory);
      checkPlaces(modelOf(5, depth == 2), {2, 2, 1, 1, 3},
                  stagesOf(R"([["0"], ["1..4"]])", "one_f_one_b") + zero);
      checkPlaces(modelOf(6, true), {2, 4, 2, 1, 4},
                  stagesOf(kInterleaved, "interleaved_1f1b") + zero);
      checkPlaces(gpt2(5), {2, 2, 1, 1, 4},
                  stagesOf(R"([["0..2", ""], ["3", "4"]])", "interleaved_1f1b",
                           R"(, "head": [1, 1])") +
                      zero + R"(, "precision": "bf16")");
    }
}

const std::string kTwoCopies =
    R"(, "stages": {"layers": [["0", "1..2"], ["1..2", "0"]], "head": [1, 0], "schedule": {"table": [
         "@0,1' F0 F1 F2/1 F3/1 D2/1 D3/1 D0 D1 O", "@1,0' F2/1 F3/1 F0 F1 D0 D1 D2/1 D3/1 O"]}})";

// Each copy runs half of the micro-batches; gradients are summed over both.
TEST(CostOfStages, EqualsProgramsOfTwoCopies) {
  for (bool isTied : {false, true}) {
    checkPlaces(modelOf(3, isTied), {2, 1, 2, 1, 4}, kTwoCopies + kCut);
    for (const char *zero : {R"("stage": 0)", R"("stage": 1)",
                             R"("stage": 2, "reduce": "every_micro_batch")",
                             R"("stage": 3, "gather": "every_pass")"})
      for (const char *overlap :
           {"", R"(, "overlap": {"memory_bytes": 100000})"})
        checkPlaces(modelOf(3, isTied), {2, 2, 1, 1, 4},
                    kTwoCopies + R"(, "zero": {)" + zero + "}" + overlap);
  }
}

TEST(CostOfStages, EqualsProgramsThatComputeAgain) {
  const char *const choices[] = {
      R"("full")", R"(["n1", "n2", "m"])",
      R"([{"layers": "1", "full": true}, {"layers": "2", "values": ["q", "x2"]}])"};
  for (const char *choice : choices) {
    const std::string again = fmt::format(R"(, "recompute": {})", choice);
    checkPlaces(modelOf(3, true), {2, 1, 2, 1, 4},
                stagesOf(kUneven, "one_f_one_b") + again);
    checkPlaces(modelOf(6, false, 0.1), {2, 2, 1, 1, 4},
                stagesOf(kInterleaved, "interleaved_1f1b") + again);
    checkPlaces(gpt2(3), {2, 1, 2, 1, 4},
                stagesOf(kUneven, "gpipe") + kCut + again);
  }
}

// Whole copies that all passes of a micro-batch, or of a step, read.
TEST(CostOfStages, EqualsProgramsThatKeepCopies) {
  for (const char *gather : {"every_micro_batch", "once_per_step"})
    for (bool isTied : {false, true}) {
      const std::string zero = fmt::format(
          R"(, "zero": {{"stage": 3, "shard_group": 2, "gather": "{}"}})",
          gather);
      checkPlaces(modelOf(3, isTied), {2, 2, 1, 1, 3},
                  stagesOf(kUneven, "one_f_one_b") + zero);
      checkPlaces(gpt2(6), {2, 4, 1, 1, 4},
                  stagesOf(kInterleaved, "interleaved_1f1b") + zero);
    }
}

constexpr const char *kBack = R"([["0", "4"], ["1..2", "3"]])";
constexpr const char *kAtFirst = R"(, "head": [0, 1])";

// Slots of weight gradients of their own: what crosses, and how long.
TEST(CostOfStages, EqualsProgramsThatSplitBackward) {
  for (const char *schedule : {"zb_h1", "zb_h2"})
    for (bool isTied : {false, true}) {
      checkPlaces(modelOf(3, isTied), {2, 1, 1, 1, 5},
                  stagesOf(kUneven, schedule));
      checkPlaces(modelOf(3, isTied, 0.1), {2, 1, 2, 1, 4},
                  stagesOf(kUneven, schedule) + kCut);
    }
  checkPlaces(gpt2(5), {2, 1, 2, 1, 4}, stagesOf(kBack, "zb_v", kAtFirst));
  checkPlaces(gpt2(5), {2, 2, 2, 1, 4},
              stagesOf(kBack, "v_half", kAtFirst) + kCut +
                  R"(, "precision": "bf16")");
  checkPlaces(modelOf(4, false), {2, 1, 2, 1, 4},
              stagesOf(R"([["0", "1..3"], ["1..3", "0"]])", "dualpipe",
                       R"(, "head": [1, 0])"));
}

TEST(CostOfStages, EqualsProgramsThatSplitBackwardOfShardedStates) {
  for (int64_t stage : {1, 2, 3})
    for (const char *reduce : {"last", "every_micro_batch"})
      for (const char *overlap :
           {"", R"(, "overlap": {"memory_bytes": 100000})"}) {
        const std::string zero = fmt::format(
            R"(, "zero": {{"stage": {}, "shard_group": 2, "reduce": "{}",
                 "gather": "every_pass", "prefetch": {}}}{})",
            stage, reduce, stage == 3 && *overlap ? 1 : 0, overlap);
        checkPlaces(modelOf(3, stage == 2), {2, 2, 1, 1, 4},
                    stagesOf(kUneven, "zb_h1") + zero);
        checkPlaces(gpt2(5), {2, 4, 1, 1, 4},
                    stagesOf(kBack, "zb_v", kAtFirst) + zero +
                        R"(, "precision": "bf16")");
      }
}

TEST(CostOfStages, EqualsProgramsThatSplitBackwardAndComputeAgain) {
  const char *const choices[] = {
      R"("full")", R"("selective")", R"([{"full": true, "prune": false}])",
      R"(["n1", "n2", "m", "x2"])",
      R"([{"layers": "1", "full": true}, {"layers": "2", "values": ["q", "x2"]}])"};
  for (const char *choice : choices) {
    const std::string again = fmt::format(R"(, "recompute": {})", choice);
    checkPlaces(modelOf(3, true), {2, 1, 2, 1, 4},
                stagesOf(kUneven, "zb_h1") + again);
    checkPlaces(gpt2(5), {2, 1, 2, 1, 4},
                stagesOf(kBack, "zb_v", kAtFirst) + kCut + again);
  }
}

// What the two functions of backward read of the host, each by itself.
TEST(CostOfStages, EqualsProgramsThatOffload) {
  for (const char *offload :
       {R"(, "offload": {"saved": ["v", "m"]})",
        R"(, "offload": {"saved": ["x1"], "optimizer": true},
             "recompute": "full", "precision": "bf16")"}) {
    checkPlaces(modelOf(3, true), {2, 1, 2, 1, 4},
                stagesOf(kUneven, "one_f_one_b") + offload);
    checkPlaces(modelOf(3, false), {2, 1, 2, 1, 4},
                stagesOf(kUneven, "zb_h1") + offload);
    checkPlaces(gpt2(5), {2, 2, 2, 1, 4},
                stagesOf(kBack, "zb_v", kAtFirst) + kCut + offload);
    checkPlaces(modelOf(3, true), {3, 1, 1, 1, 4},
                stagesOf(R"([[""], ["0..2"], [""]])", "gpipe") + offload);
  }
}

// Places of ends alone, and of nothing.
TEST(CostOfStages, EqualsProgramsWithPlacesWithoutLayers) {
  for (const char *layers :
       {R"([[""], ["0..2"], [""]])", R"([["0..2"], [""], [""]])",
        R"([[""], [""], ["0..2"]])"})
    for (bool isTied : {false, true}) {
      checkPlaces(modelOf(3, isTied), {3, 1, 1, 1, 4},
                  stagesOf(layers, "one_f_one_b"));
      checkPlaces(modelOf(3, isTied, 0.1), {3, 2, 2, 1, 2},
                  stagesOf(layers, "gpipe") + kCut);
      checkPlaces(gpt2(3), {3, 2, 1, 1, 1},
                  stagesOf(layers, "one_f_one_b") +
                      R"(, "precision": "bf16", "zero": {"stage": 1})");
    }
}

TEST(CostOfStages, EqualsProgramsWithDropout) {
  checkPlaces(modelOf(3, false, 0.1), {2, 2, 2, 1, 4},
              stagesOf(kUneven, "one_f_one_b"));
  checkPlaces(modelOf(6, true, 0.1), {2, 1, 2, 1, 4},
              stagesOf(kInterleaved, "interleaved_1f1b") + kCut);
}

} // namespace
