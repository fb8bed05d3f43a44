//===- Decisions.h - Why a plan is as it is ---------------------*- C++ -*-===//

#ifndef HEDDLE_PLANNER_DECISIONS_H
#define HEDDLE_PLANNER_DECISIONS_H

#include "heddle/Planner/Search.h"

namespace heddle {

/// One choice of the best plan against the best plan with another.
struct PlanDecision {
  PlanKey key = PlanKey::Tp;
  std::string choice;
  std::string runnerUp;       ///< "" where no plan with another choice fits
  double costSeconds = 0;     ///< of a step, more with the runner-up
  std::int64_t costBytes = 0; ///< at the peak, more with the runner-up
  /// Of the runner-up: other choices may have changed with it.
  PlanPoint point;
};

/// For each choice that could have been another, the best plan without it: one
/// search for all of them, of at most \p mostPlans plans for each. A choice of
/// one value is not told. \p known: what the first search costed
/// (PlanAnswer::ofChoices).
std::vector<PlanDecision>
decisionsOf(const PlanProblem &problem, const CostedPlan &best,
            const StepTimes &times, const MemoryEstimator &memory,
            std::int64_t mostPlans, std::span<const CostedPlan> known = {});

} // namespace heddle

#endif // HEDDLE_PLANNER_DECISIONS_H
