#include "heddle/Planner/Decisions.h"

#include "BranchAndBound.h"
#include "Choices.h"

#include <set>

using namespace heddle;
using namespace heddle::detail;

void PlansByChoice::add(const CostedPlan &plan) {
  std::shared_ptr<CostedPlan> shared;
  for (PlanKey key : decidedKeys) {
    std::shared_ptr<CostedPlan> &fastest =
        plans[{key, choiceOf(plan.point, key)}];
    if (fastest && fastest->seconds <= plan.seconds)
      continue;
    if (!shared)
      shared = std::make_shared<CostedPlan>(plan);
    fastest = shared;
  }
}

std::vector<CostedPlan> PlansByChoice::all() const {
  std::vector<CostedPlan> list;
  std::set<const CostedPlan *> seen;
  for (const auto &[unused, plan] : plans)
    if (seen.insert(plan.get()).second)
      list.push_back(*plan);
  return list;
}

/// Whether the choice means anything in this plan.
static bool isOpen(const PlanPoint &point, PlanKey key,
                   const PlanProblem &problem) {
  switch (key) {
  case PlanKey::Ep:
    return problem.model.experts.has_value();
  case PlanKey::Schedule:
  case PlanKey::Chunks:
    return point.pp > 1;
  case PlanKey::SequenceParallel:
    return point.tp > 1;
  case PlanKey::Context:
    return point.cp > 1;
  case PlanKey::ShardGroup:
    return point.zeroStage > 0;
  case PlanKey::Reduce:
  case PlanKey::Gather:
    return point.zeroStage == 3;
  case PlanKey::Offload:
  case PlanKey::OffloadedSaved:
    return problem.cluster.hostLinkBytesPerSecond.has_value();
  case PlanKey::Order:
    return (point.pp > 1) + (point.dp > 1) + (point.cp > 1) + (point.tp > 1) >
           1;
  case PlanKey::Precision:
    return problem.train.precision.size() > 1;
  default:
    return true;
  }
}

/// The best plan with another value; all that was chosen before it is free.
static std::optional<CostedPlan> without(const PlanProblem &problem,
                                         PlanKey key, const std::string &value,
                                         const StepTimes &times,
                                         const MemoryEstimator &memory,
                                         std::int64_t mostPlans) {
  PlanProblem variant = problem;
  variant.demands.push_back({key, true, {value}});
  PlanAnswer answer = findPlans(variant, times, nullptr, memory,
                                {.top = 1, .mostPlans = mostPlans});
  if (!answer.fits())
    return std::nullopt;
  return std::move(answer.best.front());
}

using RunnersUp = std::vector<std::optional<CostedPlan>>;

/// For each goal the best plan; none where the search found none that meets it.
static RunnersUp findAll(const PlanProblem &problem, std::vector<Goal> list,
                         const StepTimes &times, const MemoryEstimator &memory,
                         std::int64_t mostPlans,
                         std::span<const CostedPlan> known) {
  RunnersUp best(list.size());
  GoalSet met = 0;
  auto add = [&](const CostedPlan &plan, std::vector<Goal> &to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      if (to[i].isMetBy(plan.point) &&
          (!best[i] || plan.seconds < best[i]->seconds)) {
        best[i] = plan;
        to[i].limit = plan.seconds;
        met |= GoalSet{1} << i;
      }
  };
  for (const CostedPlan &plan : known)
    if (problem.allows(plan.point))
      add(plan, list);
  BranchAndBound solver(problem, times, memory, Goals(list), mostPlans);
  solver.met = met;
  solver.found = [&](const CostedPlan &plan, Goals &goals) {
    add(plan, goals.list);
    solver.met = met;
  };
  solver.run(&list.front().otherThan);
  return best;
}

std::vector<PlanDecision>
heddle::decisionsOf(const PlanProblem &problem, const CostedPlan &best,
                    const StepTimes &times, const MemoryEstimator &memory,
                    std::int64_t mostPlans, std::span<const CostedPlan> known) {
  std::vector<Goal> goals;
  for (PlanKey key : decidedKeys)
    if (isOpen(best.point, key, problem))
      goals.push_back({.key = key, .otherThan = best.point});
  RunnersUp runnersUp =
      findAll(problem, goals, times, memory, mostPlans, known);
  std::vector<PlanDecision> decisions;
  for (std::size_t i = 0; i < goals.size(); ++i) {
    PlanDecision decision;
    decision.key = *goals[i].key;
    decision.choice = choiceOf(best.point, decision.key);
    std::optional<CostedPlan> &second = runnersUp[i];
    // A demand may open what is not searched without: fewer devices, recompute
    // that memory does not ask for.
    if (!second)
      second = without(problem, decision.key, decision.choice, times, memory,
                       mostPlans);
    if (second) {
      decision.runnerUp = choiceOf(second->point, decision.key);
      decision.costSeconds = second->seconds - best.seconds;
      decision.costBytes = second->peakBytes - best.peakBytes;
      decision.point = second->point;
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}
