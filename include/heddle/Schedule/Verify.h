// Whether a table can run, and if not, the smallest reason.

#ifndef HEDDLE_SCHEDULE_VERIFY_H
#define HEDDLE_SCHEDULE_VERIFY_H

#include "heddle/Schedule/Table.h"

#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// A slot of a table: rank and index in the rank's row.
struct SlotPlace {
  std::int64_t rank = 0;
  std::int64_t index = 0;

  bool operator==(const SlotPlace &) const = default;
};

/// `waiting` needs what `needed` makes. In a cycle the next link's waiting slot
/// stands at or before `needed`, in the same row.
struct ScheduleWait {
  SlotPlace waiting;
  SlotPlace needed;

  bool operator==(const ScheduleWait &) const = default;
};

struct ScheduleFault {
  std::string message;             ///< a whole sentence, cycle included
  std::vector<ScheduleWait> cycle; ///< of waits; empty for other faults
};

/// The first thing that keeps a table from running; none if it can run. A slot
/// that means nothing, a pair that cannot be joined, a slot twice, in the wrong
/// place, missing; an optimizer slot that is not last; or a cycle of waits,
/// then a shortest one. Linear in slots where nothing is wrong.
///
/// What a slot waits for: F for F of the stage before; B and D for F of their
/// own stage and B or D of the stage after; W for its B; O for its row; every
/// slot for the one before it in its row. A joined pair starts when both of its
/// slots may.
std::optional<ScheduleFault> findScheduleFault(const ScheduleTable &table);

/// The same as a result.
Result<void> verifySchedule(const ScheduleTable &table);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_VERIFY_H
