//===- Reasons.h - What each decision of a plan is worth --------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_REASONS_H
#define HEDDLE_TOOLS_REASONS_H

#include "heddle/Planner/Decisions.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// For each runner-up. More seldom find a better one, and take longer than the
/// search for the plan.
inline constexpr std::int64_t plansForRunnerUp = 10000;

/// A list: key, choice, runner_up, cost_seconds, cost_bytes, runner_up_plan.
/// The last four are null or absent where no plan with another choice fits.
nlohmann::ordered_json
decisionsJson(const std::vector<PlanDecision> &decisions);

/// The same for people, from that.
void printDecisions(const nlohmann::ordered_json &decisions);

} // namespace heddle::tool

#endif
