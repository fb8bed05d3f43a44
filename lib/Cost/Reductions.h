//===- Reductions.h - how gradients are reduced, in buckets -----*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_REDUCTIONS_H
#define HEDDLE_LIB_COST_REDUCTIONS_H

#include "heddle/Cost/Traffic.h"

#include <optional>

namespace heddle::detail {

/// Parts of memory begin at multiples of this.
inline constexpr std::int64_t kAlignment = 64;

std::int64_t alignBytes(std::int64_t bytes);

/// One step from what a rank has to what is stored.
struct ReductionStep {
  std::optional<CollectiveKind> kind; ///< none: this rank's run is taken
  AxisList axes;
  std::int64_t elements = 0; ///< that go in

  bool operator==(const ReductionStep &) const = default;
};

/// What happens to one gradient.
struct Reduction {
  const RankParameter *parameter = nullptr;
  std::vector<ReductionStep> steps;

  bool moves() const;
  /// Equal texts can share a bucket.
  std::string text() const;
};

/// Reductions that go together.
struct Bucket {
  std::vector<Reduction> members;       ///< in their order in memory
  Segment segment = Segment::Block;     ///< whose call makes the last part
  BlockPass pass = BlockPass::Backward; ///< of that
  std::int64_t instances = 1;           ///< layers, each with its own
  std::int64_t times = 1;               ///< in a step, of each instance
  bool ofSums = false;   ///< of sums over micro-batches, which lie side by side
  bool isHidden = false; ///< backward of something else runs meanwhile
};

/// Whether these are the sums of a table that both ends of a chain share: no
/// bucket of the program, as the other end has a part of them.
bool isSummedOverEnds(const RankSizes &sizes, const Bucket &bucket);

/// Whether sums are reduced in slots, not behind all of them.
bool isBesideSlots(const RankSizes &sizes, const Bucket &bucket);

/// Whether the sums of a bucket, which lie side by side, are added in place as
/// one range of memory, first of all.
bool isReducedAsRange(const RankSizes &sizes, const Bucket &bucket);

/// Whether the last micro-batch is a loop of its own: sums are reduced in it.
bool peelsLastMicroBatch(const RankSizes &sizes);

/// What a sum of gradients takes, whole, as a row that runs are cut from, or as
/// a run.
std::int64_t sumElements(const RankSizes &sizes,
                         const RankParameter &parameter);

/// All buckets of a step: those of micro-batches, then those of sums.
std::vector<Bucket> gradientBuckets(const RankSizes &sizes);

/// Axes along which ranks hold parts of the sum that is the gradient, but for
/// axes of data.
AxisList copyAxes(const RankSizes &sizes, const RankParameter &parameter);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_REDUCTIONS_H
