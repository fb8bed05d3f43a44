#include "heddle/Schedule/Generate.h"

#include "Generators.h"

#include "heddle/Schedule/Verify.h"
#include "heddle/Support/Check.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle {

namespace {

using detail::SlotRow;

template <typename... Arguments>
Error refuse(PlanScheduleKind kind, fmt::format_string<Arguments...> text,
             Arguments &&...arguments) {
  return Error{
      fmt::format("schedule {}: {}", scheduleWord(kind),
                  fmt::format(text, std::forward<Arguments>(arguments)...))};
}

/// Chunks per rank that a schedule has; 0: any number.
std::int64_t chunksOf(PlanScheduleKind kind) {
  switch (kind) {
  case PlanScheduleKind::Interleaved1F1B:
  case PlanScheduleKind::Table:
    return 0;
  case PlanScheduleKind::ZbV:
  case PlanScheduleKind::VHalf:
  case PlanScheduleKind::VMin:
  case PlanScheduleKind::DualPipe:
  case PlanScheduleKind::DualPipeV:
    return 2;
  default:
    return 1;
  }
}

Result<void> checkDefined(PlanScheduleKind kind, std::int64_t ranks,
                          std::int64_t chunks, std::int64_t microBatches) {
  if (kind == PlanScheduleKind::Table)
    return Error{"schedule: a table has no generator; its rows are in the "
                 "plan"};
  if (kind == PlanScheduleKind::None && ranks != 1)
    return refuse(kind,
                  "{} ranks of pp, expected 1; choose a schedule of stages: "
                  "gpipe, one_f_one_b, interleaved_1f1b, zb_h1, zb_h2, zb_v, "
                  "v_half, v_min, dualpipe_v, or a table",
                  ranks);
  if (const std::int64_t expected = chunksOf(kind);
      expected && chunks != expected)
    return refuse(kind, "{} chunks per rank, expected {}", chunks, expected);
  if (kind == PlanScheduleKind::DualPipe && ranks % 2)
    return refuse(kind,
                  "{} ranks, expected an even number; dualpipe_v takes "
                  "any",
                  ranks);
  if (kind == PlanScheduleKind::DualPipe && microBatches % 2)
    return refuse(kind,
                  "{} micro-batches, expected an even number: one half "
                  "for each direction",
                  microBatches);
  if ((kind == PlanScheduleKind::DualPipe ||
       kind == PlanScheduleKind::DualPipeV) &&
      microBatches < 2 * ranks)
    return refuse(kind, "{} micro-batches, expected at least {}: two per rank",
                  microBatches, 2 * ranks);
  return {};
}

SlotRow dualPipeRow(std::int64_t rank, std::int64_t ranks,
                    std::int64_t microBatches) {
  const std::int64_t half = microBatches / 2;
  if (rank < ranks / 2)
    return detail::twoStreamRow({ranks / 2, rank, half, {0, 1}, {0, half}});
  return detail::twoStreamRow(
      {ranks / 2, ranks - 1 - rank, half, {1, 0}, {half, 0}});
}

SlotRow rowOf(PlanScheduleKind kind, std::int64_t rank, std::int64_t ranks,
              std::int64_t microBatches) {
  const std::int64_t toEnd = ranks - 1 - rank;
  switch (kind) {
  case PlanScheduleKind::GPipe:
    return detail::gpipeRow(microBatches);
  case PlanScheduleKind::ZbH1:
    // In flight on each rank: as many as on the first.
    return detail::zeroBubbleRow(toEnd, rank, microBatches);
  case PlanScheduleKind::ZbH2:
    return detail::zeroBubbleRow(2 * toEnd, 2 * rank, microBatches);
  case PlanScheduleKind::DualPipe:
    return dualPipeRow(rank, ranks, microBatches);
  case PlanScheduleKind::DualPipeV:
    return detail::twoStreamRow({ranks, rank, microBatches, {0, 1}, {0, 0}});
  default:
    return detail::oneFOneBRow(toEnd, microBatches);
  }
}

} // namespace

Result<ScheduleTable> generateSchedule(PlanScheduleKind kind,
                                       std::int64_t ranks, std::int64_t chunks,
                                       std::int64_t microBatches) {
  // Limits first: conditions multiply.
  Result<Placement> placement = Placement::of(kind, ranks, chunks);
  if (!placement)
    return placement.error();
  if (microBatches < 1 || microBatches > Slot::maxMicroBatches)
    return refuse(kind, "{} micro-batches, expected 1 to {}", microBatches,
                  Slot::maxMicroBatches);
  if (Result<void> done = checkDefined(kind, ranks, chunks, microBatches);
      !done)
    return done.error();
  // Before any row is made: a row is as long as its numbers are large.
  if (ranks * chunks * microBatches > ScheduleTable::maxSlots / 3)
    return refuse(kind,
                  "{} ranks x {} chunks x {} micro-batches make more "
                  "than {} slots; take fewer micro-batches or chunks",
                  ranks, chunks, microBatches, ScheduleTable::maxSlots);
  ScheduleTable table{*std::move(placement), microBatches, {}};
  switch (kind) {
  case PlanScheduleKind::Interleaved1F1B:
    table.rows = detail::interleavedRows(table.placement, microBatches);
    break;
  case PlanScheduleKind::ZbV:
  case PlanScheduleKind::VHalf:
  case PlanScheduleKind::VMin:
    table.rows = detail::backAndForthRows(kind, table.placement, microBatches);
    break;
  default:
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      table.rows.push_back(rowOf(kind, rank, ranks, microBatches));
  }
  return table;
}

namespace {

/// How much of a plan is as the placement has it: 0 where layers do not ascend
/// from stage to stage, 1 where they do, 2 where the ends are the chain's too.
int fits(const PlanStages &stages, const Placement &placement) {
  std::int64_t next = 0;
  for (std::int64_t stage = 0; stage < placement.stages(); ++stage) {
    const PlanPlace at = placement.placeOf({0, stage});
    const PlanRange &held = stages.layers[static_cast<std::size_t>(at.rank)]
                                         [static_cast<std::size_t>(at.chunk)];
    if (held.empty())
      continue;
    if (held.first < next)
      return 0;
    next = held.last + 1;
  }
  return stages.embedding == placement.placeOf({0, 0}) &&
                 stages.head == placement.placeOf({0, placement.stages() - 1})
             ? 2
             : 1;
}

} // namespace

Result<ScheduleTable> rowsOfPlan(const Plan &plan) {
  const PlanStages &stages = plan.stages;
  const std::size_t chunks =
      stages.layers.empty() ? 0 : stages.layers.front().size();
  const std::int64_t ranks = static_cast<std::int64_t>(stages.table.size());
  const bool isRagged =
      std::any_of(stages.layers.begin(), stages.layers.end(),
                  [&](const auto &rank) { return rank.size() != chunks; });
  const bool isTold = !stages.table.empty() &&
                      stages.table.front().find('@') != std::string::npos;
  Result<Placement> best =
      Placement::cyclic(ranks, static_cast<std::int64_t>(chunks));
  if (!best)
    return best.error();
  if (!isTold && !isRagged && stages.layers.size() == stages.table.size()) {
    Result<Placement> back =
        Placement::backAndForth(ranks, static_cast<std::int64_t>(chunks));
    if (fits(stages, *back) > fits(stages, *best))
      best = std::move(back);
    if (fits(stages, *best) == 0)
      return Error{"schedule: the layers of the chunks ascend in no cyclic "
                   "order of ranks, nor forth and back; begin each row of the "
                   "table with the stages of its chunks, as @0,7 for two"};
  }
  return readRows(stages.table, *std::move(best), plan.microBatches);
}

Result<ScheduleTable> scheduleOfPlan(const Plan &plan) {
  const std::vector<std::vector<PlanRange>> &layers = plan.stages.layers;
  const std::int64_t ranks = static_cast<std::int64_t>(layers.size());
  const std::int64_t chunks =
      ranks ? static_cast<std::int64_t>(layers.front().size()) : 0;
  for (const std::vector<PlanRange> &rank : layers)
    if (static_cast<std::int64_t>(rank.size()) != chunks)
      return Error{fmt::format("schedule: stages.layers: {} chunks on one rank "
                               "and {} on another, expected as many on each",
                               chunks, rank.size())};
  Result<ScheduleTable> table =
      plan.stages.schedule == PlanScheduleKind::Table
          ? rowsOfPlan(plan)
          : generateSchedule(plan.stages.schedule, ranks, chunks,
                             plan.microBatches);
  if (!table)
    return table;
  if (table->ranks() != ranks)
    return Error{fmt::format("schedule: {} rows, expected one per rank of pp: "
                             "{}",
                             table->ranks(), ranks)};
  if (Result<void> done = verifySchedule(*table); !done)
    return done.error();
  return table;
}

} // namespace heddle
