// Where a micro-batch's saved values are: static indices in place of queues.

#ifndef HEDDLE_SCHEDULE_SAVEDSETS_H
#define HEDDLE_SCHEDULE_SAVEDSETS_H

#include "heddle/Schedule/Table.h"

#include <cstdint>
#include <vector>

namespace heddle {

/// Indices that belong to one micro-batch on one chunk of one rank, from the
/// smallest that was free; -1 where the slot has none. A slot's indices are
/// those it takes, uses or frees.
struct SavedIndices {
  /// What lives from F until D or W.
  std::int32_t untilWeightGrad = -1;
  /// What only B (or the input half of D) needs: from F until B or D.
  std::int32_t untilInputGrad = -1;
  /// What B leaves for W: from B until W.
  std::int32_t fromInputGrad = -1;

  bool operator==(const SavedIndices &) const = default;
};

/// Most micro-batches in flight at once on a chunk: how many of each are
/// needed.
struct SavedCounts {
  std::int32_t untilWeightGrad = 0;
  std::int32_t untilInputGrad = 0;
  std::int32_t fromInputGrad = 0;

  bool operator==(const SavedCounts &) const = default;
};

struct SavedSets {
  std::vector<std::vector<SavedIndices>> slots; ///< [rank][index in row]
  std::vector<std::vector<SavedCounts>> counts; ///< [rank][chunk]
  /// Per rank, over all chunks: most micro-batches x chunks in flight at once,
  /// from F until D or W. At most the sum over its chunks.
  std::vector<std::int32_t> inFlight;
};

/// For a table that findScheduleFault accepts. A slot frees after it has run,
/// so that the second of a joined pair never takes what the first still uses.
SavedSets assignSavedSets(const ScheduleTable &table);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_SAVEDSETS_H
