#include "tools/heddle/ExplainSchedule.h"

#include "heddle/Cost/StageTimes.h"
#include "heddle/Schedule/Events.h"
#include "heddle/Schedule/Generate.h"
#include "heddle/Schedule/SavedSets.h"
#include "heddle/Schedule/Timeline.h"

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

/// Operations a second: the device's peak, where there is one.
static double rateOf(const Inputs &inputs, std::string &text) {
  constexpr double kTera = 1e12;
  const std::string &format = inputs.plan->precision.recipe;
  if (inputs.cluster && inputs.cluster->device.peak(format) > 0) {
    const double peak = inputs.cluster->device.peak(format);
    text = fmt::format("{:.4g} TFLOP/s ({} peak of {})", peak / kTera, format,
                       inputs.cluster->device.name);
    return peak;
  }
  text = "1000 TFLOP/s";
  return 1000 * kTera;
}

static bool hasJoined(const ScheduleTable &table) {
  return std::ranges::any_of(table.rows, [](const std::vector<Slot> &row) {
    return std::ranges::any_of(row, &Slot::joined);
  });
}

Result<std::optional<ScheduleFacts>> tool::findSchedule(const Inputs &inputs) {
  const Plan &plan = *inputs.plan;
  if (plan.stages.schedule == PlanScheduleKind::None)
    return std::optional<ScheduleFacts>();
  Result<ScheduleTable> table = scheduleOfPlan(plan);
  if (!table)
    return table.error();
  ScheduleFacts facts{*table, {}, {}, {}, {}, {}, {}};
  const auto simulate = [&](ScheduleTimes times, ScheduleTiming &interleaved,
                            std::optional<ScheduleTiming> &inTurn) {
    interleaved = simulateSchedule(*table, times);
    times.joinedInTurn = true;
    if (hasJoined(*table))
      inTurn = simulateSchedule(*table, times);
  };
  simulate(ScheduleTimes::equal(table->placement), facts.equal,
           facts.equalInTurn);
  facts.inFlight = mostInFlight(*table);
  const double rate = rateOf(inputs, facts.rate);
  if (Result<std::vector<RankSizes>> places =
          placeSizes(inputs.model, *inputs.train, plan))
    simulate(timesOfFlops(inputs.model, plan, *places, table->placement, rate),
             facts.byFlops.emplace(), facts.byFlopsInTurn);
  return std::optional(std::move(facts));
}

static json timingJson(const std::optional<ScheduleTiming> &timing) {
  if (!timing)
    return {};
  const StageBubbles bubbles = bubblesOf(*timing);
  json ranks = json::array();
  for (const RankTiming &rank : timing->ranks)
    ranks.push_back({{"busy_s", rank.busy},
                     {"from_s", rank.span.start},
                     {"to_s", rank.span.end}});
  return {{"makespan_s", timing->makespan},
          {"bubble_where_a_step_ends_together", bubbles.joined},
          {"bubble_where_steps_run_on", bubbles.running},
          {"places", ranks}};
}

/// Per rank what it does in order: slots, sends and receives; transfers that
/// are launched as one group are one entry.
static json eventsJson(const ScheduleTable &table) {
  const ScheduleEvents events = deriveEvents(table);
  json ranks = json::array();
  for (std::size_t rank = 0; rank < events.rows.size(); ++rank) {
    std::vector<std::string> entries;
    std::int32_t batch = -1;
    for (const ScheduleEvent &event : events.rows[rank]) {
      std::string text =
          eventText(table, static_cast<std::int64_t>(rank), event);
      if (event.batch >= 0 && event.batch == batch)
        entries.back() += " + " + text;
      else
        entries.push_back(std::move(text));
      batch = event.batch;
    }
    ranks.push_back(std::move(entries));
  }
  return ranks;
}

json tool::scheduleJson(const ScheduleFacts &facts) {
  return {{"rows", writeRows(facts.table)},
          {"events", eventsJson(facts.table)},
          {"in_flight", facts.inFlight},
          {"equal", timingJson(std::optional(facts.equal))},
          {"by_flops", timingJson(facts.byFlops)},
          {"equal_in_turn", timingJson(facts.equalInTurn)},
          {"by_flops_in_turn", timingJson(facts.byFlopsInTurn)},
          {"rate", facts.rate}};
}

static void printBubbles(const char *times,
                         const std::optional<ScheduleTiming> &timing) {
  if (!timing)
    return;
  const StageBubbles bubbles = bubblesOf(*timing);
  fmt::print("  {:34} {:>18.1f} % {:>18.1f} %\n", times, 100 * bubbles.joined,
             100 * bubbles.running);
}

void tool::printSchedule(const ScheduleFacts &facts) {
  fmt::print("\nslots of the ranks of pp, F, B and W one second each\n{}",
             drawSchedule(facts.table, facts.equal));
  if (facts.byFlops)
    fmt::print("\nthe same, each as long as its FLOPs take at {}\n{}",
               facts.rate, drawSchedule(facts.table, *facts.byFlops));
  fmt::print("\nidle time over work: where all places end a step together (the "
             "norm of all gradients is waited for), and where each goes on "
             "with the next step\n");
  fmt::print("  {:34} {:>20} {:>20}\n", "times of slots", "together",
             "going on");
  printBubbles("equal", facts.equal);
  printBubbles("by FLOPs", facts.byFlops);
  printBubbles("equal, joined slots in turn", facts.equalInTurn);
  printBubbles("by FLOPs, joined slots in turn", facts.byFlopsInTurn);
  if (facts.equalInTurn)
    fmt::print("  joined slots (F1+D0) are taken to run interleaved, so that "
               "one computes while the other waits for its communication; the "
               "compiled program runs them in turn: what the first sends and "
               "what the second receives is on its way while the other one "
               "computes, collectives within a stage are not hidden\n");
}
