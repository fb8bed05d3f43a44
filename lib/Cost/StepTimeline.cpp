#include "heddle/Cost/StepTimeline.h"

#include "StepState.h"

#include "heddle/Schedule/Generate.h"
#include "heddle/Schedule/Timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

using namespace heddle;
using namespace heddle::detail;

std::string_view heddle::slotPartName(SlotPart part) {
  static constexpr std::string_view names[] = {
      "embedding", "attention",  "mlp",       "again",
      "head",      "parameters", "gradients", "saved"};
  return names[static_cast<std::size_t>(part)];
}

std::string_view heddle::streamName(int stream) {
  return stream == computeStream ? "compute"
         : stream == hostStream  ? "host"
                                 : timeAxisName(static_cast<TimeAxis>(stream));
}

std::string SlotTask::name() const {
  return layer < 0 ? std::string(slotPartName(part))
                   : fmt::format("{} {}", slotPartName(part), layer);
}

Result<StepTimeline>
heddle::detail::beginTimeline(const StepTimes::State &state,
                              const PlanPoint &point) {
  if (Result<void> checked = checkLayers(state, point); !checked)
    return checked.error();
  if (!state.hasFormat(point))
    return Error{fmt::format("device \"{}\" has no peak for {}",
                             state.device.name, point.recipe)};
  Result<ScheduleTable> table = generateSchedule(
      point.schedule, point.pp, point.chunks, point.microBatches);
  if (!table)
    return table.error();
  return StepTimeline{std::move(*table), {}, {}, {}, 0};
}

//===----------------------------------------------------------------------===//
// What runs within slots
//===----------------------------------------------------------------------===//

static SlotTasks tasksOf(SlotBuilder &builder, SlotKind kind,
                         const ChunkContent &content) {
  SlotTasks slot;
  slot.kind = kind;
  const std::span<const StreamTask> tasks = builder.build(kind, content);
  std::vector<TimeSpan> spans;
  runStreams(tasks, &spans);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const StreamTask &task = tasks[i];
    SlotTask *last = slot.tasks.empty() ? nullptr : &slot.tasks.back();
    // Two halves of one part are one.
    if (last && last->stream == task.stream && last->part == task.part &&
        last->layer == task.layer && last->time.end == spans[i].start)
      last->time.end = spans[i].end;
    else
      slot.tasks.push_back({task.stream, task.part, task.layer, spans[i]});
  }
  return slot;
}

/// D of a schedule that has B and W too: one behind the other.
static SlotTasks backwardOf(const SlotTasks &inputs, const SlotTasks &weights) {
  SlotTasks both = inputs;
  both.kind = SlotKind::Backward;
  double end = 0;
  for (const SlotTask &task : inputs.tasks)
    if (task.stream != static_cast<int>(TimeAxis::Dp))
      end = std::max(end, task.time.end);
  for (SlotTask task : weights.tasks) {
    task.time = {task.time.start + end, task.time.end + end};
    both.tasks.push_back(task);
  }
  return both;
}

void heddle::detail::addSlotTasks(const StepTimes::State &state,
                                  const PlanPoint &point,
                                  StepTimeline &timeline) {
  const LayerTimer timer = timerOf(state, point);
  const SlotParts parts = partsOf(state, point, timer);
  SlotBuilder builder(parts);
  const bool splits = splitsBackward(point.schedule);
  for (std::int64_t place = 0; place < point.pp; ++place)
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
      const ChunkContent content = contentOf(state, point, place, chunk);
      for (SlotKind kind : {SlotKind::Forward, SlotKind::Backward,
                            SlotKind::InputGrad, SlotKind::WeightGrad}) {
        if (kind != SlotKind::Forward && splits == (kind == SlotKind::Backward))
          continue;
        SlotTasks slot = tasksOf(builder, kind, content);
        slot.place = place;
        slot.chunk = chunk;
        timeline.slots.push_back(std::move(slot));
      }
      if (splits) {
        const auto weights = timeline.slots.end() - 1;
        timeline.slots.push_back(backwardOf(*(weights - 1), *weights));
      }
    }
}

//===----------------------------------------------------------------------===//
// As a trace
//===----------------------------------------------------------------------===//

namespace {

/// The tasks of a slot's kind and chunk; null: none, as of O.
class TasksOfSlots {
public:
  explicit TasksOfSlots(const StepTimeline &timeline) {
    for (const SlotTasks &each : timeline.slots)
      found[{each.place, each.chunk, each.kind}] = &each;
  }
  const SlotTasks *of(std::int64_t place, Slot slot) const {
    const auto at = found.find({place, slot.chunk(), slot.kind()});
    return at == found.end() ? nullptr : at->second;
  }

private:
  std::map<std::tuple<std::int64_t, std::int64_t, SlotKind>, const SlotTasks *>
      found;
};

} // namespace

static void addEnds(const StepTimeline &timeline,
                    std::vector<TrackSpan> &spans) {
  for (std::size_t place = 0; place < timeline.ends.size(); ++place) {
    const PlaceEnd &end = timeline.ends[place];
    const auto rank = static_cast<std::int64_t>(place);
    const auto add = [&](int stream, const char *name, TimeSpan time) {
      if (time.length() > 0)
        spans.push_back({rank, std::string(streamName(stream)), name, time});
    };
    add(static_cast<int>(TimeAxis::Dp), "gradients", end.sums);
    add(computeStream, "norm", end.norm);
    add(static_cast<int>(TimeAxis::Dp), "parameters", end.gathers);
  }
}

std::string heddle::writeTimeline(const StepTimeline &timeline,
                                  std::int64_t mostTasks) {
  const TasksOfSlots tasks(timeline);
  const auto forEach = [&](auto visit) {
    for (std::size_t place = 0; place < timeline.table.rows.size(); ++place)
      for (std::size_t i = 0; i < timeline.table.rows[place].size(); ++i)
        if (const SlotTasks *found = tasks.of(static_cast<std::int64_t>(place),
                                              timeline.table.rows[place][i]))
          visit(*found, timeline.timing.slots[place][i]);
  };
  std::int64_t count = 0;
  forEach([&](const SlotTasks &slot, TimeSpan) {
    count += std::ssize(slot.tasks);
  });
  std::vector<TrackSpan> spans;
  if (count <= mostTasks)
    forEach([&](const SlotTasks &slot, TimeSpan time) {
      for (const SlotTask &task : slot.tasks) {
        spans.push_back(
            {slot.place,
             std::string(streamName(task.stream)),
             task.name(),
             {time.start + task.time.start, time.start + task.time.end}});
      }
    });
  addEnds(timeline, spans);
  return writeTimeline(timeline.table, timeline.timing, spans);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

namespace {

/// One slot after the other.
class MemoryCurve {
public:
  explicit MemoryCurve(const PlaceMemory &peak) : peak(peak) {}

  void add(Slot slot, TimeSpan time) {
    const bool isBackward =
        slot.givesInputGrad() || slot.kind() == SlotKind::WeightGrad;
    say(time.start, isBackward);
    begin(slot);
    end(slot);
    say(time.end, isBackward);
    say(time.end, false);
  }
  /// Two that run at the same time: both sets are there all the while.
  void addPair(Slot first, Slot second, TimeSpan time) {
    for (const Slot slot : {first, second})
      begin(slot);
    say(time.start, true);
    say(time.end, true);
    end(first);
    end(second);
    say(time.end, false);
  }
  std::vector<MemoryPoint> points;

private:
  /// In flight.
  struct Sets {
    std::int64_t all = 0, ofInputs = 0, kept = 0;
  };

  void begin(Slot slot) {
    const bool isForward = slot.kind() == SlotKind::Forward;
    held.all += isForward;
    held.ofInputs += isForward;
    held.kept += slot.kind() == SlotKind::InputGrad;
  }
  void end(Slot slot) {
    held.all -= slot.endsMicroBatch();
    held.ofInputs -= slot.givesInputGrad();
    held.kept -= slot.kind() == SlotKind::WeightGrad;
  }
  static std::int64_t part(std::int64_t bytes, std::int64_t sets,
                           std::int64_t of) {
    // Chunks without layers are counted and have none.
    return of > 0 ? bytes * std::min(sets, of) / of : 0;
  }
  void say(double seconds, bool isBackward) {
    PlaceMemory now = peak;
    now.saved = part(peak.saved, held.all, peak.sets);
    now.savedForInputs =
        part(peak.savedForInputs, held.ofInputs, peak.inputSets);
    now.kept = part(peak.kept, held.kept, peak.keptSets);
    if (!isBackward)
      now.logits = now.temporaries = now.buckets = 0;
    points.push_back({seconds, now});
  }

  const PlaceMemory &peak;
  Sets held;
};

} // namespace

std::vector<MemoryPoint>
heddle::memoryOverTime(const PlaceMemory &peak, const std::vector<Slot> &row,
                       const std::vector<TimeSpan> &slots) {
  MemoryCurve curve(peak);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool isPair = row[i].joined();
    if (isPair)
      curve.addPair(row[i], row[i + 1], slots[i]);
    else
      curve.add(row[i], slots[i]);
    i += isPair;
  }
  return curve.points;
}
