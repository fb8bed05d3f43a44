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
      : problem(problem), memory(memory), recomputes(space.recomputes()),
        offloads(demandedOffloads(problem)),
        capacity(problem.cluster.planBytesPerDevice()),
        hasHost(problem.cluster.hostLinkBytesPerSecond.has_value()) {}

  /// Calls `use` for each way in which a storage fits, the cheapest first:
  /// without recompute where it can, else with as little of each kind as it
  /// takes, and where all of a kind, or none, is not enough, with as few saved
  /// values on the host as are. A demand for a kind of recompute is one for all
  /// layers. The storage must be taken; `plan` holds it, and nothing on the
  /// host.
  template <typename Use>
  void fit(FitTable &table, PlanPoint &plan, Use use) const {
    for (PointRecompute kind : recomputes) {
      const bool isOnDevice = mayBeOnDevice() && takeKind(table, plan, kind);
      if (!isOnDevice && !takeOffload(table, plan, kind))
        continue;
      use(plan);
      plan.offloaded = 0;
      if (isOnDevice && plan.recompute == PointRecompute::None)
        break;
    }
  }

  /// Sets the way again; false where it does not fit.
  bool take(FitTable &table, PlanPoint &plan, PointRecompute kind,
            std::uint32_t offloaded) const {
    return offloaded ? takeOffloaded(table, plan, kind, offloaded)
                     : takeKind(table, plan, kind);
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

  const PlanProblem &problem;
  const MemoryEstimator &memory;
  const std::vector<PointRecompute> recomputes;
  const std::vector<std::uint32_t> offloads; ///< demanded; none: any
  const std::int64_t capacity;
  const bool hasHost; ///< that numbers can be offloaded to

private:
  static std::vector<std::uint32_t>
  demandedOffloads(const PlanProblem &problem) {
    std::vector<std::uint32_t> sets;
    for (const PlanDemand &demand : problem.demands)
      if (demand.key == PlanKey::OffloadedSaved && !demand.isForbidden)
        for (const std::string &value : demand.values)
          sets.push_back(*readOffloaded(value));
    return sets;
  }
  bool mayBeOnDevice() const {
    return problem.allows(PlanKey::OffloadedSaved, offloadedText(0));
  }

  /// The fewest bytes with which it fits, if it does with most. Another set
  /// than that a demand does not open.
  bool takeOffload(FitTable &table, PlanPoint &plan,
                   PointRecompute kind) const {
    if (!hasHost)
      return false;
    const std::vector<std::uint32_t> &sets =
        offloads.empty() ? table.offloads(kind) : offloads;
    if (sets.empty() ||
        (offloads.empty() && !takeOffloaded(table, plan, kind, sets.back())))
      return false;
    for (std::uint32_t set : sets)
      if (set != 0 && takeOffloaded(table, plan, kind, set))
        return problem.allows(PlanKey::OffloadedSaved, offloadedText(set));
    return false;
  }
  bool takeOffloaded(FitTable &table, PlanPoint &plan, PointRecompute kind,
                     std::uint32_t offloaded) const {
    if (!table.fitsOffloaded(kind, offloaded, capacity, plan.recomputed))
      return false;
    plan.recompute = kind;
    plan.offloaded = offloaded;
    if (kind == PointRecompute::None)
      plan.recomputed.clear();
    return true;
  }

  /// Whether plans may do without recompute.
  bool mayKeep() const {
    return !recomputes.empty() && recomputes.front() == PointRecompute::None;
  }
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLANNER_FITTER_H
