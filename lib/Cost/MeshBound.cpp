// Below all plans of one mesh.

#include "StepState.h"

#include <algorithm>
#include <limits>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double real(std::int64_t value) { return static_cast<double>(value); }

} // namespace

/// Of one micro-batch in all layers, whatever else is chosen.
static double leastWork(const StepTimes::State &state, const PlanPoint &given) {
  PlanPoint point = given;
  point.zeroStage = 0;
  point.shardGroup = 1;
  point.recompute = PointRecompute::None;
  point.offloaded = 0;
  const ChunkContent all = {state.model.layers - state.sparseLayers(),
                            state.sparseLayers(), 0, true, true};
  double least = kNever;
  for (const bool sequence : {false, true})
    for (const PlanContext context :
         {PlanContext::Ring, PlanContext::AllGather, PlanContext::Ulysses}) {
      point.sequenceParallel = sequence;
      point.context = point.cp > 1 ? context : PlanContext::None;
      // Slots that are joined may hide them.
      SlotParts parts =
          withoutExchange(partsOf(state, point, timerOf(state, point)));
      parts.gathersForward = parts.gathersBackward = parts.sums = false;
      least = std::min(least, slotBound(parts, SlotKind::Forward, all) +
                                  slotBound(parts, SlotKind::Backward, all));
      if (point.cp == 1)
        break;
    }
  return least * kRounding;
}

/// The mean of all places, and one micro-batch on its way through all stages.
double StepTimes::boundOfMesh(const PlanPoint &point) const {
  return state->hasFormat(point)
             ? state->leastWork(point) *
                   std::max(1.0, real(point.microBatches) / real(point.pp))
             : kNever;
}

double StepTimes::State::leastWork(const PlanPoint &point) const {
  PointKey key = layerKey(point);
  key.back() = 0; // sequence parallelism and context
  return knownWork.get(key, [&] { return ::leastWork(*this, point); });
}
