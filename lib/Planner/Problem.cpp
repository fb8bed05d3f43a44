#include "heddle/Planner/Problem.h"

#include "heddle/Cost/Kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

using namespace heddle;

namespace {

struct KeyFacts {
  std::string_view name;
  /// The words it may have; none: a number from `least` on.
  std::vector<std::string_view> words;
  std::int64_t least = 1;
};

} // namespace

static const std::vector<std::string_view> yesOrNo = {"true", "false"};

static const std::array<KeyFacts, planKeys> &keyFacts() {
  static const std::array<KeyFacts, planKeys> facts = {{
      {"pp", {}},
      {"dp", {}},
      {"cp", {}},
      {"tp", {}},
      {"ep", {}},
      {"micro_batch", {}},
      {"micro_batches", {}},
      {"schedule",
       {"none", "gpipe", "one_f_one_b", "interleaved_1f1b", "zb_h1", "zb_h2",
        "zb_v", "v_half", "v_min", "dualpipe_v"}},
      {"chunks", {}},
      {"sp", yesOrNo},
      {"context", {"none", "ring", "ulysses", "allgather"}},
      {"zero", {"0", "1", "2", "3"}},
      {"shard_group", {}},
      {"reduce", {"every_micro_batch", "last"}},
      {"gather", {"every_pass", "every_micro_batch", "once_per_step"}},
      {"prefetch", {}, 0},
      {"recompute", {"none", "selective", "full"}},
      {"offload", yesOrNo},
      {"offload_saved", {"."}}, // checked apart
      {"attention", {"flash", "unfused"}},
      {"dropout_masks", {"drawn_again", "saved"}},
      {"save", {"least", "linear_inputs"}},
      {"precision", {"fp32", "bf16", "fp16", "fp8", "nvfp4"}},
      {"gradients", {"fp32", "bf16"}},
      {"reduce_format", {"fp32", "bf16"}},
      {"order", {"."}}, // checked apart
  }};
  return facts;
}

static const KeyFacts &factsOf(PlanKey key) {
  return keyFacts()[static_cast<std::size_t>(key)];
}

std::string_view heddle::planKeyName(PlanKey key) { return factsOf(key).name; }

static std::string orderText(const PlanPoint &point) {
  std::vector<std::string> names;
  for (PlanAxis axis : point.order)
    names.push_back(planAxisName(axis));
  return fmt::format("{}", fmt::join(names, "."));
}

static std::string recomputeText(const PlanPoint &point) {
  if (std::all_of(point.recomputed.begin(), point.recomputed.end(),
                  [](std::int64_t count) { return count == 0; }))
    return "none";
  return point.recompute == PointRecompute::Full ? "full" : "selective";
}

static std::string number(std::int64_t value) { return std::to_string(value); }

static std::string flag(bool value) { return value ? "true" : "false"; }

/// Of those that the key may have, in the order of their values.
template <typename Value>
static std::string word(PlanKey key, Value value) {
  return std::string(factsOf(key).words[static_cast<std::size_t>(value)]);
}

std::string heddle::choiceOf(const PlanPoint &point, PlanKey key) {
  switch (key) {
  case PlanKey::Pp:
    return number(point.pp);
  case PlanKey::Dp:
    return number(point.dp);
  case PlanKey::Cp:
    return number(point.cp);
  case PlanKey::Tp:
    return number(point.tp);
  case PlanKey::Ep:
    return number(point.ep);
  case PlanKey::MicroBatch:
    return number(point.microBatch);
  case PlanKey::MicroBatches:
    return number(point.microBatches);
  case PlanKey::Schedule:
    return scheduleWord(point.schedule);
  case PlanKey::Chunks:
    return number(point.chunks);
  case PlanKey::SequenceParallel:
    return flag(point.sequenceParallel);
  case PlanKey::Context:
    return word(key, point.context);
  case PlanKey::Zero:
    return number(point.zeroStage);
  case PlanKey::ShardGroup:
    return number(point.shardGroup);
  case PlanKey::Reduce:
    return word(key, point.reduce);
  case PlanKey::Gather:
    return word(key, point.gather);
  case PlanKey::Prefetch:
    return number(point.prefetch);
  case PlanKey::Recompute:
    return recomputeText(point);
  case PlanKey::Offload:
    return flag(point.offloadsOptimizer);
  case PlanKey::OffloadedSaved:
    return offloadedText(point.offloaded);
  case PlanKey::Attention:
    return word(key, point.attention);
  case PlanKey::DropoutMasks:
    return word(key, point.dropoutMasks);
  case PlanKey::Save:
    return word(key, point.save);
  case PlanKey::Precision:
    return point.recipe;
  case PlanKey::Gradients:
    return point.gradients;
  case PlanKey::ReduceFormat:
    return point.reduceFormat;
  case PlanKey::Order:
    return orderText(point);
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Demands
//===----------------------------------------------------------------------===//

bool PlanDemand::allows(std::string_view value) const {
  return (std::find(values.begin(), values.end(), value) != values.end()) !=
         isForbidden;
}

std::string PlanDemand::text() const {
  const std::string own =
      fmt::format("{}{}{}", planKeyName(key), isForbidden ? "!=" : "=",
                  fmt::join(values, ","));
  return wish.empty() ? own : fmt::format("{} ({})", wish, own);
}

static std::vector<std::string> splitAt(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

static bool isOrder(const std::string &value) {
  std::vector<std::string> axes = splitAt(value, '.');
  std::sort(axes.begin(), axes.end());
  return axes == std::vector<std::string>{"cp", "dp", "pp", "tp"};
}

static Result<void> checkValue(PlanKey key, const std::string &value) {
  const KeyFacts &facts = factsOf(key);
  if (key == PlanKey::Order)
    return isOrder(value)
               ? Result<void>()
               : Error{fmt::format("order: found \"{}\", expected pp, dp, cp "
                                   "and tp, outermost first, such as "
                                   "pp.dp.cp.tp",
                                   value)};
  if (key == PlanKey::OffloadedSaved)
    return readOffloaded(value)
               ? Result<void>()
               : Error{fmt::format("offload_saved: found \"{}\", expected "
                                   "\"none\" or values that layers save, each "
                                   "once, such as gate.up; values are {}",
                                   value, fmt::join(savedNames(), ", "))};
  if (!facts.words.empty())
    return std::find(facts.words.begin(), facts.words.end(), value) !=
                   facts.words.end()
               ? Result<void>()
               : Error{fmt::format("{}: found \"{}\", expected one of {}",
                                   facts.name, value,
                                   fmt::join(facts.words, ", "))};
  std::int64_t number = 0;
  const char *end = value.data() + value.size();
  auto [at, fault] = std::from_chars(value.data(), end, number);
  if (fault == std::errc() && at == end && number >= facts.least &&
      value == std::to_string(number))
    return {};
  return Error{fmt::format("{}: found \"{}\", expected an integer of at least "
                           "{}",
                           facts.name, value, facts.least)};
}

Result<PlanDemand> heddle::parseDemand(std::string_view text) {
  PlanDemand demand;
  std::size_t equals = text.find('=');
  if (equals == text.npos || equals == 0 || equals + 1 == text.size())
    return Error{fmt::format("found \"{}\", expected a choice and its value, "
                             "such as tp=8, tp=4,8 or zero!=3",
                             text)};
  demand.values = splitAt(text.substr(equals + 1), ',');
  if (text[equals - 1] == '!') {
    demand.isForbidden = true;
    --equals;
  }
  const std::string_view name = text.substr(0, equals);
  std::vector<std::string> names;
  for (int key = 0; key < planKeys; ++key) {
    names.emplace_back(planKeyName(static_cast<PlanKey>(key)));
    if (names.back() == name)
      demand.key = static_cast<PlanKey>(key);
  }
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const auto near = nearestName(name, names);
    return Error{
        fmt::format("unknown choice \"{}\"{}; choices are {}", name,
                    near ? fmt::format(" (did you mean '{}'?)", *near) : "",
                    fmt::join(names, ", "))};
  }
  for (const std::string &value : demand.values)
    if (Result<void> done = checkValue(demand.key, value); !done)
      return done.error();
  return demand;
}

//===----------------------------------------------------------------------===//
// Pins
//===----------------------------------------------------------------------===//

/// Whether tp splits it under the rules of the short form.
static bool isSplitByTp(const ModelConfig &model,
                        const ParameterFamily &family) {
  PlanPoint two;
  two.tp = 2;
  return partElements(two, model, family) <
         partElements(PlanPoint(), model, family);
}

Result<std::vector<PlanDemand>> heddle::parsePin(std::string_view text,
                                                 const ModelConfig &model) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name(text.substr(0, equals));
  if (equals == text.size() || text.substr(equals + 1) != "replicated")
    return Error{fmt::format("found \"{}\", expected a parameter that is whole "
                             "on each rank, such as lm_head=replicated",
                             text)};
  std::vector<std::string> names;
  for (const ParameterFamily &family : parameters(model))
    for (const std::string &known : {family.name, family.alias}) {
      if (known.empty())
        continue;
      names.push_back(known);
      if (known != name && known != name + ".weight")
        continue;
      std::vector<PlanDemand> demands = {
          {PlanKey::Zero, true, {"3"}, std::string(text)}};
      if (isSplitByTp(model, family))
        demands.push_back({PlanKey::Tp, false, {"1"}, std::string(text)});
      return demands;
    }
  return Error{fmt::format("unknown parameter \"{}\"; the model has {}", name,
                           fmt::join(names, ", "))};
}

//===----------------------------------------------------------------------===//
// Problems
//===----------------------------------------------------------------------===//

bool PlanProblem::allows(PlanKey key, std::string_view value) const {
  return std::all_of(demands.begin(), demands.end(),
                     [&](const PlanDemand &demand) {
                       return demand.key != key || demand.allows(value);
                     });
}

bool PlanProblem::allows(const PlanPoint &point) const {
  return std::all_of(demands.begin(), demands.end(),
                     [&](const PlanDemand &demand) {
                       return demand.allows(choiceOf(point, demand.key));
                     });
}

/// Whether the device computes in any format that settings and demands leave.
static Result<void> checkFormats(const PlanProblem &problem) {
  const Device &device = problem.cluster.device;
  std::vector<std::string> lacking;
  for (const std::string &recipe : problem.train.precision) {
    if (!problem.allows(PlanKey::Precision, recipe))
      continue;
    const std::optional<ProductFormat> format = productFormat(recipe);
    if (format && device.peak(peakName(*format)) > 0)
      return {};
    lacking.push_back(recipe);
  }
  if (lacking.empty())
    return {}; // a conflict of demands
  std::vector<std::string> has;
  for (const auto &[format, peak] : device.peakFlops)
    has.push_back(format);
  return Error{fmt::format(
      "precision: found {}, expected a format that device \"{}\" has a peak "
      "for: {}; name one in train.yaml, or its peak in the cluster's file",
      fmt::join(lacking, ", "), device.name, fmt::join(has, ", "))};
}

Result<std::vector<std::string>> PlanProblem::check() const {
  Result<std::vector<std::string>> warnings = checkTrainSettings(model, train);
  if (!warnings)
    return warnings;
  if (cluster.planBytesPerDevice() <= 0)
    return Error{fmt::format("cluster \"{}\": no memory is left beside the "
                             "reserve of {} bytes",
                             cluster.name, cluster.memoryReserveBytes)};
  if (cluster.device.peakFlops.empty())
    return Error{fmt::format(
        "cluster \"{}\": device \"{}\" has no peak_tflops, from which times "
        "follow; name a device that has, or give its numbers (device: "
        "{{peak_tflops: ...}})",
        cluster.name, cluster.device.name)};
  if (Result<void> formats = checkFormats(*this); !formats)
    return formats.error();
  return warnings;
}
