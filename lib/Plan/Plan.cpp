#include "heddle/Plan/Plan.h"

#include "PlanNames.h"

#include <fmt/format.h>

namespace heddle {

std::string scheduleWord(PlanScheduleKind kind) {
  return kind == PlanScheduleKind::Table
             ? "table"
             : detail::wordOf(detail::scheduleWords, kind);
}

std::string PlanRange::text() const {
  if (empty())
    return "";
  return first == last ? fmt::format("{}", first)
                       : fmt::format("{}..{}", first, last);
}

std::int64_t Plan::axisSize(const std::string &axis) const {
  for (const auto &[name, size] : mesh)
    if (name == axis)
      return size;
  return 1;
}

std::int64_t Plan::ranks() const {
  return axisSize("pp") * axisSize("dp") * axisSize("cp") * axisSize("tp");
}

std::int64_t Plan::globalBatch() const {
  return axisSize("dp") * microBatches * microBatch;
}

} // namespace heddle
