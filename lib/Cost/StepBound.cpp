#include "StepState.h"

#include <algorithm>
#include <limits>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double real(std::int64_t value) { return static_cast<double>(value); }

/// The longest place: its own slots, behind those F that must have run before
/// its first, and before those D that must run behind its last. A place's last
/// D is of the first of its stages; where W may be last, nothing need follow.
double boundOfPlaces(const StepTimes::State &state, const PlanPoint &point,
                     const SlotParts &parts) {
  const bool splits = splitsBackward(point.schedule);
  const std::size_t stages = point.layers.size();
  std::vector<double> forwards(stages), backwards(stages);
  double longest = 0;
  std::vector<double> work(static_cast<std::size_t>(point.pp), 0.0);
  std::vector<std::size_t> lowest(work.size(), stages);
  for (std::int64_t rank = 0; rank < point.pp; ++rank)
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
      const auto stage = static_cast<std::size_t>(point.stageOf(rank, chunk));
      const auto place = static_cast<std::size_t>(rank);
      const ChunkContent content = contentOf(state, point, rank, chunk);
      forwards[stage] = slotBound(parts, SlotKind::Forward, content);
      backwards[stage] =
          splits ? slotBound(parts, SlotKind::InputGrad, content) +
                       slotBound(parts, SlotKind::WeightGrad, content)
                 : slotBound(parts, SlotKind::Backward, content);
      work[place] += forwards[stage] + backwards[stage];
      lowest[place] = std::min(lowest[place], stage);
    }
  for (std::size_t place = 0; place < work.size(); ++place) {
    double around = 0;
    for (std::size_t stage = 0; stage < lowest[place]; ++stage)
      around += forwards[stage] + (splits ? 0 : backwards[stage]);
    longest =
        std::max(longest, around + real(point.microBatches) * work[place]);
  }
  return longest;
}

/// The least that collectives along tp take, whatever the order of axes: ranks
/// between neighbours are products of the axes inside tp.
void takeBestOrder(const LayerTimer &timer, const PlanPoint &point,
                   SlotParts &parts) {
  for (unsigned inside = 0; inside < 8; ++inside) {
    const std::int64_t stride = (inside & 1 ? point.pp : 1) *
                                (inside & 2 ? point.dp : 1) *
                                (inside & 4 ? point.cp : 1);
    const auto [gather, reduce] = timer.tensorCalls(stride);
    auto take = [](double &least, double seconds) {
      least = std::min(least, seconds);
    };
    for (LayerTimes *layer : {&parts.plain, &parts.sparse}) {
      take(layer->gather.seconds, gather.seconds);
      take(layer->reduce.seconds, reduce.seconds);
    }
    take(parts.embedding.reduce.seconds, reduce.seconds);
    take(parts.head.reduce.seconds, gather.seconds + reduce.seconds);
  }
}

/// The point with no storage that would cost time.
PlanPoint withoutStates(PlanPoint point) {
  point.zeroStage = 0;
  point.shardGroup = 1;
  point.reduce = PlanReduce::Last;
  point.gather = PlanGather::OncePerStep;
  point.offloadsOptimizer = false;
  point.overlaps = true;
  return point;
}

/// Slots of a point whatever order, ZeRO and offload are.
SlotParts leastParts(const StepTimes::State &state, const PlanPoint &point) {
  const LayerTimer timer = timerOf(state, point);
  SlotParts parts = partsOf(state, point, timer);
  if (point.tp > 1)
    takeBestOrder(timer, point, parts);
  for (LayerTimes *layer : {&parts.plain, &parts.sparse})
    layer->contextForward = layer->contextBackward = layer->exchange = {};
  return parts;
}

} // namespace

bool heddle::detail::splitsBackward(PlanScheduleKind schedule) {
  return schedule == PlanScheduleKind::ZbH1 ||
         schedule == PlanScheduleKind::ZbH2 ||
         schedule == PlanScheduleKind::ZbV ||
         schedule == PlanScheduleKind::VHalf ||
         schedule == PlanScheduleKind::VMin ||
         schedule == PlanScheduleKind::DualPipe ||
         schedule == PlanScheduleKind::DualPipeV;
}

bool heddle::detail::joinsSlots(PlanScheduleKind schedule) {
  return schedule == PlanScheduleKind::DualPipe ||
         schedule == PlanScheduleKind::DualPipeV;
}

SlotParts heddle::detail::withoutExchange(SlotParts parts) {
  parts.plain.exchange = parts.sparse.exchange = {};
  return parts;
}

double StepTimes::bound(const PlanPoint &point) const {
  if (!state->hasFormat(point))
    return kNever;
  const LayerTimer timer = timerOf(*state, point);
  SlotParts parts = partsOf(*state, point, timer);
  if (joinsSlots(point.schedule))
    parts = withoutExchange(std::move(parts));
  return boundOfPlaces(*state, point, parts) + timer.norm().seconds;
}

double StepTimes::boundOfSchedule(const PlanPoint &given) const {
  if (!state->hasFormat(given))
    return kNever;
  const PlanPoint point = withoutStates(given);
  return boundOfPlaces(*state, point, leastParts(*state, point));
}

/// The mean of all places, and one micro-batch on its way through all stages.
double StepTimes::boundOfMesh(const PlanPoint &given) const {
  if (!state->hasFormat(given))
    return kNever;
  PlanPoint point = withoutStates(given);
  point.order = {PlanAxis::Pp, PlanAxis::Dp, PlanAxis::Cp, PlanAxis::Tp};
  const ChunkContent all = {state->model.layers - state->sparseLayers(),
                            state->sparseLayers(), 0, true, true};
  double least = kNever;
  for (const bool sequence : {false, true})
    for (const PlanContext context :
         {PlanContext::AllGather, PlanContext::Ulysses}) {
      point.sequenceParallel = sequence;
      point.context = context;
      const SlotParts parts = leastParts(*state, point);
      least = std::min(least, slotBound(parts, SlotKind::Forward, all) +
                                  slotBound(parts, SlotKind::Backward, all));
      if (point.cp == 1)
        break;
    }
  return least * std::max(1.0, real(point.microBatches) / real(point.pp));
}
