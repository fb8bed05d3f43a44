// Where a micro-batch's saved values are: static indices in place of queues.

#ifndef HEDDLE_SCHEDULE_SAVEDSETS_H
#define HEDDLE_SCHEDULE_SAVEDSETS_H

#include "heddle/Schedule/Table.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace heddle {

/// From when to when a micro-batch on a chunk holds a set of values.
enum class SetSpan {
  ForwardToWeightGrad,   ///< from F until D or W
  ForwardToInputGrad,    ///< what only B or D needs: from F until there
  InputGradToWeightGrad, ///< what B leaves for W; of D, while it runs
};

/// Whether micro-batches of a chunk hold a set of a pool.
enum class SetUse {
  None,
  WhileItBegins, ///< only the slot that a span begins with uses one
  Span,
};

/// The sets of one pool, which a rank's chunks share.
struct RankSets {
  /// Per slot of the row the set that it takes, uses or gives back; -1 where it
  /// has none.
  std::vector<std::int32_t> slots;
  std::int32_t count = 0; ///< different ones: the most held at once
};

/// Gives each micro-batch the smallest set that is free. For a rank of a table
/// that findScheduleFault accepts. A slot gives back after it has run, and a
/// joined pair after both have, so that the second never takes what the first
/// still uses.
RankSets assignSets(const ScheduleTable &table, std::int64_t rank, SetSpan span,
                    const std::function<SetUse(std::int64_t chunk)> &useOf);
/// The same where every chunk holds one.
RankSets assignSets(const ScheduleTable &table, std::int64_t rank,
                    SetSpan span);

/// Per rank, over all chunks: most micro-batches x chunks in flight at once,
/// from F until D or W.
std::vector<std::int32_t> mostInFlight(const ScheduleTable &table);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_SAVEDSETS_H
