#include "tools/heddle/PlanReport.h"

#include "tools/heddle/ExplainEstimate.h"
#include "tools/heddle/Reasons.h"

#include "heddle/Model/Parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

/// What a rank has of the routed experts: of balanced routing, and what would
/// be saved beyond where all tokens choose one rank's.
static json expertsJson(const CostedPlan &plan, const PlanReport &report,
                        std::int64_t worst) {
  const ModelConfig &model = report.problem.model;
  if (!model.experts)
    return nullptr;
  std::int64_t elements = 0;
  for (const ParameterFamily &family : parameters(model))
    if (isOfExperts(family))
      elements += partElements(plan.point, model, family);
  json experts = {{"parameters_per_layer", elements},
                  {"worst_bytes", worst},
                  {"activation_bytes_per_layer", nullptr}};
  if (Result<LayerSaved> saved = report.memory.layerSaved(plan.point, true))
    experts["activation_bytes_per_layer"] = saved->ofExperts;
  return experts;
}

static json memoryJson(const CostedPlan &plan, const PlanReport &report) {
  json peaks = json::array(), reasons = json::object();
  json ofPlaces = json::array(), parameters = json::array();
  std::int64_t states = 0, host = 0, perLayer = 0, worst = 0;
  for (std::int64_t place = 0; place < plan.point.pp; ++place) {
    Result<PlaceMemory> memory = report.memory.at(plan.point, place);
    if (!memory)
      continue;
    peaks.push_back(memory->bytes());
    ofPlaces.push_back(memory->states());
    parameters.push_back(memory->parameters / plan.point.computeBytes());
    worst = std::max(worst, memory->worstExperts);
    states = std::max(states, memory->states());
    host = std::max(host, memory->hostBytes);
    perLayer = std::max(perLayer, memory->savedPerLayer);
    if (place == plan.fullestPlace)
      for (const auto &[reason, bytes] : memory->byReason())
        reasons[reason] = bytes;
  }
  return {{"peak_bytes", peaks},
          {"capacity_bytes", report.problem.cluster.planBytesPerDevice()},
          {"head_room_bytes", plan.headRoom},
          {"model_state_bytes", states},
          {"place_state_bytes", ofPlaces},
          {"place_parameters", parameters},
          {"activation_bytes_per_layer", perLayer},
          {"experts", expertsJson(plan, report, worst)},
          {"host_bytes", host},
          {"fullest_place", plan.fullestPlace},
          {"by_reason", reasons}};
}

static json planJson(const CostedPlan &plan, const PlanReport &report) {
  json choices = json::object();
  for (int i = 0; i < planKeys; ++i) {
    const auto key = static_cast<PlanKey>(i);
    choices[std::string(planKeyName(key))] = choiceOf(plan.point, key);
  }
  json one = {{"text", plan.point.text()},
              {"choices", choices},
              {"step_seconds", plan.seconds},
              {"slow_link_step_seconds", plan.slowLinkSeconds},
              {"fits", true}};
  if (Result<StepTime> step = report.times.simulate(plan.point)) {
    one["tokens_per_second_per_device"] = step->tokensPerSecondPerDevice();
    one["mfu"] = step->mfu();
    one["hfu"] = step->hfu();
    one["bubble_fraction"] = step->bubbleFraction;
    one["compute"] = {{"model_flops", step->modelFlops},
                      {"hardware_flops", step->hardwareFlops},
                      {"peak_flops_per_device", step->peakFlops},
                      {"products_seconds", step->compute.products},
                      {"attention_seconds", step->compute.attention},
                      {"memory_bound_seconds", step->compute.memory},
                      {"optimizer_seconds", step->optimizer}};
    one["communication"] = communicationJson(*step, report.problem.cluster);
    one["host"] = hostJson(*step);
  }
  one["memory"] = memoryJson(plan, report);
  one["not_compiled_yet"] = notCompiledYet(plan.point, report.problem.model);
  one["plan"] =
      json::parse(writePlan(planOf(plan.point, report.problem.model)));
  return one;
}

json tool::reportJson(const PlanReport &report) {
  const PlanAnswer &answer = report.answer;
  json plans = json::array(), front = json::array();
  for (const CostedPlan &plan : answer.best)
    plans.push_back(planJson(plan, report));
  for (const CostedPlan &plan : answer.front)
    front.push_back({{"text", plan.point.text()},
                     {"step_seconds", plan.seconds},
                     {"head_room_bytes", plan.headRoom},
                     {"slow_link_step_seconds", plan.slowLinkSeconds}});
  const SearchCounts &counts = answer.counts;
  return {{"model", report.problem.model.name},
          {"parameters", parameterCount(report.problem.model)},
          {"cluster", report.problem.cluster.name},
          {"devices", report.problem.cluster.devices()},
          {"fits", true},
          {"plans", plans},
          {"front", front},
          {"decisions", decisionsJson(report.decisions)},
          {"search",
           {{"is_exact", answer.isExact()},
            {"best_possible_seconds", answer.bestPossible},
            {"gap", answer.gap()},
            {"meshes", counts.meshes},
            {"expanded_meshes", counts.expandedMeshes},
            {"schedules", counts.schedules},
            {"expanded_schedules", counts.expandedSchedules},
            {"storages", counts.storages},
            {"bounded", counts.bounded},
            {"evaluations", counts.evaluations}}}};
}

json tool::conflictJson(const PlanConflict &conflict) {
  json demands = json::array(), relaxations = json::array();
  for (const PlanDemand &demand : conflict.demands)
    demands.push_back(demand.text());
  for (const Relaxation &each : conflict.relaxations) {
    relaxations.push_back({{"text", each.text}, {"step_seconds", nullptr}});
    if (each.seconds > 0)
      relaxations.back()["step_seconds"] = each.seconds;
  }
  json answer = {{"demands", demands},
                 {"capacity_bytes", conflict.capacity},
                 {"least_bytes", nullptr},
                 {"leanest", nullptr},
                 {"relaxations", relaxations}};
  if (conflict.leanest) {
    answer["least_bytes"] = conflict.leastBytes;
    answer["leanest"] = conflict.leanest->text();
  }
  return {{"fits", false}, {"conflict", answer}};
}

//===----------------------------------------------------------------------===//
// For people
//===----------------------------------------------------------------------===//

static std::string gibText(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 30));
}

static void printTable(const PlanReport &report) {
  fmt::print("{:>2} {:>9} {:>9} {:>6} {:>6} {:>7} {:>9} {:>9}  {}\n", "",
             "step s", "tok/s/dev", "MFU %", "HFU %", "bubble%", "GiB",
             "-10% link", "plan");
  int number = 0;
  for (const CostedPlan &plan : report.answer.best) {
    Result<StepTime> step = report.times.simulate(plan.point);
    if (!step)
      continue;
    fmt::print("{:>2} {:>9.4g} {:>9.1f} {:>6.1f} {:>6.1f} {:>7.1f} {:>9} "
               "{:>+8.2f}%  {}\n",
               ++number, plan.seconds, step->tokensPerSecondPerDevice(),
               100 * step->mfu(), 100 * step->hfu(), 100 * step->bubbleFraction,
               gibText(plan.peakBytes),
               100 * (plan.slowLinkSeconds / plan.seconds - 1),
               plan.point.text());
  }
}

/// Where the time of a step and the bytes of a rank go.
static void printFirst(const PlanReport &report) {
  const CostedPlan &best = report.answer.best.front();
  Result<StepTime> step = report.times.simulate(best.point);
  Result<PlaceMemory> memory = report.memory.at(best.point, best.fullestPlace);
  if (!step || !memory)
    return;
  fmt::print("\nthe first one: products {:.3g} s, attention {:.3g} s, bound by "
             "memory {:.3g} s, optimizer {:.3g} s, bubble {:.1f} %\n",
             step->compute.products, step->compute.attention,
             step->compute.memory, step->optimizer, 100 * step->bubbleFraction);
  for (int i = 0; i < timeAxes; ++i) {
    const AxisTime &axis = step->axes[static_cast<std::size_t>(i)];
    if (axis.bytesPerRank > 0)
      fmt::print("  along {}: {:.2f} GB sent by a rank, {:.3g} s, of these "
                 "{:.3g} s exposed, on {}\n",
                 timeAxisName(static_cast<TimeAxis>(i)),
                 axis.bytesPerRank / 1e9, axis.seconds, axis.exposed,
                 report.problem.cluster.links[axis.level].level);
  }
  if (step->host.bytesEachWay > 0)
    fmt::print("  to the host and back: {:.2f} GB each way, {:.3g} s, of these "
               "{:.3g} s exposed\n",
               step->host.bytesEachWay / 1e9, step->host.seconds,
               step->host.exposed);
  if (memory->hostBytes > 0)
    fmt::print("  on the host: {} GiB of a rank, {} GiB of a node\n",
               gibText(memory->hostBytes),
               gibText(memory->hostBytes *
                       std::min(report.problem.cluster.devicesPerNode,
                                best.point.ranks())));
  fmt::print("  a rank at place {}:", best.fullestPlace);
  for (const auto &[reason, bytes] : memory->byReason())
    if (bytes > memory->bytes() / 200)
      fmt::print(" {} {} GiB,", reason, gibText(bytes));
  fmt::print(" {} of {} GiB in all\n", gibText(memory->bytes()),
             gibText(report.problem.cluster.planBytesPerDevice()));
}

void tool::printReport(const PlanReport &report) {
  const PlanAnswer &answer = report.answer;
  fmt::print("{}, {} parameters, on {} ({} devices): {} sequences of {} "
             "tokens a step\n",
             report.problem.model.name, parameterCount(report.problem.model),
             report.problem.cluster.name, report.problem.cluster.devices(),
             report.problem.train.globalBatch,
             report.problem.train.sequenceLength);
  printTable(report);
  fmt::print(
      "{} of {} meshes and {} plans costed: ", answer.counts.expandedMeshes,
      answer.counts.meshes, answer.counts.evaluations);
  if (answer.isExact())
    fmt::print("no plan of the space is faster, by this model\n");
  else
    fmt::print("stopped there, within {:.2g} % of the best possible by this "
               "model (--limit 0 searches all)\n",
               100 * answer.gap());
  if (answer.front.size() > 1) {
    fmt::print("\nnot beaten in step time, head-room and a tenth less on the "
               "outermost link at once\n");
    for (const CostedPlan &plan : answer.front)
      fmt::print("  {:>9.4g} s {:>6} GiB free {:>9.4g} s  {}\n", plan.seconds,
                 gibText(plan.headRoom), plan.slowLinkSeconds,
                 plan.point.text());
  }
  printFirst(report);
  printDecisions(decisionsJson(report.decisions));
  const std::vector<std::string> later =
      notCompiledYet(answer.best.front().point, report.problem.model);
  if (!later.empty())
    fmt::print("\nplanned, not compiled yet: {}\n", fmt::join(later, ", "));
}
