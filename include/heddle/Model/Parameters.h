//===- Parameters.h - A model's tensors and counts --------------*- C++ -*-===//

#ifndef HEDDLE_MODEL_PARAMETERS_H
#define HEDDLE_MODEL_PARAMETERS_H

#include "heddle/Model/ModelConfig.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

enum class Segment { Embedding, Block, Head };
std::string_view segmentName(Segment segment); ///< "embedding"

/// How a tensor stands in a checkpoint: row-major, of `shape`. Cut `shape`
/// into sizes s where s[order[i]] = logical shape[i]: logical dimension i is
/// dimension order[i] of the cut tensor. GPT-2's c_attn: logical [3, g, k, d],
/// file [d, 3 * g * k], order [1, 2, 3, 0].
struct FileForm {
  std::vector<std::int64_t> shape;
  std::vector<int> order;

  bool operator==(const FileForm &) const = default;
};

/// Normal: mean 0 and this deviation.
struct Initializer {
  enum class Kind { Normal, Ones, Zeros };
  Kind kind = Kind::Normal;
  double deviation = 0;

  bool operator==(const Initializer &) const = default;
};
std::string_view initializerName(Initializer::Kind kind); ///< "normal"

/// One tensor, or one per layer.
struct ParameterFamily {
  /// As in a Hugging Face checkpoint, `{}` for the layer:
  /// "model.layers.{}.self_attn.q_proj.weight". A tensor of all experts of a
  /// layer stands for one tensor of each, with its number for `{expert}`.
  std::string name;
  /// Short name, unique in the segment, as IR calls the argument: "wq".
  std::string argument;
  Segment segment = Segment::Block;
  std::int64_t layers = 1; ///< instances; 1 where the name has no `{}`
  /// Numbers of the layers that have it; none: instance i is of layer i.
  std::vector<std::int64_t> layerNumbers;
  /// Factor of each dimension, separated by spaces, as the IR has them: d
  /// hidden, g KV heads, r query heads per KV head, k head size, f ffn, v
  /// vocabulary, p the three of fused QKV, position the learned positions; with
  /// experts e experts, expert_f and shared_f their widths; with latent
  /// attention q_rank, kv_rank, kv_a (kv_rank and the rotated part of keys),
  /// k_v (plain keys and values of a head) and v_size.
  std::string letters;
  std::vector<std::int64_t> shape; ///< of one instance, in that order
  FileForm file;
  Initializer init;
  bool decay = true; ///< weight decay applies: matrices, no norm, no bias
  /// Another name of the same tensor ("lm_head.weight" where tied), else "".
  std::string alias;

  /// The name of one instance, of the layer where all layers have it.
  std::string instanceName(std::int64_t instance) const;
  /// Elements of one instance, and of all.
  std::int64_t elements() const;
  std::int64_t totalElements() const { return elements() * layers; }
};

/// In the order of use: embedding, block (as its function takes them), head.
/// A tied head has no entry of its own.
std::vector<ParameterFamily> parameters(const ModelConfig &config);

/// Elements of all parameters, tied ones once.
std::int64_t parameterCount(const ModelConfig &config);

/// Of these, the elements that one token is computed with: of the routed
/// experts as many as it goes through.
std::int64_t activeParameterCount(const ModelConfig &config);

/// FLOPs that a step of `sequences` sequences needs, forward and backward
/// (3 x forward), as model FLOPs are usually counted: 2 per multiply-add of
/// each matrix product; attention over the whole square s^2 (with a sliding
/// window: s x window), no mask subtracted; norms, activations and the
/// embedding lookup not counted; of experts those that a token goes through,
/// and the router. For GPT: 72 B L s h^2 (1 + s/6h + V/12hL).
double modelFlopsPerStep(const ModelConfig &config, std::int64_t sequences,
                         std::int64_t sequenceLength);

} // namespace heddle

#endif
