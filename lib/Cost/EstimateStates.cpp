// Parameters, gradients and the optimizer's numbers of a place, as a point
// stores them.

#include "EstimateTables.h"

#include "BlockForward.h"
#include "Reductions.h"

#include "heddle/Plan/PlanLayout.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

const EstimateTables::Elements &
EstimateTables::elementsOf(const PlanPoint &point) {
  Elements &list = elements[{point.tp, point.ep}];
  if (list.empty())
    for (const ParameterFamily &family : families)
      list.push_back(partElements(point, model, family));
  return list;
}

namespace {
/// Bytes of one parameter in the forms that a plan stores it in.
class ParameterBytes {
public:
  ParameterBytes(const PlanPoint &point, std::int64_t elements,
                 std::int64_t shards)
      : point(point), elements(elements), isSharded(shards > 1),
        row(shards > 1 ? rowElements(elements, shards) : elements),
        run(row / shards) {}

  std::int64_t stored() const {
    return alignBytes((point.zeroStage >= 3 ? run : row) *
                      point.computeBytes());
  }
  std::int64_t whole() const { return alignBytes(row * point.computeBytes()); }
  std::int64_t sum() const {
    const bool inRuns = point.zeroStage >= 2 && isSharded &&
                        point.reduce == PlanReduce::EveryMicroBatch;
    return alignBytes((inRuns ? run : row) * gradientBytes());
  }
  std::int64_t made() const { return elements * gradientBytes(); }
  std::int64_t optimizer(std::int64_t numbers) const {
    return numbers * alignBytes(run * kFloat);
  }
  std::int64_t onItsWay() const { return elements * reduceBytes(); }
  /// This end's sum and the other's, cast to what they are reduced in.
  std::int64_t ofBothEnds() const {
    const std::int64_t each = (isSharded ? run : elements) * reduceBytes();
    return formatBits(point.reduceFormat) == formatBits(point.gradients)
               ? 2 * each
               : 2 * each + (isSharded ? row * reduceBytes() : each);
  }

private:
  std::int64_t gradientBytes() const {
    return point.gradients == "fp32" ? 4 : 2;
  }
  std::int64_t reduceBytes() const {
    return point.reduceFormat == "fp32" ? 4 : 2;
  }
  const PlanPoint &point;
  const std::int64_t elements;
  const bool isSharded;
  const std::int64_t row, run;
};
} // namespace

void StateBytes::add(const StateBytes &other, std::int64_t times) {
  parameters += times * other.parameters;
  gradients += times * other.gradients;
  optimizer += times * other.optimizer;
  copies += times * other.copies;
  copiesForBackward += times * other.copiesForBackward;
  made += times * other.made;
  largest = std::max(largest, times > 0 ? other.largest : 0);
}

SegmentStates EstimateTables::makeSegments(const PlanPoint &point) {
  const Elements &list = elementsOf(point);
  const bool isAdamW = train.optimizer.kind == OptimizerKind::AdamW;
  const std::int64_t numbers = (isAdamW ? 2 : 0) + (point.hasMaster() ? 1 : 0);
  SegmentStates made;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const ParameterFamily &family = families[i];
    const ParameterBytes each(point, list[i], shardsOf(point, family));
    StateBytes bytes;
    bytes.parameters = each.stored();
    bytes.gradients = each.sum();
    bytes.optimizer = each.optimizer(numbers);
    bytes.copies = each.whole();
    bytes.copiesForBackward = isReadByBackward[i] ? each.whole() : 0;
    bytes.made = each.made();
    bytes.largest = each.onItsWay();
    const std::vector<std::int64_t> &numbers = family.layerNumbers;
    auto isIn = [&](bool sparse) {
      return numbers.empty() ||
             isSparse[static_cast<std::size_t>(numbers.front())] == sparse;
    };
    if (family.segment == Segment::Embedding) {
      made.embedding.add(bytes, 1);
      made.rowsOfEmbedding.add(bytes.optimizer);
    }
    if (family.segment == Segment::Embedding && !family.alias.empty()) {
      made.tiedTable.add(bytes, 1);
      made.rowsOfTable.add(bytes.optimizer);
      made.ofBothEnds = each.ofBothEnds();
    }
    if (family.segment == Segment::Head) {
      made.head.add(bytes, 1);
      made.rowsOfHead.add(bytes.optimizer);
    }
    if (family.segment == Segment::Block)
      made.rowsOfBlock.add(bytes.optimizer);
    if (family.segment == Segment::Block && isIn(false))
      made.plain.add(bytes, 1);
    if (family.segment == Segment::Block && isIn(true))
      made.sparse.add(bytes, 1);
  }
  made.bucket = point.bucketBytes * (point.reduceFormat == "fp32" ? 4 : 2) /
                (point.gradients == "fp32" ? 4 : 2);
  return made;
}

const SegmentStates &EstimateTables::segmentsOf(const PlanPoint &point) {
  const SegmentKey key = {point.tp,
                          point.ep,
                          point.zeroStage,
                          point.zeroStage == 0 ? 1 : point.shardGroup,
                          static_cast<std::int64_t>(point.reduce),
                          formatBits(point.recipe),
                          formatBits(point.gradients),
                          formatBits(point.reduceFormat),
                          point.bucketBytes};
  auto found = segments.find(key);
  if (found == segments.end())
    found = segments.emplace(key, makeSegments(point)).first;
  return found->second;
}

StateBytes EstimateTables::statesOf(const SegmentStates &segments,
                                    const HeldByPlace &held) {
  StateBytes bytes;
  bytes.add(segments.plain, held.plain);
  bytes.add(segments.sparse, held.sparse);
  bytes.add(segments.embedding, held.hasEmbedding);
  bytes.add(segments.head, held.hasHead);
  // The head reads a tied table too; where both are, it is there once.
  bytes.add(segments.tiedTable, held.hasHead && !held.hasEmbedding);
  return bytes;
}
