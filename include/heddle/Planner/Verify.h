//===- Verify.h - Whether an answer is one ----------------------*- C++ -*-===//

#ifndef HEDDLE_PLANNER_VERIFY_H
#define HEDDLE_PLANNER_VERIFY_H

#include "heddle/Planner/Search.h"

namespace heddle {

/// Checks a costed plan with nothing of the search: from the plan in full,
/// whether sizes multiply out, layers are there once and in order, each
/// parameter's parts make up the whole, the schedule runs, demands are met, and
/// memory suffices. Memory: where the plan is compiled today by `liveMemory`,
/// else states counted by the plan's own rules and saved values by the slots of
/// the schedule, which must be within what the answer says. An error names the
/// first thing that is wrong, with both numbers.
Result<void> verifyPlan(const PlanProblem &problem, const CostedPlan &plan,
                        const MemoryEstimator &memory);

} // namespace heddle

#endif // HEDDLE_PLANNER_VERIFY_H
