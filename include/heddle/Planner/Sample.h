//===- Sample.h - How many plans there are, and some of them ----*- C++ -*-===//
//
// A space that is searched is held to what it claims: by counting its plans,
// and by plans drawn from it that the search did not choose.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PLANNER_SAMPLE_H
#define HEDDLE_PLANNER_SAMPLE_H

#include "heddle/Planner/Search.h"
#include "heddle/Planner/Space.h"

#include <functional>
#include <optional>
#include <random>

namespace heddle {

/// Calls \p visit for every plan of the space that fits, each once: one cut of
/// the layers into stages, as many layers computed again as memory asks for.
/// Plans that differ in these alone are one plan.
void visitPlans(const PlanProblem &problem, const MemoryEstimator &memory,
                const std::function<void(const PlanPoint &)> &visit);

/// Draws plans that fit.
class PlanSampler {
public:
  /// Both must outlive it.
  PlanSampler(const PlanProblem &problem, const MemoryEstimator &memory);

  /// A mesh, then one of its schedules, of their storages, of the ways in which
  /// that fits, and of the orders of axes, each as likely as the others. None
  /// where many in a row did not fit.
  std::optional<PlanPoint> draw(std::mt19937_64 &random) const;

private:
  const PlanProblem &problem;
  const MemoryEstimator &memory;
  const PlanSpace space;
  const std::vector<PlanPoint> meshes;
};

} // namespace heddle

#endif // HEDDLE_PLANNER_SAMPLE_H
