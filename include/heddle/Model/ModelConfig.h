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

enum class Family { Llama, Mistral, Qwen2, Qwen3, Gpt2 };
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

  std::int64_t heads() const { return kvHeads * queryHeadsPerKvHead; }
  bool normHasBias() const { return norm == NormKind::Layer; }

  bool operator==(const ModelConfig &) const = default;
};

/// Reads a config.json, or the config.json of a folder. Errors name family or
/// key, file, line, and the nearest known key.
Result<ModelConfig> readModelConfig(const std::filesystem::path &path);
/// The same from a document already read.
Result<ModelConfig> readModelConfig(const Document &document);

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
