// Whether the stages of a plan are a pipeline that this compiler can run.

#ifndef HEDDLE_SCHEDULE_CHECKSTAGES_H
#define HEDDLE_SCHEDULE_CHECKSTAGES_H

#include "heddle/Plan/Plan.h"
#include "heddle/Support/Result.h"

#include <vector>

namespace heddle {

/// Whether the rows of a schedule that stands in the plan are rows. No other
/// schedule has any.
Result<void> checkScheduleText(const Plan &plan);

/// For a plan that checkPlan accepts: whether its schedule is defined for its
/// numbers and can run, and stages hold layers in the order in which the
/// schedule passes through them, the first one the embedding and the last one
/// the head. The warnings say what unequal stages and idle ranks cost.
Result<std::vector<PlanWarning>> checkStages(const Plan &plan);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_CHECKSTAGES_H
