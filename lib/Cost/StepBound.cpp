#include "PointLines.h"
#include "StepState.h"

#include <algorithm>
#include <limits>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

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

namespace {

/// Of some layers and ends along dp, in one micro-batch.
struct StateSums {
  double gathers = 0;             ///< of layers
  double embedding = 0, head = 0; ///< gathers of ends
  double sums = 0;                ///< of layers and ends
  double elements = 0, expertElements = 0;

  double allGathers() const { return gathers + embedding + head; }
};

/// What computation is slowed by what runs beside it along dp.
struct Slowed {
  double forward = 0, inputGrad = 0, weightGrad = 0;
  /// D, by whether parameters are gathered in it and gradients summed.
  double backward[2][2] = {};

  void add(const Slowed &other, double times) {
    forward += times * other.forward;
    inputGrad += times * other.inputGrad;
    weightGrad += times * other.weightGrad;
    for (int gathers = 0; gathers < 2; ++gathers)
      for (int sums = 0; sums < 2; ++sums)
        backward[gathers][sums] += times * other.backward[gathers][sums];
  }
};

/// Whatever is stored where.
struct PlaceLines {
  OfSlots all, lowest;
  double first = 0; ///< F of chunk 0
  double fill = 0;  ///< before its first slot
  double drain = 0; ///< behind its last D
  std::array<double, 3> again = {};
};

/// Whatever the schedule does with it.
struct PlaceStates {
  StateSums all, lowest;
  double first = 0; ///< gathers of chunk 0's layers
  Slowed slowsAll, slowsLowest;
  std::array<double, 2> optimizer = {};
};

/// One place's slots of one micro-batch, for one plan.
struct PlaceSums {
  double forward, backward;
  double line, states; ///< of its D, before the longer one is taken
};

double layersOf(const ScheduleBound::Layers &held) {
  return held.plain + held.sparse;
}

OfSlots linesOf(const ScheduleBound::Layers &layers, const PointLines &lines) {
  OfSlots sums;
  sums.forward = layers.plain * lines.plain.forward +
                 layers.sparse * lines.sparse.forward +
                 (layers.hasEmbedding ? lines.embedding.forward : 0);
  for (auto field :
       {&OfSlots::backward, &OfSlots::inputGrad, &OfSlots::weightGrad})
    sums.*field = layers.plain * (lines.plain.*field) +
                  layers.sparse * (lines.sparse.*field) +
                  (layers.hasEmbedding ? lines.embedding.*field : 0) +
                  (layers.hasHead ? lines.head.*field : 0);
  return sums;
}

StateSums statesOf(const ScheduleBound::Layers &layers,
                   const StateLines &states) {
  using Segment = StateLines::Segment;
  auto sum = [&](double Segment::*field) {
    return layers.plain * (states.plain.*field) +
           layers.sparse * (states.sparse.*field);
  };
  auto ends = [&](double Segment::*field) {
    return (layers.hasEmbedding ? states.embedding.*field : 0) +
           (layers.hasHead ? states.head.*field : 0);
  };
  StateSums sums;
  sums.gathers = sum(&Segment::gather);
  sums.embedding = layers.hasEmbedding ? states.embedding.gather : 0;
  sums.head = layers.hasHead ? states.head.gather : 0;
  sums.sums = sum(&Segment::sum) + ends(&Segment::sum);
  sums.elements = sum(&Segment::elements) + ends(&Segment::elements);
  sums.expertElements = sum(&Segment::expertElements);
  return sums;
}

/// What SlotBuilder adds to computation, of a chunk of \p count layers: each
/// gather is there when its layer begins, each sum when it has ended, and no
/// layer pays more than its computation allows. What is paid by the end is the
/// least, over all layers, of what had come until there and what could be paid
/// from there on; it is linear in the layer, so that an end is the least.
Slowed slowedOf(double count, const ScheduleBound::Layers &kinds,
                const PointLines &lines, const StateLines &states) {
  Slowed slowed;
  if (count == 0)
    return slowed;
  double gather = kNever, sum = kNever, gatherSlows = kNever, sumSlows = kNever;
  OfSlots computed{kNever, kNever, kNever, kNever};
  auto add = [&](const LineTimes &line, const StateLines::Segment &of) {
    gather = std::min(gather, of.gather * (1 - 1 / of.gatherSlows));
    sum = std::min(sum, of.sum * (1 - 1 / of.sumSlows));
    gatherSlows = std::min(gatherSlows, of.gatherSlows - 1);
    sumSlows = std::min(sumSlows, of.sumSlows - 1);
    for (auto field : {&OfSlots::forward, &OfSlots::backward,
                       &OfSlots::inputGrad, &OfSlots::weightGrad})
      computed.*field = std::min(computed.*field, line.computed.*field);
  };
  if (kinds.plain > 0)
    add(lines.plain, states.plain);
  if (kinds.sparse > 0)
    add(lines.sparse, states.sparse);
  auto paid = [&](double computation, bool gathers, bool sums) {
    const double pays = computation * (gathers ? gatherSlows : sumSlows),
                 atFirst = gathers ? gather : 0, later = sums ? sum : 0;
    return std::min({count * pays, atFirst + (count - 1) * pays,
                     count * atFirst + (count - 1) * later});
  };
  slowed.forward = paid(computed.forward, true, false);
  slowed.inputGrad = paid(computed.inputGrad, true, false);
  slowed.weightGrad = paid(computed.weightGrad, false, true);
  slowed.backward[1][0] = paid(computed.backward, true, false);
  slowed.backward[0][1] = paid(computed.backward, false, true);
  slowed.backward[1][1] = paid(computed.backward, true, true);
  return slowed;
}

} // namespace

struct ScheduleBound::OfOrder {
  /// Of one kind of sharding: ScheduleBound::take finds it again for as long as
  /// the storages that it is asked for have the same.
  struct Sharding {
    std::int64_t key = -1;
    std::vector<PlaceStates> places;
  };

  std::array<PlanAxis, 4> order = {};
  PointLines lines;
  std::vector<PlaceLines> places;
  double lastChunk = 0; ///< F and D of the chain's end
  double others = 0;    ///< F and D of all places but the last
  std::array<Sharding, 3> shardings;
  // What was taken.
  const Sharding *states = nullptr;
  StateUse use;
  double behind = 0; ///< the slots of all places
};

ScheduleBound::~ScheduleBound() = default;

/// Not later, and not longer, than another that holds the same.
bool ScheduleBound::Place::isLedBy(const Place &other) const {
  return all == other.all && first == other.first && lowest == other.lowest &&
         chunks == other.chunks && before.plain <= other.before.plain &&
         before.sparse <= other.before.sparse &&
         before.hasEmbedding <= other.before.hasEmbedding &&
         before.hasHead <= other.before.hasHead && hops <= other.hops;
}

/// Of interleaved 1F1B; 0 where groups are not equal.
static double groupOf(const PlanPoint &schedule) {
  if (schedule.schedule != PlanScheduleKind::Interleaved1F1B)
    return 0;
  const std::int64_t groups =
      std::max<std::int64_t>(schedule.microBatches / schedule.pp, 1);
  return schedule.microBatches % groups == 0
             ? real(schedule.microBatches / groups)
             : 0;
}

ScheduleBound::ScheduleBound(const StepTimes &given, const PlanPoint &schedule)
    : times(given), schedule(schedule),
      splits(splitsBackward(schedule.schedule)),
      joins(joinsSlots(schedule.schedule)),
      microBatches(real(schedule.microBatches)), chunks(real(schedule.chunks)),
      group(groupOf(schedule)) {
  placeStages(schedule);
  for (std::size_t rank = places.size(); rank-- > 0;)
    if (std::ranges::none_of(leading, [&](std::size_t other) {
          return places[rank].isLedBy(places[other]);
        }))
      leading.push_back(rank);
}

void ScheduleBound::placeStages(const PlanPoint &schedule) {
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
      place.add(held[static_cast<std::size_t>(stage)], chunk == 0);
      place.lowestStage =
          chunk == 0 ? stage : std::min(place.lowestStage, stage);
    }
  Layers before;
  double hops = 0;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    Place &place = places[static_cast<std::size_t>(rankOf[at])];
    if (place.lowestStage == stage) {
      place.lowest = held[at];
      place.before = before;
      place.hops = hops;
    }
    before.add(held[at]);
    hops += stage + 1 < stages && rankOf[at] != rankOf[at + 1];
  }
}

void ScheduleBound::Place::add(const Layers &chunk, bool isFirst) {
  all.add(chunk);
  last = chunk;
  if (isFirst)
    first = chunk;
  const double count = chunk.plain + chunk.sparse;
  for (auto &[layers, times] : chunks)
    if (layers == count) {
      ++times;
      return;
    }
  chunks.emplace_back(count, 1);
}

ScheduleBound::OfOrder &ScheduleBound::orderOf(const PlanPoint &plan) const {
  for (const std::unique_ptr<OfOrder> &order : orders)
    if (order->order == plan.order)
      return *order;
  auto made = std::make_unique<OfOrder>();
  made->order = plan.order;
  const PointLines &lines = made->lines = times.state->lines(plan, joins);
  made->places.reserve(places.size());
  for (const Place &place : places) {
    const OfSlots before = linesOf(place.before, lines);
    const double way = place.hops * lines.transfer;
    PlaceLines &of = made->places.emplace_back();
    of.all = linesOf(place.all, lines);
    of.lowest = linesOf(place.lowest, lines);
    of.first = linesOf(place.first, lines).forward;
    of.fill = before.forward + way;
    // Where W may be last, nothing need follow.
    of.drain = splits ? 0 : before.backward + way;
    // Where a place has both kinds of layers, the one that takes less.
    for (std::size_t kind = 0; kind < of.again.size(); ++kind)
      of.again[kind] =
          place.all.sparse == 0 ? lines.plain.again[kind]
          : place.all.plain == 0
              ? lines.sparse.again[kind]
              : std::min(lines.plain.again[kind], lines.sparse.again[kind]);
    made->others += of.all.forward + of.all.backward;
  }
  const PlaceLines &last = made->places.back();
  made->others -= last.all.forward + last.all.backward;
  const OfSlots ofLast = linesOf(places.back().last, lines);
  made->lastChunk = ofLast.forward + ofLast.backward;
  return *orders.emplace_back(std::move(made));
}

//===----------------------------------------------------------------------===//
// One place
//===----------------------------------------------------------------------===//

namespace {

PlaceSums sumsOf(const OfSlots &lines, const StateSums &states,
                 const Slowed &slowed, const StateUse &use, bool splits,
                 double again) {
  PlaceSums sums;
  sums.forward = lines.forward;
  double ofHead = 0;
  if (use.gathersForward) {
    // Nothing runs before the embedding and the head that could hide theirs.
    sums.forward += states.embedding + slowed.forward;
    ofHead = states.head;
    sums.forward = std::max(sums.forward, states.gathers);
  }
  const double gathers = use.gathersBackward ? states.gathers : 0,
               summed = use.sumsInSlots ? states.sums : 0;
  const bool slows = use.sumsInSlots && use.overlaps;
  if (splits) {
    sums.backward =
        std::max(lines.inputGrad + again + ofHead +
                     (use.gathersBackward ? slowed.inputGrad : 0),
                 gathers) +
        std::max(lines.weightGrad + (slows ? slowed.weightGrad : 0), summed);
    sums.line = sums.states = 0;
    return sums;
  }
  sums.line =
      lines.backward + ofHead + slowed.backward[use.gathersBackward][slows];
  sums.states = gathers + summed;
  sums.backward = std::max(sums.line + again, sums.states);
  return sums;
}

} // namespace

const ScheduleBound::Copies &
ScheduleBound::copiesOf(std::uint32_t offloaded) const {
  for (const auto &[known, seconds] : copies)
    if (known == offloaded)
      return seconds;
  return copies.emplace_back(offloaded, makeCopies(offloaded)).second;
}

ScheduleBound::Copies ScheduleBound::makeCopies(std::uint32_t offloaded) const {
  PlanPoint point = schedule;
  point.offloaded = offloaded;
  const StepTimes::State &state = *times.state;
  if (offloaded == 0)
    return {};
  const PointShape &shape = state.tables.shapeOf(point);
  const LayerTimer timer = timerOf(state, point);
  Copies least = {kNever, kNever};
  auto add = [&](const LayerShape &layer) {
    const HostCopies of = timer.copies(layer, state.hostBytesPerSecond);
    least.forward = std::min(least.forward, of.store.seconds);
    least.backward =
        std::min(least.backward,
                 splits ? of.fetchForInputs.seconds + of.fetchForWeights.seconds
                        : of.fetch.seconds);
  };
  if (state.sparseLayers() < state.model.layers)
    add(shape.plain);
  if (state.sparseLayers() > 0)
    add(shape.sparse);
  return least;
}

/// Of interleaved 1F1B, the last place: from its first D to its last F it goes
/// from slot to slot. Before stands the first micro-batch on its way through
/// all chunks of all places, behind the last one's way back; slots of the
/// place's other chunks run beside these two, a group's of each chunk.
double ScheduleBound::roundSeconds(const OfOrder &order, double work) const {
  const double stages = real(std::ssize(places)) * chunks;
  return (microBatches - group + 1) * work + (group - 1) * order.lastChunk +
         order.others + 2 * (stages - 1) * order.lines.transfer;
}

/// Its slots stand behind those F that must have run before its first, and
/// before those D that must run behind its last; a place's last D is of the
/// first of its stages.
double ScheduleBound::ofPlace(std::size_t rank, PointRecompute kind,
                              std::int64_t count, const Copies &copies) const {
  const Place &place = places[rank];
  const PlaceLines &lines = taken->places[rank];
  const PlaceStates &states = taken->states->places[rank];
  const StateUse &use = taken->use;
  const double again =
      real(count) * lines.again[static_cast<std::size_t>(kind)];
  PlaceSums sums =
      sumsOf(lines.all, states.all, states.slowsAll, use, splits, again);
  // A place's slots are no shorter than their copies to the host and back.
  sums.forward = std::max(sums.forward, layersOf(place.all) * copies.forward);
  sums.backward =
      std::max(sums.backward, layersOf(place.all) * copies.backward);
  const double work = microBatches * (sums.forward + sums.backward);
  double longest = lines.fill + work + lines.drain;
  if (group > 0 && rank + 1 == places.size())
    longest =
        std::max(longest, roundSeconds(*taken, sums.forward + sums.backward));
  if (use.gathersFirst)
    longest =
        std::max(longest, states.first -
                              std::max(lines.first,
                                       layersOf(place.first) * copies.forward) +
                              work);
  if (use.sumsInSlots)
    return longest;
  if (!use.overlaps)
    return std::max(longest, lines.fill + work + states.all.sums);
  const double layers = place.lowest.plain + place.lowest.sparse;
  if (splits || layers == 0)
    return longest;
  // Sums of the last D's gradients run on behind it, but for its first part.
  const PlaceSums last =
      sumsOf(lines.lowest, states.lowest, states.slowsLowest, use, splits, 0);
  const double others =
      std::max(std::max(sums.line - last.line, sums.states - last.states), 0.0);
  return std::max(longest, lines.fill + work - sums.backward + others +
                               std::max(last.line, last.states) / layers +
                               states.lowest.sums);
}

//===----------------------------------------------------------------------===//
// A plan
//===----------------------------------------------------------------------===//

void ScheduleBound::take(const PlanPoint &plan) {
  const StepTimes::State &state = *times.state;
  OfOrder &order = orderOf(plan);
  const std::int64_t key = stateKey(plan).back();
  OfOrder::Sharding &sharding =
      order.shardings[static_cast<std::size_t>(key >> kShardingShift)];
  if (sharding.key != key) {
    const StateLines &states = state.states(plan);
    sharding.key = key;
    sharding.places.clear();
    for (const Place &place : places) {
      PlaceStates &of = sharding.places.emplace_back();
      of.all = statesOf(place.all, states);
      of.lowest = statesOf(place.lowest, states);
      of.first = statesOf(place.first, states).gathers;
      for (std::size_t host = 0; host < of.optimizer.size(); ++host)
        of.optimizer[host] = states.optimizer[host].seconds(
            of.all.elements, of.all.expertElements);
      // Of a joined pair what one waits for hides what the other is slowed.
      if (joins)
        continue;
      for (const auto &[layers, number] : place.chunks)
        of.slowsAll.add(slowedOf(layers, place.all, order.lines, states),
                        number);
      of.slowsLowest = slowedOf(place.lowest.plain + place.lowest.sparse,
                                place.all, order.lines, states);
    }
  }
  order.states = &sharding;
  order.use = StateUse(plan, state.practice);
  double behind = 0;
  for (std::size_t rank : leading) {
    const PlaceStates &of = sharding.places[rank];
    behind =
        std::max(behind, of.optimizer[plan.offloadsOptimizer] +
                             (order.use.gathersLast ? of.all.allGathers() : 0));
  }
  order.behind = order.lines.norm + behind;
  taken = &order;
}

double ScheduleBound::again(PointRecompute kind,
                            std::span<const std::int64_t> layers,
                            std::uint32_t offloaded) const {
  const Copies &copies = copiesOf(offloaded);
  double longest = 0;
  if (layers.empty())
    for (std::size_t rank : leading)
      longest = std::max(longest, ofPlace(rank, kind, 0, copies));
  else
    for (std::size_t rank = 0; rank < places.size(); ++rank)
      longest = std::max(longest, ofPlace(rank, kind, layers[rank], copies));
  return (longest + taken->behind) * kRounding;
}

double ScheduleBound::of(const PlanPoint &plan) {
  if (!times.state->hasFormat(plan))
    return kNever;
  take(plan);
  return again(plan.recompute, plan.recomputed, plan.offloaded);
}

double ScheduleBound::ofAnyStorage(const PlanPoint &plan) const {
  if (!times.state->hasFormat(plan))
    return kNever;
  const OfOrder &order = orderOf(plan);
  const auto kind = static_cast<std::size_t>(plan.recompute);
  const Copies &copies = copiesOf(plan.offloaded);
  double longest = 0;
  auto add = [&](std::size_t rank, std::int64_t count) {
    const PlaceLines &lines = order.places[rank];
    PlaceSums sums = {lines.all.forward,
                      real(count) * lines.again[kind] +
                          (splits ? lines.all.inputGrad + lines.all.weightGrad
                                  : lines.all.backward),
                      0, 0};
    const double layers = layersOf(places[rank].all);
    sums.forward = std::max(sums.forward, layers * copies.forward);
    sums.backward = std::max(sums.backward, layers * copies.backward);
    const double work = sums.forward + sums.backward;
    longest = std::max(longest, lines.fill + microBatches * work + lines.drain);
    if (group > 0 && rank + 1 == places.size())
      longest = std::max(longest, roundSeconds(order, work));
  };
  if (plan.recomputed.empty())
    for (std::size_t rank : leading)
      add(rank, 0);
  else
    for (std::size_t rank = 0; rank < places.size(); ++rank)
      add(rank, plan.recomputed[rank]);
  return (longest + order.lines.norm) * kRounding;
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
