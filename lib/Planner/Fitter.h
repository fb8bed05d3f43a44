//===- Fitter.h - The ways in which plans fit -------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_PLANNER_FITTER_H
#define HEDDLE_LIB_PLANNER_FITTER_H

#include "heddle/Planner/Search.h"
#include "heddle/Planner/Space.h"

namespace heddle::detail {

/// What of a schedule fits: the choices that follow from memory.
class Fitter {
public:
  Fitter(const PlanProblem &problem, const PlanSpace &space,
         const MemoryEstimator &memory)
      : memory(memory), recomputes(space.recomputes()),
        capacity(problem.cluster.planBytesPerDevice()),
        hasHost(problem.cluster.hostLinkBytesPerSecond.has_value()) {}

  /// Calls `use` for each way in which a storage fits, the cheapest first:
  /// without recompute where it can, else with as little of each kind as it
  /// takes. A demand for a kind of recompute is one for all layers. The storage
  /// must be taken; `plan` holds it.
  template <typename Use>
  void fit(FitTable &table, PlanPoint &plan, Use use) const {
    for (PointRecompute kind : recomputes) {
      if (!takeKind(table, plan, kind))
        continue;
      use(plan);
      if (plan.recompute == PointRecompute::None)
        break;
    }
  }

  /// Sets the kind, and how many layers of each place; false where it does not
  /// fit.
  bool takeKind(FitTable &table, PlanPoint &plan, PointRecompute kind) const {
    if (!(mayKeep() ? table.fewest(kind, capacity, plan.recomputed)
                    : table.fitsWithAll(kind, capacity, plan.recomputed)))
      return false;
    plan.recompute = kind;
    if (kind == PointRecompute::None)
      plan.recomputed.clear();
    return true;
  }

  CostedPlan costed(const PlanPoint &point, double seconds) const {
    CostedPlan plan;
    plan.point = point;
    plan.seconds = seconds;
    if (auto peak = memory.peak(point)) {
      plan.peakBytes = peak->first;
      plan.fullestPlace = peak->second;
      plan.headRoom = capacity - peak->first;
    }
    return plan;
  }

  const MemoryEstimator &memory;
  const std::vector<PointRecompute> recomputes;
  const std::int64_t capacity;
  const bool hasHost; ///< that numbers can be offloaded to

private:
  /// Whether plans may do without recompute.
  bool mayKeep() const {
    return !recomputes.empty() && recomputes.front() == PointRecompute::None;
  }
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLANNER_FITTER_H
