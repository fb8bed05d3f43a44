//===- PerBlockTest.cpp - which collectives a block has, and why right ----===//
//
// The counts are those that follow from factor rules alone: no pass knows
// tensor or sequence parallelism. Each plan is also run against one device.
//
//===----------------------------------------------------------------------===//

#include "dialects/Transformer/Transformer.h"
#include "passes/Interpret/Compare.h"
#include "passes/Pipelines/Pipelines.h"

#include <gtest/gtest.h>

#include <map>

using namespace heddle;

namespace {

constexpr const char *kLlama =
    R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32,
        "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false})";

using Counts = std::map<std::string, int>;

template <class T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.message();
    std::abort();
  }
  return std::move(*result);
}

Document parse(const std::string &text) {
  return must(Document::parse(text, "test", Document::Syntax::Json));
}

Plan planOf(const ModelConfig &model, int64_t dp, int64_t tp,
            bool sequenceParallel) {
  return must(
      readPlan(parse("{\"version\": 1, \"mesh\": [[\"pp\", 1], [\"dp\", " +
                     std::to_string(dp) + "], [\"cp\", 1], [\"tp\", " +
                     std::to_string(tp) +
                     "]], \"micro_batch\": " + std::to_string(4 / dp) +
                     ", \"micro_batches\": 2, \"tensor\": \"megatron\", "
                     "\"sequence_parallel\": " +
                     (sequenceParallel ? "true}" : "false}")),
               &model));
}

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
/// counts the collectives of forward and backward of a block.
std::pair<Counts, Counts> countAndRun(int64_t dp, int64_t tp,
                                      bool sequenceParallel) {
  ModelConfig model = must(readModelConfig(parse(kLlama)));
  TrainSettings train;
  train.sequenceLength = 8;
  train.globalBatch = 8;
  train.optimizer.kind = OptimizerKind::Sgd;
  mlir::MLIRContext context;
  context.disableMultithreading();
  Plan one = planOf(model, 1, 1, false),
       plan = planOf(model, dp, tp, sequenceParallel);
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
  return {collectivesOf(**module, "block"),
          collectivesOf(**module, "block_bwd")};
}

TEST(CollectivesPerBlock, TensorParallel) {
  auto [forward, backward] = countAndRun(2, 2, false);
  EXPECT_EQ(forward, (Counts{{"all_reduce tp", 2}}));
  EXPECT_EQ(backward, (Counts{{"all_reduce tp", 2}}));
}

TEST(CollectivesPerBlock, FewerKvHeadsThanRanks) {
  auto [forward, backward] = countAndRun(2, 4, false);
  EXPECT_EQ(forward, (Counts{{"all_reduce tp.kv tp.copy", 2}}));
  // Gradients of keys and values are summed over the ranks that share them.
  EXPECT_EQ(backward["all_reduce tp.kv tp.copy"], 2);
  EXPECT_EQ(backward["all_reduce tp.copy"], 2);
}

TEST(CollectivesPerBlock, SequenceParallel) {
  auto [forward, backward] = countAndRun(2, 2, true);
  EXPECT_EQ(forward, (Counts{{"all_gather tp", 2}, {"reduce_scatter tp", 2}}));
  // dy and d_x1, and again the two norms' results, of which only shards are
  // saved.
  EXPECT_EQ(backward, (Counts{{"all_gather tp", 4}, {"reduce_scatter tp", 2}}));
}

TEST(CollectivesPerBlock, DataParallelHasNone) {
  auto [forward, backward] = countAndRun(4, 1, false);
  EXPECT_EQ(forward, Counts());
  EXPECT_EQ(backward, Counts());
}

} // namespace
