#include "heddle/Model/ModelConfig.h"

#include "Experts.h"
#include "Keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

using namespace heddle;
using detail::countRange;
using detail::indexRange;
using detail::widthRange;

namespace {
/// What Hugging Face's class of a family takes where a key is absent.
struct FamilyFacts {
  Family family;
  std::string_view name, architecture;
  std::int64_t maxPositions;
  /// None: as many KV heads as heads.
  std::optional<std::int64_t> kvHeads;
  /// None: hidden / heads.
  std::optional<std::int64_t> headSize;
};
} // namespace

static constexpr std::array<FamilyFacts, 9> families = {{
    {Family::Llama, "llama", "LlamaForCausalLM", 2048, {}, {}},
    {Family::Mistral, "mistral", "MistralForCausalLM", 131072, 8, {}},
    {Family::Qwen2, "qwen2", "Qwen2ForCausalLM", 32768, 32, {}},
    {Family::Qwen3, "qwen3", "Qwen3ForCausalLM", 32768, 32, 128},
    {Family::Gpt2, "gpt2", "GPT2LMHeadModel", 1024, {}, {}},
    {Family::Mixtral, "mixtral", "MixtralForCausalLM", 131072, 8, {}},
    {Family::Qwen2Moe, "qwen2_moe", "Qwen2MoeForCausalLM", 32768, 16, {}},
    {Family::Qwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", 32768, 4, {}},
    {Family::DeepseekV3, "deepseek_v3", "DeepseekV3ForCausalLM", 4096, {}, {}},
}};

static const FamilyFacts &factsOf(Family family) {
  return families[static_cast<std::size_t>(family)];
}

static constexpr NumberRange epsRange = {0, 1, true, true};
static constexpr double maxParameters = 1e18;

std::string_view heddle::familyName(Family family) {
  return factsOf(family).name;
}

std::string_view heddle::activationName(Activation activation) {
  switch (activation) {
  case Activation::Silu:
    return "silu";
  case Activation::GeluTanh:
    return "gelu_tanh";
  case Activation::GeluErf:
    return "gelu_erf";
  case Activation::Relu:
    return "relu";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Family
//===----------------------------------------------------------------------===//

static Error unknownFamily(const std::string &file, int line,
                           std::string_view key, const std::string &found) {
  std::vector<std::string_view> names;
  for (const FamilyFacts &facts : families)
    names.push_back(key == "model_type" ? facts.name : facts.architecture);
  return {fmt::format("{}:{}: key '{}': found {}, expected one of {}; this "
                      "model family is not implemented",
                      file, line, key, found, fmt::join(names, ", "))};
}

/// By model_type, or by architectures where there is none.
static Result<Family> readFamily(const Document &document) {
  const DocumentValue &root = document.root();
  if (!root.isMap())
    return Error{fmt::format("{}:{}: found {}, expected the keys of a "
                             "config.json",
                             document.file(), root.line, root.describe())};
  if (const DocumentValue *type = root.find("model_type")) {
    for (const FamilyFacts &facts : families)
      if (type->kind == DocumentValue::Kind::String && type->text == facts.name)
        return facts.family;
    return unknownFamily(document.file(), type->line, "model_type",
                         type->describe());
  }
  const DocumentValue *list = root.find("architectures");
  if (!list || !list->isList() || list->items.empty())
    return Error{fmt::format("{}:{}: key 'model_type' is missing; add it "
                             "(such as \"llama\")",
                             document.file(), root.line)};
  for (const FamilyFacts &facts : families)
    if (list->items[0].text == facts.architecture)
      return facts.family;
  return unknownFamily(document.file(), list->items[0].line, "architectures",
                       list->items[0].describe());
}

static void checkArchitectures(MapReader &reader, Family family) {
  reader.know("model_type");
  if (!reader.has("architectures"))
    return;
  std::string_view expected = factsOf(family).architecture;
  for (const std::string &name : reader.strings("architectures"))
    if (name != expected)
      reader.fail("architectures",
                  fmt::format("found \"{}\", expected \"{}\": other heads and "
                              "other families' layers are not implemented",
                              name, expected));
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

static Activation readActivation(MapReader &reader, std::string_view key,
                                 const std::string &byDefault) {
  std::string name = reader.choice(
      key, {"silu", "swish", "gelu_new", "gelu_pytorch_tanh", "gelu", "relu"},
      byDefault);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh")
    return Activation::GeluTanh;
  if (name == "gelu")
    return Activation::GeluErf;
  return name == "relu" ? Activation::Relu : Activation::Silu;
}

static void readLlama3Scaling(MapReader &scaling, RopeConfig &rope) {
  rope.scaling = RopeScaling::Llama3;
  rope.factor = scaling.number("factor", {1});
  rope.lowFreqFactor =
      scaling.number("low_freq_factor", NumberRange::positive());
  rope.highFreqFactor =
      scaling.number("high_freq_factor", NumberRange::positive());
  rope.originalMaxPositions =
      scaling.integer("original_max_position_embeddings", indexRange);
  if (scaling.ok() && rope.highFreqFactor <= rope.lowFreqFactor)
    scaling.fail("high_freq_factor",
                 fmt::format("found {}, expected more than low_freq_factor {}",
                             rope.highFreqFactor, rope.lowFreqFactor));
}

/// The kind of scaling; both spellings may stand there if they agree.
static std::string readScalingType(MapReader &scaling, const DocumentValue &map,
                                   bool mayBeAbsent) {
  bool hasNew = scaling.has("rope_type"), hasOld = scaling.has("type");
  if (!hasNew && !hasOld && mayBeAbsent)
    return "default";
  std::string_view key = hasNew || !hasOld ? "rope_type" : "type";
  std::string type = scaling.string(key);
  if (hasNew && hasOld && scaling.string("type") != type)
    scaling.fail("type", fmt::format("found \"{}\", expected \"{}\" as "
                                     "rope_type says; remove one",
                                     scaling.string("type"), type));
  if (type == "default" || type == "llama3")
    return type;
  // The keys of a scaling that is not implemented are not worth a message.
  for (const DocumentValue::Entry &entry : map.entries)
    scaling.know(entry.key);
  if (!type.empty())
    scaling.fail(key, fmt::format("found \"{}\", expected default or llama3; "
                                  "other RoPE scalings are not implemented",
                                  type));
  return type;
}

/// rope_theta and rope_scaling, or both in the newer rope_parameters.
static RopeConfig readRope(MapReader &reader) {
  RopeConfig rope;
  bool old = reader.has("rope_scaling"), fresh = reader.has("rope_parameters");
  if (old && fresh)
    reader.fail("rope_scaling",
                "found rope_parameters too, expected one of them; remove one");
  std::string_view key = fresh ? "rope_parameters" : "rope_scaling";
  const DocumentValue *map = reader.value(key);
  rope.theta = reader.number("rope_theta", NumberRange::positive(), rope.theta);
  std::optional<MapReader> scaling = reader.map(key);
  if (!scaling)
    return rope;
  std::string type = readScalingType(*scaling, *map, fresh);
  if (fresh && scaling->has("rope_theta")) {
    double theta = scaling->number("rope_theta", NumberRange::positive());
    if (reader.has("rope_theta") && theta != rope.theta)
      reader.fail("rope_theta",
                  fmt::format("found {}, expected {} as rope_parameters says; "
                              "remove one",
                              rope.theta, theta));
    rope.theta = theta;
  }
  if (type == "llama3")
    readLlama3Scaling(*scaling, rope);
  return rope;
}

/// qwen2, qwen3: layers from max_window_layers on have the window. Neutral as a
/// whole where use_sliding_window is false.
static std::optional<std::int64_t> readQwenWindow(MapReader &reader,
                                                  std::int64_t layers) {
  reader.know("sliding_window");
  reader.know("max_window_layers");
  if (!reader.boolean("use_sliding_window", false))
    return std::nullopt;
  std::optional<std::int64_t> window =
      reader.value("sliding_window")
          ? reader.optionalInteger("sliding_window", indexRange)
          : 4096;
  std::int64_t first =
      reader.integer("max_window_layers", {0, indexRange.max}, 28);
  if (!window || first >= layers)
    return std::nullopt;
  if (first > 0 && !reader.value("layer_types"))
    reader.fail("max_window_layers",
                fmt::format("found {} of {} layers without the sliding window, "
                            "expected all (at least {}) or none (0); layers "
                            "that differ are not implemented",
                            first, layers, layers));
  return window;
}

/// layer_types, the newer list: every layer must be as the other keys say.
static std::optional<std::int64_t>
checkLayerTypes(MapReader &reader, std::int64_t layers,
                std::optional<std::int64_t> window) {
  if (!reader.has("layer_types"))
    return window;
  std::vector<std::string> types = reader.strings("layer_types");
  if (static_cast<std::int64_t>(types.size()) != layers)
    reader.fail("layer_types", fmt::format("found a list of {}, expected one "
                                           "entry for each of {} layers",
                                           types.size(), layers));
  std::string kind = types.empty() ? "" : types.front();
  for (const std::string &type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      reader.fail("layer_types",
                  fmt::format("found \"{}\", expected full_attention or "
                              "sliding_attention",
                              type));
    else if (type != kind)
      reader.fail("layer_types",
                  "found full_attention and sliding_attention, expected all "
                  "layers alike; layers that differ are not implemented");
  }
  if (kind == "sliding_attention" && !window)
    reader.fail("layer_types", "found sliding_attention, but the other keys "
                               "give no window; set use_sliding_window, "
                               "sliding_window and max_window_layers");
  return kind == "full_attention" ? std::nullopt : window;
}

static std::optional<std::int64_t> readWindow(MapReader &reader, Family family,
                                              std::int64_t layers) {
  if (family == Family::Mistral || family == Family::Mixtral)
    return reader.value("sliding_window")
               ? reader.optionalInteger("sliding_window", indexRange)
           : family == Family::Mistral ? std::optional<std::int64_t>(4096)
                                       : std::nullopt;
  if (family == Family::Llama || family == Family::DeepseekV3)
    return std::nullopt;
  return checkLayerTypes(reader, layers, readQwenWindow(reader, layers));
}

/// Splits heads into KV heads and heads per KV head, and finds the head size.
static void readHeads(MapReader &reader, ModelConfig &config) {
  const FamilyFacts &facts = factsOf(config.family);
  std::int64_t heads = reader.integer("num_attention_heads", countRange);
  std::optional<std::int64_t> kvHeads =
      reader.optionalInteger("num_key_value_heads", countRange);
  bool absent = !reader.value("num_key_value_heads");
  if (absent)
    kvHeads = facts.kvHeads;
  config.kvHeads = kvHeads.value_or(heads);
  std::optional<std::int64_t> headSize =
      facts.headSize ? reader.integer("head_dim", countRange, *facts.headSize)
                     : reader.optionalInteger("head_dim", countRange);
  if (!reader.ok())
    return;
  if (heads % config.kvHeads != 0)
    return reader.fail(
        "num_key_value_heads",
        fmt::format("found {}{}, expected a divisor of num_attention_heads {}",
                    config.kvHeads,
                    absent ? fmt::format(" (what {} takes where it is absent)",
                                         facts.name)
                           : "",
                    heads));
  if (!headSize && config.hidden % heads != 0)
    return reader.fail("num_attention_heads",
                       fmt::format("found {}, expected a divisor of "
                                   "hidden_size {}; else give head_dim",
                                   heads, config.hidden));
  config.queryHeadsPerKvHead = heads / config.kvHeads;
  config.headSize = headSize.value_or(config.hidden / heads);
  if (config.headSize % 2 != 0)
    reader.fail(headSize ? "head_dim" : "num_attention_heads",
                fmt::format("found a head size of {}, expected an even one: "
                            "rotary positions turn pairs",
                            config.headSize));
}

//===----------------------------------------------------------------------===//
// Families
//===----------------------------------------------------------------------===//

static void readLlamaLike(MapReader &reader, ModelConfig &config) {
  Family family = config.family;
  config.hidden = reader.integer("hidden_size", widthRange);
  config.layers = reader.integer("num_hidden_layers", countRange);
  config.ffn = reader.integer("intermediate_size", widthRange);
  config.vocabulary = reader.integer("vocab_size", indexRange);
  config.maxPositions = reader.integer("max_position_embeddings", indexRange,
                                       factsOf(family).maxPositions);
  if (family == Family::DeepseekV3)
    detail::readLatent(reader, config);
  else
    readHeads(reader, config);
  config.norm = NormKind::Rms;
  config.normEps = reader.number("rms_norm_eps", epsRange, 1e-6);
  config.activation = readActivation(reader, "hidden_act", "silu");
  config.gatedMlp = true;
  bool readsBias = family == Family::Llama || family == Family::Qwen3 ||
                   family == Family::Qwen3Moe;
  bool attentionBias = readsBias && reader.boolean("attention_bias", false);
  config.qkvBias =
      attentionBias ||
      (family == Family::Qwen2Moe && reader.boolean("qkv_bias", true)) ||
      family == Family::Qwen2;
  config.outputBias = attentionBias;
  config.mlpBias = family == Family::Llama && reader.boolean("mlp_bias", false);
  config.qkNorm = family == Family::Qwen3 || family == Family::Qwen3Moe;
  config.tiedEmbeddings = reader.boolean("tie_word_embeddings", false);
  if (family == Family::DeepseekV3)
    config.rope.theta =
        reader.number("rope_theta", NumberRange::positive(), 10000.0);
  else
    config.rope = readRope(reader);
  config.slidingWindow = readWindow(reader, family, config.layers);
  config.dropout.attention =
      reader.number("attention_dropout", NumberRange::rate(), 0.0);
  detail::readExperts(reader, config);
}

/// GPT-2's class also takes the other families' spelling of four keys.
static std::int64_t readEither(MapReader &reader, std::string_view key,
                               std::string_view other, IntegerRange range) {
  reader.know(key);
  if (!reader.has(other))
    return reader.integer(key, range);
  std::int64_t value = reader.integer(other, range);
  if (reader.has(key) && reader.integer(key, range) != value)
    reader.fail(other, fmt::format("found {}, expected the same as {}; remove "
                                   "one",
                                   value, key));
  return value;
}

static void readGpt2(MapReader &reader, ModelConfig &config) {
  config.hidden = readEither(reader, "n_embd", "hidden_size", widthRange);
  config.layers =
      readEither(reader, "n_layer", "num_hidden_layers", countRange);
  config.kvHeads =
      readEither(reader, "n_head", "num_attention_heads", countRange);
  config.maxPositions =
      readEither(reader, "n_positions", "max_position_embeddings", indexRange);
  config.vocabulary = reader.integer("vocab_size", indexRange);
  config.ffn =
      reader.optionalInteger("n_inner", widthRange).value_or(4 * config.hidden);
  config.norm = NormKind::Layer;
  config.normEps = reader.number("layer_norm_epsilon", epsRange, 1e-5);
  config.activation = readActivation(reader, "activation_function", "gelu_new");
  config.gatedMlp = false;
  config.fusedQkv = true;
  config.qkvBias = config.outputBias = config.mlpBias = true;
  config.tiedEmbeddings = reader.boolean("tie_word_embeddings", true);
  config.position = PositionKind::Learned;
  config.dropout.attention =
      reader.number("attn_pdrop", NumberRange::rate(), 0.1);
  config.dropout.residual =
      reader.number("resid_pdrop", NumberRange::rate(), 0.1);
  config.dropout.embedding =
      reader.number("embd_pdrop", NumberRange::rate(), 0.1);
  if (!reader.ok())
    return;
  if (config.hidden % config.kvHeads != 0)
    return reader.fail(reader.has("n_head") ? "n_head" : "num_attention_heads",
                       fmt::format("found {}, expected a divisor of n_embd {}",
                                   config.kvHeads, config.hidden));
  config.headSize = config.hidden / config.kvHeads;
}

/// Before counts are made in 64 bits.
static void checkSize(MapReader &reader, const ModelConfig &config) {
  double hidden = static_cast<double>(config.hidden);
  double heads = static_cast<double>(config.heads() + config.kvHeads);
  double width = static_cast<double>(config.ffn);
  if (config.experts)
    width += static_cast<double>(config.experts->count) *
                 static_cast<double>(config.experts->ffn) +
             static_cast<double>(config.experts->sharedFfn);
  double perLayer = 2 * hidden * heads * static_cast<double>(config.headSize) +
                    3 * hidden * width + 16 * hidden;
  double total = static_cast<double>(config.layers) * perLayer +
                 hidden * (2.0 * static_cast<double>(config.vocabulary) +
                           static_cast<double>(config.maxPositions));
  if (total > maxParameters)
    reader.fail("vocab_size",
                fmt::format("found a model of about {:.1e} parameters, "
                            "expected at most {:.0e}; check the sizes",
                            total, maxParameters));
}

Result<ModelConfig> heddle::readModelConfig(const Document &document) {
  Result<Family> family = readFamily(document);
  if (!family)
    return family.error();
  std::filesystem::path path = document.file();
  ModelConfig config;
  config.family = *family;
  config.name = path.stem() == "config" && path.has_parent_path()
                    ? path.parent_path().filename().string()
                    : path.stem().string();
  MapReader reader(document);
  detail::checkUnreadKeys(reader, *family);
  checkArchitectures(reader, *family);
  config.initializerRange =
      reader.number("initializer_range", NumberRange::nonNegative(), 0.02);
  if (*family == Family::Gpt2)
    readGpt2(reader, config);
  else
    readLlamaLike(reader, config);
  if (reader.ok())
    checkSize(reader, config);
  if (auto done = reader.finish(); !done)
    return done.error();
  return config;
}

Result<ModelConfig> heddle::readModelConfig(const std::filesystem::path &path) {
  std::error_code ignored; // a path that cannot be asked cannot be read either
  bool folder = std::filesystem::is_directory(path, ignored);
  Result<Document> document =
      Document::read(folder ? path / "config.json" : path);
  if (!document)
    return document.error();
  return readModelConfig(*document);
}

//===----------------------------------------------------------------------===//
// RoPE
//===----------------------------------------------------------------------===//

static double scaleLlama3(double frequency, const RopeConfig &rope) {
  double original = static_cast<double>(rope.originalMaxPositions);
  double waveLength = 2 * std::numbers::pi / frequency;
  if (waveLength < original / rope.highFreqFactor)
    return frequency;
  if (waveLength > original / rope.lowFreqFactor)
    return frequency / rope.factor;
  double smooth = (original / waveLength - rope.lowFreqFactor) /
                  (rope.highFreqFactor - rope.lowFreqFactor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

std::vector<double> heddle::ropeInverseFrequencies(const RopeConfig &rope,
                                                   std::int64_t headSize) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < headSize / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) /
                                                static_cast<double>(headSize));
    frequencies.push_back(rope.scaling == RopeScaling::Llama3
                              ? scaleLlama3(frequency, rope)
                              : frequency);
  }
  return frequencies;
}
