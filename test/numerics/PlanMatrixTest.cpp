//===- PlanMatrixTest.cpp - plans against one device, after every phase ---===//
//
// Interpreter, exact reading: loss, every gradient and every parameter after a
// step, for all (dp, tp) whose product is 1, 2, 4 or 8, with one micro-batch
// and with four, with sequences whole and cut over tp (saved in parts and
// gathered), on models and sequences whose sizes divide and on ones whose do
// not; in fp32, and in bf16 and fp16 with a master.
//
// HEDDLE_MATRIX_FULL=1 runs all of them; else a seeded sample.
//
//===----------------------------------------------------------------------===//

#include "test/TestPlan.h"

#include "dialects/Transformer/Transformer.h"
#include "passes/Interpret/Compare.h"
#include "passes/Pipelines/Pipelines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

using namespace heddle;
using test::modelOf;
using test::planOf;

namespace {

constexpr double kTolerance = 1e-9;
/// In bf16, bounds of what differs from one device in bf16, and in fp32.
constexpr double kRoundedTolerance = 5e-2, kBf16Tolerance = 1e-1;

struct Model {
  const char *name;
  const char *config;
  DropoutRates dropout = {};
};

// Ragged: heads, KV heads, ffn and vocabulary that neither 2 nor 4 nor 8
// divides.
const Model kModels[] = {
    {"llama",
     R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})"},
    {"llama_ragged",
     R"({"model_type": "llama", "hidden_size": 12, "intermediate_size": 19, "num_hidden_layers": 2,
      "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "attention_bias": true,
      "mlp_bias": true})"},
    {"qwen2",
     R"({"model_type": "qwen2", "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"qwen2_ragged",
     R"({"model_type": "qwen2", "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 1,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
    {"qwen3",
     R"({"model_type": "qwen3", "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6, "vocab_size": 48, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
    {"qwen3_ragged",
     R"({"model_type": "qwen3", "hidden_size": 10, "intermediate_size": 17, "num_hidden_layers": 1,
      "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "vocab_size": 29, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"gpt2",
     R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32,
      "vocab_size": 48, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})"},
    {"gpt2_ragged",
     R"({"model_type": "gpt2", "n_embd": 12, "n_layer": 1, "n_head": 3, "n_inner": 21, "n_positions": 32,
      "vocab_size": 257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})"},
};

/// Sequences between blocks.
struct Sequences {
  const char *name;
  const char *members; ///< of the plan
};

const Sequences kSequences[] = {
    {"", ""},
    {"_sp", R"(, "sequence_parallel": true)"},
    {"_gathered", R"(, "sequence_parallel": true, "save_gathered": true)"},
};

/// Narrow formats with a master, and without: gradients in either, reduced in
/// either.
const Sequences kFormats[] = {
    {"_bf16", R"(, "precision": "bf16", "zero": {"stage": 1})"},
    {"_fp16", R"(, "precision": "fp16", "zero": {"stage": 1})"},
    {"_fp16_reduced", R"(, "precision": {"recipe": "fp16", "reduce": "fp16"},
      "sequence_parallel": true, "zero": {"stage": 3})"},
    {"_bf16_gradients", R"(, "sequence_parallel": true, "zero": {"stage": 1},
      "precision": {"recipe": "bf16", "gradients": "bf16"})"},
    {"_bf16_each", R"(, "precision": {"recipe": "bf16", "gradients": "bf16"},
      "zero": {"stage": 3, "reduce": "every_micro_batch",
               "gather": "every_pass"},
      "overlap": {"memory_bytes": 1000000}, "sequence_parallel": true)"},
    {"_bf16_reduced", R"(, "precision": {"recipe": "bf16", "reduce": "bf16"},
      "zero": {"stage": 2}, "overlap": {"memory_bytes": 1000000})"},
    {"_bf16_alone", R"(, "precision": {"recipe": "bf16", "master": "none"},
      "zero": {"stage": 2}, "sequence_parallel": true)"},
    {"_fp8", R"(, "precision": "fp8", "zero": {"stage": 1})"},
    {"_fp8_full", R"(, "precision": {"recipe": "fp8", "gradients": "bf16",
                                     "scaling": "current_power_of_two"},
      "recompute": "full", "zero": {"stage": 3})"},
    {"_delayed", R"(, "precision": {"recipe": "fp8", "scaling": "delayed",
                                    "amax_history": 3},
      "recompute": "full", "zero": {"stage": 3})"},
    {"_first_layer", R"(, "precision": {"recipe": "fp8", "exceptions": [
                          {"match": "*.0.*", "compute": "bf16"}]},
      "recompute": ["n1", "m"])"},
};

/// Scales of blocks, and products that stay in bf16: of ranks that hold whole
/// blocks, the last of which may be padding.
const Sequences kBlocks[] = {
    {"_block", R"(, "precision": {"recipe": "fp8", "scaling": "block",
      "block_length": 4}, "zero": {"stage": 1})"},
    {"_mxfp8", R"(, "precision": {"recipe": "fp8", "scaling": "mxfp8",
      "exceptions": [{"match": "*[!k]_proj.weight", "compute": "bf16"}]})"},
    {"_block_except", R"(, "precision": {"recipe": "fp8", "gradients": "bf16",
      "scaling": "block_power_of_two", "block_length": 2,
      "exceptions": [{"match": "*[vc]_proj.weight", "compute": "bf16"}]},
      "recompute": "full", "zero": {"stage": 3})"},
    {"_nvfp4", R"(, "precision": {"recipe": "nvfp4", "block_length": 2},
      "sequence_parallel": true, "zero": {"stage": 1})"},
    {"_nvfp4_except", R"(, "precision": {"recipe": "nvfp4", "block_length": 4,
      "gradients": "bf16",
      "exceptions": [{"match": "*[vc]_proj.weight", "compute": "bf16"}]},
      "recompute": "full", "zero": {"stage": 3})"},
};

// With dropout: padded heads, KV heads on several ranks, tied matrices.
const Model kDropoutModels[] = {
    {"llama_dropout", kModels[0].config, {0.3, 0, 0}},
    {"llama_ragged_dropout", kModels[1].config, {0.2, 0.3, 0.4}},
    {"qwen2_ragged_dropout", kModels[3].config, {0.5, 0, 0}},
    {"gpt2_dropout", kModels[6].config, {0.1, 0.2, 0.3}},
};

/// What backward computes again, alone and with all else.
const Sequences kRecompute[] = {
    {"_full", R"(, "recompute": "full")"},
    {"_whole_sp", R"(, "sequence_parallel": true,
      "recompute": [{"full": true, "prune": false}])"},
    {"_selective_gathered", R"(, "sequence_parallel": true,
      "save_gathered": true, "recompute": "selective")"},
    {"_listed", R"(, "recompute": ["n1", "n2", "m", "x2"])"},
    {"_mixed", R"(, "recompute": [{"layers": "0", "values": ["v", "o"]}],
      "sequence_parallel": true, "overlap": {"memory_bytes": 1000000},
      "zero": {"stage": 3, "gather": "every_pass", "prefetch": 1})"},
    {"_bf16_full", R"(, "precision": "bf16", "recompute": "full",
      "zero": {"stage": 2, "reduce": "every_micro_batch"})"},
};

const Model kWindowed = {
    "mistral",
    R"({"model_type": "mistral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "sliding_window": 3})"};

/// Attention as products, against one kernel on one device.
const Sequences kUnfused[] = {
    {"_unfused", R"(, "attention": "unfused")"},
    {"_unfused_masks_sp", R"(, "attention": "unfused",
      "dropout_masks": "saved", "sequence_parallel": true)"},
    {"_unfused_selective", R"(, "attention": "unfused",
      "dropout_masks": "saved", "recompute": "selective")"},
    {"_unfused_published", R"(, "attention": "unfused",
      "dropout_masks": "saved", "save": "linear_inputs",
      "sequence_parallel": true, "zero": {"stage": 2},
      "recompute": [{"selective": true, "prune": false}])"},
    {"_unfused_full", R"(, "attention": "unfused", "recompute": "full")"},
    {"_unfused_fp8", R"(, "attention": "unfused", "precision": "fp8")"},
    {"_unfused_bf16", R"(, "attention": "unfused", "precision": "bf16",
      "dropout_masks": "saved", "recompute": ["p", "o"])"},
};

struct Case {
  const Model *model;
  int64_t dp, tp, microBatches;
  const Sequences *sequences;

  std::string name() const {
    return std::string(model->name) + "_dp" + std::to_string(dp) + "_tp" +
           std::to_string(tp) + "_m" + std::to_string(microBatches) +
           sequences->name;
  }
};

std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const Model &model : kModels)
    for (int64_t ranks : {1, 2, 4, 8})
      for (int64_t dp = 1; dp <= ranks; dp *= 2)
        for (int64_t microBatches : {1, 4})
          for (const Sequences &sequences : kSequences)
            if (ranks > dp || &sequences == kSequences)
              cases.push_back(
                  {&model, dp, ranks / dp, microBatches, &sequences});
  return cases;
}

/// All cases, or one in eight, the same ones each time.
std::vector<Case> casesToRun() {
  std::vector<Case> cases = allCases();
  if (std::getenv("HEDDLE_MATRIX_FULL"))
    return cases;
  std::mt19937 random(7);
  std::shuffle(cases.begin(), cases.end(), random);
  cases.resize(cases.size() / 8);
  return cases;
}

std::vector<Case> dropoutCases() {
  std::vector<Case> cases;
  for (const Model &model : kDropoutModels)
    for (auto [dp, tp] : {std::pair(1, 1), std::pair(4, 1), std::pair(1, 4),
                          std::pair(2, 2), std::pair(1, 8)})
      for (const Sequences &sequences : kSequences)
        if (tp > 1 || &sequences == kSequences)
          cases.push_back({&model, dp, tp, dp == 1 ? 1 : 4, &sequences});
  return cases;
}

std::vector<Case> formatCases() {
  std::vector<Case> cases;
  for (const Model &model : kModels)
    for (const Sequences &formats : kFormats)
      cases.push_back({&model, 4, 2, 4, &formats});
  return cases;
}

/// The settings and plans of a case: one device's, and its own.
struct Compared {
  ModelConfig model;
  TrainSettings train;
  Plan one, plan;

  explicit Compared(const Case &c) : model(modelOf(c.model->config)) {
    model.dropout = c.model->dropout;
    train.sequenceLength = model.kvHeads == 2 ? 8 : 7;
    train.globalBatch = 8 * c.microBatches;
    train.optimizer.kind = OptimizerKind::Sgd;
    train.precision = {"fp32", "bf16", "fp16", "fp8", "nvfp4"};
    one = planOf(model, 1, 1, 8, c.microBatches, "");
    plan = planOf(model, c.dp, c.tp, 8 / c.dp, c.microBatches,
                  c.sequences->members);
  }
};

/// Over two ranks of tp where these hold whole blocks, else over one.
std::vector<Case> blockCases() {
  std::vector<Case> cases;
  for (const Model &model : kModels)
    for (const Sequences &blocks : kBlocks) {
      Case cut{&model, 2, 2, 2, &blocks};
      const Compared compared(cut);
      if (!checkPlan(compared.plan, compared.model, compared.train))
        cut.tp = 1;
      cases.push_back(cut);
    }
  return cases;
}

std::vector<Case> recomputeCases() {
  std::vector<Case> cases;
  for (const Model &model : kModels)
    for (const Sequences &again : kRecompute)
      cases.push_back({&model, 2, 2, 2, &again});
  for (const Sequences &again : kRecompute)
    cases.push_back({&kDropoutModels[3], 2, 4, 2, &again});
  return cases;
}

std::vector<Case> unfusedCases() {
  std::vector<Case> cases;
  for (const Sequences &unfused : kUnfused) {
    for (const Model &model : kModels)
      cases.push_back({&model, 2, 2, 2, &unfused});
    for (const Model &model : kDropoutModels)
      for (auto [dp, tp] : {std::pair(4, 1), std::pair(1, 4)})
        cases.push_back({&model, dp, tp, 1, &unfused});
    cases.push_back({&kWindowed, 2, 2, 1, &unfused});
  }
  return cases;
}

class PlanMatrix : public testing::TestWithParam<Case> {};

TEST_P(PlanMatrix, EqualsOneDeviceAfterEveryPhase) {
  const Case &c = GetParam();
  const Compared compared(c);
  const auto &[model, train, one, plan] = compared;
  auto checked = checkPlan(plan, model, train);
  ASSERT_TRUE(static_cast<bool>(checked)) << checked.message();

  mlir::MLIRContext context;
  context.disableMultithreading();
  auto reference =
      compileUpTo(context, CompileInput{model, train, one}, Phase::Autodiff);
  ASSERT_TRUE(succeeded(reference));
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    if (phase < Phase::Autodiff || phase > Phase::Overlap)
      return;
    interpret::CompareOptions options;
    auto comparison = interpret::compareSteps(**reference, module, options);
    ASSERT_TRUE(succeeded(comparison)) << phaseName(phase);
    EXPECT_TRUE(comparison->isEqual(kTolerance)) << phaseName(phase) << "\n"
                                                 << comparison->describe();
  };
  EXPECT_TRUE(succeeded(compileUpTo(context, CompileInput{model, train, plan},
                                    Phase::Overlap, observe)));
}

// Most models and recipes run with blocks on each of two ranks.
TEST(ScalesOfBlocks, AreCutInMostCases) {
  EXPECT_GE(
      llvm::count_if(blockCases(), [](const Case &c) { return c.tp > 1; }), 8);
}

/// The name that an operand has, without what was done to it.
llvm::StringRef nameOfOperand(mlir::Value value) {
  while (auto mixed = value.getDefiningOp<transformer::HadamardOp>())
    value = mixed.getInput();
  return transformer::getName(value);
}

// In nvfp4 gradients alone are rounded at random, and both operands of a
// weight's gradient alone are mixed, with the same signs.
TEST(Nvfp4, RoundsAndMixesWhatItSays) {
  mlir::MLIRContext context;
  context.disableMultithreading();
  const Sequences recipe{
      "", R"(, "precision": {"recipe": "nvfp4", "block_length": 2})"};
  const Compared compared(Case{&kModels[0], 2, 2, 2, &recipe});
  auto module = compileUpTo(
      context, CompileInput{compared.model, compared.train, compared.plan},
      Phase::Overlap);
  ASSERT_TRUE(succeeded(module));
  int random = 0, nearest = 0, mixed = 0, plain = 0;
  (*module)->walk([&](transformer::QuantizeOp op) {
    const bool isGradient = nameOfOperand(op.getInput()).starts_with("d_");
    EXPECT_EQ(isGradient, static_cast<bool>(op.getSeed()))
        << nameOfOperand(op.getInput()).str();
    ++(isGradient ? random : nearest);
  });
  (*module)->walk([&](transformer::ContractOp op) {
    if (op.getScales().empty())
      return;
    auto signsOf = [](mlir::Value codes) -> int64_t {
      auto made = codes.getDefiningOp<transformer::QuantizeOp>();
      auto mix = made.getInput().getDefiningOp<transformer::HadamardOp>();
      return mix ? static_cast<int64_t>(mix.getSigns()) : -1;
    };
    const bool isOfWeight =
        transformer::getName(op.getResult()).starts_with("d_w");
    EXPECT_EQ(signsOf(op.getLhs()), signsOf(op.getRhs()));
    EXPECT_EQ(signsOf(op.getLhs()) >= 0, isOfWeight)
        << transformer::getName(op.getResult()).str();
    ++(isOfWeight ? mixed : plain);
  });
  // Seven products of a layer, forward, of their inputs and of their weights.
  EXPECT_EQ(mixed, 7);
  EXPECT_EQ(plain, 14);
  EXPECT_GE(random, 12);
  EXPECT_GE(nearest, 12);
}

// A mask follows the sequence's number in the whole batch: the same sequences
// in other micro-batches draw the same masks.
TEST(DropoutMasks, DoNotDependOnMicroBatches) {
  ModelConfig model = modelOf(kDropoutModels[3].config);
  model.dropout = kDropoutModels[3].dropout;
  TrainSettings train;
  train.sequenceLength = 8;
  train.globalBatch = 16;
  train.optimizer.kind = OptimizerKind::Sgd;
  mlir::MLIRContext context;
  context.disableMultithreading();
  auto reference = compileUpTo(
      context, CompileInput{model, train, planOf(model, 1, 1, 16, 1, "")},
      Phase::Autodiff);
  ASSERT_TRUE(succeeded(reference));
  for (auto [dp, tp, microBatches] :
       {std::tuple(1, 1, 16), std::tuple(2, 2, 2), std::tuple(4, 1, 4)}) {
    auto module =
        compileUpTo(context,
                    CompileInput{model, train,
                                 planOf(model, dp, tp, 16 / dp / microBatches,
                                        microBatches, "")},
                    Phase::Overlap);
    ASSERT_TRUE(succeeded(module));
    auto comparison = interpret::compareSteps(**reference, **module, {});
    ASSERT_TRUE(succeeded(comparison));
    EXPECT_TRUE(comparison->isEqual(kTolerance)) << comparison->describe();
  }
  // Other masks are another result.
  interpret::CompareOptions other;
  other.firstStep = 2;
  auto module = compileUpTo(
      context, CompileInput{model, train, planOf(model, 1, 1, 16, 1, "")},
      Phase::Autodiff);
  auto first = interpret::compareSteps(**reference, **module, {});
  auto second = interpret::compareSteps(**reference, **module, other);
  ASSERT_TRUE(succeeded(first) && succeeded(second));
  EXPECT_GT(std::fabs(first->loss - second->loss), 1e-6);
}

// What rounding does: a step in bf16 is near one in fp64, no nearer than 8 bits
// allow, and a plan rounds as one device does, but for what is added in another
// order.
TEST(RoundedReading, PlansRoundAsOneDeviceDoes) {
  ModelConfig model = modelOf(kModels[0].config);
  TrainSettings train;
  train.sequenceLength = 8;
  train.globalBatch = 16;
  train.optimizer.kind = OptimizerKind::Sgd;
  mlir::MLIRContext context;
  context.disableMultithreading();
  const char *bf16 = R"(, "precision": "bf16")";
  auto compile = [&](const Plan &plan) {
    return compileUpTo(context, CompileInput{model, train, plan},
                       Phase::Overlap);
  };
  auto one = compile(planOf(model, 1, 1, 8, 2, bf16)),
       plan = compile(planOf(model, 2, 2, 4, 2, bf16)),
       wide = compile(planOf(model, 1, 1, 8, 2, ""));
  ASSERT_TRUE(succeeded(one) && succeeded(plan) && succeeded(wide));
  interpret::CompareOptions rounded;
  rounded.reading = interpret::Reading::Rounded;
  auto same = interpret::compareSteps(**one, **plan, rounded),
       coarser = interpret::compareSteps(**wide, **one, rounded);
  ASSERT_TRUE(succeeded(same) && succeeded(coarser));
  EXPECT_TRUE(same->isEqual(kRoundedTolerance)) << same->describe();
  EXPECT_FALSE(coarser->isEqual(1e-3)) << coarser->describe();
  EXPECT_TRUE(coarser->isEqual(kBf16Tolerance)) << coarser->describe();
  // Elsewhere, rounding is no excuse.
  auto exact = interpret::compareSteps(**wide, **plan, {});
  ASSERT_TRUE(succeeded(exact));
  EXPECT_TRUE(exact->isEqual(kTolerance)) << exact->describe();
}

INSTANTIATE_TEST_SUITE_P(Formats, PlanMatrix, testing::ValuesIn(formatCases()),
                         [](const auto &info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Blocks, PlanMatrix, testing::ValuesIn(blockCases()),
                         [](const auto &info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Recompute, PlanMatrix,
                         testing::ValuesIn(recomputeCases()),
                         [](const auto &info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Unfused, PlanMatrix, testing::ValuesIn(unfusedCases()),
                         [](const auto &info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Dropout, PlanMatrix, testing::ValuesIn(dropoutCases()),
                         [](const auto &info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Plans, PlanMatrix, testing::ValuesIn(casesToRun()),
                         [](const auto &info) { return info.param.name(); });

} // namespace
