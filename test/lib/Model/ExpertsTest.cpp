// Families that are read for planning: experts, latent attention.

#include "Configs.h"

#include "heddle/Model/Parameters.h"

#include <gmock/gmock.h>

using namespace heddle;
using namespace heddle::test;
using testing::HasSubstr;

static ModelConfig publicModel(const std::string &name) {
  Result<ModelConfig> model =
      readModelConfig(std::filesystem::path(HEDDLE_SOURCE_DIR) /
                      "test/cases/hf_configs" / (name + ".json"));
  EXPECT_TRUE(model) << model.message();
  return *model;
}

/// Elements of all parameters whose names hold a text.
static std::int64_t countOf(const ModelConfig &model, const std::string &part) {
  std::int64_t count = 0;
  for (const ParameterFamily &family : parameters(model))
    if (family.name.find(part) != std::string::npos)
      count += family.totalElements();
  return count;
}

TEST(Experts, MixtralIsCountedPartByPart) {
  const ModelConfig model = publicModel("mixtral-8x7b");
  EXPECT_EQ(model.experts->count, 8);
  EXPECT_EQ(model.experts->perToken, 2);
  EXPECT_EQ(countOf(model, ".experts."), 32LL * 8 * 3 * 4096 * 14336);
  EXPECT_EQ(countOf(model, "moe.gate."), 32LL * 8 * 4096);
  EXPECT_EQ(countOf(model, "self_attn"),
            32LL * (2 * 4096 * 4096 + 2 * 4096 * 1024));
  EXPECT_EQ(countOf(model, "norm"), 65LL * 4096);
  EXPECT_EQ(countOf(model, "embed_tokens") + countOf(model, "lm_head"),
            2LL * 32000 * 4096);
  EXPECT_EQ(parameterCount(model), 46702792704);
  // 6 of 8 experts are not taken.
  EXPECT_EQ(activeParameterCount(model),
            46702792704 - 32LL * 6 * 3 * 4096 * 14336);
}

TEST(Experts, Qwen2MoeHasASharedExpertWithAGate) {
  const ModelConfig model = publicModel("qwen2-moe-a2.7b");
  EXPECT_EQ(countOf(model, ".experts."), 24LL * 60 * 3 * 2048 * 1408);
  EXPECT_EQ(countOf(model, "shared_expert."), 24LL * 3 * 2048 * 5632);
  EXPECT_EQ(countOf(model, "shared_expert_gate"), 24LL * 2048);
  EXPECT_EQ(countOf(model, "_proj.bias"), 24LL * 3 * 2048);
  EXPECT_EQ(parameterCount(model), 14315784192);
}

TEST(Experts, Qwen3MoeHasNormsOfHeadsAndNoSharedExpert) {
  const ModelConfig model = publicModel("qwen3-30b-a3b");
  EXPECT_EQ(countOf(model, ".experts."), 48LL * 128 * 3 * 2048 * 768);
  EXPECT_EQ(countOf(model, "self_attn"),
            48LL * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128));
  EXPECT_EQ(countOf(model, "shared"), 0);
  EXPECT_EQ(parameterCount(model), 30532122624);
  // 8 of 128: the 3 B of its name.
  EXPECT_EQ(activeParameterCount(model),
            30532122624 - 48LL * 120 * 3 * 2048 * 768);
}

TEST(Experts, DeepseekHasDenseLayersFirstAndLatentAttention) {
  const ModelConfig model = publicModel("deepseek-v3");
  EXPECT_EQ(model.layersWhere(false), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(model.layersWhere(true).size(), 58u);
  EXPECT_EQ(countOf(model, ".experts."), 58LL * 256 * 3 * 7168 * 2048);
  EXPECT_EQ(countOf(model, "shared_experts."), 58LL * 3 * 7168 * 2048);
  EXPECT_EQ(countOf(model, "e_score_correction_bias"), 58LL * 256);
  EXPECT_EQ(countOf(model, "self_attn"),
            61LL * (7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 +
                    512 * 128 * 256 + 7168 * 128 * 128));
  EXPECT_EQ(parameterCount(model), 671026419200);
  // The 37 B that its report names (embedding and head among them).
  EXPECT_EQ(activeParameterCount(model),
            671026419200 - 58LL * 248 * 3 * 7168 * 2048);
  EXPECT_NEAR(1.0 * activeParameterCount(model), 37.5e9, 0.5e9);
}

TEST(Experts, InstancesAreNamedByTheirLayer) {
  for (const ParameterFamily &family : parameters(publicModel("deepseek-v3")))
    if (family.argument == "experts_wg") {
      EXPECT_EQ(family.instanceName(0),
                "model.layers.3.mlp.experts.{expert}.gate_proj.weight");
      EXPECT_EQ(family.letters, "e expert_f d");
      EXPECT_EQ(family.layers, 58);
    }
}

// Twice the elements of each matrix that a token meets, and attention's square;
// 3 times for forward and backward.
TEST(Experts, FlopsAreThoseOfTheExpertsThatATokenTakes) {
  const ModelConfig mixtral = publicModel("mixtral-8x7b");
  const std::int64_t matrices =
      activeParameterCount(mixtral) - 65LL * 4096 - 32000LL * 4096;
  EXPECT_DOUBLE_EQ(modelFlopsPerStep(mixtral, 1, 4096),
                   6.0 * 4096 * (matrices + 32.0 * 2 * 4096 * 4096));
  const ModelConfig deepseek = publicModel("deepseek-v3");
  const std::int64_t vectors =
      61LL * (2 * 7168 + 1536 + 512) + 7168 + 58LL * 256;
  const std::int64_t others = vectors + 129280LL * 7168;
  EXPECT_DOUBLE_EQ(modelFlopsPerStep(deepseek, 1, 4096),
                   6.0 * 4096 *
                       (activeParameterCount(deepseek) - others +
                        61.0 * 128 * 4096 * (192 + 128)));
}

TEST(Experts, SomeLayersOnly) {
  const std::string keys =
      "\"moe_intermediate_size\": 8, \"num_experts\": 4, "
      "\"num_experts_per_tok\": 2, \"num_key_value_heads\": 2";
  ModelConfig model =
      accept(ropeConfig("qwen3_moe", keys + ", \"decoder_sparse_step\": 2"));
  EXPECT_EQ(model.layersWhere(true), std::vector<std::int64_t>{1});
  model = accept(ropeConfig("qwen3_moe", keys + ", \"mlp_only_layers\": [1]"));
  EXPECT_EQ(model.layersWhere(true), std::vector<std::int64_t>{0});
  EXPECT_THAT(
      refuse(ropeConfig("qwen3_moe", keys + ", \"mlp_only_layers\": [2]")),
      HasSubstr("mlp_only_layers"));
}

TEST(Experts, WrongNumbersAreRefused) {
  EXPECT_THAT(refuse(ropeConfig("mixtral", "\"num_key_value_heads\": 2, "
                                           "\"num_local_experts\": 4,\n"
                                           "\"num_experts_per_tok\": 5")),
              HasSubstr("6: key 'num_experts_per_tok': found 5, expected at "
                        "most num_local_experts 4"));
  EXPECT_THAT(refuse(ropeConfig("mixtral", "\"num_key_value_heads\": 2")),
              HasSubstr("num_local_experts"));
}

TEST(Experts, AreNotCompiled) {
  EXPECT_EQ(whyNotCompiled(accept(ropeConfig("llama"))), std::nullopt);
  EXPECT_THAT(*whyNotCompiled(publicModel("mixtral-8x7b")),
              HasSubstr("model family mixtral is read for planning only"));
  EXPECT_THAT(*whyNotCompiled(publicModel("deepseek-v3")),
              HasSubstr("latent attention"));
}
