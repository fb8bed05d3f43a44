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

FlopCount &FlopCount::operator+=(const FlopCount &other) {
  products += other.products;
  attention += other.attention;
  return *this;
}

FlopCount FlopCount::operator*(std::int64_t times) const {
  return {products * real(times), attention * real(times)};
}

FlopCount PartFlops::all() const {
  FlopCount sum = forward;
  sum += inputGrad;
  return sum += weightGrad;
}

PartFlops heddle::layerFlops(const ModelConfig &model, const RankSizes &sizes) {
  const std::int64_t queries = sizes.g * sizes.r * sizes.k;
  const std::int64_t keys = sizes.g * sizes.k;
  const std::int64_t projections = model.gatedMlp ? 3 : 2; // of the MLP
  // Multiply-adds of one token: q and o; k and v; the MLP.
  const std::int64_t perToken =
      sizes.d * (2 * queries + 2 * keys + projections * sizes.f);
  const double products = 2 * real(perToken) * real(sizes.tokens());
  if (sizes.unfusedAttention) { // products over the whole square
    const double matrix = 2 * real(sizes.tokens() * sizes.s) * real(queries);
    return {
        {products + 2 * matrix, 0}, {products + 4 * matrix, 0}, {products, 0}};
  }
  const std::int64_t pairs = attentionPairs(sizes.s, model.slidingWindow);
  const double pairing = 2 * real(pairs * sizes.b) * real(queries);
  return {{products, 2 * pairing}, {products, 5 * pairing}, {products, 0}};
}

PartFlops heddle::headFlops(const RankSizes &sizes) {
  const FlopCount each{
      2 * real(sizes.d * sizes.headRows) * real(sizes.tokens()), 0};
  return {each, each, each};
}

FlopCount heddle::flopsAgain(const LayersUnder &layers) {
  FlopCount count;
  for (const BlockOp &op : layers.again)
    count += {op.products, op.attention};
  return count;
}

FlopCount heddle::stepFlops(const ModelConfig &model, const RankSizes &sizes) {
  FlopCount count = layerFlops(model, sizes).all() * sizes.layers;
  for (const LayersUnder &each : sizes.recompute)
    count += flopsAgain(each) * each.layers;
  if (sizes.stages.hasHead)
    count += headFlops(sizes).all();
  return count * sizes.microBatchesOfCopy();
}
