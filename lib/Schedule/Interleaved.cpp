// Interleaved 1F1B (Narayanan et al., Efficient Large-Scale Language Model
// Training on GPU Clusters, 2021), for any number of micro-batches.

#include "Generators.h"

#include <algorithm>

namespace heddle::detail {

namespace {

struct Unit {
  std::int64_t chunk;
  std::int64_t microBatch;
};

/// Micro-batches pass in groups: a group goes through all chunks before the
/// next begins. A group of fewer than one per rank would wait for itself at the
/// end of each round, so that what does not divide makes groups larger, evenly.
std::vector<std::int64_t> groupSizes(std::int64_t ranks,
                                     std::int64_t microBatches) {
  const std::int64_t groups = std::max<std::int64_t>(microBatches / ranks, 1);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < groups; ++i)
    sizes.push_back(microBatches / groups + (i < microBatches % groups));
  return sizes;
}

std::vector<Unit> unitsInOrder(const std::vector<std::int64_t> &groups,
                               std::int64_t chunks, bool isForward) {
  std::vector<Unit> units;
  std::int64_t begin = 0;
  for (std::int64_t size : groups) {
    for (std::int64_t i = 0; i < chunks; ++i)
      for (std::int64_t j = 0; j < size; ++j)
        units.push_back({isForward ? i : chunks - 1 - i, begin + j});
    begin += size;
  }
  return units;
}

} // namespace

std::vector<SlotRow> interleavedRows(const Placement &placement,
                                     std::int64_t microBatches) {
  const std::int64_t ranks = placement.ranks(), chunks = placement.chunks();
  const std::vector<std::int64_t> groups = groupSizes(ranks, microBatches);
  const std::vector<Unit> forwards = unitsInOrder(groups, chunks, true);
  const std::vector<Unit> backwards = unitsInOrder(groups, chunks, false);
  std::vector<SlotRow> rows;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    // With one chunk the step to the next rank and back is one turn; with more
    // the chunks after it take turns as well.
    const std::int64_t toEnd = (chunks > 1 ? 2 : 1) * (ranks - 1 - rank);
    const std::size_t warmUp =
        std::min(static_cast<std::size_t>(toEnd + (chunks - 1) * groups[0]),
                 forwards.size());
    SlotRow row;
    std::size_t next = 0;
    const auto addForward = [&] {
      row.push_back(
          forwardSlot(forwards[next].chunk, forwards[next].microBatch));
      ++next;
    };
    while (next < warmUp)
      addForward();
    for (const Unit &unit : backwards) {
      if (next < forwards.size())
        addForward();
      row.push_back(backwardSlot(unit.chunk, unit.microBatch));
    }
    row.push_back(optimizerSlot());
    rows.push_back(std::move(row));
  }
  return rows;
}

} // namespace heddle::detail
