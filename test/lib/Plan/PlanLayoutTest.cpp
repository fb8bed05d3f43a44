#include "PlanModels.h"

#include "heddle/Plan/PlanLayout.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

Plan planOf(const ModelConfig &model, std::int64_t dp, std::int64_t tp) {
  Plan plan;
  plan.mesh = {{"pp", 1}, {"dp", dp}, {"cp", 1}, {"tp", tp}};
  plan.stages.layers = {{{0, model.layers - 1}}};
  plan.tensor.parameters = megatronRules(model);
  plan.tensor.values = {{"block.x", {{"b", {"dp"}}}}};
  return plan;
}

PlanDims layoutOf(const Plan &plan, const ModelConfig &model,
                  const std::string &argumentOrName) {
  for (const ParameterFamily &family : parameters(model))
    if (family.name.find(argumentOrName) != std::string::npos) {
      Result<PlanDims> dims = parameterLayout(plan, model, family);
      EXPECT_TRUE(dims) << (dims ? "" : dims.message());
      return dims ? *dims : PlanDims();
    }
  ADD_FAILURE() << "no parameter " << argumentOrName;
  return {};
}

// Sequences are cut over cp whatever the short forms say of tp.
TEST(PlanLayout, SequencesAreCutOverCp) {
  const ModelConfig model = test::llama10m();
  Result<Document> text = Document::parse(
      R"({"mesh": [["pp", 1], ["dp", 2], ["cp", 2], ["tp", 4]],
          "context": "ring"})",
      "plan.json", Document::Syntax::Json);
  ASSERT_TRUE(text) << text.message();
  Result<Plan> plan = readPlan(*text, &model);
  ASSERT_TRUE(plan) << plan.message();
  const std::vector<PlanRule> values = {
      {"block.x", {{"b", {"dp"}}, {"s", {"cp"}}}},
      {"block.delta", {{"b", {"dp"}}, {"s", {"cp"}}}}};
  EXPECT_EQ(plan->tensor.values, values);
}

// A rule that takes some layers only is found, by whichever sign it tells them
// apart, before or behind a rule for all of them.
TEST(PlanLayout, LayersOfOtherLayoutsAreRefused) {
  const ModelConfig model = test::llama10m();
  auto isTaken = [&](const std::string &match, bool isFirst) {
    Plan plan = planOf(model, 1, 4);
    const PlanRule whole = {"*", {}}, part = {match, {{"f", {"tp"}}}};
    plan.tensor.parameters =
        isFirst ? std::vector{part, whole} : std::vector{whole, part};
    for (const ParameterFamily &family : parameters(model))
      if (family.name.find("up_proj") != std::string::npos)
        return static_cast<bool>(parameterLayout(plan, model, family));
    ADD_FAILURE();
    return false;
  };
  for (const char *match :
       {"*.1.mlp.up_proj.*", "*.[12].mlp.up_proj.*", "*.[0-1].mlp.up_proj.*",
        "*.[!0].mlp.up_proj.*", "*.[ -1].mlp.up_proj.*", "*.0.mlp.up_*"}) {
    EXPECT_FALSE(isTaken(match, false)) << match;
    EXPECT_TRUE(isTaken(match, true)) << match;
  }
  for (const char *match : {"*.mlp.up_proj.*", "*.mlp.[tu]p_proj.weight",
                            "*.?.mlp.up_proj.*", "*.[0-9].mlp.up_proj.*"})
    EXPECT_TRUE(isTaken(match, false)) << match;
  // Layer 0 by the second, the others by the first.
  Plan plan = planOf(model, 1, 4);
  plan.tensor.parameters = {{"*", {}},
                            {"*.mlp.*", {{"f", {"tp"}}}},
                            {"*.0.mlp.up_proj.*", {{"f", {"tp"}}}}};
  EXPECT_EQ(layoutOf(plan, model, "up_proj")[0],
            std::vector<std::string>{"tp"});
}

TEST(PlanLayout, SplitHeads) {
  struct Row {
    std::int64_t g, r, tp;
    HeadSplit split; // kv, copy, padded g, padded r
  };
  const Row rows[] = {
      {3, 3, 2, {2, 1, 4, 3}},    // both ways pad to 12: more KV splitting
      {2, 2, 4, {2, 2, 2, 2}},    // nothing padded
      {3, 4, 4, {1, 4, 3, 4}},    // KV whole
      {8, 16, 16, {8, 2, 8, 16}}, // 405B over 16
      {8, 16, 8, {8, 1, 8, 16}},  //
      {1, 8, 4, {1, 4, 1, 8}},    // one KV head
      {12, 1, 8, {8, 1, 16, 1}},  // 12 heads of their own over 8
      {2, 7, 4, {2, 2, 2, 8}},    // r padded, 16 instead of 28
      {5, 1, 5, {5, 1, 5, 1}},    //
      {4, 3, 1, {1, 1, 4, 3}},    //
      {4, 3, 12, {4, 3, 4, 3}},   // a divisor of tp that is no power of two
      {3, 2, 6, {3, 2, 3, 2}},    //
  };
  for (const Row &row : rows) {
    HeadSplit split = splitHeads(row.g, row.r, row.tp);
    EXPECT_EQ(split, row.split)
        << row.g << " " << row.r << " " << row.tp << ": " << split.kv << " "
        << split.copy << " " << split.paddedG << " " << split.paddedR;
  }
}

// Against a search without any order, over all small sizes.
TEST(PlanLayout, SplitHeadsPadsLeast) {
  for (std::int64_t g = 1; g <= 9; ++g)
    for (std::int64_t r = 1; r <= 9; ++r)
      for (std::int64_t tp = 1; tp <= 12; ++tp) {
        HeadSplit split = splitHeads(g, r, tp);
        EXPECT_EQ(split.kv * split.copy, tp);
        EXPECT_EQ(split.paddedG % split.kv, 0);
        EXPECT_EQ(split.paddedR % split.copy, 0);
        EXPECT_TRUE(split.paddedG >= g && split.paddedG < g + split.kv);
        EXPECT_TRUE(split.paddedR >= r && split.paddedR < r + split.copy);
        for (std::int64_t kv = 1; kv <= tp && r > 1; ++kv) {
          if (tp % kv)
            continue;
          std::int64_t paddedG = g, paddedR = r;
          while (paddedG % kv)
            ++paddedG;
          while (paddedR % (tp / kv))
            ++paddedR;
          EXPECT_LE(split.paddedG * split.paddedR, paddedG * paddedR);
          if (split.paddedG * split.paddedR == paddedG * paddedR) {
            EXPECT_GE(split.kv, kv);
          }
        }
      }
}

TEST(PlanLayout, Llama405bOver8) {
  ModelConfig model = test::llama405b();
  Plan plan = planOf(model, 1024, 8);
  EXPECT_EQ(meshOfPlan(plan, model),
            (ReshardMesh{{{"pp", 1}, {"dp", 1024}, {"cp", 1}, {"tp", 8}}}));
  EXPECT_EQ(layoutOf(plan, model, "q_proj"), (PlanDims{{"tp"}, {}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "k_proj"), (PlanDims{{"tp"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "o_proj"), (PlanDims{{}, {"tp"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "down_proj"), (PlanDims{{}, {"tp"}}));
  EXPECT_EQ(layoutOf(plan, model, "gate_proj"), (PlanDims{{"tp"}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "embed_tokens"), (PlanDims{{"tp"}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "input_layernorm"), (PlanDims{{}}));
  EXPECT_EQ(paddedSizes(plan, model), factorSizes(plan, model));
  EXPECT_EQ(paddedSizes(plan, model).at("b"), 1024);
}

TEST(PlanLayout, Llama405bOver16) {
  ModelConfig model = test::llama405b();
  Plan plan = planOf(model, 2, 16);
  EXPECT_EQ(
      meshOfPlan(plan, model),
      (ReshardMesh{
          {{"pp", 1}, {"dp", 2}, {"cp", 1}, {"tp.kv", 8}, {"tp.copy", 2}}}));
  EXPECT_EQ(layoutOf(plan, model, "q_proj"),
            (PlanDims{{"tp.kv"}, {"tp.copy"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "k_proj"), (PlanDims{{"tp.kv"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "v_proj"), (PlanDims{{"tp.kv"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "o_proj"),
            (PlanDims{{}, {"tp.kv"}, {"tp.copy"}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "down_proj"),
            (PlanDims{{}, {"tp.kv", "tp.copy"}}));
  EXPECT_EQ(layoutOf(plan, model, "lm_head"),
            (PlanDims{{"tp.kv", "tp.copy"}, {}}));
  EXPECT_EQ(paddedSizes(plan, model), factorSizes(plan, model));
}

TEST(PlanLayout, OneKvSplitLeavesKWhole) {
  ModelConfig model = test::llama(2, 32, 3, 12, 8, 96, 256);
  Plan plan = planOf(model, 1, 4);
  EXPECT_EQ(layoutOf(plan, model, "q_proj"),
            (PlanDims{{}, {"tp.copy"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "k_proj"), (PlanDims{{}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "up_proj"), (PlanDims{{"tp.copy"}, {}}));
}

TEST(PlanLayout, Gpt2PadsHeadsAndVocabulary) {
  ModelConfig model = test::gpt2();
  Plan plan = planOf(model, 2, 8);
  EXPECT_EQ(layoutOf(plan, model, "c_attn.weight"),
            (PlanDims{{}, {"tp"}, {}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "c_attn.bias"), (PlanDims{{}, {"tp"}, {}}));
  EXPECT_EQ(layoutOf(plan, model, "wpe"), (PlanDims{{}, {}}));
  std::map<std::string, std::int64_t> padded = paddedSizes(plan, model);
  EXPECT_EQ(padded.at("g"), 16);
  EXPECT_EQ(padded.at("r"), 1);
  EXPECT_EQ(padded.at("v"), 50264);
  EXPECT_EQ(padded.at("f"), 3072);
  EXPECT_EQ(padded.at("d"), 768);
  EXPECT_EQ(factorSizes(plan, model).at("v"), 50257);
}

TEST(PlanLayout, RulesOnHeadsPerKvHead) {
  ModelConfig model = test::llama(2, 32, 2, 8, 8, 96, 256);
  Plan plan = planOf(model, 1, 4);
  plan.tensor.parameters.push_back({"*q_proj*", {{"r", {"tp"}}}});
  EXPECT_EQ(layoutOf(plan, model, "q_proj"),
            (PlanDims{{}, {"tp.kv", "tp.copy"}, {}, {}}));
  plan.tensor.parameters.push_back(
      {"*q_proj*", {{"g", {"tp.kv"}}, {"r", {"tp.copy"}}}});
  EXPECT_EQ(layoutOf(plan, model, "q_proj"),
            (PlanDims{{"tp.kv"}, {"tp.copy"}, {}, {}}));
  // Where the KV heads take all of tp its parts are still understood.
  plan.mesh.back().second = 2;
  EXPECT_EQ(layoutOf(plan, model, "q_proj"), (PlanDims{{"tp"}, {}, {}, {}}));
}

// One padded size per factor: the common multiple over all tensors.
TEST(PlanLayout, PaddedSizesCountValues) {
  ModelConfig model = test::llama(2, 32, 4, 4, 8, 100, 256);
  Plan plan = planOf(model, 3, 8);
  EXPECT_EQ(paddedSizes(plan, model).at("f"), 104);
  plan.tensor.values.push_back({"block.m", {{"f", {"dp"}}}});
  EXPECT_EQ(paddedSizes(plan, model).at("f"), 120);
}

TEST(PlanLayout, ValuesFollowTheLastRule) {
  ModelConfig model = test::llama(2, 32, 2, 8, 8, 96, 256);
  Plan plan = planOf(model, 2, 4);
  auto layout = [&](std::string_view name, std::string_view letters) {
    Result<std::optional<PlanDims>> result =
        valueLayout(plan, model, name, letters);
    EXPECT_TRUE(result) << (result ? "" : result.message());
    return result ? *result : std::nullopt;
  };
  EXPECT_EQ(layout("block.x", "b s d"), (PlanDims{{"dp"}, {}, {}}));
  EXPECT_EQ(layout("block.n1", "b s d"), std::nullopt);
  plan.tensor.values.push_back({"block.[qo]", {{"b", {"dp"}}, {"g", {"tp"}}}});
  plan.tensor.values.push_back({"block.k", {{"g", {"tp"}}}});
  EXPECT_EQ(layout("block.q", "b s g r k"),
            (PlanDims{{"dp"}, {}, {"tp.kv"}, {"tp.copy"}, {}}));
  EXPECT_EQ(layout("block.k", "b s g k"), (PlanDims{{}, {}, {"tp.kv"}, {}}));
  EXPECT_FALSE(valueLayout(plan, model, "block.k", "b s d"));
  EXPECT_EQ(*savedLayout(plan, model, "block.x", "b s d"), std::nullopt);
}

TEST(PlanLayout, AxesOfSizeOneAreLeftOut) {
  ModelConfig model = test::llama10m();
  Plan plan = planOf(model, 1, 1);
  for (const ParameterFamily &family : parameters(model)) {
    Result<PlanDims> dims = parameterLayout(plan, model, family);
    ASSERT_TRUE(dims) << dims.message();
    for (const std::vector<std::string> &axes : *dims)
      EXPECT_TRUE(axes.empty());
  }
}

// Experts are dealt out over ep, which is another view of dp x cp; everything
// else is split over tp as in models that are compiled.
TEST(PlanLayout, MegatronCoversModelsWithExperts) {
  for (const char *name :
       {"mixtral-8x7b", "qwen2-moe-a2.7b", "qwen3-30b-a3b", "deepseek-v3"}) {
    Result<ModelConfig> model = readModelConfig(
        std::filesystem::path(HEDDLE_SOURCE_DIR "/test/cases/hf_configs") /
        (std::string(name) + ".json"));
    ASSERT_TRUE(model) << model.message();
    Plan plan = planOf(*model, 4, 2);
    plan.mesh.emplace_back("ep", 4);
    EXPECT_EQ(plan.ranks(), 8);
    for (const ParameterFamily &family : parameters(*model))
      EXPECT_TRUE(parameterLayout(plan, *model, family)) << family.name;
    EXPECT_EQ(layoutOf(plan, *model, ".experts."),
              (PlanDims{{"ep"}, {"tp"}, {}}));
    EXPECT_EQ(layoutOf(plan, *model, "gate.weight"), (PlanDims{{}, {}}));
    TrainSettings train = test::batchOf(4);
    EXPECT_EQ(checkPlan(plan, *model, train).message(),
              *whyNotCompiled(*model));
  }
}

} // namespace
} // namespace heddle
