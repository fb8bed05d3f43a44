//===- Conflict.h - Why no plan fits ----------------------------*- C++ -*-===//

#ifndef HEDDLE_PLANNER_CONFLICT_H
#define HEDDLE_PLANNER_CONFLICT_H

#include "heddle/Planner/Search.h"

#include <optional>

namespace heddle {

/// A way to make a plan possible, and what the best plan then takes.
struct Relaxation {
  std::string text;   ///< "without tp=16"
  double seconds = 0; ///< of a step; 0: not searched
};

struct PlanConflict {
  /// The fewest demands that cannot be met together; none where the model does
  /// not fit the cluster at all.
  std::vector<PlanDemand> demands;
  /// Of what is left of the plans under all demands: the one that needs least.
  std::optional<PlanPoint> leanest;
  std::int64_t leastBytes = 0;
  std::int64_t capacity = 0;           ///< bytes of a device for plans
  std::vector<Relaxation> relaxations; ///< the cheapest first

  /// One line each: what is in conflict, how many bytes are missing, what would
  /// mend it.
  std::vector<std::string> lines() const;
};

/// For a problem that findPlans found no plan for.
PlanConflict explainConflict(const PlanProblem &problem, const StepTimes &times,
                             const MemoryEstimator &memory);

} // namespace heddle

#endif // HEDDLE_PLANNER_CONFLICT_H
