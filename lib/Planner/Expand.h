//===- Expand.h - One node of the search ------------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_PLANNER_EXPAND_H
#define HEDDLE_LIB_PLANNER_EXPAND_H

#include "Fitter.h"
#include "Goals.h"

#include <map>
#include <memory>
#include <optional>

namespace heddle::detail {

/// One plan of a schedule, as numbers of what it chooses.
struct Candidate {
  double bound = 0;
  std::uint32_t storage = 0; ///< of PlanSpace::storages
  std::uint16_t order = 0;   ///< of PlanSpace::orders
  PointRecompute recompute = PointRecompute::None;
  std::uint32_t offloaded = 0; ///< PlanPoint's
};

/// A set of plans that share what its point fixes.
struct Node {
  enum class Kind {
    Mesh,     ///< all schedules of a mesh
    Schedule, ///< all storages of a schedule
    Fitted,   ///< those that fit, each with its bound, the lowest first
  };
  PlanPoint point;
  GoalSet goals = 0;                      ///< that its plans may meet
  std::vector<Candidate> candidates = {}; ///< of a Fitted one
};

/// What a node becomes: other nodes, or plans that were costed.
struct Outcome {
  struct Child {
    Node::Kind kind = Node::Kind::Mesh;
    double bound = 0;
    std::unique_ptr<Node> node;
  };
  std::vector<Child> children;
  std::vector<CostedPlan> costed;
  SearchCounts counts;
  /// Of each goal, plans that meet it and were bounded.
  std::array<std::int64_t, Goals::most> bounded = {};
};

/// Takes nodes apart. Times and memory keep what they computed, so that each
/// thread has its own; what comes out does not depend on which.
class Expander {
public:
  Expander(const PlanProblem &problem, const StepTimes &times,
           const MemoryEstimator &memory)
      : space(problem), times(times), memory(memory),
        fitter(problem, space, memory) {}

  /// Nothing is kept that is of no use to \p goals.
  Outcome expand(std::unique_ptr<Node> node, Node::Kind kind, double bound,
                 const Goals &goals);
  const PlanSpace &plans() const { return space; }

private:
  class Fitting;

  void expandMesh(const Node &mesh, double bound);
  void fitSchedule(std::unique_ptr<Node> schedule, double bound);
  void expandFitted(const Node &fitted);
  void evaluate(const PlanPoint &plan, GoalSet set);
  const std::vector<GoalSet> &leftByStorages(const PlanPoint &schedule);
  void push(Node::Kind kind, double bound, std::unique_ptr<Node> node) {
    if (bound <= goals->limitOf(node->goals))
      outcome.children.push_back({kind, bound, std::move(node)});
  }

  const PlanSpace space;
  const StepTimes &times;
  const MemoryEstimator &memory;
  const Fitter fitter;
  std::optional<Goals> goals;
  /// By a list of storages, goals that each of these leaves open.
  std::map<const std::vector<PlanStorage> *, std::vector<GoalSet>> left;
  Outcome outcome;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLANNER_EXPAND_H
