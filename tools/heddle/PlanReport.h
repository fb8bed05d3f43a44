//===- PlanReport.h - What `heddle plan` says -------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_PLANREPORT_H
#define HEDDLE_TOOLS_PLANREPORT_H

#include "heddle/Planner/Conflict.h"
#include "heddle/Planner/Decisions.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// An answer and what its figures are computed from.
struct PlanReport {
  const PlanProblem &problem;
  const StepTimes &times;
  const MemoryEstimator &memory;
  const PlanAnswer &answer;
  const std::vector<PlanDecision> &decisions;
};

nlohmann::ordered_json reportJson(const PlanReport &report);
nlohmann::ordered_json conflictJson(const PlanConflict &conflict);

/// A table of the best plans, the front, and why the first one is as it is.
void printReport(const PlanReport &report);

} // namespace heddle::tool

#endif
