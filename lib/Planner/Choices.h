//===- Choices.h - The fastest plans by what they choose --------*- C++ -*-===//

#ifndef HEDDLE_LIB_PLANNER_CHOICES_H
#define HEDDLE_LIB_PLANNER_CHOICES_H

#include "heddle/Planner/Search.h"

#include <map>
#include <memory>

namespace heddle::detail {

/// Choices that people are told of. Keys that follow from others are none of
/// their own: dp from the other axes, micro-batches from micro-batch, prefetch
/// from gather.
inline constexpr PlanKey decidedKeys[] = {
    PlanKey::Tp,         PlanKey::Pp,
    PlanKey::Cp,         PlanKey::Ep,
    PlanKey::MicroBatch, PlanKey::Schedule,
    PlanKey::Chunks,     PlanKey::SequenceParallel,
    PlanKey::Context,    PlanKey::Zero,
    PlanKey::ShardGroup, PlanKey::Reduce,
    PlanKey::Gather,     PlanKey::Recompute,
    PlanKey::Offload,    PlanKey::OffloadedSaved,
    PlanKey::Precision,  PlanKey::Order,
};

/// Of all plans that were added, the fastest with each choice of each key.
class PlansByChoice {
public:
  void add(const CostedPlan &plan);
  /// Each once.
  std::vector<CostedPlan> all() const;

private:
  std::map<std::pair<PlanKey, std::string>, std::shared_ptr<CostedPlan>> plans;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLANNER_CHOICES_H
