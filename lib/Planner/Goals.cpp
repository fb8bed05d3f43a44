#include "Goals.h"

#include "heddle/Support/Check.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

static Depth depthOf(PlanKey key) {
  switch (key) {
  case PlanKey::Pp:
  case PlanKey::Dp:
  case PlanKey::Cp:
  case PlanKey::Tp:
  case PlanKey::Ep:
  case PlanKey::MicroBatch:
  case PlanKey::MicroBatches:
  case PlanKey::Precision:
  case PlanKey::Attention:
  case PlanKey::DropoutMasks:
  case PlanKey::Save:
  case PlanKey::Gradients:
  case PlanKey::ReduceFormat:
    return Depth::Mesh;
  case PlanKey::Schedule:
  case PlanKey::Chunks:
  case PlanKey::SequenceParallel:
  case PlanKey::Context:
    return Depth::Schedule;
  case PlanKey::Zero:
  case PlanKey::ShardGroup:
  case PlanKey::Reduce:
  case PlanKey::Gather:
  case PlanKey::Prefetch:
  case PlanKey::Offload:
    return Depth::Storage;
  case PlanKey::Order:
    return Depth::Order;
  case PlanKey::Recompute:
  case PlanKey::OffloadedSaved:
    return Depth::Plan;
  }
  return Depth::Plan;
}

/// Whether axes of more than one rank stand in the same order in both.
static bool haveSameOrder(const PlanPoint &point, const PlanPoint &other) {
  auto presentOf = [&](const PlanPoint &of) {
    std::vector<PlanAxis> present;
    std::ranges::copy_if(of.order, std::back_inserter(present),
                         [&](PlanAxis axis) { return point.size(axis) > 1; });
    return present;
  };
  return presentOf(point) == presentOf(other);
}

bool Goal::isMetBy(const PlanPoint &point) const {
  if (!key)
    return true;
  return *key == PlanKey::Order
             ? !haveSameOrder(point, otherThan)
             : choiceOf(point, *key) != choiceOf(otherThan, *key);
}

Goals::Goals(std::vector<Goal> given) : list(std::move(given)) {
  HEDDLE_CHECK(list.size() <= most, "{} goals of a search", list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    everyOne |= GoalSet{1} << i;
    if (list[i].key)
      ofDepth[static_cast<std::size_t>(depthOf(*list[i].key))] |= GoalSet{1}
                                                                  << i;
  }
}

GoalSet Goals::leftAt(Depth depth, const PlanPoint &point, GoalSet set) const {
  GoalSet asked = set & ofDepth[static_cast<std::size_t>(depth)];
  for (std::size_t i = 0; asked; ++i, asked >>= 1)
    if (asked & 1 && !list[i].isMetBy(point))
      set &= ~(GoalSet{1} << i);
  return set;
}

GoalSet Goals::metBy(const PlanPoint &plan, GoalSet set) const {
  for (int depth = 0; depth < depths; ++depth)
    set = leftAt(static_cast<Depth>(depth), plan, set);
  return set;
}

bool Goals::ask(GoalSet set, PlanKey key) const {
  for (std::size_t i = 0; set; ++i, set >>= 1)
    if (set & 1 && list[i].key == key)
      return true;
  return false;
}

double Goals::limitOf(GoalSet set) const {
  double limit = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; set; ++i, set >>= 1)
    if (set & 1)
      limit = std::max(limit, list[i].limit);
  return limit;
}

void Goals::take(GoalSet set, double seconds) {
  for (std::size_t i = 0; set; ++i, set >>= 1)
    if (set & 1 && list[i].isOne)
      list[i].limit = std::min(list[i].limit, seconds);
}
