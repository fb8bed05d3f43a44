//===- PublishedSetTest.cpp - what publications count of GPT-3 ------------===//
//
// Saved bytes and operations of GPT-3 175B, counted in the compiled IR, against
// the formulas of Korthikanti et al. 2022 (arXiv 2205.05198): of a layer sbh
// (34
// + 5 a s / h) bytes, 34 sbh / t where core attention is computed again and
// sequences are cut over t ranks, 2 sbh where all is computed again. No figure
// is stored: other sizes give other ones.
//
//===----------------------------------------------------------------------===//

#include "CountProgram.h"

#include "test/TestPlan.h"

#include "dialects/Transformer/Transformer.h"
#include "passes/Pipelines/Pipelines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace heddle;

namespace {

constexpr std::int64_t kLayers = 96, kHidden = 12288, kHeads = 96,
                       kVocabulary = 51200;

/// What one layer saves, in bytes, and what a step takes.
struct Program {
  std::int64_t saved = 0, statistics = 0;
  double operations = 0;
};

ModelConfig gpt3(std::int64_t length) {
  ModelConfig model = test::modelOf(fmt::format(
      R"({{"model_type": "gpt2", "n_embd": {}, "n_layer": {}, "n_head": {},
           "n_positions": {}, "vocab_size": {}, "layer_norm_epsilon": 1e-5,
           "activation_function": "gelu_new"}})",
      kHidden, kLayers, kHeads, length, kVocabulary));
  model.dropout = {0.1, 0.1, 0.1};
  return model;
}

/// \p choice: what is computed again.
Program compile(std::int64_t length, std::int64_t tp, const std::string &choice,
                const std::string &masks = "saved") {
  const ModelConfig model = gpt3(length);
  TrainSettings train;
  train.sequenceLength = length;
  train.globalBatch = 1;
  train.precision = {"bf16"};
  const Plan plan =
      test::planOf(model, 1, tp, 1, 1,
                   R"(, "attention": "unfused", "save": "linear_inputs",
          "precision": "bf16", "sequence_parallel": true,
          "dropout_masks": ")" +
                       masks + R"(", "recompute": )" + choice);
  mlir::MLIRContext context;
  context.disableMultithreading();
  auto module =
      compileUpTo(context, CompileInput{model, train, plan}, Phase::Recompute);
  Program program;
  if (failed(module)) {
    ADD_FAILURE() << choice;
    return program;
  }
  auto block = (*module)->lookupSymbol<mlir::func::FuncOp>("block");
  for (unsigned i = 0; i < block.getNumResults(); ++i) {
    if (!block.getResultAttr(i, transformer::kSavedName))
      continue;
    auto type = mlir::cast<mlir::RankedTensorType>(block.getResultTypes()[i]);
    // In bf16, what is fp32 is a number of each token.
    (type.getElementType().isF32() ? program.statistics : program.saved) +=
        type.getNumElements() * type.getElementTypeBitWidth() / 8;
  }
  program.operations = countInTensors(**module).products;
  return program;
}

constexpr const char *kNone = "\"none\"", *kSelective = "\"selective\"",
                     *kFull = "\"full\"";

class PublishedSet : public testing::TestWithParam<std::int64_t> {};

TEST_P(PublishedSet, BytesOfALayer) {
  const std::int64_t s = GetParam(), sbh = s * kHidden;
  const Program none = compile(s, 1, kNone),
                selective = compile(s, 1, kSelective),
                full = compile(s, 1, kFull);
  EXPECT_EQ(none.saved, 34 * sbh + 5 * kHeads * s * s);
  EXPECT_EQ(selective.saved, 34 * sbh);
  EXPECT_EQ(full.saved, 2 * sbh);
  // Mean and deviation of two norms.
  EXPECT_EQ(none.statistics, 4 * 4 * s);
  EXPECT_EQ(full.statistics, 0);
  if (s != 2048)
    return;
  EXPECT_NEAR(static_cast<double>(none.saved), 2.869e9, 5e5);
  EXPECT_NEAR(static_cast<double>(kLayers * none.saved), 275.4e9, 5e7);
  EXPECT_NEAR(1 - static_cast<double>(selective.saved) /
                      static_cast<double>(none.saved),
              0.702, 5e-4);
}

TEST_P(PublishedSet, BytesOfALayerOverTensorParallelRanks) {
  const std::int64_t s = GetParam(), sbh = s * kHidden, t = 8;
  EXPECT_EQ(compile(s, t, kNone).saved, (34 * sbh + 5 * kHeads * s * s) / t);
  EXPECT_EQ(compile(s, t, kSelective).saved, 34 * sbh / t);
}

TEST_P(PublishedSet, OperationsAdded) {
  const std::int64_t s = GetParam();
  const auto real = [](std::int64_t value) {
    return static_cast<double>(value);
  };
  const double none = compile(s, 1, kNone).operations;
  // Forward and backward of one sequence: projections and MLP, attention over
  // the whole square, the head.
  const double product = 2 * real(s) * real(kHidden) * real(kHidden);
  const double core = 4 * real(s) * real(s) * real(kHidden);
  EXPECT_EQ(none, 3 * (real(kLayers) * (12 * product + core) +
                       2 * real(s) * real(kHidden) * real(kVocabulary)));
  auto added = [&](const char *choice) {
    return (compile(s, 1, choice).operations - none) / real(kLayers);
  };
  const char *whole = R"([{"selective": true, "prune": false}])";
  EXPECT_EQ(added(whole), core);
  EXPECT_EQ(added(kSelective), core / 2); // backward reads no more
  EXPECT_EQ(added(R"([{"full": true, "prune": false}])"), 12 * product + core);
  // What goes on is not repeated where masks are drawn alone; a mask that is a
  // value comes with what it is of.
  EXPECT_EQ(added(kFull), 12 * product + core);
  EXPECT_EQ((compile(s, 1, kFull, "drawn_again").operations - none) /
                real(kLayers),
            8 * product + core);
  if (s != 2048)
    return;
  const double all = none / real(kLayers);
  EXPECT_NEAR(added(whole) / all, 0.0090, 5e-5);
  // A publication's s / (6 h): forward and backward of core attention.
  EXPECT_NEAR(3 * added(whole) / all, 0.027, 5e-4);
  EXPECT_NEAR((12 * product + core) / all, 0.332, 5e-4);
  EXPECT_NEAR((8 * product + core) / all, 0.224, 5e-4);
}

INSTANTIATE_TEST_SUITE_P(Lengths, PublishedSet, testing::Values(2048, 4096));

} // namespace
