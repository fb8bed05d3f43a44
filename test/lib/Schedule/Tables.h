// What tests of schedules start from.

#ifndef HEDDLE_TEST_LIB_SCHEDULE_TABLES_H
#define HEDDLE_TEST_LIB_SCHEDULE_TABLES_H

#include "heddle/Schedule/Generate.h"
#include "heddle/Schedule/Verify.h"

#include <gtest/gtest.h>

namespace heddle {

inline constexpr PlanScheduleKind generatedKinds[] = {
    PlanScheduleKind::None,     PlanScheduleKind::GPipe,
    PlanScheduleKind::OneFOneB, PlanScheduleKind::Interleaved1F1B,
    PlanScheduleKind::ZbH1,     PlanScheduleKind::ZbH2,
    PlanScheduleKind::ZbV,      PlanScheduleKind::VHalf,
    PlanScheduleKind::VMin,     PlanScheduleKind::DualPipe,
    PlanScheduleKind::DualPipeV};

/// Ends the test program where the rows cannot be read.
inline ScheduleTable tableOf(const std::vector<std::string> &rows,
                             std::int64_t chunks, std::int64_t microBatches) {
  Result<ScheduleTable> table = readRows(rows, chunks, microBatches);
  if (!table)
    ADD_FAILURE() << table.message();
  return *table;
}

inline ScheduleTable generated(PlanScheduleKind kind, std::int64_t ranks,
                               std::int64_t chunks, std::int64_t microBatches) {
  Result<ScheduleTable> table =
      generateSchedule(kind, ranks, chunks, microBatches);
  if (!table)
    ADD_FAILURE() << table.message();
  return *table;
}

/// The message of a table that must be refused; "" if it is not.
inline std::string faultOf(const ScheduleTable &table) {
  std::optional<ScheduleFault> fault = findScheduleFault(table);
  return fault ? fault->message : "";
}

} // namespace heddle

#endif // HEDDLE_TEST_LIB_SCHEDULE_TABLES_H
