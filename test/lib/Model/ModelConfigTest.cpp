#include "Configs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

using namespace heddle;
using namespace heddle::test;
using testing::HasSubstr;

TEST(ModelConfig, TakesTheDefaultsOfLlama) {
  ModelConfig c = accept(ropeConfig("llama"));
  EXPECT_EQ(c.family, Family::Llama);
  EXPECT_EQ(c.name, "tiny");
  EXPECT_EQ(c.hidden, 32);
  EXPECT_EQ(c.ffn, 48);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.vocabulary, 96);
  EXPECT_EQ(c.kvHeads, 4); // as many as heads
  EXPECT_EQ(c.queryHeadsPerKvHead, 1);
  EXPECT_EQ(c.headSize, 8);
  EXPECT_EQ(c.maxPositions, 2048);
  EXPECT_EQ(c.norm, NormKind::Rms);
  EXPECT_EQ(c.normEps, 1e-6);
  EXPECT_EQ(c.activation, Activation::Silu);
  EXPECT_TRUE(c.gatedMlp);
  EXPECT_FALSE(c.fusedQkv || c.qkvBias || c.outputBias || c.mlpBias);
  EXPECT_FALSE(c.qkNorm || c.tiedEmbeddings);
  EXPECT_EQ(c.position, PositionKind::Rope);
  EXPECT_EQ(c.rope, RopeConfig());
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.slidingWindow, std::nullopt);
  EXPECT_FALSE(c.dropout.any());
  EXPECT_EQ(c.initializerRange, 0.02);
}

TEST(ModelConfig, TakesTheDefaultsOfMistral) {
  std::string kv = "\"num_key_value_heads\": 2";
  ModelConfig c = accept(ropeConfig("mistral", kv));
  EXPECT_EQ(c.slidingWindow, 4096);
  EXPECT_EQ(c.maxPositions, 131072);
  EXPECT_EQ(c.kvHeads, 2);
  EXPECT_FALSE(c.qkvBias || c.tiedEmbeddings);
  // The class takes 8 KV heads, which 4 heads do not have.
  EXPECT_EQ(refuse(ropeConfig("mistral")),
            "1: key 'num_key_value_heads': found 8 (what mistral takes where "
            "it is absent), expected a divisor of num_attention_heads 4");
  EXPECT_EQ(accept(ropeConfig("mistral", kv + ", \"sliding_window\": null"))
                .slidingWindow,
            std::nullopt);
}

TEST(ModelConfig, TakesTheDefaultsOfQwen) {
  std::string kv = "\"num_key_value_heads\": null";
  ModelConfig two = accept(ropeConfig("qwen2", kv));
  EXPECT_TRUE(two.qkvBias);
  EXPECT_FALSE(two.outputBias || two.mlpBias || two.qkNorm);
  EXPECT_FALSE(two.tiedEmbeddings);
  EXPECT_EQ(two.kvHeads, 4);
  EXPECT_EQ(two.headSize, 8);
  EXPECT_EQ(two.maxPositions, 32768);
  EXPECT_EQ(two.slidingWindow, std::nullopt);
  ModelConfig three = accept(ropeConfig("qwen3", kv));
  EXPECT_TRUE(three.qkNorm);
  EXPECT_FALSE(three.qkvBias || three.outputBias);
  EXPECT_EQ(three.headSize, 128);
  ModelConfig biased =
      accept(ropeConfig("qwen3", kv + ", \"attention_bias\": true"));
  EXPECT_TRUE(biased.qkvBias && biased.outputBias);
  EXPECT_THAT(refuse(ropeConfig("qwen2")), HasSubstr("found 32 (what qwen2"));
}

TEST(ModelConfig, TakesTheDefaultsOfGpt2) {
  ModelConfig c = accept(gpt2Config());
  EXPECT_EQ(c.family, Family::Gpt2);
  EXPECT_EQ(c.kvHeads, 4);
  EXPECT_EQ(c.queryHeadsPerKvHead, 1);
  EXPECT_EQ(c.headSize, 8);
  EXPECT_EQ(c.ffn, 128);
  EXPECT_EQ(c.maxPositions, 64);
  EXPECT_EQ(c.norm, NormKind::Layer);
  EXPECT_EQ(c.normEps, 1e-5);
  EXPECT_EQ(c.activation, Activation::GeluTanh);
  EXPECT_FALSE(c.gatedMlp);
  EXPECT_TRUE(c.fusedQkv && c.qkvBias && c.outputBias && c.mlpBias);
  EXPECT_TRUE(c.tiedEmbeddings);
  EXPECT_EQ(c.position, PositionKind::Learned);
  EXPECT_EQ(c.dropout, (DropoutRates{0.1, 0.1, 0.1}));
  EXPECT_EQ(accept(gpt2Config("\"n_inner\": null")).ffn, 128);
}

TEST(ModelConfig, ReadsEveryKeyOfLlama) {
  ModelConfig c = accept(ropeConfig(
      "llama",
      R"("num_key_value_heads": 2, "head_dim": 16, "hidden_act": "gelu",
         "max_position_embeddings": 77, "rms_norm_eps": 1e-3,
         "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true,
         "rope_theta": 500, "attention_dropout": 0.25,
         "initializer_range": 0.5, "architectures": ["LlamaForCausalLM"])"));
  EXPECT_EQ(c.kvHeads, 2);
  EXPECT_EQ(c.queryHeadsPerKvHead, 2);
  EXPECT_EQ(c.heads(), 4);
  EXPECT_EQ(c.headSize, 16);
  EXPECT_EQ(c.activation, Activation::GeluErf);
  EXPECT_EQ(c.maxPositions, 77);
  EXPECT_EQ(c.normEps, 1e-3);
  EXPECT_TRUE(c.qkvBias && c.outputBias && c.mlpBias && c.tiedEmbeddings);
  EXPECT_EQ(c.rope.theta, 500);
  EXPECT_EQ(c.dropout.attention, 0.25);
  EXPECT_EQ(c.initializerRange, 0.5);
}

TEST(ModelConfig, ReadsEveryKeyOfGpt2) {
  ModelConfig c = accept(gpt2Config(
      R"("n_inner": 100, "activation_function": "relu", "attn_pdrop": 0.2,
         "resid_pdrop": 0.3, "embd_pdrop": 0, "layer_norm_epsilon": 1e-6,
         "initializer_range": 0.1, "tie_word_embeddings": false,
         "scale_attn_weights": true, "n_ctx": 64)"));
  EXPECT_EQ(c.ffn, 100);
  EXPECT_EQ(c.activation, Activation::Relu);
  EXPECT_EQ(c.dropout, (DropoutRates{0.2, 0.3, 0}));
  EXPECT_EQ(c.normEps, 1e-6);
  EXPECT_FALSE(c.tiedEmbeddings);
}

TEST(ModelConfig, TakesGpt2sOtherSpelling) {
  EXPECT_EQ(accept(R"({"model_type": "gpt2", "hidden_size": 32,
      "max_position_embeddings": 64, "num_hidden_layers": 2,
      "num_attention_heads": 4, "vocab_size": 96})"),
            accept(gpt2Config()));
  EXPECT_EQ(refuse(gpt2Config("\"hidden_size\": 64")),
            "5: key 'hidden_size': found 64, expected the same as n_embd; "
            "remove one");
}

TEST(ModelConfig, FindsTheFamilyInArchitectures) {
  std::string text = gpt2Config();
  text.replace(1, 20, "\"architectures\": [\"GPT2LMHeadModel\"]");
  EXPECT_EQ(accept(text).family, Family::Gpt2);
}

TEST(ModelConfig, RefusesOtherFamilies) {
  EXPECT_EQ(refuse("{\n\"model_type\": \"falcon\"}"),
            "2: key 'model_type': found \"falcon\", expected one of llama, "
            "mistral, qwen2, qwen3, gpt2, mixtral, qwen2_moe, qwen3_moe, "
            "deepseek_v3; this model family is not implemented");
  EXPECT_THAT(refuse("{\"architectures\": [\"BertModel\"]}"),
              HasSubstr("1: key 'architectures': found \"BertModel\""));
  EXPECT_THAT(refuse("{\"hidden_size\": 5}"),
              HasSubstr("1: key 'model_type' is missing"));
  EXPECT_THAT(refuse("{\"model_type\": 3}"), HasSubstr("found 3, expected"));
  EXPECT_THAT(refuse("[1]"), HasSubstr("found a list of 1"));
  EXPECT_EQ(
      refuse(ropeConfig(
          "llama", "\"architectures\": [\"LlamaForSequenceClassification\"]")),
      "5: key 'architectures': found \"LlamaForSequenceClassification\", "
      "expected \"LlamaForCausalLM\": other heads and other families' layers "
      "are not implemented");
}

TEST(ModelConfig, RefusesUnknownKeysWithTheNearest) {
  EXPECT_EQ(refuse(ropeConfig("llama", "\"rope_teta\": 5")),
            "5: unknown key 'rope_teta'; did you mean 'rope_theta'?");
  EXPECT_EQ(refuse(ropeConfig("llama", "\"rotary_fraction\": 0.5")),
            "5: unknown key 'rotary_fraction'; the nearest known key is "
            "'partial_rotary_factor'");
  for (const char *key :
       {"logit_scale", "attn_logit_softcapping", "final_logit_softcapping",
        "query_pre_attn_scalar", "num_experts", "sliding_window",
        "quantization_config", "qk_layernorm", "embedding_multiplier",
        "use_sliding_window", "layer_types", "n_embd", "auto_map"})
    EXPECT_THAT(refuse(ropeConfig("llama", "\"" + std::string(key) + "\": 1")),
                HasSubstr("5: unknown key '" + std::string(key) + "'"));
  EXPECT_THAT(refuse(gpt2Config("\"num_key_value_heads\": 2")),
              HasSubstr("5: unknown key 'num_key_value_heads'"));
  EXPECT_THAT(refuse(ropeConfig("qwen2", "\"attention_bias\": false")),
              HasSubstr("5: unknown key 'attention_bias'"));
}

TEST(ModelConfig, TakesNeutralKeysWithAnyValue) {
  ModelConfig plain = accept(ropeConfig("llama"));
  for (const NeutralKey &neutral : neutralKeys()) {
    EXPECT_FALSE(neutral.reason.empty()) << neutral.key;
    std::string key = "\"" + std::string(neutral.key) + "\": ";
    EXPECT_EQ(accept(ropeConfig("llama", key + "[7]")), plain) << neutral.key;
  }
}

TEST(ModelConfig, RefusesValuesThatChangeTheArithmetic) {
  auto llama = [](const std::string &more) {
    return refuse(ropeConfig("llama", more));
  };
  EXPECT_EQ(llama("\"partial_rotary_factor\": 0.5"),
            "5: key 'partial_rotary_factor': found 0.5, expected 1: rotating a "
            "part of a head is not implemented");
  EXPECT_THAT(llama("\"rope_interleaved\": true"), HasSubstr("expected false"));
  EXPECT_THAT(llama("\"is_encoder_decoder\": true"),
              HasSubstr("encoders are not implemented"));
  EXPECT_THAT(llama("\"pruned_heads\": {\"0\": [1]}"),
              HasSubstr("key 'pruned_heads'"));
  EXPECT_THAT(refuse(gpt2Config("\"scale_attn_weights\": false")),
              HasSubstr("expected true: attention without its scale"));
  EXPECT_THAT(refuse(gpt2Config("\"scale_attn_by_inverse_layer_idx\": true")),
              HasSubstr("expected false"));
  EXPECT_THAT(refuse(gpt2Config("\"reorder_and_upcast_attn\": true")),
              HasSubstr("expected false"));
  EXPECT_THAT(refuse(ropeConfig("mistral", "\"num_key_value_heads\": 4, "
                                           "\"attention_bias\": true")),
              HasSubstr("no biases"));
  accept(ropeConfig("llama", "\"partial_rotary_factor\": 1.0, "
                             "\"rope_interleaved\": false, "
                             "\"is_encoder_decoder\": false, "
                             "\"pruned_heads\": {}"));
}

TEST(ModelConfig, RefusesBadValues) {
  struct Bad {
    std::string more, message;
  };
  for (const Bad &bad : std::vector<Bad>{
           {"\"head_dim\": 0", "an integer from 1 to 1048576"},
           {"\"head_dim\": 7", "key 'head_dim': found a head size of 7"},
           {"\"head_dim\": \"8\"", "found \"8\""},
           {"\"num_key_value_heads\": 3", "a divisor of num_attention_heads 4"},
           {"\"num_key_value_heads\": 8", "a divisor of num_attention_heads 4"},
           {"\"num_key_value_heads\": -1", "found -1"},
           {"\"rms_norm_eps\": 0", "a number above 0 and below 1"},
           {"\"rms_norm_eps\": -1e-5", "above 0"},
           {"\"rms_norm_eps\": 1e400", "found 1e400"},
           {"\"rope_theta\": 0", "a number above 0"},
           {"\"rope_theta\": null", "found null"},
           {"\"hidden_act\": \"gelu_fast\"", "found \"gelu_fast\", expected "
                                             "one of silu, swish"},
           {"\"hidden_act\": null", "found null"},
           {"\"tie_word_embeddings\": 1", "expected true or false"},
           {"\"tie_word_embeddings\": \"true\"", "expected true or false"},
           {"\"attention_bias\": null", "expected true or false"},
           {"\"attention_dropout\": 1", "of at least 0 and below 1"},
           {"\"attention_dropout\": -0.1", "of at least 0 and below 1"},
           {"\"max_position_embeddings\": 0", "found 0"},
           {"\"initializer_range\": -1", "found -1"},
           {"\"architectures\": \"LlamaForCausalLM\"", "a list of strings"}}) {
    std::string message = refuse(ropeConfig("llama", bad.more));
    EXPECT_THAT(message, HasSubstr(bad.message)) << bad.more;
    EXPECT_TRUE(message.starts_with("5: key '")) << message;
  }
}

TEST(ModelConfig, NeedsItsSizes) {
  for (const char *key : {"hidden_size", "intermediate_size", "vocab_size",
                          "num_hidden_layers", "num_attention_heads"}) {
    for (const char *bad : {"0", "-3", "2.5", "1e3", "\"8\"", "null", "true",
                            "99999999999999999999999"}) {
      std::string text = ropeConfig("llama");
      std::size_t at = text.find(key) + std::string(key).size() + 3;
      text.replace(at, text.find_first_of(",}", at) - at, bad);
      EXPECT_THAT(refuse(text),
                  HasSubstr("key '" + std::string(key) + "': found " + bad));
    }
    std::string text = ropeConfig("llama");
    text.replace(text.find(key), std::string(key).size(), "bos_token_id");
    EXPECT_THAT(refuse(text),
                HasSubstr("1: key '" + std::string(key) + "' is missing"));
  }
  for (const char *key : {"n_embd", "n_positions", "n_layer", "n_head"}) {
    std::string text = gpt2Config();
    text.replace(text.find(key), std::string(key).size(), "bos_token_id");
    EXPECT_THAT(refuse(text),
                HasSubstr("1: key '" + std::string(key) + "' is missing"));
  }
}

TEST(ModelConfig, NeedsHeadsThatDivide) {
  std::string text = ropeConfig("llama");
  text.replace(text.find("32"), 2, "30");
  EXPECT_EQ(refuse(text), "3: key 'num_attention_heads': found 4, expected a "
                          "divisor of hidden_size 30; else give head_dim");
  text.replace(text.find("96"), 2, "96, \"head_dim\": 8");
  EXPECT_EQ(accept(text).headSize, 8);
  std::string gpt2 = gpt2Config();
  gpt2.replace(gpt2.find("32"), 2, "30");
  EXPECT_EQ(refuse(gpt2),
            "3: key 'n_head': found 4, expected a divisor of n_embd 30");
  std::string odd = ropeConfig("llama");
  odd.replace(odd.find("32"), 2, "36");
  EXPECT_EQ(refuse(odd), "3: key 'num_attention_heads': found a head size of "
                         "9, expected an even one: rotary positions turn "
                         "pairs");
}

TEST(ModelConfig, RefusesModelsBeyondAnyCount) {
  EXPECT_THAT(refuse(R"({"model_type": "llama", "hidden_size": 16777216,
                 "intermediate_size": 16777216, "num_hidden_layers": 1048576,
                 "num_attention_heads": 1048576, "head_dim": 1048576,
                 "vocab_size": 96})"),
              HasSubstr("expected at most 1e+18; check the sizes"));
}

TEST(Rope, ReadsBothSpellingsOfLlama3) {
  std::string numbers = R"("factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192)";
  ModelConfig old =
      accept(ropeConfig("llama", "\"rope_theta\": 5e5, \"rope_scaling\": {" +
                                     numbers + ", \"rope_type\": \"llama3\"}"));
  EXPECT_EQ(old.rope.scaling, RopeScaling::Llama3);
  EXPECT_EQ(old.rope.factor, 8);
  EXPECT_EQ(old.rope.lowFreqFactor, 1);
  EXPECT_EQ(old.rope.highFreqFactor, 4);
  EXPECT_EQ(old.rope.originalMaxPositions, 8192);
  EXPECT_EQ(old, accept(ropeConfig("llama",
                                   "\"rope_theta\": 5e5, \"rope_scaling\": {" +
                                       numbers + ", \"type\": \"llama3\"}")));
  EXPECT_EQ(old, accept(ropeConfig("llama",
                                   "\"rope_parameters\": {\"rope_theta\": 5e5, "
                                   "\"rope_type\": \"llama3\", " +
                                       numbers + "}")));
}

TEST(Rope, TakesNoScalingInEachSpelling) {
  ModelConfig plain = accept(ropeConfig("llama"));
  for (const char *more :
       {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"default\"}",
        "\"rope_parameters\": {\"rope_theta\": 10000.0}",
        "\"rope_parameters\": {\"rope_type\": \"default\"}",
        "\"rope_theta\": 10000, \"rope_parameters\": {\"rope_theta\": 10000}"})
    EXPECT_EQ(accept(ropeConfig("llama", more)), plain) << more;
}

TEST(Rope, RefusesOtherScalings) {
  EXPECT_EQ(refuse(ropeConfig("llama", "\"rope_scaling\": {\"rope_type\":\n"
                                       "\"yarn\", \"beta_fast\": 32}")),
            "6: key 'rope_scaling.rope_type': found \"yarn\", expected default "
            "or llama3; other RoPE scalings are not implemented");
  struct Bad {
    std::string scaling, message;
  };
  std::string rest = R"("original_max_position_embeddings": 8192)";
  for (const Bad &bad : std::vector<Bad>{
           {R"({"type": "linear", "factor": 2})", "found \"linear\""},
           {R"({"factor": 2})",
            "key 'rope_scaling.rope_type' is missing; add it"},
           {R"({"rope_type": "llama3", "type": "linear"})", "remove one"},
           {R"({"rope_type": "default", "factor": 2})",
            "unknown key 'rope_scaling.factor'"},
           {R"({"rope_type": "llama3", "factor": 8})",
            "key 'rope_scaling.low_freq_factor' is missing"},
           {R"({"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                "high_freq_factor": 4, )" +
                rest + "}",
            "expected a number of at least 1"},
           {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                "high_freq_factor": 4, )" +
                rest + "}",
            "expected more than low_freq_factor 4"},
           {"5", "found 5, expected keys and values"}})
    EXPECT_THAT(refuse(ropeConfig("llama", "\"rope_scaling\": " + bad.scaling)),
                HasSubstr(bad.message));
  EXPECT_THAT(
      refuse(ropeConfig("llama", "\"rope_scaling\": {\"type\": \"default\"}, "
                                 "\"rope_parameters\": {}")),
      HasSubstr("found rope_parameters too"));
  EXPECT_THAT(
      refuse(ropeConfig("llama", "\"rope_theta\": 5, "
                                 "\"rope_parameters\": {\"rope_theta\": 6}")),
      HasSubstr("found 5, expected 6 as rope_parameters says"));
}

TEST(Rope, TurnsPairsByPowersOfTheta) {
  RopeConfig rope;
  std::vector<double> plain = ropeInverseFrequencies(rope, 8);
  ASSERT_EQ(plain.size(), 4u);
  EXPECT_DOUBLE_EQ(plain[0], 1);
  EXPECT_DOUBLE_EQ(plain[1], 0.1);
  EXPECT_DOUBLE_EQ(plain[3], 1e-3);
}

// Wave lengths 2 pi, 20 pi, 200 pi, 2000 pi (6.3, 63, 628, 6283) against 100
// and 1000 / 1: the first two stay, the last is divided, the third between.
TEST(Rope, ScalesAsLlama3) {
  RopeConfig rope{10000, RopeScaling::Llama3, 4, 1, 10, 1000};
  std::vector<double> scaled = ropeInverseFrequencies(rope, 8);
  EXPECT_DOUBLE_EQ(scaled[0], 1);
  EXPECT_DOUBLE_EQ(scaled[1], 0.1);
  EXPECT_DOUBLE_EQ(scaled[3], 1e-3 / 4);
  double smooth = (1000 / (200 * std::numbers::pi) - 1) / 9;
  EXPECT_NEAR(scaled[2], (1 - smooth) * 0.01 / 4 + smooth * 0.01, 1e-15);
  EXPECT_GT(scaled[2], 0.01 / 4);
  EXPECT_LT(scaled[2], 0.01);
}

TEST(Window, FollowsQwensRules) {
  auto qwen = [](const std::string &more) {
    return ropeConfig("qwen2", "\"num_key_value_heads\": 2, " + more);
  };
  std::string on = "\"use_sliding_window\": true, ";
  EXPECT_EQ(accept(qwen(on + "\"max_window_layers\": 0")).slidingWindow, 4096);
  EXPECT_EQ(accept(qwen(on + "\"max_window_layers\": 0, "
                             "\"sliding_window\": 7"))
                .slidingWindow,
            7);
  EXPECT_EQ(accept(qwen(on + "\"max_window_layers\": 2")).slidingWindow,
            std::nullopt);
  EXPECT_EQ(accept(qwen("\"use_sliding_window\": true")).slidingWindow,
            std::nullopt); // 28 of 2 layers
  EXPECT_EQ(accept(qwen("\"use_sliding_window\": false, \"sliding_window\": 7, "
                        "\"max_window_layers\": 1"))
                .slidingWindow,
            std::nullopt);
  EXPECT_EQ(refuse(qwen(on + "\"max_window_layers\": 1")),
            "5: key 'max_window_layers': found 1 of 2 layers without the "
            "sliding window, expected all (at least 2) or none (0); layers "
            "that differ are not implemented");
}

TEST(Window, FollowsLayerTypes) {
  auto qwen = [](const std::string &more, const std::string &types) {
    return ropeConfig("qwen3", "\"num_key_value_heads\": 2, " + more +
                                   "\"layer_types\": [" + types + "]");
  };
  std::string on = "\"use_sliding_window\": true, \"sliding_window\": 9, "
                   "\"max_window_layers\": 1, ";
  std::string full = "\"full_attention\"", sliding = "\"sliding_attention\"";
  EXPECT_EQ(accept(qwen("", full + "," + full)).slidingWindow, std::nullopt);
  EXPECT_EQ(accept(qwen(on, sliding + "," + sliding)).slidingWindow, 9);
  EXPECT_EQ(accept(qwen(on, full + "," + full)).slidingWindow, std::nullopt);
  EXPECT_THAT(refuse(qwen(on, full + "," + sliding)),
              HasSubstr("expected all layers alike"));
  EXPECT_THAT(refuse(qwen("", full)), HasSubstr("found a list of 1"));
  EXPECT_THAT(refuse(qwen("", sliding + "," + sliding)),
              HasSubstr("the other keys give no window"));
  EXPECT_THAT(refuse(qwen("", "\"x\",\"x\"")), HasSubstr("found \"x\""));
}

TEST(ModelConfig, ReadsFoldersAndRefusesOtherThings) {
  std::filesystem::path configs =
      std::filesystem::path(HEDDLE_SOURCE_DIR) / "test/cases/hf_configs";
  EXPECT_THAT(readModelConfig(configs).message(),
              HasSubstr("config.json: cannot be opened"));
  EXPECT_THAT(readModelConfig(configs / "none.json").message(),
              HasSubstr("none.json: cannot be opened"));
  EXPECT_THAT(readModelConfig(std::filesystem::path("/dev/null")).message(),
              HasSubstr("no regular file"));
}
