#include "Stages.h"

#include "heddle/Schedule/Events.h"
#include "heddle/Schedule/Generate.h"
#include "heddle/Schedule/SavedSets.h"

#include <algorithm>

using namespace heddle;

namespace {

class Finder {
public:
  Finder(const Plan &plan, const ScheduleTable &table,
         const ScheduleEvents &events, std::int64_t place)
      : layers(plan.stages.layers), table(table), events(events), place(place) {
    stages.areCut = plan.stages.schedule != PlanScheduleKind::None;
    stages.place = place;
  }

  RankStages find();

private:
  void findSides();
  void findSets();
  std::int64_t layersOf(std::int64_t chunk) const {
    return detail::numberOf(layers[place][chunk]);
  }
  bool isLast(std::int64_t chunk) const {
    return table.placement.at(place, chunk).stage + 1 ==
           table.placement.stages();
  }

  const std::vector<std::vector<PlanRange>> &layers;
  const ScheduleTable &table;
  const ScheduleEvents &events; ///< none without stages
  const std::int64_t place;
  RankStages stages;
};

} // namespace

void Finder::findSides() {
  const Placement &placement = table.placement;
  stages.hasEmbedding = stages.hasHead = false;
  auto look = [&](StageAt at, RankStages::Side &side, bool &isEnd) {
    if (at.stage < 0 || at.stage == placement.stages()) {
      isEnd = true;
      return;
    }
    ++side.chunks;
    side.elsewhere += placement.placeOf(at).rank != place;
  };
  for (std::int64_t chunk = 0; chunk < placement.chunks(); ++chunk) {
    const auto [path, stage] = placement.at(place, chunk);
    look({path, stage - 1}, stages.previous, stages.hasEmbedding);
    look({path, stage + 1}, stages.next, stages.hasHead);
  }
}

void Finder::findSets() {
  const auto has = [](bool does) { return does ? SetUse::Span : SetUse::None; };
  const auto saves = [&](std::int64_t chunk) {
    return layersOf(chunk) > 0 ? SetUse::Span : SetUse::WhileItBegins;
  };
  stages.sets =
      assignSets(table, place, SetSpan::ForwardToWeightGrad, saves).count;
  stages.inputSets =
      assignSets(table, place, SetSpan::ForwardToInputGrad, saves).count;
  stages.keptSets =
      assignSets(table, place, SetSpan::InputGradToWeightGrad,
                 [&](std::int64_t chunk) { return has(layersOf(chunk) > 0); })
          .count;
  stages.headSets =
      assignSets(table, place, SetSpan::ForwardToInputGrad,
                 [&](std::int64_t chunk) { return has(isLast(chunk)); })
          .count;
  for (const std::vector<Slot> &row : table.rows)
    for (const Slot slot : row)
      stages.splitsBackward |= slot.kind() == SlotKind::WeightGrad;
}

RankStages Finder::find() {
  for (const PlanRange &range : layers[place])
    stages.chunkLayers.push_back(detail::numberOf(range));
  findSides();
  if (!stages.areCut)
    return stages;
  findSets();
  stages.copies = table.placement.numPaths();
  stages.reducesInSlots = stages.copies == 1 || table.isMirrored();
  for (const std::vector<PlanRange> &chunks : layers) {
    std::int64_t sum = 0;
    for (const PlanRange &range : chunks) {
      stages.mostOfChunk =
          std::max(stages.mostOfChunk, detail::numberOf(range));
      sum += detail::numberOf(range);
    }
    stages.mostOfPlace = std::max(stages.mostOfPlace, sum);
  }
  for (const ScheduleEvents::Counts &counts : events.landingCounts[place]) {
    stages.activationLandings += counts.activations;
    stages.gradientLandings += counts.gradients;
  }
  return stages;
}

namespace {
/// A plan's schedule, and what its slots send and receive.
struct Slots {
  ScheduleTable table;
  ScheduleEvents events;
};
} // namespace

static Result<Slots> slotsOf(const Plan &plan) {
  Result<ScheduleTable> table = scheduleOfPlan(plan);
  if (!table)
    return table.error();
  ScheduleEvents events;
  if (plan.stages.schedule != PlanScheduleKind::None)
    events = deriveEvents(*table);
  return Slots{std::move(*table), std::move(events)};
}

Result<RankStages> heddle::detail::stagesAt(const Plan &plan,
                                            std::int64_t place) {
  Result<Slots> slots = slotsOf(plan);
  if (!slots)
    return slots.error();
  return Finder(plan, slots->table, slots->events, place).find();
}

Result<std::vector<RankStages>> heddle::detail::stagesAtAll(const Plan &plan) {
  Result<Slots> slots = slotsOf(plan);
  if (!slots)
    return slots.error();
  std::vector<RankStages> all;
  for (std::int64_t place = 0; place < plan.axisSize("pp"); ++place)
    all.push_back(Finder(plan, slots->table, slots->events, place).find());
  return all;
}
