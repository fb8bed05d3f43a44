#include "heddle/Cost/Flops.h"

#include <algorithm>

using namespace heddle;

std::int64_t heddle::attentionPairs(std::int64_t sequenceLength,
                                    std::optional<std::int64_t> window) {
  const std::int64_t reach =
      std::min(window.value_or(sequenceLength), sequenceLength);
  // The first `reach` queries see 1, 2, ..., reach keys, the others reach.
  return reach * (reach + 1) / 2 + (sequenceLength - reach) * reach;
}

static double real(std::int64_t value) { return static_cast<double>(value); }

FlopCount heddle::stepFlops(const ModelConfig &model, const RankSizes &sizes) {
  const std::int64_t queries = sizes.g * sizes.r * sizes.k;
  const std::int64_t keys = sizes.g * sizes.k;
  const std::int64_t projections = model.gatedMlp ? 3 : 2; // of the MLP
  // Multiply-adds of one token: q and o; k and v; the MLP.
  const std::int64_t perLayer =
      sizes.d * (2 * queries + 2 * keys + projections * sizes.f);
  const std::int64_t perToken =
      sizes.layers * perLayer + sizes.d * sizes.headRows;
  FlopCount count;
  count.products =
      3 * 2 * real(perToken) * real(sizes.tokens()) * real(sizes.microBatches);
  const std::int64_t pairs = attentionPairs(sizes.s, model.slidingWindow);
  count.attention = (2 + 5) * 2 * real(pairs * sizes.b) * real(queries) *
                    real(sizes.layers) * real(sizes.microBatches);
  return count;
}
