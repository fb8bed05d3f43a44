// A schedule's times for people: as text, and as a trace for Perfetto.

#ifndef HEDDLE_SCHEDULE_TIMELINE_H
#define HEDDLE_SCHEDULE_TIMELINE_H

#include "heddle/Schedule/Simulate.h"

#include <cstdint>
#include <string>

namespace heddle {

/// One line per rank, time to the right, at most `maxColumns` wide. Where there
/// is room each slot is its text, as wide as it takes long ("F12 D3/1"), else
/// each column is the letter of what runs longest within it, small for other
/// chunks than 0; '.' is idle. Ends with a line for the whole: makespan,
/// bubble.
std::string drawSchedule(const ScheduleTable &table,
                         const ScheduleTiming &timing,
                         std::int64_t maxColumns = 120);

/// The trace as JSON that Perfetto reads: a process per rank, in it a track for
/// its slots and one for each rank that it sends to. Times in microseconds, as
/// the format has them.
std::string writeTimeline(const ScheduleTable &table,
                          const ScheduleTiming &timing);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_TIMELINE_H
