//===- Storage.h - bytes of states as a plan stores them --------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_STORAGE_H
#define HEDDLE_LIB_COST_STORAGE_H

#include "Reductions.h"

namespace heddle::detail {

/// What the plan's storage keeps, from step to step and around a call.
class Storage {
public:
  explicit Storage(const RankSizes &sizes)
      : sizes(sizes), storage(sizes.storage) {
    for (const Bucket &bucket : gradientBuckets(sizes))
      (bucket.ofSums ? ofSums : ofMicroBatches).push_back(bucket);
  }

  std::int64_t parameters() const;
  /// One of the optimizer's numbers per element.
  std::int64_t optimizer() const;
  /// Of what scales of earlier steps are made of, and this step's.
  std::int64_t scales() const;
  /// Where all of that is on the host, \p numbers of it for each element: what
  /// is on the device at a time. A parameter's rows are there until the next
  /// one's have come.
  std::int64_t optimizerRows(std::int64_t numbers) const;
  std::int64_t gradients() const;

  /// Whole copies of parameters that a pass over a segment reads, and that are
  /// kept longer.
  std::int64_t gathered(Segment segment, BlockPass pass) const;
  /// Gradients that a pass over a segment has made, until they are reduced.
  std::int64_t made(Segment segment, BlockPass pass) const;
  /// Gradients of the largest bucket in the format that they are reduced in,
  /// where that is not the one that they are kept in; as far as a segment runs
  /// meanwhile.
  std::int64_t onTheirWay(Segment segment) const;
  /// The same, whatever runs.
  std::int64_t onTheirWay() const;
  /// The gradient of a table that both ends share: the other end's, and this
  /// one's where it is not reduced in its place.
  std::int64_t ofBothEnds() const;

private:
  std::int64_t optimizerElements(const RankParameter &parameter) const;
  bool isThere(const RankParameter &parameter, Segment segment,
               BlockPass pass) const;
  std::int64_t copies(Segment segment, BlockPass pass) const;
  /// Whether slots reduce gradients of several segments.
  bool isInSlotsOfSeveral() const;

  const RankSizes &sizes;
  const RankStorage &storage;
  std::vector<Bucket> ofSums, ofMicroBatches;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_STORAGE_H
