#include "heddle/Planner/Decisions.h"

using namespace heddle;

/// Keys that follow from others are not decisions of their own: dp from the
/// other axes, micro-batches from micro-batch, prefetch from gather.
static constexpr PlanKey decided[] = {
    PlanKey::Tp,         PlanKey::Pp,
    PlanKey::Cp,         PlanKey::Ep,
    PlanKey::MicroBatch, PlanKey::Schedule,
    PlanKey::Chunks,     PlanKey::SequenceParallel,
    PlanKey::Context,    PlanKey::Zero,
    PlanKey::ShardGroup, PlanKey::Reduce,
    PlanKey::Gather,     PlanKey::Recompute,
    PlanKey::Offload,    PlanKey::Precision,
    PlanKey::Order,
};

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
static PlanAnswer without(const PlanProblem &problem, PlanKey key,
                          const std::string &value, const StepTimes &times,
                          const MemoryEstimator &memory, std::int64_t mostPlans,
                          std::span<const CostedPlan> known) {
  PlanProblem variant = problem;
  variant.demands.push_back({key, true, {value}});
  return findPlans(variant, times, nullptr, memory,
                   {.top = 1, .mostPlans = mostPlans, .known = known});
}

std::vector<PlanDecision>
heddle::decisionsOf(const PlanProblem &problem, const CostedPlan &best,
                    const StepTimes &times, const MemoryEstimator &memory,
                    std::int64_t mostPlans, std::span<const CostedPlan> known) {
  std::vector<PlanDecision> decisions;
  for (PlanKey key : decided) {
    if (!isOpen(best.point, key, problem))
      continue;
    PlanDecision decision;
    decision.key = key;
    decision.choice = choiceOf(best.point, key);
    const PlanAnswer other =
        without(problem, key, decision.choice, times, memory, mostPlans, known);
    if (other.fits()) {
      const CostedPlan &second = other.best.front();
      decision.runnerUp = choiceOf(second.point, key);
      decision.costSeconds = second.seconds - best.seconds;
      decision.costBytes = second.peakBytes - best.peakBytes;
      decision.point = second.point;
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}
