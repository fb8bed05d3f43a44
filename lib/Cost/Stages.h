//===- Stages.h - what a place over pp holds --------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_STAGES_H
#define HEDDLE_LIB_COST_STAGES_H

#include "heddle/Cost/RankSizes.h"

namespace heddle::detail {

/// Layers of a range.
inline std::int64_t numberOf(const PlanRange &range) {
  return range.last - range.first + 1;
}

/// From a plan that checkPlan accepts. An error for two copies of the model.
Result<RankStages> stagesAt(const Plan &plan, std::int64_t place);

/// The same at each place, from one table.
Result<std::vector<RankStages>> stagesAtAll(const Plan &plan);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_STAGES_H
