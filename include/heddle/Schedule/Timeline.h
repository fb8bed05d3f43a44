// A schedule's times for people: as text, and as a trace for Perfetto.

#ifndef HEDDLE_SCHEDULE_TIMELINE_H
#define HEDDLE_SCHEDULE_TIMELINE_H

#include "heddle/Schedule/Simulate.h"

#include <cstdint>
#include <string>
#include <vector>

namespace heddle {

/// One line per rank, time to the right, at most `maxColumns` wide. Where there
/// is room each slot is its text, as wide as it takes long ("F12 D3/1"), else
/// each column is the letter of what runs longest within it, small for other
/// chunks than 0; '.' is idle. Ends with a line for the whole: makespan,
/// bubble.
std::string drawSchedule(const ScheduleTable &table,
                         const ScheduleTiming &timing,
                         std::int64_t maxColumns = 120);

/// What runs on a rank beside its slots and transfers.
struct TrackSpan {
  std::int64_t rank = 0;
  std::string track; ///< "compute": below the slots
  std::string name;
  TimeSpan time;
};

/// The trace as JSON that Perfetto reads: a process per rank ("rank 0 of pp"),
/// in it a track for its slots ("compute"), one for each rank that it sends to
/// ("to rank 1") and those of \p more. Times in microseconds, as the format has
/// them.
std::string writeTimeline(const ScheduleTable &table,
                          const ScheduleTiming &timing,
                          const std::vector<TrackSpan> &more = {});

} // namespace heddle

#endif // HEDDLE_SCHEDULE_TIMELINE_H
