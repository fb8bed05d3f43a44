#include "tools/heddle/ExplainEstimate.h"

#include "tools/heddle/Memory.h"
#include "tools/heddle/Reasons.h"

#include "heddle/Cost/Checkpoint.h"
#include "heddle/Cost/MemoryEstimate.h"
#include "heddle/Plan/Scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

static constexpr double kTera = 1e12;

Result<void> tool::checkExtent(const Inputs &inputs, const PlanPoint &point) {
  if (inputs.plan->globalBatch() != inputs.train->globalBatch)
    return Error{fmt::format("plan: global batch is {}, the settings' is {}",
                             inputs.plan->globalBatch(),
                             inputs.train->globalBatch)};
  if (point.ranks() > inputs.cluster->devices())
    return Error{fmt::format("plan: {} ranks, cluster \"{}\" has {} devices",
                             point.ranks(), inputs.cluster->name,
                             inputs.cluster->devices())};
  return {};
}

Result<void> tool::checkTokens(double tokens) {
  if (tokens > 0 && std::isfinite(tokens))
    return {};
  return Error{fmt::format(
      "--tokens: found {}, expected a number above 0 such as 15e12", tokens)};
}

json tool::communicationJson(const StepTime &step, const Cluster &cluster) {
  json axes = json::object();
  for (int i = 0; i < timeAxes; ++i) {
    const auto axis = static_cast<TimeAxis>(i);
    const AxisTime &time = step.of(axis);
    if (time.bytesPerRank == 0)
      continue;
    axes[std::string(timeAxisName(axis))] = {
        {"bytes_per_rank", time.bytesPerRank},
        {"seconds_ideal",
         idealSeconds(time.bytesPerRank, time.slowestBytesPerSecond)},
        {"seconds", time.seconds},
        {"exposed_seconds", time.exposed},
        {"link", cluster.links[time.level].level}};
  }
  return axes;
}

json tool::hostJson(const StepTime &step) {
  return {{"bytes_each_way", step.host.bytesEachWay},
          {"seconds", step.host.seconds},
          {"exposed_seconds", step.host.exposed}};
}

static Result<json> memoryEstimateJson(const Inputs &inputs,
                                       const MemoryEstimator &estimator,
                                       const PlanPoint &point) {
  json peaks = json::array(), reasons = json::array();
  std::int64_t states = 0, host = 0;
  for (std::int64_t place = 0; place < point.pp; ++place) {
    Result<PlaceMemory> memory = estimator.at(point, place);
    if (!memory)
      return memory.error();
    states = std::max(states, memory->states());
    host = std::max(host, memory->hostBytes);
    peaks.push_back(memory->bytes());
    json ofPlace = json::object();
    for (const auto &[name, bytes] : memory->byReason())
      ofPlace[name] = bytes;
    reasons.push_back(std::move(ofPlace));
  }
  Result<LayerSaved> saved =
      estimator.layerSaved(point, inputs.model.experts.has_value());
  if (!saved)
    return saved.error();
  return json{{"model_state_bytes", states},
              {"activation_bytes_per_layer", saved->of(point.recompute).all},
              {"peak_bytes", peaks},
              {"by_reason", reasons},
              {"host_bytes", host},
              {"capacity_bytes", inputs.cluster->planBytesPerDevice()}};
}

template <class T>
static json orNull(const std::optional<T> &value) {
  return value ? json(*value) : json();
}

static json checkpointJson(const Inputs &inputs, const PlanPoint &point) {
  const CheckpointCost cost = checkpointCost(
      static_cast<double>(parameterCount(inputs.model)), point.ranks(),
      inputs.train->optimizer, point.recipe, *inputs.cluster);
  return {{"bytes", cost.bytes},
          {"bytes_per_parameter",
           checkpointBytesPerParameter(inputs.train->optimizer, point.recipe)},
          {"pause_seconds", orNull(cost.pauseSeconds)},
          {"mtbf_seconds", orNull(cost.mtbfSeconds)},
          {"interval_seconds", orNull(cost.intervalSeconds)},
          {"waste_fraction", orNull(cost.waste)}};
}

/// Bits of an element that products read, scales of its blocks included.
static double bitsPerElement(const PlanPrecision &precision) {
  if (const std::optional<ScalingRecipe> scaling = scalingOf(precision))
    return scaling->bitsPerElement();
  return precision.recipe == "fp32" ? 32 : 16;
}

/// Whether the device has no products of the recipe's format, so that a program
/// rounds as one that has and multiplies in a wider one.
static bool isEmulated(const PlanPrecision &precision, const Device &device) {
  const std::optional<ProductFormat> format = productFormat(precision.recipe);
  return format && device.peak(peakName(*format)) <= 0;
}

/// How long it takes to train that many tokens; null where no number is known.
static json trainingJson(const Inputs &inputs, const StepTime &step,
                         const json &checkpoint, double tokens) {
  if (tokens == 0)
    tokens = static_cast<double>(inputs.train->schedule.steps) * step.tokens;
  if (tokens == 0)
    return nullptr;
  constexpr double hour = 3600;
  const double steps = std::ceil(tokens / step.tokens);
  const auto taking = [&](double seconds) {
    return json{
        {"seconds", seconds},
        {"device_hours", seconds / hour * static_cast<double>(step.ranks)}};
  };
  json training = {{"tokens", tokens}, {"steps", steps}};
  training.update(taking(steps * step.seconds));
  const json &waste = checkpoint["waste_fraction"];
  training["with_interruptions"] =
      waste.is_null() || waste.get<double>() >= 1
          ? json()
          : taking(steps * step.seconds / (1 - waste.get<double>()));
  return training;
}

/// Each choice of the plan against the best plan with another one.
static json decisionsOfPoint(const Inputs &inputs,
                             const DecisionRequest &request,
                             const CostedPlan &plan, const StepTimes &times,
                             const MemoryEstimator &memory) {
  const PlanProblem problem = {inputs.model, *inputs.train, *inputs.cluster,
                               request.demands};
  if (!request.wanted || !problem.check())
    return json::array();
  return decisionsJson(
      decisionsOf(problem, plan, times, memory, plansForRunnerUp));
}

Result<json> tool::estimateJson(const Inputs &inputs, const PlanPoint &point,
                                double tokens,
                                const DecisionRequest &decisions) {
  Result<StepTimes> times =
      StepTimes::of(inputs.model, *inputs.train, *inputs.cluster);
  if (!times)
    return times.error();
  Result<StepTime> step = times->simulate(point);
  if (!step)
    return step.error();
  const MemoryEstimator estimator(inputs.model, *inputs.train, *inputs.cluster);
  Result<json> memory = memoryEstimateJson(inputs, estimator, point);
  if (!memory)
    return memory.error();
  const std::vector<std::int64_t> peaks = (*memory)["peak_bytes"];
  const std::int64_t peak = *std::max_element(peaks.begin(), peaks.end());
  const std::int64_t capacity = inputs.cluster->planBytesPerDevice();
  CostedPlan costed = {point, step->seconds, peak};
  const json checkpoint = checkpointJson(inputs, point);
  return json{
      {"step_seconds", step->seconds},
      {"bubble_fraction", step->bubbleFraction},
      {"mfu", step->mfu()},
      {"hfu", step->hfu()},
      {"peak_flops_per_second", step->peakFlops},
      {"tokens_per_second", step->tokens / step->seconds},
      {"tokens_per_second_per_device", step->tokensPerSecondPerDevice()},
      {"training", trainingJson(inputs, *step, checkpoint, tokens)},
      {"communication", communicationJson(*step, *inputs.cluster)},
      {"host", hostJson(*step)},
      {"compute",
       {{"model_flops", step->modelFlops},
        {"hardware_flops", step->hardwareFlops},
        {"seconds",
         {{"products", step->compute.products},
          {"attention", step->compute.attention},
          {"memory_bound", step->compute.memory},
          {"optimizer", step->optimizer}}},
        {"place", step->busiest}}},
      {"memory", *memory},
      {"checkpoint", checkpoint},
      {"precision",
       {{"recipe", point.recipe},
        {"bits_per_element", bitsPerElement(inputs.plan->precision)},
        {"emulated",
         isEmulated(inputs.plan->precision, inputs.cluster->device)}}},
      {"fits", peak <= capacity},
      {"decisions",
       decisionsOfPoint(inputs, decisions, costed, *times, estimator)}};
}

static void printMemoryEstimate(const json &memory) {
  const std::vector<double> peaks = memory["peak_bytes"];
  const auto fullest = std::max_element(peaks.begin(), peaks.end());
  fmt::print("  peak of a rank of place {}: {} of {}:", fullest - peaks.begin(),
             describeBytes(*fullest), describeBytes(memory["capacity_bytes"]));
  const json &reasons =
      memory["by_reason"][std::size_t(fullest - peaks.begin())];
  for (const auto &[name, bytes] : reasons.items())
    fmt::print(" {} {}{}", name, describeBytes(bytes),
               name == std::prev(reasons.end()).key() ? "\n" : ",");
}

static void printTraining(const json &training) {
  if (training.is_null())
    return;
  constexpr double day = 86400;
  const auto say = [](const char *what, const json &taking) {
    fmt::print("{}{:.4g} days, {:.4g} device hours", what,
               taking["seconds"].get<double>() / day,
               taking["device_hours"].get<double>());
  };
  fmt::print("  {:.4g} tokens are {:.0f} steps: ",
             training["tokens"].get<double>(), training["steps"].get<double>());
  say("", training);
  if (!training["with_interruptions"].is_null())
    say("; with checkpoints and interruptions ",
        training["with_interruptions"]);
  fmt::print("\n");
}

static void printCheckpoint(const json &checkpoint) {
  fmt::print("  checkpoint: {:.4g} GB ({:g} B a parameter)",
             checkpoint["bytes"].get<double>() / 1e9,
             checkpoint["bytes_per_parameter"].get<double>());
  if (!checkpoint["interval_seconds"].is_null())
    fmt::print("; a pause of {:.3g} s every {:.3g} min wastes {:.1f} % "
               "(interrupted every {:.3g} h)",
               checkpoint["pause_seconds"].get<double>(),
               checkpoint["interval_seconds"].get<double>() / 60,
               100 * checkpoint["waste_fraction"].get<double>(),
               checkpoint["mtbf_seconds"].get<double>() / 3600);
  fmt::print("\n");
}

static void printCommunication(const json &axes) {
  fmt::print("  {:5} {:>14} {:>12} {:>12} {:>12}  {}\n", "axis", "bytes a rank",
             "seconds", "exposed", "ideal", "slowest link");
  for (const auto &[axis, time] : axes.items())
    fmt::print(
        "  {:5} {:>14.6g} {:>12.4g} {:>12.4g} {:>12.4g}  {}\n", axis,
        time["bytes_per_rank"].get<double>(), time["seconds"].get<double>(),
        time["exposed_seconds"].get<double>(),
        time["seconds_ideal"].get<double>(), time["link"].get<std::string>());
}

void tool::printEstimate(const json &e) {
  fmt::print("\ntime of a step, estimated from measured kernels and "
             "collectives\n");
  const json &seconds = e["compute"]["seconds"];
  fmt::print("  {:.4g} s; {:.0f} tokens/s per device; MFU {:.1f} %, HFU {:.1f} "
             "% of {:.4g} TFLOP/s; ranks of pp idle {:.1f} %\n",
             e["step_seconds"].get<double>(),
             e["tokens_per_second_per_device"].get<double>(),
             100 * e["mfu"].get<double>(), 100 * e["hfu"].get<double>(),
             e["peak_flops_per_second"].get<double>() / kTera,
             100 * e["bubble_fraction"].get<double>());
  fmt::print("  busiest place over pp ({}): products {:.4g} s, attention "
             "{:.4g} s, bound by memory {:.4g} s, optimizer {:.4g} s\n",
             e["compute"]["place"].get<std::int64_t>(),
             seconds["products"].get<double>(),
             seconds["attention"].get<double>(),
             seconds["memory_bound"].get<double>(),
             seconds["optimizer"].get<double>());
  if (e["precision"]["emulated"].get<bool>())
    fmt::print("  products in {}, {:.4g} bits an element, are emulated: the "
               "device has none\n",
               e["precision"]["recipe"].get<std::string>(),
               e["precision"]["bits_per_element"].get<double>());
  printCommunication(e["communication"]);
  printMemoryEstimate(e["memory"]);
  printCheckpoint(e["checkpoint"]);
  printTraining(e["training"]);
  printDecisions(e["decisions"]);
}
