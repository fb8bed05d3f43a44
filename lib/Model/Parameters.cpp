#include "heddle/Model/Parameters.h"

#include "heddle/Support/Check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

using namespace heddle;

std::string_view heddle::segmentName(Segment segment) {
  switch (segment) {
  case Segment::Embedding:
    return "embedding";
  case Segment::Block:
    return "block";
  case Segment::Head:
    return "head";
  }
  return "";
}

std::string_view heddle::initializerName(Initializer::Kind kind) {
  switch (kind) {
  case Initializer::Kind::Normal:
    return "normal";
  case Initializer::Kind::Ones:
    return "ones";
  case Initializer::Kind::Zeros:
    return "zeros";
  }
  return "";
}

std::string ParameterFamily::instanceName(std::int64_t layer) const {
  std::size_t hole = name.find("{}");
  if (hole == name.npos)
    return name;
  return fmt::format("{}{}{}", name.substr(0, hole), layer,
                     name.substr(hole + 2));
}

std::int64_t ParameterFamily::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

namespace {

/// Appends parameters of one segment after the other.
class Builder {
public:
  explicit Builder(const ModelConfig &config) : config(config) {}

  std::vector<ParameterFamily> build() {
    config.family == Family::Gpt2 ? buildGpt2() : buildLlamaLike();
    return std::move(list);
  }

private:
  void buildLlamaLike();
  void buildLlamaAttention(const std::string &layer);
  void buildLlamaMlp(const std::string &layer);
  void buildGpt2();
  void buildHead(const std::string &embedding);

  std::int64_t sizeOf(std::string_view letter) const {
    if (letter == "d")
      return config.hidden;
    if (letter == "g")
      return config.kvHeads;
    if (letter == "r")
      return config.queryHeadsPerKvHead;
    if (letter == "k")
      return config.headSize;
    if (letter == "f")
      return config.ffn;
    if (letter == "v")
      return config.vocabulary;
    if (letter == "p")
      return 3;
    HEDDLE_CHECK(letter == "position", "no factor '{}'", letter);
    return config.maxPositions;
  }

  ParameterFamily &add(std::string name, std::string argument,
                       std::string letters) {
    ParameterFamily parameter;
    parameter.layers = name.find("{}") == name.npos ? 1 : config.layers;
    parameter.segment = segment;
    parameter.name = std::move(name);
    parameter.argument = std::move(argument);
    for (std::size_t at = 0; at < letters.size();) {
      std::size_t end = std::min(letters.find(' ', at), letters.size());
      parameter.shape.push_back(
          sizeOf(std::string_view(letters).substr(at, end - at)));
      at = end + 1;
    }
    parameter.letters = std::move(letters);
    parameter.file.shape = parameter.shape;
    parameter.file.order.resize(parameter.shape.size());
    std::iota(parameter.file.order.begin(), parameter.file.order.end(), 0);
    parameter.init = {Initializer::Kind::Normal, config.initializerRange};
    return list.emplace_back(std::move(parameter));
  }

  /// A matrix whose file has [outputs, inputs]; `outputs` counts the logical
  /// dimensions that are merged into the first.
  ParameterFamily &linear(std::string name, std::string argument,
                          std::string letters, int outputs) {
    ParameterFamily &added =
        add(std::move(name), std::move(argument), std::move(letters));
    added.file.shape = merged(added.shape, outputs);
    return added;
  }

  /// The same with [inputs, outputs] in the file, as GPT-2's Conv1D has it.
  ParameterFamily &conv1d(std::string name, std::string argument,
                          std::string letters, int outputs) {
    ParameterFamily &added = linear(std::move(name), std::move(argument),
                                    std::move(letters), outputs);
    std::swap(added.file.shape[0], added.file.shape[1]);
    // Inputs come first: output i stands behind all of them.
    int all = static_cast<int>(added.shape.size());
    for (int i = 0; i < all; ++i)
      added.file.order[i] = i < outputs ? all - outputs + i : i - outputs;
    return added;
  }

  void bias(std::string name, std::string argument, std::string letters) {
    ParameterFamily &added =
        add(std::move(name), std::move(argument), std::move(letters));
    added.file.shape = {added.elements()};
    added.init = {Initializer::Kind::Zeros, 0};
    added.decay = false;
  }

  /// Weight `gN`, and bias `hN` where the norm has one.
  void norm(const std::string &name, const std::string &suffix,
            const std::string &letters = "d", const std::string &prefix = "g") {
    ParameterFamily &weight = add(name + ".weight", prefix + suffix, letters);
    weight.init = {Initializer::Kind::Ones, 0};
    weight.decay = false;
    if (config.normHasBias())
      bias(name + ".bias", "h" + suffix, letters);
  }

  static std::vector<std::int64_t>
  merged(const std::vector<std::int64_t> &shape, int outputs) {
    auto product = [](auto begin, auto end) {
      return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
    };
    return {product(shape.begin(), shape.begin() + outputs),
            product(shape.begin() + outputs, shape.end())};
  }

  const ModelConfig &config;
  Segment segment = Segment::Embedding;
  std::vector<ParameterFamily> list;
};

} // namespace

void Builder::buildHead(const std::string &embedding) {
  if (!config.tiedEmbeddings) {
    linear("lm_head.weight", "lm_head", "v d", 1);
    return;
  }
  for (ParameterFamily &parameter : list)
    if (parameter.name == embedding)
      parameter.alias = "lm_head.weight";
}

void Builder::buildLlamaAttention(const std::string &layer) {
  std::string attention = layer + "self_attn.";
  linear(attention + "q_proj.weight", "wq", "g r k d", 3);
  if (config.qkvBias)
    bias(attention + "q_proj.bias", "bq", "g r k");
  linear(attention + "k_proj.weight", "wk", "g k d", 2);
  if (config.qkvBias)
    bias(attention + "k_proj.bias", "bk", "g k");
  linear(attention + "v_proj.weight", "wv", "g k d", 2);
  if (config.qkvBias)
    bias(attention + "v_proj.bias", "bv", "g k");
  if (config.qkNorm) {
    norm(attention + "q_norm", "q", "k");
    norm(attention + "k_norm", "k", "k");
  }
  linear(attention + "o_proj.weight", "wo", "d g r k", 1);
  if (config.outputBias)
    bias(attention + "o_proj.bias", "bo", "d");
}

void Builder::buildLlamaMlp(const std::string &layer) {
  auto projection = [&](const std::string &name, const std::string &argument,
                        const std::string &letters, const std::string &output) {
    linear(layer + "mlp." + name + "_proj.weight", "w" + argument, letters, 1);
    if (config.mlpBias)
      bias(layer + "mlp." + name + "_proj.bias", "b" + argument, output);
  };
  projection("gate", "g", "f d", "f");
  projection("up", "u", "f d", "f");
  projection("down", "d", "d f", "d");
}

void Builder::buildLlamaLike() {
  linear("model.embed_tokens.weight", "embed", "v d", 1);
  segment = Segment::Block;
  std::string layer = "model.layers.{}.";
  norm(layer + "input_layernorm", "1");
  buildLlamaAttention(layer);
  norm(layer + "post_attention_layernorm", "2");
  buildLlamaMlp(layer);
  segment = Segment::Head;
  norm("model.norm", "");
  buildHead("model.embed_tokens.weight");
}

void Builder::buildGpt2() {
  linear("transformer.wte.weight", "embed", "v d", 1);
  linear("transformer.wpe.weight", "position_embed", "position d", 1);
  segment = Segment::Block;
  std::string layer = "transformer.h.{}.";
  // Each layer adds to the residual twice; Hugging Face starts those
  // projections smaller, so that the sum has the variance of one.
  double residual = config.initializerRange /
                    std::sqrt(2.0 * static_cast<double>(config.layers));
  norm(layer + "ln_1", "1");
  conv1d(layer + "attn.c_attn.weight", "wqkv", "p g k d", 3);
  bias(layer + "attn.c_attn.bias", "bqkv", "p g k");
  conv1d(layer + "attn.c_proj.weight", "wo", "d g r k", 1).init.deviation =
      residual;
  bias(layer + "attn.c_proj.bias", "bo", "d");
  norm(layer + "ln_2", "2");
  conv1d(layer + "mlp.c_fc.weight", "wu", "f d", 1);
  bias(layer + "mlp.c_fc.bias", "bu", "f");
  conv1d(layer + "mlp.c_proj.weight", "wd", "d f", 1).init.deviation = residual;
  bias(layer + "mlp.c_proj.bias", "bd", "d");
  segment = Segment::Head;
  norm("transformer.ln_f", "");
  buildHead("transformer.wte.weight");
}

std::vector<ParameterFamily> heddle::parameters(const ModelConfig &config) {
  return Builder(config).build();
}

std::int64_t heddle::parameterCount(const ModelConfig &config) {
  std::int64_t count = 0;
  for (const ParameterFamily &parameter : parameters(config))
    count += parameter.totalElements();
  return count;
}

double heddle::modelFlopsPerStep(const ModelConfig &config,
                                 std::int64_t sequences,
                                 std::int64_t sequenceLength) {
  auto real = [](std::int64_t size) { return static_cast<double>(size); };
  double hidden = real(config.hidden);
  double queries = real(config.heads()) * real(config.headSize);
  double keys = real(config.kvHeads) * real(config.headSize);
  double seen = real(
      std::min(sequenceLength, config.slidingWindow.value_or(sequenceLength)));
  // Multiply-adds per token: q and o, k and v, scores and their product with
  // v, the MLP; the head.
  double perLayer = 2 * hidden * queries + 2 * hidden * keys +
                    2 * seen * queries +
                    (config.gatedMlp ? 3 : 2) * hidden * real(config.ffn);
  double perToken =
      real(config.layers) * perLayer + hidden * real(config.vocabulary);
  return 3 * 2 * perToken * real(sequences) * real(sequenceLength);
}
