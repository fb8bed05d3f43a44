#include "Configs.h"

#include "heddle/Model/Parameters.h"

#include <cmath>

using namespace heddle;
using namespace heddle::test;
using Shape = std::vector<std::int64_t>;

static ParameterFamily find(const std::vector<ParameterFamily> &list,
                            const std::string &name) {
  for (const ParameterFamily &parameter : list)
    if (parameter.name == name)
      return parameter;
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

static std::vector<std::string> names(const std::vector<ParameterFamily> &list,
                                      Segment segment) {
  std::vector<std::string> found;
  for (const ParameterFamily &parameter : list)
    if (parameter.segment == segment)
      found.push_back(parameter.argument);
  return found;
}

TEST(Parameters, ListsLlama) {
  auto list =
      parameters(accept(ropeConfig("llama", "\"num_key_value_heads\": 2")));
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(list, Segment::Embedding), Names{"embed"});
  EXPECT_EQ(names(list, Segment::Block),
            (Names{"g1", "wq", "wk", "wv", "wo", "g2", "wg", "wu", "wd"}));
  EXPECT_EQ(names(list, Segment::Head), (Names{"g", "lm_head"}));

  ParameterFamily q = find(list, "model.layers.{}.self_attn.q_proj.weight");
  EXPECT_EQ(q.letters, "g r k d");
  EXPECT_EQ(q.shape, (Shape{2, 2, 8, 32}));
  EXPECT_EQ(q.file, (FileForm{{32, 32}, {0, 1, 2, 3}}));
  EXPECT_EQ(q.layers, 2);
  EXPECT_EQ(q.totalElements(), 2 * 32 * 32);
  EXPECT_TRUE(q.decay);
  EXPECT_EQ(q.init, (Initializer{Initializer::Kind::Normal, 0.02}));
  EXPECT_EQ(q.instanceName(1), "model.layers.1.self_attn.q_proj.weight");

  ParameterFamily k = find(list, "model.layers.{}.self_attn.k_proj.weight");
  EXPECT_EQ(k.letters, "g k d");
  EXPECT_EQ(k.file.shape, (Shape{16, 32}));
  ParameterFamily o = find(list, "model.layers.{}.self_attn.o_proj.weight");
  EXPECT_EQ(o.letters, "d g r k");
  EXPECT_EQ(o.file, (FileForm{{32, 32}, {0, 1, 2, 3}}));
  ParameterFamily down = find(list, "model.layers.{}.mlp.down_proj.weight");
  EXPECT_EQ(down.letters, "d f");
  EXPECT_EQ(down.file.shape, (Shape{32, 48}));

  ParameterFamily norm = find(list, "model.layers.{}.input_layernorm.weight");
  EXPECT_EQ(norm.init.kind, Initializer::Kind::Ones);
  EXPECT_FALSE(norm.decay);
  ParameterFamily head = find(list, "lm_head.weight");
  EXPECT_EQ(head.letters, "v d");
  EXPECT_EQ(head.layers, 1);
  EXPECT_EQ(head.instanceName(5), "lm_head.weight");
}

// Qwen3's width of heads differs from hidden (the case CFG-01).
TEST(Parameters, TakesTheHeadSizeThatIsGiven) {
  auto list = parameters(accept(
      ropeConfig("qwen3", "\"num_key_value_heads\": 2, \"head_dim\": 16")));
  auto shape = [&](const std::string &name) {
    return find(list, "model.layers.{}.self_attn." + name + ".weight")
        .file.shape;
  };
  EXPECT_EQ(shape("q_proj"), (Shape{64, 32}));
  EXPECT_EQ(shape("k_proj"), (Shape{32, 32}));
  EXPECT_EQ(shape("o_proj"), (Shape{32, 64}));
  EXPECT_EQ(shape("q_norm"), Shape{16});
  ParameterFamily norm = find(list, "model.layers.{}.self_attn.k_norm.weight");
  EXPECT_EQ(norm.letters, "k");
  EXPECT_FALSE(norm.decay);
}

TEST(Parameters, HasBiasesWhereTheFamilyHasThem) {
  auto qwen =
      parameters(accept(ropeConfig("qwen2", "\"num_key_value_heads\": 2")));
  ParameterFamily q = find(qwen, "model.layers.{}.self_attn.q_proj.bias");
  EXPECT_EQ(q.letters, "g r k");
  EXPECT_EQ(q.file, (FileForm{{32}, {0, 1, 2}}));
  EXPECT_EQ(q.init.kind, Initializer::Kind::Zeros);
  EXPECT_FALSE(q.decay);
  EXPECT_EQ(find(qwen, "model.layers.{}.self_attn.k_proj.bias").letters, "g k");
  EXPECT_EQ(qwen.size(), 12u + 3);
  auto llama = parameters(accept(
      ropeConfig("llama", "\"attention_bias\": true, \"mlp_bias\": true")));
  EXPECT_EQ(find(llama, "model.layers.{}.self_attn.o_proj.bias").shape,
            Shape{32});
  EXPECT_EQ(find(llama, "model.layers.{}.mlp.gate_proj.bias").shape, Shape{48});
  EXPECT_EQ(find(llama, "model.layers.{}.mlp.down_proj.bias").shape, Shape{32});
  EXPECT_EQ(llama.size(), 12u + 4 + 3);
}

TEST(Parameters, ListsGpt2AsItsFilesHaveIt) {
  auto list = parameters(accept(gpt2Config()));
  ParameterFamily qkv = find(list, "transformer.h.{}.attn.c_attn.weight");
  EXPECT_EQ(qkv.letters, "p g k d");
  EXPECT_EQ(qkv.shape, (Shape{3, 4, 8, 32}));
  EXPECT_EQ(qkv.file, (FileForm{{32, 96}, {1, 2, 3, 0}}));
  ParameterFamily bias = find(list, "transformer.h.{}.attn.c_attn.bias");
  EXPECT_EQ(bias.letters, "p g k");
  EXPECT_EQ(bias.file.shape, Shape{96});
  ParameterFamily o = find(list, "transformer.h.{}.attn.c_proj.weight");
  EXPECT_EQ(o.letters, "d g r k");
  EXPECT_EQ(o.shape, (Shape{32, 4, 1, 8}));
  EXPECT_EQ(o.file, (FileForm{{32, 32}, {3, 0, 1, 2}}));
  EXPECT_DOUBLE_EQ(o.init.deviation, 0.02 / std::sqrt(4.0)); // 2 layers
  ParameterFamily up = find(list, "transformer.h.{}.mlp.c_fc.weight");
  EXPECT_EQ(up.letters, "f d");
  EXPECT_EQ(up.file, (FileForm{{32, 128}, {1, 0}}));
  EXPECT_DOUBLE_EQ(up.init.deviation, 0.02);
  ParameterFamily down = find(list, "transformer.h.{}.mlp.c_proj.weight");
  EXPECT_EQ(down.letters, "d f");
  EXPECT_EQ(down.file, (FileForm{{128, 32}, {1, 0}}));
  EXPECT_DOUBLE_EQ(down.init.deviation, 0.01);
  ParameterFamily positions = find(list, "transformer.wpe.weight");
  EXPECT_EQ(positions.letters, "position d");
  EXPECT_EQ(positions.shape, (Shape{64, 32}));
  EXPECT_EQ(positions.segment, Segment::Embedding);
  EXPECT_TRUE(positions.decay);
  ParameterFamily norm = find(list, "transformer.h.{}.ln_1.bias");
  EXPECT_EQ(norm.argument, "h1");
  EXPECT_FALSE(norm.decay);
}

TEST(Parameters, CountsATiedMatrixOnce) {
  ModelConfig tied = accept(gpt2Config());
  auto list = parameters(tied);
  EXPECT_EQ(find(list, "transformer.wte.weight").alias, "lm_head.weight");
  EXPECT_EQ(list.back().name, "transformer.ln_f.bias");
  ModelConfig apart = tied;
  apart.tiedEmbeddings = false;
  EXPECT_EQ(parameters(apart).back().name, "lm_head.weight");
  EXPECT_EQ(find(parameters(apart), "transformer.wte.weight").alias, "");
  EXPECT_EQ(parameterCount(apart) - parameterCount(tied), 96 * 32);
}

// Whatever the form, file and logical tensor have the same elements, and the
// cut of the file has the logical sizes.
TEST(Parameters, FileFormsAreTheSameTensors) {
  for (const std::string &text :
       {gpt2Config(), ropeConfig("llama", "\"attention_bias\": true"),
        ropeConfig("qwen3", "\"num_key_value_heads\": 2")})
    for (const ParameterFamily &parameter : parameters(accept(text))) {
      SCOPED_TRACE(parameter.name);
      std::int64_t elements = 1;
      for (std::int64_t size : parameter.file.shape)
        elements *= size;
      EXPECT_EQ(elements, parameter.elements());
      Shape cut(parameter.shape.size());
      ASSERT_EQ(parameter.file.order.size(), cut.size());
      for (std::size_t i = 0; i < cut.size(); ++i)
        cut[parameter.file.order[i]] = parameter.shape[i];
      std::size_t at = 0;
      for (std::int64_t size : parameter.file.shape) {
        std::int64_t product = 1;
        while (at < cut.size() && (product < size || cut[at] == 1))
          product *= cut[at++];
        EXPECT_EQ(product, size);
      }
      EXPECT_EQ(at, cut.size());
    }
}

// 72 B L s h^2 (1 + s/6h + V/12hL), for GPT.
TEST(Flops, EqualTheFormulaForGpt) {
  ModelConfig c = accept(gpt2Config());
  double b = 3, l = 2, s = 16, h = 32, v = 96;
  double formula =
      72 * b * l * s * h * h * (1 + s / (6 * h) + v / (12 * h * l));
  EXPECT_NEAR(modelFlopsPerStep(c, 3, 16), formula, 1e-9 * formula);
}

// 3 B s [L (4 h^2 (1 + kv/a) + 2 * 3 * h f + 4 s h) + 2 h V].
TEST(Flops, EqualTheGeneralFormula) {
  ModelConfig c = accept(ropeConfig("llama", "\"num_key_value_heads\": 2"));
  double b = 5, l = 2, s = 16, h = 32, f = 48, v = 96;
  double formula =
      3 * b * s *
      (l * (4 * h * h * (1 + 0.5) + 6 * h * f + 4 * s * h) + 2 * h * v);
  EXPECT_NEAR(modelFlopsPerStep(c, 5, 16), formula, 1e-9 * formula);
  c.slidingWindow = 4; // scores of 4 keys instead of 16
  EXPECT_NEAR(modelFlopsPerStep(c, 5, 16),
              formula - 3 * b * s * l * 4 * (16 - 4) * h, 1e-9 * formula);
}
