// Schedules by name: from ranks, chunks and micro-batches to a table.

#ifndef HEDDLE_SCHEDULE_GENERATE_H
#define HEDDLE_SCHEDULE_GENERATE_H

#include "heddle/Schedule/Table.h"

namespace heddle {

/// The table of a schedule for that many ranks of pp, chunks per rank and
/// micro-batches. Refused, with the condition, where it is not defined:
///
///   none              one rank, one chunk
///   gpipe, one_f_one_b, zb_h1, zb_h2      one chunk
///   interleaved_1f1b  any numbers
///   zb_v, v_half, v_min                   two chunks, forth and back
///   dualpipe          two chunks (of two copies), even ranks and
///   micro-batches,
///                     at least two micro-batches per rank
///   dualpipe_v        two chunks, forth and back, at least two micro-batches
///                     per rank
///   table             not by name: use scheduleOfPlan
Result<ScheduleTable> generateSchedule(PlanScheduleKind kind,
                                       std::int64_t ranks, std::int64_t chunks,
                                       std::int64_t microBatches);

/// The rows of a plan's own table, not verified. Rows that do not say which
/// stages their chunks are take that from the layers and ends: cyclic, or forth
/// and back.
Result<ScheduleTable> rowsOfPlan(const Plan &plan);

/// The table that a plan asks for: generated, or read from its rows. Verified.
Result<ScheduleTable> scheduleOfPlan(const Plan &plan);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_GENERATE_H
