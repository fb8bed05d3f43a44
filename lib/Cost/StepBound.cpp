#include "PointLines.h"
#include "StepState.h"

#include <algorithm>
#include <limits>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Bounds add the same numbers in another order than the simulation.
constexpr double kRounding = 1 - 1e-11;

double real(std::int64_t value) { return static_cast<double>(value); }

/// What a plan does along dp, and when.
struct StateUse {
  StateUse() = default;
  StateUse(const PlanPoint &plan, const Practice &practice)
      : gathersForward(plan.zeroStage >= 3 &&
                       plan.gather != PlanGather::OncePerStep),
        gathersBackward(plan.zeroStage >= 3 &&
                        plan.gather == PlanGather::EveryPass),
        sumsInSlots(plan.reduce == PlanReduce::EveryMicroBatch),
        gathersFirst(plan.zeroStage >= 3
                         ? plan.gather == PlanGather::OncePerStep
                         : plan.zeroStage > 0 && practice.gathersInNextStep),
        gathersLast(plan.zeroStage > 0 && plan.zeroStage < 3 &&
                    !practice.gathersInNextStep),
        overlaps(plan.overlaps) {}

  bool gathersForward = false, gathersBackward = false, sumsInSlots = false,
       gathersFirst = false, gathersLast = false, overlaps = true;
};

} // namespace

//===----------------------------------------------------------------------===//
// What places hold
//===----------------------------------------------------------------------===//

/// What does not depend on recompute.
struct ScheduleBound::Taken {
  PointLines lines;
  StateLines states;
  StateUse use;
  double behind = 0; ///< the slots of all places
};

ScheduleBound::~ScheduleBound() = default;

ScheduleBound::ScheduleBound(const StepTimes &given, const PlanPoint &schedule)
    : times(given), splits(splitsBackward(schedule.schedule)),
      joins(joinsSlots(schedule.schedule)),
      microBatches(real(schedule.microBatches)),
      taken(std::make_unique<Taken>()) {
  const StepTimes::State &state = *times.state;
  const std::int64_t stages = std::ssize(schedule.layers);
  places.resize(static_cast<std::size_t>(schedule.pp));
  // Of each stage: what it holds, and where it is.
  std::vector<Layers> held(static_cast<std::size_t>(stages));
  std::vector<std::int64_t> rankOf(held.size());
  std::int64_t first = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const std::int64_t layers = schedule.layers[at];
    const double sparse =
        real(state.sparseBefore[static_cast<std::size_t>(first + layers)] -
             state.sparseBefore[static_cast<std::size_t>(first)]);
    held[at] = {real(layers) - sparse, sparse, stage == 0, stage + 1 == stages};
    first += layers;
  }
  for (std::int64_t rank = 0; rank < schedule.pp; ++rank)
    for (std::int64_t chunk = 0; chunk < schedule.chunks; ++chunk) {
      const std::int64_t stage = schedule.stageOf(rank, chunk);
      Place &place = places[static_cast<std::size_t>(rank)];
      rankOf[static_cast<std::size_t>(stage)] = rank;
      place.all.add(held[static_cast<std::size_t>(stage)]);
      if (chunk == 0)
        place.first = held[static_cast<std::size_t>(stage)];
      place.lowestStage =
          chunk == 0 ? stage : std::min(place.lowestStage, stage);
    }
  for (Place &place : places) {
    place.lowest = held[static_cast<std::size_t>(place.lowestStage)];
    for (std::int64_t stage = 0; stage < place.lowestStage; ++stage) {
      const auto at = static_cast<std::size_t>(stage);
      place.before.add(held[at]);
      place.hops += rankOf[at] != rankOf[at + 1];
    }
  }
}

//===----------------------------------------------------------------------===//
// One place
//===----------------------------------------------------------------------===//

namespace {

/// Sums of one place's layers and ends, for one plan.
struct PlaceSums {
  double forward, backward; ///< of one micro-batch, all slots
  double line, states;      ///< of its D, before the longer one is taken
};

double forwardLine(const ScheduleBound::Layers &layers,
                   const PointLines &lines) {
  return layers.plain * lines.plain.forward +
         layers.sparse * lines.sparse.forward +
         (layers.hasEmbedding ? lines.embedding.forward : 0);
}

double backwardLine(const ScheduleBound::Layers &layers,
                    const PointLines &lines, double LineTimes::*field) {
  return layers.plain * (lines.plain.*field) +
         layers.sparse * (lines.sparse.*field) +
         (layers.hasEmbedding ? lines.embedding.*field : 0) +
         (layers.hasHead ? lines.head.*field : 0);
}

/// Of parameters that are gathered, or of gradients that are summed.
double ofStates(const ScheduleBound::Layers &layers, const StateLines &states,
                double StateLines::Segment::*field) {
  return layers.plain * (states.plain.*field) +
         layers.sparse * (states.sparse.*field) +
         (layers.hasEmbedding ? states.embedding.*field : 0) +
         (layers.hasHead ? states.head.*field : 0);
}

double layerGathers(const ScheduleBound::Layers &layers,
                    const StateLines &states) {
  return layers.plain * states.plain.gather +
         layers.sparse * states.sparse.gather;
}

/// Of `count` layers; where a place has both kinds, the one that takes less.
double againSeconds(const ScheduleBound::Layers &layers,
                    const PointLines &lines, PointRecompute kind,
                    std::int64_t count) {
  const auto at = static_cast<std::size_t>(kind);
  const double plain = lines.plain.again[at], sparse = lines.sparse.again[at];
  return real(count) * (layers.sparse == 0  ? plain
                        : layers.plain == 0 ? sparse
                                            : std::min(plain, sparse));
}

PlaceSums sumsOf(const ScheduleBound::Layers &layers, const PointLines &lines,
                 const StateLines &states, const StateUse &use, bool splits,
                 bool joins, double again) {
  using Segment = StateLines::Segment;
  PlaceSums sums;
  sums.forward = forwardLine(layers, lines);
  double ofHead = 0;
  if (use.gathersForward) {
    // Nothing runs before the embedding and the head that could hide theirs.
    if (layers.hasEmbedding)
      sums.forward += states.embedding.gather;
    if (layers.hasHead)
      ofHead = states.head.gather;
    sums.forward = std::max(sums.forward, layerGathers(layers, states));
  }
  const double gathers = use.gathersBackward ? layerGathers(layers, states) : 0,
               summed = use.sumsInSlots
                            ? ofStates(layers, states, &Segment::sum)
                            : 0;
  if (splits) {
    sums.backward =
        std::max(backwardLine(layers, lines, &LineTimes::inputGrad) + again +
                     ofHead,
                 gathers) +
        std::max(backwardLine(layers, lines, &LineTimes::weightGrad), summed);
    sums.line = sums.states = 0;
    return sums;
  }
  sums.line = backwardLine(layers, lines, &LineTimes::backward) + ofHead;
  sums.states = gathers + summed;
  sums.backward = std::max(sums.line + again, sums.states);
  return sums;
}

} // namespace

/// Its slots stand behind those F that must have run before its first, and
/// before those D that must run behind its last; a place's last D is of the
/// first of its stages. Where W may be last, nothing need follow.
double ScheduleBound::ofPlace(const Place &place, PointRecompute kind,
                              std::int64_t again) const {
  const auto &[lines, states, use, behind] = *taken;
  const PlaceSums sums = sumsOf(place.all, lines, states, use, splits, joins,
                                againSeconds(place.all, lines, kind, again));
  const double way = place.hops * lines.transfer;
  const double fill = forwardLine(place.before, lines) + way;
  const double work = microBatches * (sums.forward + sums.backward);
  double longest =
      fill + work +
      (splits ? 0
              : backwardLine(place.before, lines, &LineTimes::backward) + way);
  if (use.gathersFirst) {
    const double first = layerGathers(place.first, states);
    longest = std::max(longest, first - forwardLine(place.first, lines) + work);
  }
  using Segment = StateLines::Segment;
  if (use.sumsInSlots)
    return longest;
  const double summed = ofStates(place.all, states, &Segment::sum);
  if (!use.overlaps)
    return std::max(longest, fill + work + summed);
  const double layers = place.lowest.plain + place.lowest.sparse;
  if (splits || layers == 0)
    return longest;
  // Sums of the last D's gradients run on behind it, but for its first part.
  const PlaceSums last =
      sumsOf(place.lowest, lines, states, use, splits, joins, 0);
  const double others =
      std::max(std::max(sums.line - last.line, sums.states - last.states), 0.0);
  return std::max(longest, fill + work - sums.backward + others +
                               std::max(last.line, last.states) / layers +
                               ofStates(place.lowest, states, &Segment::sum));
}

//===----------------------------------------------------------------------===//
// A plan
//===----------------------------------------------------------------------===//

void ScheduleBound::take(const PlanPoint &plan) {
  const StepTimes::State &state = *times.state;
  taken->lines = state.lines(plan, joins);
  taken->states = state.states(plan);
  taken->use = StateUse(plan, state.practice);
  const auto &[lines, states, use, unused] = *taken;
  const OptimizerTimes &optimizer = states.optimizer[plan.offloadsOptimizer];
  using Segment = StateLines::Segment;
  double behind = 0;
  for (const Place &place : places)
    behind = std::max(
        behind,
        optimizer.seconds(
            ofStates(place.all, states, &Segment::elements),
            ofStates(place.all, states, &Segment::expertElements)) +
            (use.gathersLast ? ofStates(place.all, states, &Segment::gather)
                             : 0));
  taken->behind = lines.norm + behind;
}

double ScheduleBound::again(PointRecompute kind,
                            std::span<const std::int64_t> layers) const {
  double longest = 0;
  for (std::size_t rank = 0; rank < places.size(); ++rank)
    longest = std::max(longest, ofPlace(places[rank], kind,
                                        layers.empty() ? 0 : layers[rank]));
  return (longest + taken->behind) * kRounding;
}

double ScheduleBound::of(const PlanPoint &plan) {
  if (!times.state->hasFormat(plan))
    return kNever;
  take(plan);
  return again(plan.recompute, plan.recomputed);
}

double ScheduleBound::ofAnyStorage(const PlanPoint &plan) const {
  const StepTimes::State &state = *times.state;
  if (!state.hasFormat(plan))
    return kNever;
  const PointLines &lines = state.lines(plan, joins);
  double longest = 0;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const Place &place = places[rank];
    const double again =
        againSeconds(place.all, lines, plan.recompute,
                     plan.recomputed.empty() ? 0 : plan.recomputed[rank]);
    const double way = place.hops * lines.transfer;
    double seconds = forwardLine(place.before, lines) + way +
                     microBatches * (forwardLine(place.all, lines) + again);
    if (splits)
      seconds += microBatches *
                 (backwardLine(place.all, lines, &LineTimes::inputGrad) +
                  backwardLine(place.all, lines, &LineTimes::weightGrad));
    else
      seconds +=
          microBatches * backwardLine(place.all, lines, &LineTimes::backward) +
          backwardLine(place.before, lines, &LineTimes::backward) + way;
    longest = std::max(longest, seconds);
  }
  return (longest + lines.norm) * kRounding;
}

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
  return ScheduleBound(*this, point).of(point);
}

double StepTimes::boundOfSchedule(const PlanPoint &point) const {
  return ScheduleBound(*this, point).ofAnyStorage(point);
}

/// Of one micro-batch in all layers, whatever else is chosen.
static double leastWork(const StepTimes::State &state, const PlanPoint &given) {
  PlanPoint point = given;
  point.zeroStage = 0;
  point.shardGroup = 1;
  point.recompute = PointRecompute::None;
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
  PointKey key = lineKey(point);
  key.back() = 0; // sequence parallelism and context
  return knownWork.get(key, [&] { return ::leastWork(*this, point); });
}
