//===- Places.h - where an element stands in the whole tensor ---*- C++ -*-===//

#ifndef HEDDLE_PASSES_INTERPRET_PLACES_H
#define HEDDLE_PASSES_INTERPRET_PLACES_H

#include "heddle/Runtime/Random.h"
#include "passes/Interpret/Rank.h"

#include <algorithm>

namespace heddle::interpret {

/// The part of a factor that a rank holds: elements `first` to `first + size`
/// of `extent`; those from `extent` on are padding.
struct Part {
  Part(dist::ShardAttr shard, int64_t size, const Frame &frame)
      : size(size), extent(size) {
    if (!shard)
      return;
    first = shard.getMesh().getGroupIndex(frame.rank.number, shard.getAxes()) *
            size;
    extent = shard.getExtent();
  }

  /// Number of elements that are not padding.
  int64_t getTrueSize() const {
    return std::clamp<int64_t>(extent - first, 0, size);
  }
  /// Where a number of the whole factor stands here, or -1.
  int64_t find(int64_t number) const {
    return number >= first && number < first + getTrueSize() ? number - first
                                                             : -1;
  }

  int64_t first = 0, size, extent;
};

/// The masks of one site in one layer.
struct Mask {
  Mask(const Frame &frame, mlir::Value seed, double rate,
       transformer::DropoutSite site)
      : seed(static_cast<uint64_t>(frame.get(seed).integers[0])),
        threshold(random::dropoutThreshold(rate)),
        site(static_cast<uint32_t>(site)) {}

  bool keeps(int64_t plane, int64_t row, int64_t column) const {
    return random::dropoutWord(seed, site, static_cast<uint32_t>(plane),
                               static_cast<uint32_t>(row),
                               static_cast<uint32_t>(column)) >= threshold;
  }

  uint64_t seed;
  uint32_t threshold, site;
};

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_PLACES_H
