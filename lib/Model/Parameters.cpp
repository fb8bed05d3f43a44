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

std::string ParameterFamily::instanceName(std::int64_t instance) const {
  std::size_t hole = name.find("{}");
  if (hole == name.npos)
    return name;
  return fmt::format("{}{}{}", name.substr(0, hole),
                     layerNumbers.empty()
                         ? instance
                         : layerNumbers.at(static_cast<std::size_t>(instance)),
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
  void buildLatentAttention(const std::string &layer);
  void buildGatedMlp(const std::string &mlp, const std::string &prefix,
                     const std::string &letter);
  void buildExperts(const std::string &layer);
  void buildLayers();
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
    if (letter == "position")
      return config.maxPositions;
    return config.latent && letter != "e" && !letter.ends_with("_f")
               ? latentSizeOf(*config.latent, letter)
               : expertSizeOf(*config.experts, letter);
  }
  static std::int64_t expertSizeOf(const ExpertsConfig &experts,
                                   std::string_view letter) {
    if (letter == "e")
      return experts.count;
    if (letter == "expert_f")
      return experts.ffn;
    if (letter == "one")
      return 1;
    HEDDLE_CHECK(letter == "shared_f", "no factor '{}'", letter);
    return experts.sharedFfn;
  }
  static std::int64_t latentSizeOf(const LatentConfig &latent,
                                   std::string_view letter) {
    if (letter == "q_rank")
      return latent.queryRank;
    if (letter == "kv_rank")
      return latent.valueRank;
    if (letter == "kv_a")
      return latent.valueRank + latent.ropeSize;
    if (letter == "k_v")
      return latent.plainSize + latent.valueSize;
    HEDDLE_CHECK(letter == "v_size", "no factor '{}'", letter);
    return latent.valueSize;
  }

  ParameterFamily &add(std::string name, std::string argument,
                       std::string letters) {
    ParameterFamily parameter;
    parameter.layers = name.find("{}") == name.npos ? 1 : config.layers;
    if (layerNumbers && parameter.layers > 1) {
      parameter.layers = std::ssize(*layerNumbers);
      parameter.layerNumbers = *layerNumbers;
    }
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
  /// Of the layers that have what is added; none: all.
  std::optional<std::vector<std::int64_t>> layerNumbers;
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

void Builder::buildLatentAttention(const std::string &layer) {
  const std::string attention = layer + "self_attn.";
  if (config.latent->queryRank > 0) {
    linear(attention + "q_a_proj.weight", "wqa", "q_rank d", 1);
    norm(attention + "q_a_layernorm", "qa", "q_rank");
    linear(attention + "q_b_proj.weight", "wqb", "g r k q_rank", 3);
  } else {
    linear(attention + "q_proj.weight", "wq", "g r k d", 3);
  }
  linear(attention + "kv_a_proj_with_mqa.weight", "wkva", "kv_a d", 1);
  norm(attention + "kv_a_layernorm", "kva", "kv_rank");
  linear(attention + "kv_b_proj.weight", "wkvb", "g k_v kv_rank", 2);
  linear(attention + "o_proj.weight", "wo", "d g r v_size", 1);
}

/// Projections gate, up and down of one width.
void Builder::buildGatedMlp(const std::string &mlp, const std::string &prefix,
                            const std::string &letter) {
  auto projection = [&](const std::string &name, const std::string &argument,
                        const std::string &letters, const std::string &output) {
    linear(mlp + name + "_proj.weight", prefix + "w" + argument, letters, 1);
    if (config.mlpBias)
      bias(mlp + name + "_proj.bias", prefix + "b" + argument, output);
  };
  projection("gate", "g", letter + " d", letter);
  projection("up", "u", letter + " d", letter);
  projection("down", "d", "d " + letter, "d");
}

void Builder::buildExperts(const std::string &layer) {
  const ExpertsConfig &experts = *config.experts;
  const bool isMixtral = config.family == Family::Mixtral;
  const std::string mlp = layer + (isMixtral ? "block_sparse_moe." : "mlp.");
  linear(mlp + "gate.weight", "router", "e d", 1);
  if (experts.routerBias)
    bias(mlp + "gate.e_score_correction_bias", "router_bias", "e");
  auto matrix = [&](const char *name, const char *mixtralName,
                    const char *argument, const char *letters) {
    add(fmt::format("{}experts.{{expert}}.{}.weight", mlp,
                    isMixtral ? mixtralName : name),
        argument, letters);
  };
  matrix("gate_proj", "w1", "experts_wg", "e expert_f d");
  matrix("up_proj", "w3", "experts_wu", "e expert_f d");
  matrix("down_proj", "w2", "experts_wd", "e d expert_f");
  if (experts.sharedFfn > 0)
    buildGatedMlp(mlp + (config.family == Family::DeepseekV3
                             ? "shared_experts."
                             : "shared_expert."),
                  "shared_", "shared_f");
  if (experts.sharedGate)
    linear(mlp + "shared_expert_gate.weight", "shared_gate", "one d", 1);
}

void Builder::buildLayers() {
  segment = Segment::Block;
  std::string layer = "model.layers.{}.";
  norm(layer + "input_layernorm", "1");
  config.latent ? buildLatentAttention(layer) : buildLlamaAttention(layer);
  norm(layer + "post_attention_layernorm", "2");
  if (!config.experts)
    return buildGatedMlp(layer + "mlp.", "", "f");
  for (bool haveExperts : {false, true}) {
    layerNumbers = config.layersWhere(haveExperts);
    if (layerNumbers->empty())
      continue;
    haveExperts ? buildExperts(layer) : buildGatedMlp(layer + "mlp.", "", "f");
  }
  layerNumbers.reset();
}

void Builder::buildLlamaLike() {
  linear("model.embed_tokens.weight", "embed", "v d", 1);
  buildLayers();
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

std::int64_t heddle::activeParameterCount(const ModelConfig &config) {
  std::int64_t count = 0;
  for (const ParameterFamily &parameter : parameters(config))
    count += parameter.letters.starts_with("e ") && config.experts &&
                     parameter.letters != "e d"
                 ? parameter.totalElements() / config.experts->count *
                       config.experts->perToken
                 : parameter.totalElements();
  return count;
}

/// Multiply-adds per token of attention's projections.
static double projectionsOf(const ModelConfig &config) {
  auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double hidden = real(config.hidden), heads = real(config.heads());
  const double output = hidden * heads * real(config.valueSize());
  if (!config.latent)
    return hidden * (heads + 2 * real(config.kvHeads)) * real(config.headSize) +
           output;
  const LatentConfig &latent = *config.latent;
  const double queries = heads * real(config.headSize),
               rank = real(latent.queryRank),
               valueRank = real(latent.valueRank);
  return (rank > 0 ? (hidden + queries) * rank : hidden * queries) +
         hidden * (valueRank + real(latent.ropeSize)) +
         valueRank * heads * real(latent.plainSize + latent.valueSize) + output;
}

/// Multiply-adds per token of the MLPs of all layers.
static double mlpsOf(const ModelConfig &config) {
  auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const double products = config.gatedMlp ? 3 : 2, hidden = real(config.hidden);
  const double sparse = real(std::ssize(config.layersWhere(true)));
  double sum =
      (real(config.layers) - sparse) * products * hidden * real(config.ffn);
  if (const auto &experts = config.experts)
    sum += sparse * hidden *
           (products * (real(experts->perToken) * real(experts->ffn) +
                        real(experts->sharedFfn)) +
            real(experts->count) + (experts->sharedGate ? 1 : 0));
  return sum;
}

double heddle::modelFlopsPerStep(const ModelConfig &config,
                                 std::int64_t sequences,
                                 std::int64_t sequenceLength) {
  auto real = [](std::int64_t size) { return static_cast<double>(size); };
  double seen = real(
      std::min(sequenceLength, config.slidingWindow.value_or(sequenceLength)));
  // Scores, and their product with values.
  double core =
      seen * real(config.heads()) * real(config.headSize + config.valueSize());
  double perToken = real(config.layers) * (projectionsOf(config) + core) +
                    mlpsOf(config) +
                    real(config.hidden) * real(config.vocabulary);
  return 3 * 2 * perToken * real(sequences) * real(sequenceLength);
}
