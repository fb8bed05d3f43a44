//===- CostTest.cpp - closed formulas against programs --------------------===//
//
// lib/Cost computes from model, settings and plan; it never saw a program. Here
// its figures meet those counted in programs: operations and collectives in the
// per-rank tensors and again in rt, live bytes in the Memory pass's report.
//
//===----------------------------------------------------------------------===//

#include "CompareCost.h"
#include "CountProgram.h"

#include "test/TestPlan.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"
#include "heddle/Plan/PlanLayout.h"
#include "passes/Pipelines/Pipelines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

using namespace heddle;
using test::must;

namespace {

struct Model {
  const char *name;
  const char *config;
};

// Sizes that 2, 4 and 8 divide, and ones that they do not.
const Model kModels[] = {
    {"llama", R"({"model_type": "llama", "hidden_size": 16,
      "intermediate_size": 24, "num_hidden_layers": 3,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4,
      "vocab_size": 32, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})"},
    {"llama_ragged_biases", R"({"model_type": "llama", "hidden_size": 12,
      "intermediate_size": 19, "num_hidden_layers": 2,
      "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 4,
      "vocab_size": 37, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
      "attention_bias": true, "mlp_bias": true})"},
    {"mistral", R"({"model_type": "mistral", "hidden_size": 16,
      "intermediate_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
      "vocab_size": 48, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "sliding_window": 4,
      "tie_word_embeddings": false})"},
    {"qwen2", R"({"model_type": "qwen2", "hidden_size": 14,
      "intermediate_size": 21, "num_hidden_layers": 2,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"qwen3", R"({"model_type": "qwen3", "hidden_size": 12,
      "intermediate_size": 20, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6,
      "vocab_size": 48, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
    {"gpt2", R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2,
      "n_head": 4, "n_positions": 128, "vocab_size": 50,
      "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})"},
};

struct Shape {
  int64_t dp, tp, microBatch, microBatches, sequence;
  OptimizerKind optimizer;
};

const Shape kShapes[] = {
    {1, 1, 2, 1, 8, OptimizerKind::Sgd},
    {1, 1, 1, 3, 8, OptimizerKind::AdamW},
    {2, 2, 1, 2, 8, OptimizerKind::AdamW},
    {4, 1, 2, 2, 12, OptimizerKind::AdamW},
    {1, 4, 3, 2, 8, OptimizerKind::Sgd},
    {2, 4, 1, 1, 16, OptimizerKind::AdamW},
    {3, 2, 1, 2, 8, OptimizerKind::Sgd},
    {1, 8, 2, 2, 70, OptimizerKind::AdamW},
};

ModelConfig withoutDropout(const char *config) {
  ModelConfig model = test::modelOf(config);
  model.dropout = {};
  return model;
}

TrainSettings settingsOf(const Shape &shape) {
  TrainSettings train;
  train.sequenceLength = shape.sequence;
  train.globalBatch = shape.dp * shape.microBatch * shape.microBatches;
  train.optimizer.kind = shape.optimizer;
  train.precision = {"fp32", "bf16", "fp8", "nvfp4"};
  return train;
}

Plan planOf(const ModelConfig &model, const Shape &shape,
            const std::string &tensor = "\"megatron\"",
            const std::string &extra = "") {
  return test::planOf(model, shape.dp, shape.tp, shape.microBatch,
                      shape.microBatches, ", \"tensor\": " + tensor + extra);
}

/// bf16 with a master, and codes of it in products: gradients in either format,
/// reduced in either; scales of earlier steps; a first layer that stays in
/// bf16.
constexpr const char *kFormats[] = {
    R"(, "precision": "bf16")",
    R"(, "precision": {"recipe": "bf16", "gradients": "bf16"})",
    R"(, "precision": {"recipe": "bf16", "gradients": "bf16",
                       "reduce": "bf16"})",
    R"(, "precision": "fp8")",
    R"(, "precision": {"recipe": "fp8", "gradients": "bf16",
                       "scaling": "current_power_of_two"})",
    R"(, "precision": {"recipe": "fp8", "scaling": "delayed",
                       "amax_history": 5})",
    R"(, "precision": {"recipe": "fp8", "exceptions": [
                       {"match": "*.0.*", "compute": "bf16"}]})",
    R"(, "precision": {"recipe": "bf16", "reduce": "bf16"})",
};

constexpr const char *kCut = R"(, "sequence_parallel": true)";
constexpr const char *kGathered =
    R"(, "sequence_parallel": true, "save_gathered": true)";

/// Whether the formulas know sequences cut over tp: KV heads are split too
/// where there are fewer than ranks.
bool knowsCut(const ModelConfig &model, const Shape &shape) {
  HeadSplit heads =
      splitHeads(model.kvHeads, model.queryHeadsPerKvHead, shape.tp);
  return heads.kv > 1 || heads.copy == 1;
}

class CostOfModel : public testing::TestWithParam<Model> {};

void checkShapes(const ModelConfig &model) {
  for (const Shape &shape : kShapes) {
    SCOPED_TRACE(fmt::format("dp {} tp {} micro-batches {} x {}", shape.dp,
                             shape.tp, shape.microBatches, shape.microBatch));
    checkProgram(model, settingsOf(shape), planOf(model, shape));
    if (knowsCut(model, shape))
      for (const char *sequences : {kCut, kGathered}) {
        SCOPED_TRACE(sequences);
        checkProgram(model, settingsOf(shape),
                     planOf(model, shape, "\"megatron\"", sequences));
      }
  }
}

/// One of the shapes, with these members of a plan; by \p k with sequences cut,
/// and their normed parts kept gathered.
void checkMembers(const ModelConfig &model, size_t k, std::string members) {
  const Shape &shape = kShapes[k % std::size(kShapes)];
  if (knowsCut(model, shape) && k % 3 > 0)
    members += k % 3 == 1 ? kCut : kGathered;
  SCOPED_TRACE(fmt::format("dp {} tp {} micro-batches {} x {}{}", shape.dp,
                           shape.tp, shape.microBatches, shape.microBatch,
                           members));
  checkProgram(model, settingsOf(shape),
               planOf(model, shape, "\"megatron\"", members));
}

TEST_P(CostOfModel, EqualsTheProgram) {
  checkShapes(withoutDropout(GetParam().config));
}

TEST_P(CostOfModel, EqualsTheProgramInOtherFormats) {
  const ModelConfig model = withoutDropout(GetParam().config);
  static_assert(std::size(kFormats) == std::size(kShapes));
  for (size_t i = 0; i < std::size(kFormats); ++i)
    checkMembers(model, i, kFormats[i]);
}

// Codes whose blocks have scales, the longest blocks that ranks hold whole, and
// products that stay in bf16.
TEST_P(CostOfModel, EqualsTheProgramOfBlocks) {
  const ModelConfig model = withoutDropout(GetParam().config);
  constexpr std::pair<const char *, const char *> kScalings[] = {
      {"fp8", "block"},
      {"nvfp4", "nvfp4"},
      {"fp8", "mxfp8"},
      {"fp8", "block_power_of_two"},
      {"nvfp4", "nvfp4"}};
  const char *exceptions = model.family == Family::Gpt2 ? "*attn.c_attn.weight"
                                                        : "*[vo]_proj.weight";
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const Shape &shape = kShapes[i];
    const TrainSettings train = settingsOf(shape);
    const auto [recipe, scaling] = kScalings[i % std::size(kScalings)];
    std::string members = fmt::format(
        R"(, "precision": {{"recipe": "{}", "scaling": "{}")", recipe, scaling);
    if (i % 2)
      members += fmt::format(
          R"(, "exceptions": [{{"match": "{}", "compute": "bf16"}}])",
          exceptions);
    for (int length : {32, 5, 4, 3, 2, 1}) {
      if (std::string_view(scaling) == "mxfp8" && length != 32)
        break;
      if (std::string_view(scaling) == "nvfp4" && (length == 5 || length == 3))
        continue; // as many tokens are mixed
      const Plan plan =
          planOf(model, shape, "\"megatron\"",
                 members + fmt::format(R"(, "block_length": {}}})", length) +
                     (knowsCut(model, shape) && i % 4 == 2 ? kCut : ""));
      if (!checkPlan(plan, model, train))
        continue;
      checkProgram(model, train, plan);
      break;
    }
  }
}

/// What backward computes again; names that not all families have are left out.
constexpr const char *kAgain[] = {
    R"("full")",
    R"([{"full": true, "prune": false}])",
    R"("selective")",
    R"(["n1", "n2", "m"])",
    R"(["x1", "o", "n2"])",
    R"(["q", "k", "v", "x2"])",
    R"([{"layers": "0", "full": true}, {"layers": "1", "values": ["m"]}])",
};

TEST_P(CostOfModel, EqualsTheProgramThatComputesAgain) {
  ModelConfig model = withoutDropout(GetParam().config);
  for (size_t i = 0; i < std::size(kAgain); ++i)
    for (size_t k : {i, i + 3}) {
      const double rate = k % 2 > 0 ? 0.1 : 0;
      model.dropout = {rate, rate, rate};
      checkMembers(model, k, fmt::format(R"(, "recompute": {})", kAgain[i]));
    }
}

// Masks take nothing, but what dropout reads is an input, and the gradients
// before and behind it are two.
TEST_P(CostOfModel, EqualsTheProgramWithDropout) {
  ModelConfig model = withoutDropout(GetParam().config);
  for (DropoutRates rates :
       {DropoutRates{0.1, 0, 0.1}, DropoutRates{0, 0.1, 0}}) {
    SCOPED_TRACE(fmt::format("dropout {} {} {}", rates.attention,
                             rates.residual, rates.embedding));
    model.dropout = rates;
    checkShapes(model);
  }
}

/// Values that wait for backward on the host, those of the default set and
/// those of one value that all else is computed again of.
constexpr const char *kOffloaded[] = {
    R"(, "offload": {"saved": ["v", "m"]})",
    R"(, "offload": {"saved": ["x1"]}, "recompute": "full")",
    R"(, "offload": {"optimizer": true})",
    R"(, "offload": {"saved": ["x1"], "optimizer": true}, "recompute": "full",
         "precision": "bf16", "zero": {"stage": 1})",
    R"(, "offload": {"saved": ["o", "up"]}, "recompute": "selective")",
    R"(, "offload": {"saved": ["n1", "lse"]}, "overlap": {"memory_bytes": 9000},
         "zero": {"stage": 3, "gather": "every_pass", "prefetch": 2})",
};

TEST_P(CostOfModel, EqualsTheProgramThatOffloads) {
  const ModelConfig model = withoutDropout(GetParam().config);
  for (size_t i = 0; i < std::size(kOffloaded); ++i)
    for (size_t k : {i + 1, i + 2, i + 4})
      checkMembers(model, k, kOffloaded[i]);
}

/// Attention as products, masks drawn again or saved, and what backward
/// computes again of both.
constexpr const char *kUnfused[] = {
    R"()",
    R"(, "dropout_masks": "saved")",
    R"(, "dropout_masks": "saved", "recompute": "selective")",
    R"(, "dropout_masks": "saved", "save": "linear_inputs",
         "recompute": "selective")",
    R"(, "recompute": [{"selective": true, "prune": false}])",
    R"(, "dropout_masks": "saved", "recompute": "full")",
    R"(, "dropout_masks": "saved", "recompute": ["p", "o"])",
};

TEST_P(CostOfModel, EqualsTheProgramOfUnfusedAttention) {
  ModelConfig model = withoutDropout(GetParam().config);
  for (size_t i = 0; i < std::size(kUnfused); ++i)
    for (size_t k : {i, i + 3, i + 4}) {
      const double rate = k % 2 > 0 ? 0.1 : 0;
      model.dropout = {rate, rate, rate};
      checkMembers(model, k,
                   std::string(R"(, "attention": "unfused")") + kUnfused[i] +
                       (k % 4 > 1 ? kFormats[0] : ""));
    }
}

// Masks of what flows between blocks are saved beside attention's kernel too.
TEST(CostOfProgram, EqualsTheProgramThatSavesMasks) {
  ModelConfig model = withoutDropout(kModels[5].config);
  model.dropout = {0, 0.1, 0.1};
  for (const char *members : {R"(, "dropout_masks": "saved")",
                              R"(, "dropout_masks": "saved",
                                   "sequence_parallel": true)"})
    for (const Shape &shape : {kShapes[1], kShapes[2]}) {
      SCOPED_TRACE(members);
      checkProgram(model, settingsOf(shape),
                   planOf(model, shape, "\"megatron\"", members));
    }
}

INSTANTIATE_TEST_SUITE_P(Families, CostOfModel, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });

/// A model and a plan drawn by a seed: sizes that divide and that do not, heads
/// larger than the rest, and parts that the plan leaves whole.
struct Drawn {
  ModelConfig model;
  Shape shape;
  std::string tensor;    ///< of the plan
  std::string sequences; ///< the same, where they are cut

  explicit Drawn(unsigned seed) : random(seed) {
    model = withoutDropout(kModels[seed % std::size(kModels)].config);
    model.hidden = draw(1, 40);
    model.ffn = draw(1, 80);
    model.vocabulary = draw(4, 90);
    model.layers = draw(1, 4);
    model.kvHeads = draw(1, 6);
    model.queryHeadsPerKvHead = model.family == Family::Gpt2 ? 1 : draw(1, 5);
    model.headSize = 2 * draw(1, 12);
    for (double *rate : {&model.dropout.attention, &model.dropout.residual,
                         &model.dropout.embedding})
      *rate = draw(0, 2) == 0 ? 0.5 : 0;
    shape = {
        draw(1, 3),  draw(1, 8),
        draw(1, 3),  draw(1, 3),
        draw(1, 90), draw(0, 1) ? OptimizerKind::Sgd : OptimizerKind::AdamW};
    tensor = rules();
    if (seed % 3 == 0)
      return;
    if (!knowsCut(model, shape))
      return;
    tensor = "\"megatron\"";
    sequences = seed % 3 == 1 ? kCut : kGathered;
  }

private:
  int64_t draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }

  std::string rules() {
    std::string text;
    for (const PlanRule &rule : megatronRules(model))
      text += fmt::format(
          R"({{"match": "{}", "split": {{{}}}}}, )", rule.match,
          rule.split.empty()
              ? ""
              : fmt::format(R"("{}": ["tp"])", rule.split.begin()->first));
    for (const char *part : {"*attn*", "*mlp*", "*embed*", "*wte*", "lm_head*"})
      if (draw(0, 3) == 0)
        text += fmt::format(R"({{"match": "{}", "split": {{}}}}, )", part);
    text.resize(text.size() - 2);
    return fmt::format(R"({{"parameters": [{}], "saved": [], "values": [
          {{"match": "block.x", "split": {{"b": ["dp"]}}}},
          {{"match": "block.delta", "split": {{"b": ["dp"]}}}}]}})",
                       text);
  }

  std::mt19937 random;
};

TEST(CostOfProgram, EqualsDrawnModels) {
  for (unsigned seed = 0; seed < 180; ++seed) {
    Drawn drawn(seed);
    SCOPED_TRACE(fmt::format(
        "seed {} dp {} tp {} s {} m {} x {}: d {} f {} v {} g {} r {} k {}\n{}",
        seed, drawn.shape.dp, drawn.shape.tp, drawn.shape.sequence,
        drawn.shape.microBatches, drawn.shape.microBatch, drawn.model.hidden,
        drawn.model.ffn, drawn.model.vocabulary, drawn.model.kvHeads,
        drawn.model.queryHeadsPerKvHead, drawn.model.headSize,
        drawn.tensor + drawn.sequences));
    checkProgram(
        drawn.model, settingsOf(drawn.shape),
        planOf(drawn.model, drawn.shape, drawn.tensor, drawn.sequences));
    if (testing::Test::HasFailure())
      return;
  }
}

/// How states are stored and gradients reduced, drawn by a seed: stages of ZeRO
/// in turn, for one of the models and plans above.
struct DrawnStorage {
  Drawn drawn;
  int64_t group;
  std::string text; ///< of the plan

  explicit DrawnStorage(unsigned seed) : drawn(seed), random(seed) {
    Shape &shape = drawn.shape;
    shape.dp = one({2, 3, 4, 4, 6, 8});
    shape.tp = std::min<int64_t>(shape.tp, 4);
    shape.microBatch = 1;
    if (!drawn.sequences.empty() && !knowsCut(drawn.model, shape))
      drawn.sequences = "";
    group = one({shape.dp, shape.dp, 2, 3});
    if (shape.dp % group != 0)
      group = shape.dp;
    const char *reduce[] = {"last", "every_micro_batch"};
    const char *gather[] = {"every_pass", "every_micro_batch", "once_per_step"};
    text = fmt::format(
        R"(, "zero": {{"stage": {}, "shard_group": {}, "prefetch": {},
               "reduce": "{}", "gather": "{}"}},
             "buckets": {{"gradient_bytes": {}, "order": "{}"}},
             "overlap": {})",
        seed % 4, group, one({0, 1, 2, 3}), reduce[one({0, 1})],
        gather[one({0, 1, 2})], one({1, 300, 2000, 1000000}),
        one({0, 1}) ? "backward" : "forward",
        one({0, 1}) ? "\"none\""
                    : fmt::format(R"({{"memory_bytes": {}}})",
                                  one({5000, 20000, 1000000000})));
    // Without codes: what is padding would count in scales.
    if (int64_t formats = one({-1, -1, -1, 0, 1, 2, 7}); formats >= 0)
      text += kFormats[formats];
  }

  bool isRagged() const {
    return drawn.model.hidden % 16 != 0 && drawn.model.vocabulary % 16 != 0;
  }

private:
  int64_t one(std::initializer_list<int64_t> list) {
    return *(list.begin() +
             std::uniform_int_distribution<size_t>(0, list.size() - 1)(random));
  }

  std::mt19937 random;
};

TEST(CostOfProgram, EqualsDrawnStorage) {
  int accumulating[4] = {}, hybrid = 0, ragged = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    DrawnStorage storage(seed);
    const Drawn &drawn = storage.drawn;
    SCOPED_TRACE(fmt::format(
        "seed {} dp {} tp {} s {} m {}: layers {} d {} f {} v {} g {} r {} "
        "k {}\n{}",
        seed, drawn.shape.dp, drawn.shape.tp, drawn.shape.sequence,
        drawn.shape.microBatches, drawn.model.layers, drawn.model.hidden,
        drawn.model.ffn, drawn.model.vocabulary, drawn.model.kvHeads,
        drawn.model.queryHeadsPerKvHead, drawn.model.headSize,
        drawn.tensor + drawn.sequences + storage.text));
    checkProgram(drawn.model, settingsOf(drawn.shape),
                 planOf(drawn.model, drawn.shape, drawn.tensor,
                        drawn.sequences + storage.text));
    if (testing::Test::HasFailure())
      return;
    accumulating[seed % 4] += drawn.shape.microBatches > 1;
    hybrid += seed % 4 > 0 && storage.group < drawn.shape.dp;
    ragged += seed % 4 > 0 && storage.isRagged();
  }
  for (int plans : accumulating)
    EXPECT_GE(plans, 5);
  EXPECT_GE(hybrid, 3);
  EXPECT_GE(ragged, 3);
}

/// A plan of ZeRO in its closed form: a rank's states, and what it sends, in
/// parameters P that it computes with, for K ranks and m micro-batches.
struct ClosedForm {
  const char *zero; ///< of the plan
  /// States in elements of P: whole, or cut over K.
  bool cutsParameters, cutsGradients, cutsOptimizer;
  /// Moved, in (K - 1) / K of P: reduced, and gathered.
  double reduced, gathered;
  double once; ///< of the latter, not for parameters outside of blocks
};

constexpr double kMicroBatches = 3;
const ClosedForm kClosedForms[] = {
    {R"("stage": 0)", false, false, false, 2, 0, 0},
    {R"("stage": 1, "reduce": "last")", false, false, true, 1, 1, 0},
    {R"("stage": 2, "reduce": "last")", false, false, true, 1, 1, 0},
    {R"("stage": 2, "reduce": "every_micro_batch")", false, true, true,
     kMicroBatches, 1, 0},
    // The head's forward and backward are one function, and the gradient of a
    // table is made without it: gathered once.
    {R"("stage": 3, "reduce": "every_micro_batch", "gather": "every_pass")",
     true, true, true, kMicroBatches, 2 * kMicroBatches, kMicroBatches},
    {R"("stage": 3, "reduce": "every_micro_batch",
        "gather": "every_micro_batch")",
     true, true, true, kMicroBatches, kMicroBatches, 0},
    {R"("stage": 3, "reduce": "last", "gather": "once_per_step")", true, false,
     true, 1, 1, 0},
};

/// Bytes per parameter: of itself, of its gradient, of what the optimizer has
/// (AdamW's two moments and the master), and of what is reduced.
struct ClosedFormats {
  const char *plan;
  double parameter, gradient, optimizer, reduced;
};
const ClosedFormats kClosedFormats[] = {{"", 4, 4, 8, 4},
                                        {kFormats[0], 2, 4, 12, 4},
                                        {kFormats[1], 2, 2, 12, 4},
                                        {kFormats[2], 2, 2, 12, 2}};

// With 2-byte gradients 16P in all, 4P + 12P/K in stage 1, 2P + 14P/K in 2,
// 16P/K in 3; with fp32 ones 18P, 6P + 12P/K, 2P + 16P/K, 18P/K. The figures
// are the program's: checkProgram holds its memory to what is compared here.
void checkClosedForm(const ClosedForm &form, const ClosedFormats &formats,
                     int64_t dp, int64_t tp) {
  SCOPED_TRACE(
      fmt::format("{}{} dp {} tp {}", form.zero, formats.plan, dp, tp));
  const std::filesystem::path root = HEDDLE_SOURCE_DIR;
  ModelConfig model =
      must(readModelConfig(root / "test/cases/hf_configs/llama-3-8b.json"));
  Shape shape = {dp, tp, 1, int64_t(kMicroBatches), 128, OptimizerKind::AdamW};
  Plan plan = planOf(model, shape, "\"megatron\"",
                     fmt::format(R"(, "zero": {{{}, "shard_group": {}}},
                                     "overlap": {{"memory_bytes": 8000000000}}{})",
                                 form.zero, dp, formats.plan));
  checkProgram(model, settingsOf(shape), plan);
  RankSizes sizes = must(rankSizes(model, settingsOf(shape), plan));
  double all = 0, outside = 0;
  for (const RankParameter &each : sizes.parameters) {
    const double elements =
        double(each.elements()) * double(each.family.layers);
    all += elements;
    outside += each.family.segment != Segment::Block ? elements : 0;
  }
  if (tp == 1) {
    EXPECT_EQ(all, double(parameterCount(model)));
  }
  LiveMemory memory = liveMemory(model, settingsOf(shape), sizes);
  const double K = double(dp);
  auto share = [&](bool cuts) { return cuts ? all / K : all; };
  EXPECT_EQ(double(memory.parameters),
            formats.parameter * share(form.cutsParameters));
  EXPECT_EQ(double(memory.gradients),
            formats.gradient * share(form.cutsGradients));
  EXPECT_EQ(double(memory.optimizer),
            formats.optimizer * share(form.cutsOptimizer));
  double bytes = 0;
  for (const StepCollective &each : stepCollectives(sizes))
    if (each.isOfStates)
      bytes += each.bytes;
  EXPECT_EQ(bytes, (K - 1) / K *
                       (formats.reduced * form.reduced * all +
                        formats.parameter *
                            (form.gathered * all - form.once * outside)));
}

TEST(CostOfProgram, StatesAndVolumesHaveTheirClosedForms) {
  for (const ClosedForm &form : kClosedForms)
    for (const ClosedFormats &formats : kClosedFormats)
      checkClosedForm(form, formats, 64, 1);
}

TEST(CostOfProgram, StatesHaveTheirClosedFormsBesideTensorParallelism) {
  for (const ClosedForm &form : kClosedForms)
    for (const ClosedFormats &formats : kClosedFormats)
      checkClosedForm(form, formats, 8, 8);
}

TEST(CostOfProgram, EqualsLlama405B) {
  const std::filesystem::path root = HEDDLE_SOURCE_DIR;
  ModelConfig model =
      must(readModelConfig(root / "test/cases/hf_configs/llama-3.1-405b.json"));
  TrainSettings train =
      must(readTrainSettings(root / "tools/examples/train/llama3-405b.yaml"));
  Plan plan = must(readPlan(
      root / "tools/examples/plans/llama-3.1-405b-tp8-dp1024.json", &model));
  checkProgram(model, train, plan);
  for (PlanRule &rule : plan.tensor.values)
    rule.split["s"] = {"tp"};
  checkProgram(model, train, plan);
}

TEST(CostOfProgram, EqualsLlama405BInShards) {
  const std::filesystem::path root = HEDDLE_SOURCE_DIR;
  ModelConfig model =
      must(readModelConfig(root / "test/cases/hf_configs/llama-3.1-405b.json"));
  TrainSettings train =
      must(readTrainSettings(root / "tools/examples/train/llama3-405b.yaml"));
  Plan plan = must(readPlan(
      root / "tools/examples/plans/llama-3.1-405b-hsdp64-tp8.json", &model));
  checkProgram(model, train, plan);
}

} // namespace
