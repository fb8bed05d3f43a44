#include "heddle/Schedule/CheckStages.h"

#include "heddle/Schedule/Generate.h"
#include "heddle/Schedule/Simulate.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle {

namespace {

template <typename... Arguments>
Error refuse(fmt::format_string<Arguments...> text, Arguments &&...arguments) {
  return Error{"plan: stages" +
               fmt::format(text, std::forward<Arguments>(arguments)...)};
}

const PlanRange &layersOf(const Plan &plan, PlanPlace at) {
  return plan.stages.layers[static_cast<std::size_t>(at.rank)]
                           [static_cast<std::size_t>(at.chunk)];
}

/// Two copies of the model: what one rank holds of both, another one does too.
Result<void> checkCopies(const Plan &plan, const Placement &placement) {
  if (placement.numPaths() == 1)
    return {};
  if (!placement.isMirrored())
    return refuse(".schedule: found {} copies of the model on {} ranks of pp; "
                  "expected two on an even number of ranks, each stage of the "
                  "second as far from the last rank as that of the first is "
                  "from rank 0",
                  placement.numPaths(), placement.ranks());
  for (std::int64_t stage = 0; stage < placement.stages(); ++stage) {
    const PlanPlace one = placement.placeOf({0, stage}),
                    other = placement.placeOf({1, stage});
    if (layersOf(plan, one) != layersOf(plan, other))
      return refuse(".layers: [{}, {}] and [{}, {}] are stage {} of both "
                    "copies; found layers \"{}\" and \"{}\", expected the same",
                    one.rank, one.chunk, other.rank, other.chunk, stage,
                    layersOf(plan, one).text(), layersOf(plan, other).text());
  }
  return {};
}

Result<void> checkOrder(const Plan &plan, const Placement &placement) {
  std::int64_t next = 0;
  for (std::int64_t stage = 0; stage < placement.stages(); ++stage) {
    const PlanPlace at = placement.placeOf({0, stage});
    const PlanRange &held = layersOf(plan, at);
    if (held.empty())
      continue;
    if (held.first != next)
      return refuse(".layers: [{}, {}] is stage {} of schedule {}; found "
                    "layers \"{}\", expected them to begin with {}",
                    at.rank, at.chunk, stage,
                    scheduleWord(plan.stages.schedule), held.text(), next);
    next = held.last + 1;
  }
  return {};
}

Result<void> checkEnd(const char *key, const char *which, PlanPlace found,
                      PlanPlace expected) {
  if (found == expected)
    return {};
  return refuse(".{}: found [{}, {}], expected [{}, {}], the {} stage of the "
                "schedule",
                key, found.rank, found.chunk, expected.rank, expected.chunk,
                which);
}

/// Stages that are no more unequal than the number of layers makes them are
/// nobody's choice.
void warnAboutUnequal(const Plan &plan, std::vector<PlanWarning> &warnings) {
  std::int64_t all = 0, fullest = 0, most = 0, rank = 0;
  for (const std::vector<PlanRange> &chunks : plan.stages.layers) {
    std::int64_t held = 0;
    for (const PlanRange &range : chunks)
      held += range.last - range.first + 1;
    all += held;
    if (held > most) {
      most = held;
      fullest = rank;
    }
    ++rank;
  }
  if ((most - 1) * rank >= all)
    warnings.push_back({fmt::format(
        "stages are unequal: rank {} of pp has {} layers, the "
        "mean is {:.2f}; the others wait for it",
        fullest, most, static_cast<double>(all) / static_cast<double>(rank))});
}

void warnAboutIdleRanks(const Plan &plan, const ScheduleTable &table,
                        std::vector<PlanWarning> &warnings) {
  const ScheduleTiming timing =
      simulateSchedule(table, ScheduleTimes::equal(table.placement));
  const double bubble = timing.bubble(), idle = 100 * bubble / (1 + bubble);
  // Less is not worth a user's time.
  if (idle >= 10)
    warnings.push_back(
        {fmt::format("schedule {} of {} micro-batches on {} ranks of pp: they "
                     "idle {:.1f} % of a step, with equal stages and free "
                     "transfers; more micro-batches make it less",
                     scheduleWord(plan.stages.schedule), plan.microBatches,
                     table.ranks(), idle)});
}

} // namespace

Result<void> checkScheduleText(const Plan &plan) {
  if (plan.stages.schedule != PlanScheduleKind::Table ||
      plan.stages.layers.empty())
    return {};
  Result<ScheduleTable> rows = rowsOfPlan(plan);
  if (!rows)
    return Error{"plan: stages." + rows.message()};
  return {};
}

Result<std::vector<PlanWarning>> checkStages(const Plan &plan) {
  Result<ScheduleTable> table = scheduleOfPlan(plan);
  if (!table)
    return Error{"plan: " + table.message()};
  if (plan.stages.schedule == PlanScheduleKind::None)
    return std::vector<PlanWarning>();
  const Placement &placement = table->placement;
  if (Result<void> done = checkCopies(plan, placement); !done)
    return done.error();
  if (Result<void> done = checkOrder(plan, placement); !done)
    return done.error();
  if (Result<void> done = checkEnd("embedding", "first", plan.stages.embedding,
                                   placement.placeOf({0, 0}));
      !done)
    return done.error();
  if (Result<void> done =
          checkEnd("head", "last", plan.stages.head,
                   placement.placeOf({0, placement.stages() - 1}));
      !done)
    return done.error();
  std::vector<PlanWarning> warnings;
  warnAboutUnequal(plan, warnings);
  warnAboutIdleRanks(plan, *table, warnings);
  return warnings;
}

} // namespace heddle
