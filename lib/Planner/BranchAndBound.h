//===- BranchAndBound.h - All nodes, the lowest bound first -----*- C++ -*-===//

#ifndef HEDDLE_LIB_PLANNER_BRANCHANDBOUND_H
#define HEDDLE_LIB_PLANNER_BRANCHANDBOUND_H

#include "Expand.h"

#include <atomic>
#include <functional>
#include <thread>
#include <tuple>

namespace heddle::detail {

/// A node that waits.
struct Open {
  double bound = 0;
  std::int64_t number = 0; ///< in the order in which they were made
  Node::Kind kind = Node::Kind::Mesh;
  std::unique_ptr<Node> node;

  /// The lowest bound is the next; among equals what is nearer to a plan.
  bool operator<(const Open &other) const {
    return std::tuple(-bound, kind, -number) <
           std::tuple(-other.bound, other.kind, -other.number);
  }
};

/// Threads that do the same work side by side, again and again.
class Workers {
public:
  explicit Workers(std::size_t others);
  ~Workers();
  /// Calls \p work with 0 here, and on the others with their numbers.
  void run(const std::function<void(std::size_t)> &work);

private:
  void serve(std::size_t number);

  const std::function<void(std::size_t)> *work = nullptr; ///< null: the end
  std::atomic<std::uint32_t> rounds = 0, busy = 0;
  std::vector<std::jthread> threads;
};

class BranchAndBound {
public:
  /// \p mostPlans: SearchOptions', for each goal.
  BranchAndBound(const PlanProblem &problem, const StepTimes &times,
                 const MemoryEstimator &memory, Goals goals,
                 std::int64_t mostPlans);

  /// Called with each plan that was costed, in an order that is always the
  /// same: lowers the limits of the goals.
  std::function<void(CostedPlan, Goals &)> found;
  /// Goals for which there is a plan: before that, none is spent.
  GoalSet met = 0;
  /// Called now and then with the lowest bound that is open.
  std::function<void(double first, double lowest)> progress;

  /// All meshes; but first, and to its end, the one of \p near, where plans
  /// are that differ from that in little.
  void run(const PlanPoint *near = nullptr);

  SearchCounts counts;
  /// The lowest bound of what was left when a goal was spent.
  double lowestLeft = std::numeric_limits<double>::infinity();

private:
  void addMesh(PlanPoint mesh);
  void expandAll();
  std::vector<Open> nextBatch();
  void expand(std::vector<Open> batch);
  void push(Node::Kind kind, double bound, std::unique_ptr<Node> node);
  Open pop();
  void spend(const std::array<std::int64_t, Goals::most> &plans);
  const StepTimes &times;
  Goals goals;
  const std::int64_t mostPlans;
  /// Of each goal, plans that meet it and were bounded; and those of which that
  /// is enough.
  std::array<std::int64_t, Goals::most> plansOf = {};
  GoalSet spent = 0;
  std::vector<std::unique_ptr<Expander>> expanders; ///< one for each thread
  std::unique_ptr<Workers> workers;  ///< where there is enough to do
  std::vector<Open> open;            ///< a heap
  std::int64_t nodes = 0, taken = 0; ///< made, and taken apart
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLANNER_BRANCHANDBOUND_H
