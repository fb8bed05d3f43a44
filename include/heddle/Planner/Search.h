//===- Search.h - The fastest plans of a problem ----------------*- C++ -*-===//

#ifndef HEDDLE_PLANNER_SEARCH_H
#define HEDDLE_PLANNER_SEARCH_H

#include "heddle/Cost/MemoryEstimate.h"
#include "heddle/Cost/StepTime.h"
#include "heddle/Planner/Problem.h"

#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace heddle {

/// A plan that fits, with what it costs.
struct CostedPlan {
  PlanPoint point;
  double seconds = 0;
  std::int64_t peakBytes = 0; ///< of the fullest place over pp
  std::int64_t fullestPlace = 0;
  std::int64_t headRoom = 0; ///< what is left of a device's memory for plans
  /// Of a step where the outermost link has a tenth less; 0: not asked.
  double slowLinkSeconds = 0;
};

struct SearchOptions {
  int top = 5; ///< different plans
  /// Plans that fit and are bounded one by one before the search takes up no
  /// more, and says how far the best of them can be from the best there is.
  std::int64_t mostPlans = std::numeric_limits<std::int64_t>::max();
  /// Plans slower than the fastest by more than this are not on the front.
  double frontWithin = 1.25;
  /// Of another search of the same cluster, model and settings: those that the
  /// demands take are among what is found, so that less is left to search.
  std::span<const CostedPlan> known = {};
  /// Called now and then with how far bounds have come to the best plan, 0
  /// to 1.
  std::function<void(double)> progress = nullptr;
};

struct SearchCounts {
  std::int64_t meshes = 0;         ///< of the space
  std::int64_t expandedMeshes = 0; ///< not cut off by their bound
  std::int64_t schedules = 0, expandedSchedules = 0;
  std::int64_t storages = 0;    ///< asked whether they fit
  std::int64_t bounded = 0;     ///< that fit, each in all orders
  std::int64_t evaluations = 0; ///< simulated
};

struct PlanAnswer {
  /// Fastest first. Two are different where they differ in precision, a size of
  /// an axis, micro-batch, schedule, chunks or ZeRO's stage; of those that do
  /// not, the fastest stands here.
  std::vector<CostedPlan> best;
  /// The same without end: the fastest of each kind that was costed.
  std::vector<CostedPlan> costed;
  /// Of the plans that were costed the fastest with each choice that is told:
  /// where a search for runner-ups begins.
  std::vector<CostedPlan> ofChoices;
  /// Of the plans that were costed those that no other beats in step time,
  /// head-room and step time with a slower link at once.
  std::vector<CostedPlan> front;
  /// No plan is faster, by the same model.
  double bestPossible = 0;
  SearchCounts counts;

  bool fits() const { return !best.empty(); }
  bool isExact() const {
    return fits() && bestPossible >= best.front().seconds;
  }
  /// How much faster than the answer the best plan can be: 0.013 is 1.3 %.
  double gap() const {
    return fits() && best.front().seconds > 0
               ? 1 - bestPossible / best.front().seconds
               : 0;
  }
};

/// Branch and bound over PlanSpace, meshes with the lowest bound first. Exact
/// under \p times unless the options end it before. The same problem has the
/// same answer. \p slowLink: of the same cluster with a slower outermost link;
/// may be null.
PlanAnswer findPlans(const PlanProblem &problem, const StepTimes &times,
                     const StepTimes *slowLink, const MemoryEstimator &memory,
                     const SearchOptions &options = {});

/// The cluster with a tenth less on its outermost link.
Cluster withSlowLink(Cluster cluster);

/// Every plan of the space, costed one by one: what `findPlans` is held to in
/// tests. For small spaces only. The fastest; none where none fits.
std::vector<CostedPlan> bruteForce(const PlanProblem &problem,
                                   const StepTimes &times,
                                   const MemoryEstimator &memory);

} // namespace heddle

#endif // HEDDLE_PLANNER_SEARCH_H
