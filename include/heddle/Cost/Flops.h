//===- Flops.h - Operations of one rank's step ------------------*- C++ -*-===//

#ifndef HEDDLE_COST_FLOPS_H
#define HEDDLE_COST_FLOPS_H

#include "heddle/Cost/RankSizes.h"

#include <optional>

namespace heddle {

/// Operations as executed: 2 per multiply-add of every matrix product and of
/// attention, padding included, all micro-batches and layers. Everything else
/// counts 0: it is bound by memory. A double holds these integers exactly up to
/// 2^53, and beyond where they are multiples of powers of two.
struct FlopCount {
  double products = 0;  ///< projections, MLP, logits
  double attention = 0; ///< scores and their products with values
  double total() const { return products + attention; }
  FlopCount &operator+=(const FlopCount &other);
  FlopCount operator*(std::int64_t times) const;
};

/// Pairs of a query and a key that it sees: causal, the query itself included,
/// and with a window at most that many keys. Documents are not subtracted: they
/// are known only when the program runs.
std::int64_t attentionPairs(std::int64_t sequenceLength,
                            std::optional<std::int64_t> window);

/// What one micro-batch takes in one part of the model: forward, the gradient
/// of its input, those of its weights.
///
/// A product of n x k and k x m matrices is 2nkm; backward has two of that size
/// for each forward one (gradients of both sides). Attention has 2 products
/// over its pairs forward and 5 backward (the scores again; gradients of
/// values, probabilities, queries and keys). Unfused it has 2 and 4 over the
/// whole square, and they are products like any other.
struct PartFlops {
  FlopCount forward, inputGrad, weightGrad;
  FlopCount all() const;
};
PartFlops layerFlops(const ModelConfig &model, const RankSizes &sizes);
PartFlops headFlops(const RankSizes &sizes);

/// What backward of one layer and micro-batch computes again of forward.
FlopCount flopsAgain(const LayersUnder &layers);

/// Forward and backward of one optimizer step on one rank.
FlopCount stepFlops(const ModelConfig &model, const RankSizes &sizes);

} // namespace heddle

#endif // HEDDLE_COST_FLOPS_H
