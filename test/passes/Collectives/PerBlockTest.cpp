//===- PerBlockTest.cpp - which collectives a block has, and why right ----===//
//
// The counts are those that follow from factor rules alone: no pass knows
// tensor or sequence parallelism. Each plan is also run against one device.
//
//===----------------------------------------------------------------------===//

#include "test/TestPlan.h"

#include "dialects/Transformer/Transformer.h"
#include "passes/Interpret/Compare.h"
#include "passes/Pipelines/Pipelines.h"

#include <gtest/gtest.h>

#include <map>

using namespace heddle;
using test::modelOf;
using test::planOf;

namespace {

constexpr const char *kLlama =
    R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32,
        "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false})";

constexpr const char *kGpt2 =
    R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32,
        "vocab_size": 48, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})";

using Counts = std::map<std::string, int>;

constexpr const char *kCut = ", \"sequence_parallel\": true";
constexpr const char *kGathered =
    ", \"sequence_parallel\": true, \"save_gathered\": true";

/// Collectives of a function, by name and axes.
Counts collectivesOf(mlir::ModuleOp module, llvm::StringRef function) {
  Counts counts;
  module.lookupSymbol<mlir::func::FuncOp>(function).walk(
      [&](mlir::Operation *op) {
        auto axes = op->getAttrOfType<mlir::ArrayAttr>("axes");
        if (!axes || !mlir::isa<dist::DistDialect>(op->getDialect()))
          return;
        std::string key = op->getName().stripDialect().str();
        for (mlir::Attribute axis : axes)
          key += " " + mlir::cast<mlir::StringAttr>(axis).getValue().str();
        ++counts[key];
      });
  return counts;
}

/// Compiles a plan to one rank's program, holds it against one device, and
/// counts the collectives of each segment.
std::map<std::string, Counts> countAndRun(const char *config, int64_t dp,
                                          int64_t tp,
                                          const std::string &sequences = "",
                                          DropoutRates dropout = {}) {
  ModelConfig model = modelOf(config);
  model.dropout = dropout;
  TrainSettings train;
  train.sequenceLength = 8;
  train.globalBatch = 8;
  train.optimizer.kind = OptimizerKind::Sgd;
  mlir::MLIRContext context;
  context.disableMultithreading();
  Plan one = planOf(model, 1, 1, 4, 2),
       plan = planOf(model, dp, tp, 4 / dp, 2, sequences);
  auto reference =
      compileUpTo(context, CompileInput{model, train, one}, Phase::Autodiff);
  auto module = compileUpTo(context, CompileInput{model, train, plan},
                            Phase::Collectives);
  if (failed(reference) || failed(module)) {
    ADD_FAILURE() << "does not compile";
    return {};
  }
  auto comparison = interpret::compareSteps(**reference, **module, {});
  EXPECT_TRUE(succeeded(comparison) && comparison->isEqual(1e-9))
      << (succeeded(comparison) ? comparison->describe() : "");
  std::map<std::string, Counts> counts;
  for (const char *segment :
       {"embedding", "embedding_bwd", "block", "block_bwd", "head"})
    counts[segment] = collectivesOf(**module, segment);
  return counts;
}

TEST(CollectivesPerBlock, TensorParallel) {
  auto counts = countAndRun(kLlama, 2, 2);
  EXPECT_EQ(counts["block"], (Counts{{"all_reduce tp", 2}}));
  EXPECT_EQ(counts["block_bwd"], (Counts{{"all_reduce tp", 2}}));
}

TEST(CollectivesPerBlock, FewerKvHeadsThanRanks) {
  auto counts = countAndRun(kLlama, 2, 4);
  EXPECT_EQ(counts["block"], (Counts{{"all_reduce tp.kv tp.copy", 2}}));
  // Gradients of keys and values are summed over the ranks that share them.
  EXPECT_EQ(counts["block_bwd"]["all_reduce tp.kv tp.copy"], 2);
  EXPECT_EQ(counts["block_bwd"]["all_reduce tp.copy"], 2);
}

/// What Megatron-LM's sequence parallelism has.
void expectSequenceParallel(std::map<std::string, Counts> counts,
                            const std::string &tp, int gathersInBackward) {
  const std::string gather = "all_gather " + tp,
                    scatter = "reduce_scatter " + tp,
                    reduce = "all_reduce " + tp;
  // Rows of the table are summed and scattered; positions cost nothing.
  counts["embedding"].erase("slice " + tp);
  counts["embedding_bwd"].erase("slice " + tp);
  EXPECT_EQ(counts["embedding"], (Counts{{scatter, 1}}));
  EXPECT_EQ(counts["embedding_bwd"], (Counts{{gather, 1}}));
  EXPECT_EQ(counts["block"], (Counts{{gather, 2}, {scatter, 2}}));
  EXPECT_EQ(counts["block_bwd"][gather], gathersInBackward);
  EXPECT_EQ(counts["block_bwd"][scatter], 2);
  EXPECT_EQ(counts["block_bwd"].count(reduce), 0u);
  // Logits are split along the vocabulary, so they need all of the sequence.
  EXPECT_EQ(counts["head"], (Counts{{gather, 1}, {reduce, 3}, {scatter, 1}}));
}

TEST(CollectivesPerBlock, SequenceParallel) {
  // dy and d_x2, and again the two norms' results, of which only shards are
  // saved.
  expectSequenceParallel(countAndRun(kLlama, 2, 2, kCut), "tp", 4);
  expectSequenceParallel(countAndRun(kLlama, 2, 2, kGathered), "tp", 2);
  expectSequenceParallel(countAndRun(kLlama, 1, 4, kCut), "tp.kv tp.copy", 4);
}

TEST(CollectivesPerBlock, SequenceParallelBehindBiases) {
  expectSequenceParallel(countAndRun(kGpt2, 2, 2, kCut), "tp", 4);
  expectSequenceParallel(countAndRun(kGpt2, 1, 4, kGathered), "tp", 2);
}

/// Without those that move no bytes.
std::map<std::string, Counts> moving(std::map<std::string, Counts> all) {
  for (auto &[function, counts] : all)
    std::erase_if(counts, [](const auto &entry) {
      return entry.first.starts_with("slice");
    });
  return all;
}

// Masks follow the places of elements in whole tensors: nothing is sent for
// them, and every plan equals one device.
TEST(CollectivesPerBlock, DropoutSendsNothing) {
  DropoutRates rates{0.3, 0.2, 0.4};
  for (const char *config : {kLlama, kGpt2})
    for (auto [dp, tp, sequences] :
         {std::tuple(2, 2, ""), std::tuple(1, 4, ""), std::tuple(2, 2, kCut),
          std::tuple(1, 4, kCut), std::tuple(1, 4, kGathered)})
      EXPECT_EQ(moving(countAndRun(config, dp, tp, sequences, rates)),
                moving(countAndRun(config, dp, tp, sequences)))
          << dp << " x " << tp << sequences;
}

TEST(CollectivesPerBlock, DataParallelHasNone) {
  auto counts = countAndRun(kLlama, 4, 1);
  EXPECT_EQ(counts["block"], Counts());
  EXPECT_EQ(counts["block_bwd"], Counts());
}

} // namespace
