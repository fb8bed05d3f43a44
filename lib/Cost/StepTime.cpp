#include "Step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace heddle;
using namespace heddle::detail;

static double real(std::int64_t value) { return static_cast<double>(value); }

bool Step::gathersFirst() const {
  if (point.zeroStage == 0)
    return false;
  return point.zeroStage >= 3 ? point.gather == PlanGather::OncePerStep
                              : state.practice.gathersInNextStep;
}

/// Slots follow each other while collectives of states and copies to the host
/// still run, but no faster than these can.
double Step::slot(SlotKind kind, const ChunkContent &chunk,
                  std::array<double, numStreams> &exposed) {
  const std::span<const StreamTask> tasks = builder.build(kind, chunk);
  const StreamTiming timing = runStreams(tasks);
  constexpr auto dp = static_cast<std::size_t>(TimeAxis::Dp);
  double states = 0, copies = 0, line = 0;
  for (const StreamTask &task : tasks) {
    states += task.stream == static_cast<int>(dp) ? task.seconds : 0;
    copies += task.stream == hostStream ? task.seconds : 0;
  }
  for (std::size_t s = 0; s < numStreams; ++s)
    if (s != dp && s != hostStream)
      line = std::max(line, timing.ended[s]);
  const double seconds = std::max({line, states, copies});
  for (std::size_t stream = 0; stream < numStreams; ++stream)
    exposed[stream] += timing.exposed[stream];
  // What runs on beside the next slot.
  exposed[static_cast<std::size_t>(timing.last)] -= timing.seconds - seconds;
  return seconds;
}

void Step::timeEdges(Timed &timed) {
  const ChunkContent &chunk = timed.content;
  double sums = 0, slows = 1, gathers = 0;
  for (std::int64_t i = 0; i < chunk.layers(); ++i) {
    const LayerTimes &layer = parts.layer(chunk, i);
    sums += layer.gradients.seconds;
    slows = std::max(slows, layer.gradients.slows);
    gathers += layer.parameters.seconds;
  }
  if (sumsOnce() && parts.overlaps)
    timed.edges.lastBackward = std::min(
        sums * (1 - 1 / slows),
        (timed.times.inputGrad + timed.times.weightGrad) * (slows - 1));
  if (gathersFirst()) {
    const double first = parts.overlaps
                             ? runStreams(builder.buildFirst(chunk)).seconds
                             : gathers + timed.times.forward;
    timed.edges.firstForward = std::max(0.0, first - timed.times.forward);
  }
}

std::size_t Step::timeChunk(const ChunkContent &chunk) {
  for (std::size_t i = 0; i < timed.size(); ++i)
    if (timed[i].content == chunk)
      return i;
  const SlotTimes &of =
      state.slots(point, chunk, [&] { return timeSlots(chunk); });
  timed.push_back({chunk, of.times, {}, of.exposed});
  timeEdges(timed.back());
  return timed.size() - 1;
}

SlotTimes Step::timeSlots(const ChunkContent &chunk) {
  SlotTimes of;
  of.times.forward = slot(SlotKind::Forward, chunk, of.exposed);
  of.times.inputGrad = slot(splits ? SlotKind::InputGrad : SlotKind::Backward,
                            chunk, of.exposed);
  of.times.weightGrad =
      splits ? slot(SlotKind::WeightGrad, chunk, of.exposed) : 0;
  timeWaits(chunk, of.times);
  return of;
}

/// Exchanges along ep, beside which the other slot of a joined pair computes,
/// less what that is slowed. A slot without them is no shorter than its bound.
void Step::timeWaits(const ChunkContent &chunk, ChunkTimes &times) const {
  if (!joinsSlots(point.schedule) || chunk.sparse == 0)
    return;
  const Call &call = parts.sparse.exchange;
  const double waits = 2 * real(chunk.sparse) * call.seconds / call.slows;
  const SlotParts alone = withoutExchange(parts);
  auto most = [&](double seconds, SlotKind kind) {
    return std::min(waits, seconds - slotBound(alone, kind, chunk));
  };
  times.forwardWaits = most(times.forward, SlotKind::Forward);
  times.backwardWaits = most(times.inputGrad, SlotKind::InputGrad);
}

void Step::timePlace(std::int64_t rank) {
  Place &place = places[static_cast<std::size_t>(rank)];
  double elements = 0, experts = 0;
  auto addLayers = [&](double count, const LayerTimes &layer) {
    elements += count * (layer.attention.elements + layer.mlp.elements);
    experts += count * layer.mlp.expertElements;
    place.sums += count * layer.gradients.seconds;
    place.gathers += count * layer.parameters.seconds;
  };
  auto addEnd = [&](const EndTimes &end) {
    elements += end.elements;
    place.sums += end.gradients.seconds;
    place.gathers += end.parameters.seconds;
  };
  for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
    const ChunkContent content = contentOf(state, point, rank, chunk);
    place.chunks.push_back(timeChunk(content));
    const Timed &of = timed[place.chunks.back()];
    place.work +=
        real(point.microBatches) *
            (of.times.forward + of.times.inputGrad + of.times.weightGrad) +
        of.edges.firstForward + of.edges.lastBackward;
    addLayers(real(content.plain), parts.plain);
    addLayers(real(content.sparse), parts.sparse);
    if (content.hasEmbedding)
      addEnd(parts.embedding);
    if (content.hasHead)
      addEnd(parts.head);
  }
  place.optimizer =
      timer.optimizer(point.offloadsOptimizer, state.hostBytesPerSecond)
          .seconds(elements, experts);
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

/// How long sums of gradients run on behind the last slot: each layer's is
/// ready when its part of the chunk's last backward has run.
double Step::tailOf(std::int64_t rank, const RankEnds &ends) const {
  const Place &place = places[static_cast<std::size_t>(rank)];
  if (!sumsOnce())
    return 0;
  if (!parts.overlaps)
    return place.sums;
  double ofEnds = 0, free = 0;
  for (const auto &[chunk, span] : ends.lasts) {
    const ChunkContent &content =
        timed[place.chunks[static_cast<std::size_t>(chunk)]].content;
    ofEnds += (content.hasHead ? parts.head.gradients.seconds : 0) +
              (content.hasEmbedding ? parts.embedding.gradients.seconds : 0);
    for (std::int64_t i = content.layers(); i-- > 0;) {
      const double part = real(content.layers() - i) / real(content.layers());
      free = std::max(free, span.start + span.length() * part) +
             parts.layer(content, i).gradients.seconds;
    }
  }
  return std::max(0.0, std::max(free, ends.end) + ofEnds - ends.end);
}

ScheduleTimes Step::scheduleTimes(double transfer) const {
  ScheduleTimes times;
  times.transfer = transfer;
  for (const Place &place : places) {
    times.chunks.emplace_back();
    times.edges.emplace_back();
    for (std::size_t chunk : place.chunks) {
      times.chunks.back().push_back(timed[chunk].times);
      times.edges.back().push_back(timed[chunk].edges);
    }
  }
  return times;
}

Result<void> Step::runSchedule(StepTime &step) {
  Result<const PreparedSchedule *> found = state.schedule(point);
  if (!found)
    return found.error();
  const PreparedSchedule &schedule = **found;
  splits = schedule.splitsBackward();
  for (std::int64_t rank = 0; rank < point.pp; ++rank)
    timePlace(rank);
  // What is gathered before the first micro-batch is gathered while a place
  // waits for it.
  double reaches = 0;
  ScheduleTimes times = scheduleTimes(timer.transferSeconds());
  for (std::size_t rank = 0; rank < times.chunks.size(); ++rank) {
    double &first = times.edges[rank][0].firstForward;
    first = std::max(0.0, first - reaches);
    reaches += times.chunks[rank][0].forward;
    for (std::size_t chunk = 1; chunk < times.edges[rank].size(); ++chunk)
      times.edges[rank][chunk].firstForward = 0;
  }
  ScheduleTiming timing;
  if (!onlySeconds)
    timing = schedule.run(times, timeline != nullptr);
  const std::vector<RankEnds> ends =
      onlySeconds ? schedule.ends(times) : schedule.endsOf(timing);
  double slots = 0;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    Place &place = places[rank];
    place.tail = tailOf(static_cast<std::int64_t>(rank), ends[rank]);
    makespan = std::max(makespan, ends[rank].end + place.tail);
    slots = std::max(slots, ends[rank].end);
  }
  if (onlySeconds)
    return {};
  double busy = 0;
  for (const RankTiming &rank : timing.ranks)
    busy += rank.busy;
  step.bubbleFraction = 1 - busy / (slots * real(point.pp));
  if (timeline)
    timeline->timing = timing;
  times.transfer = 0;
  AxisTime &pp = step.axes[static_cast<std::size_t>(TimeAxis::Pp)];
  pp.exposed = timing.makespan - schedule.run(times, false).makespan;
  return {};
}

/// One place: micro-batches one after the other.
void Step::runAlone(StepTime &step) {
  timePlace(0);
  Place &place = places[0];
  const Timed &of = timed[place.chunks[0]];
  const double last =
      of.times.inputGrad + of.times.weightGrad + of.edges.lastBackward;
  place.tail = tailOf(0, {place.work, {{0, {place.work - last, place.work}}}});
  makespan = place.work + place.tail;
  step.bubbleFraction = 0;
  if (timeline)
    timeline->timing = simulateSchedule(timeline->table, scheduleTimes(0));
}

void Step::finish(StepTime &step) {
  double behind = 0;
  const bool gathers = gathersLast();
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const Place &place = places[rank];
    behind = std::max(behind, place.optimizer + (gathers ? place.gathers : 0));
    if (place.work > places[static_cast<std::size_t>(step.busiest)].work)
      step.busiest = static_cast<std::int64_t>(rank);
  }
  const Place &busiest = places[static_cast<std::size_t>(step.busiest)];
  for (std::size_t chunk : busiest.chunks) {
    for (std::size_t axis = 0; axis < timeAxes; ++axis)
      step.axes[axis].exposed +=
          real(point.microBatches) * timed[chunk].exposed[axis];
    step.host.exposed +=
        real(point.microBatches) * timed[chunk].exposed[hostStream];
    step.axes[static_cast<std::size_t>(TimeAxis::Dp)].exposed +=
        timed[chunk].edges.firstForward;
  }
  step.axes[static_cast<std::size_t>(TimeAxis::Dp)].exposed +=
      busiest.tail + (gathers ? busiest.gathers : 0);
  step.optimizer = busiest.optimizer;
  step.seconds = makespan + timer.norm().seconds + behind;
}

//===----------------------------------------------------------------------===//
// Bound
//===----------------------------------------------------------------------===//

/// Sums of gradients of the last backward alone run on behind it.
double Step::leastTail(std::int64_t rank) const {
  const Place &place = places[static_cast<std::size_t>(rank)];
  if (splits)
    return 0;
  std::size_t lowest = 0; // its last backward is of its first stage
  for (std::int64_t chunk = 1; chunk < point.chunks; ++chunk)
    if (point.stageOf(rank, chunk) <
        point.stageOf(rank, static_cast<std::int64_t>(lowest)))
      lowest = static_cast<std::size_t>(chunk);
  const Timed &of = timed[place.chunks[lowest]];
  const double last =
      of.times.inputGrad + of.times.weightGrad + of.edges.lastBackward;
  return tailOf(rank, {last, {{static_cast<std::int64_t>(lowest), {0, last}}}});
}

/// A place's slots stand behind the forward of the stages before its first, and
/// before their backward unless W may be last; its sums run on beside that.
double Step::bound() {
  StepTime step;
  makespan = 0;
  places.assign(static_cast<std::size_t>(point.pp), {});
  if (point.pp == 1 && point.chunks == 1) {
    runAlone(step);
    finish(step);
    return step.seconds;
  }
  splits = splitsBackward(point.schedule);
  std::vector<double> forwards(point.layers.size() + 1, 0.0),
      backwards = forwards;
  for (std::int64_t rank = 0; rank < point.pp; ++rank) {
    timePlace(rank);
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
      const ChunkTimes &times = timesOf(rank, chunk);
      const auto behind =
          static_cast<std::size_t>(point.stageOf(rank, chunk)) + 1;
      forwards[behind] = times.forward - times.forwardWaits;
      backwards[behind] = splits ? 0 : times.inputGrad + times.weightGrad;
    }
  }
  std::partial_sum(forwards.begin(), forwards.end(), forwards.begin());
  std::partial_sum(backwards.begin(), backwards.end(), backwards.begin());
  for (std::int64_t rank = 0; rank < point.pp; ++rank) {
    double work = 0;
    std::int64_t lowest = std::ssize(point.layers);
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
      const ChunkTimes &times = timesOf(rank, chunk);
      work += times.forward + times.inputGrad + times.weightGrad -
              times.forwardWaits - times.backwardWaits;
      lowest = std::min(lowest, point.stageOf(rank, chunk));
    }
    const auto before = static_cast<std::size_t>(lowest);
    makespan =
        std::max(makespan, forwards[before] + real(point.microBatches) * work +
                               std::max(backwards[before], leastTail(rank)));
  }
  finish(step);
  return step.seconds;
}

/// What comes behind the slots.
void Step::tell(const StepTime &step) {
  const double norm = makespan + timer.norm().seconds;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const Place &place = places[rank];
    const double slots = timeline->timing.ranks[rank].span.end;
    TimeSpan &update = timeline->timing.slots[rank].back();
    update = {norm, norm + place.optimizer};
    timeline->timing.ranks[rank].optimizer = place.optimizer;
    timeline->ends.push_back(
        {{slots, slots + place.tail},
         {makespan, norm},
         {update.end, update.end + (gathersLast() ? place.gathers : 0)}});
  }
  timeline->timing.makespan = timeline->seconds = step.seconds;
}

Result<void> Step::runSlots(StepTime &step) {
  makespan = 0;
  places.assign(static_cast<std::size_t>(point.pp), {});
  if (point.pp == 1 && point.chunks == 1)
    runAlone(step);
  else if (Result<void> done = runSchedule(step); !done)
    return done.error();
  finish(step);
  return {};
}

Result<double> Step::seconds() {
  StepTime step;
  onlySeconds = true;
  if (Result<void> done = runSlots(step); !done)
    return done.error();
  return step.seconds;
}

Result<StepTime> Step::run(StepTimeline *to) {
  StepTime step;
  timeline = to;
  if (Result<void> done = runSlots(step); !done)
    return done.error();
  count(step);
  countAxes(step);
  if (timeline)
    tell(step);
  return step;
}

Result<StepTime> StepTimes::simulate(const PlanPoint &point) const {
  if (Result<void> checked = checkLayers(*state, point); !checked)
    return checked.error();
  if (!state->hasFormat(point)) {
    StepTime never;
    never.seconds = std::numeric_limits<double>::infinity();
    return never;
  }
  return Step(*state, point).run();
}

Result<double> StepTimes::seconds(const PlanPoint &point) const {
  if (Result<void> checked = checkLayers(*state, point); !checked)
    return checked.error();
  return state->hasFormat(point) ? Step(*state, point).seconds()
                                 : std::numeric_limits<double>::infinity();
}

Result<StepTimeline> StepTimes::timeline(const PlanPoint &point) const {
  Result<StepTimeline> timeline = beginTimeline(*state, point);
  if (!timeline)
    return timeline;
  if (Result<StepTime> step = Step(*state, point).run(&*timeline); !step)
    return step.error();
  addSlotTasks(*state, point, *timeline);
  return timeline;
}

std::optional<double> StepTimes::secondsWithin(const PlanPoint &point,
                                               double limit) const {
  Step step(*state, point);
  if (!state->hasFormat(point) || step.bound() > limit)
    return std::nullopt;
  Result<double> seconds = step.seconds();
  return seconds ? *seconds : std::numeric_limits<double>::infinity();
}

double StepTimes::boundOfSlots(const PlanPoint &point) const {
  return state->hasFormat(point) ? Step(*state, point).bound()
                                 : std::numeric_limits<double>::infinity();
}
