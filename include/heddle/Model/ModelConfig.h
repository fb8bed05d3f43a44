//===- ModelConfig.h - A Transformer as numbers -----------------*- C++ -*-===//
//
// What a Hugging Face config.json says, in one spelling for all families. A
// key is read, known to be neutral (with a reason), or an error: never ignored.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_MODEL_MODELCONFIG_H
#define HEDDLE_MODEL_MODELCONFIG_H

#include "heddle/Support/Document.h"
#include "heddle/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

enum class Family {
  Llama,
  Mistral,
  Qwen2,
  Qwen3,
  Gpt2,
  // Read for planning; not compiled yet (`whyNotCompiled`).
  Mixtral,
  Qwen2Moe,
  Qwen3Moe,
  DeepseekV3,
};
enum class NormKind { Rms, Layer };
/// Silu: x sigmoid(x). GeluTanh: Hugging Face's gelu_new. GeluErf: gelu.
enum class Activation { Silu, GeluTanh, GeluErf, Relu };
/// Rope: pairs (i, i + headSize / 2) of queries and keys are rotated.
/// Learned: a table [maxPositions, hidden] is added to the embedding.
enum class PositionKind { Rope, Learned };
enum class RopeScaling { None, Llama3 };

std::string_view familyName(Family family); ///< "llama", as model_type
std::string_view activationName(Activation activation); ///< "gelu_tanh"

/// Rotary positions. The last four numbers count only with Llama3 scaling.
struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::None;
  double factor = 1;
  double lowFreqFactor = 1;
  double highFreqFactor = 1;
  std::int64_t originalMaxPositions = 0;

  bool operator==(const RopeConfig &) const = default;
};

/// Rates in [0, 1), as the config file gives them (or its class's default).
struct DropoutRates {
  double attention = 0; ///< on attention probabilities
  double residual = 0;  ///< on what a sub-block adds to the residual
  double embedding = 0; ///< on the sum of embeddings

  bool any() const { return attention > 0 || residual > 0 || embedding > 0; }
  bool operator==(const DropoutRates &) const = default;
};

/// Layers whose MLP is a choice of experts for each token.
struct ExpertsConfig {
  std::int64_t count = 0;       ///< routed experts of a layer
  std::int64_t perToken = 0;    ///< of these, what each token goes through
  std::int64_t ffn = 0;         ///< width of a routed expert
  std::int64_t sharedFfn = 0;   ///< width of what every token takes; 0: none
  bool sharedGate = false;      ///< the shared part has a gate of its own
  bool routerBias = false;      ///< a correction per expert, without gradient
  std::int64_t denseLayers = 0; ///< the first ones have a plain MLP
  std::int64_t everyLayers = 1; ///< layer i has experts where this divides i+1
  std::vector<std::int64_t> mlpOnlyLayers; ///< others with a plain MLP

  bool operator==(const ExpertsConfig &) const = default;
};

/// Attention whose queries, keys and values are made of narrow vectors
/// (DeepSeek-V2, arXiv 2405.04434). A head of queries and keys has
/// plainSize + ropeSize numbers, of which the last are rotated; the rotated
/// part of the keys is one for all heads.
struct LatentConfig {
  std::int64_t queryRank = 0; ///< 0: queries are made of hidden at once
  std::int64_t valueRank = 0; ///< of keys and values together
  std::int64_t plainSize = 0;
  std::int64_t ropeSize = 0;
  std::int64_t valueSize = 0; ///< of a head of values

  bool operator==(const LatentConfig &) const = default;
};

/// A decoder-only Transformer. Query heads are kvHeads * queryHeadsPerKvHead;
/// query head h belongs to KV head h / queryHeadsPerKvHead.
/// Attention scale is 1 / sqrt(headSize).
struct ModelConfig {
  Family family = Family::Llama;
  std::string name; ///< file or folder name without extension, for people
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t kvHeads = 0;
  std::int64_t queryHeadsPerKvHead = 1;
  std::int64_t headSize = 0;
  std::int64_t ffn = 0;
  std::int64_t vocabulary = 0;
  std::int64_t maxPositions = 0;
  NormKind norm = NormKind::Rms;
  double normEps = 1e-5;
  Activation activation = Activation::Silu;
  bool gatedMlp = true;  ///< down(act(gate(x)) * up(x)), else down(act(up(x)))
  bool fusedQkv = false; ///< one parameter [3, heads, headSize, hidden]
  bool qkvBias = false;
  bool outputBias = false;     ///< of attention's output projection
  bool mlpBias = false;        ///< of all MLP projections
  bool qkNorm = false;         ///< RMS norm over headSize on queries and keys
  bool tiedEmbeddings = false; ///< the head uses the embedding's matrix
  PositionKind position = PositionKind::Rope;
  RopeConfig rope; ///< counts only with PositionKind::Rope
  /// A query sees itself and the slidingWindow - 1 positions before it.
  std::optional<std::int64_t> slidingWindow;
  DropoutRates dropout;
  double initializerRange = 0.02;
  std::optional<ExpertsConfig> experts; ///< else every MLP is plain
  std::optional<LatentConfig> latent;   ///< else keys and values are projected

  std::int64_t heads() const { return kvHeads * queryHeadsPerKvHead; }
  bool normHasBias() const { return norm == NormKind::Layer; }
  /// Size of a head of values.
  std::int64_t valueSize() const {
    return latent ? latent->valueSize : headSize;
  }
  bool hasExperts(std::int64_t layer) const;
  /// Numbers of the layers with experts, or of those with a plain MLP.
  std::vector<std::int64_t> layersWhere(bool haveExperts) const;

  bool operator==(const ModelConfig &) const = default;
};

/// Reads a config.json, or the config.json of a folder. Errors name family or
/// key, file, line, and the nearest known key.
Result<ModelConfig> readModelConfig(const std::filesystem::path &path);
/// The same from a document already read.
Result<ModelConfig> readModelConfig(const Document &document);

/// Why no program can be made of the model yet, though it can be planned and
/// explained: a sentence that names the family. None where one can.
std::optional<std::string> whyNotCompiled(const ModelConfig &model);

/// Angle per position of pair i, i < headSize / 2, scaling included:
/// theta^(-2i / headSize), in Hugging Face's formulas, in double.
std::vector<double> ropeInverseFrequencies(const RopeConfig &rope,
                                           std::int64_t headSize);

/// A key that does not change what is computed, and why. Printed by
/// `heddle explain`.
struct NeutralKey {
  std::string_view key;
  std::string_view reason;
};
/// Neutral in every family, whatever the value.
const std::vector<NeutralKey> &neutralKeys();

} // namespace heddle

#endif
