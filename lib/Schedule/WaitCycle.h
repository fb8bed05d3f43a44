// The shortest cycle of waits in a table that is stuck.

#ifndef HEDDLE_LIB_SCHEDULE_WAITCYCLE_H
#define HEDDLE_LIB_SCHEDULE_WAITCYCLE_H

#include "SlotIndex.h"

namespace heddle::detail {

/// `heads` is where walk() stood when nothing more could run. Among tables of
/// up to 2^18 slots no cycle has fewer waits than the one given; in larger ones
/// none that a rank's next step is part of has.
std::vector<ScheduleWait>
findShortestCycle(const ScheduleTable &table, const SlotIndex &index,
                  const std::vector<std::int64_t> &heads);

} // namespace heddle::detail

#endif // HEDDLE_LIB_SCHEDULE_WAITCYCLE_H
