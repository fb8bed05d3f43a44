#include "heddle/Plan/Plan.h"

#include "PlanNames.h"
#include "PlanRules.h"
#include "Refusals.h"
#include "ZeroWarnings.h"

#include "heddle/Plan/Scaling.h"
#include "heddle/Support/Glob.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace heddle {

using detail::notSupported;
using detail::refuse;

namespace {

/// One question after the other about one plan; the first error ends it.
class PlanChecker {
public:
  PlanChecker(const Plan &plan, const ModelConfig &model,
              const TrainSettings &train, const Cluster *cluster)
      : plan(plan), model(model), train(train), cluster(cluster) {}

  Result<std::vector<PlanWarning>> check();

private:
  Result<void> checkModel();
  Result<void> checkMesh();
  Result<void> checkDevices();
  Result<void> checkBatch();
  Result<void> checkLayers();
  Result<void> checkPlaces();
  Result<void> checkParallelism();
  Result<void> checkMemoryFeatures();
  Result<void> checkPrecision();
  Result<void> checkValueRules();
  Result<void> checkValueRule(const PlanRule &rule, const char *key);
  Result<void> checkParameterRules();
  Result<void> checkWholeFactors();

  void warnAboutPadding();
  void warnAboutPadding(const char *what, std::int64_t size,
                        std::int64_t padded);
  void warnAboutIdleAxes();
  void warnAboutRules();

  template <typename... Arguments>
  void warn(fmt::format_string<Arguments...> text, Arguments &&...arguments) {
    warnings.push_back(
        {fmt::format(text, std::forward<Arguments>(arguments)...)});
  }
  std::int64_t sizeOf(const std::vector<std::string> &axes) const;

  const Plan &plan;
  const ModelConfig &model;
  const TrainSettings &train;
  const Cluster *cluster;
  std::vector<PlanWarning> warnings;
};

std::int64_t PlanChecker::sizeOf(const std::vector<std::string> &axes) const {
  // An axis of the refined mesh or of the plan: `tp` is only in the latter.
  const ReshardMesh mesh = meshOfPlan(plan, model);
  std::int64_t ranks = 1;
  for (const std::string &axis : axes) {
    std::int64_t size = plan.axisSize(axis);
    for (const auto &[name, refined] : mesh.axes)
      size = name == axis ? refined : size;
    ranks *= size;
  }
  return ranks;
}

Result<void> PlanChecker::checkModel() {
  if (std::optional<std::string> why = whyNotCompiled(model))
    return Error{*why};
  return {};
}

Result<void> PlanChecker::checkMesh() {
  std::set<std::string> seen;
  for (const auto &[axis, size] : plan.mesh) {
    if (std::find(std::begin(detail::planAxes), std::end(detail::planAxes),
                  axis) == std::end(detail::planAxes))
      return refuse("mesh: unknown axis \"{}\"; axes are {}", axis,
                    fmt::join(detail::planAxes, ", "));
    if (!seen.insert(axis).second)
      return refuse("mesh: axis \"{}\" is there twice", axis);
    if (size < 1)
      return refuse("mesh: axis \"{}\" has size {}, expected at least 1", axis,
                    size);
  }
  for (const char *axis : {"pp", "dp", "cp", "tp"})
    if (!seen.count(axis))
      return refuse("mesh: axis \"{0}\" is missing; write [\"{0}\", 1]", axis);
  return {};
}

Result<void> PlanChecker::checkParallelism() {
  const std::pair<const char *, const char *> axes[] = {
      {"cp", "context parallelism"},
      {"ep", "expert parallelism"},
      {"edp", "expert data parallelism"},
      {"etp", "expert tensor parallelism"}};
  for (const auto &[axis, name] : axes)
    if (plan.axisSize(axis) > 1)
      return notSupported(
          fmt::format("{} ({} = {})", name, axis, plan.axisSize(axis)),
          fmt::format("set {} to 1", axis));
  if (plan.context != PlanContext::None)
    return notSupported(
        fmt::format("context \"{}\"",
                    detail::wordOf(detail::contextWords, plan.context)),
        "set context to \"none\"");
  return {};
}

Result<void> PlanChecker::checkDevices() {
  const std::int64_t ranks = plan.ranks();
  if (!cluster)
    return {};
  if (ranks > cluster->devices())
    return refuse("mesh: {} ranks (pp {} x dp {} x cp {} x tp {}), but cluster "
                  "\"{}\" has {} devices ({} nodes x {})",
                  ranks, plan.axisSize("pp"), plan.axisSize("dp"),
                  plan.axisSize("cp"), plan.axisSize("tp"), cluster->name,
                  cluster->devices(), cluster->nodes, cluster->devicesPerNode);
  if (ranks < cluster->devices())
    warn("{} of {} devices of cluster \"{}\" are idle: the plan has {} ranks",
         cluster->devices() - ranks, cluster->devices(), cluster->name, ranks);
  return {};
}

Result<void> PlanChecker::checkBatch() {
  if (plan.microBatch < 1 || plan.microBatches < 1)
    return refuse("micro_batch {} and micro_batches {} must be at least 1",
                  plan.microBatch, plan.microBatches);
  if (plan.globalBatch() != train.globalBatch)
    return refuse("a step has {} sequences (dp {} x micro_batches {} x "
                  "micro_batch {}), but global_batch is {}; change one of them",
                  plan.globalBatch(), plan.axisSize("dp"), plan.microBatches,
                  plan.microBatch, train.globalBatch);
  return {};
}

Result<void> PlanChecker::checkPlaces() {
  const auto ranks = static_cast<std::int64_t>(plan.stages.layers.size());
  if (ranks != plan.axisSize("pp"))
    return refuse("stages.layers lists {} ranks of pp, mesh has pp = {}", ranks,
                  plan.axisSize("pp"));
  const auto chunks = static_cast<std::int64_t>(plan.stages.layers[0].size());
  for (const auto &[name, place] :
       {std::pair{"embedding", plan.stages.embedding},
        std::pair{"head", plan.stages.head}})
    if (place.rank < 0 || place.rank >= ranks || place.chunk < 0 ||
        place.chunk >= chunks)
      return refuse("stages.{}: [{}, {}] is no place; there are {} ranks of pp "
                    "with {} chunks",
                    name, place.rank, place.chunk, ranks, chunks);
  return {};
}

/// DualPipe runs two copies of the model in opposite directions. Rows of a user
/// that do so name stages of the second one: "@0,3'".
static bool hasCopies(const PlanStages &stages) {
  return stages.schedule == PlanScheduleKind::DualPipe ||
         std::any_of(stages.table.begin(), stages.table.end(),
                     [](const std::string &row) {
                       return row.find('\'') != std::string::npos;
                     });
}

Result<void> PlanChecker::checkLayers() {
  const int copies = hasCopies(plan.stages) ? 2 : 1;
  std::vector<int> times(static_cast<std::size_t>(model.layers));
  for (const std::vector<PlanRange> &chunks : plan.stages.layers)
    for (const PlanRange &range : chunks) {
      if (range.empty())
        continue;
      if (range.first < 0 || range.last >= model.layers)
        return refuse("stages.layers: \"{}\" goes beyond the model's {} layers "
                      "(0..{})",
                      range.text(), model.layers, model.layers - 1);
      for (std::int64_t layer = range.first; layer <= range.last; ++layer)
        if (++times[static_cast<std::size_t>(layer)] > copies)
          return refuse("stages.layers: layer {} is in \"{}\" and in another "
                        "range; each layer stands in {}",
                        layer, range.text(), copies == 1 ? "one" : "two");
    }
  auto missing = std::find_if(times.begin(), times.end(),
                              [&](int count) { return count < copies; });
  if (missing != times.end())
    return refuse("stages.layers: layer {} is in {}; the model has {} layers "
                  "(0..{})",
                  missing - times.begin(),
                  *missing == 0 ? "no range" : "one range, expected two",
                  model.layers, model.layers - 1);
  for (const PlanRecompute &entry : plan.recompute)
    if (entry.layers.last >= model.layers)
      return refuse("recompute: layers \"{}\" go beyond the model's {} layers",
                    entry.layers.text(), model.layers);
  return {};
}

Result<void> PlanChecker::checkMemoryFeatures() {
  const std::int64_t ranks = plan.axisSize("dp") * plan.axisSize("cp");
  if (plan.zero.shardGroup < 1 || ranks % plan.zero.shardGroup != 0)
    return refuse("zero.shard_group {} does not divide dp x cp = {}",
                  plan.zero.shardGroup, ranks);
  if (plan.zero.stage < 0 || plan.zero.stage > 3)
    return refuse("zero.stage is {}, expected 0, 1, 2 or 3", plan.zero.stage);
  if (plan.dropoutMasks == PlanMasks::Saved && model.dropout.attention > 0 &&
      plan.attention == PlanAttention::Flash)
    return refuse("dropout_masks is \"saved\", but attention \"flash\" has no "
                  "mask to save: its dropout is drawn within the kernel; set "
                  "attention to \"unfused\", or dropout_masks to "
                  "\"drawn_again\"");
  if (plan.buckets.gradientBytes < 1)
    return refuse("buckets.gradient_bytes is {}, expected at least 1",
                  plan.buckets.gradientBytes);
  return {};
}

Result<void> PlanChecker::checkPrecision() {
  const PlanPrecision &precision = plan.precision;
  const std::string &recipe = precision.recipe;
  const bool isNarrow = recipe != "fp32";
  const std::string compute = computeFormat(recipe);
  if (precision.compute != compute)
    return notSupported(fmt::format("precision.compute \"{}\" in recipe \"{}\"",
                                    precision.compute, precision.recipe),
                        fmt::format("set it to \"{}\"", compute));
  for (const auto &[key, format] : {std::pair{"gradients", precision.gradients},
                                    std::pair{"reduce", precision.reduce}})
    if (format != "fp32" && format != compute)
      return notSupported(
          fmt::format("precision.{} \"{}\" in recipe \"{}\"", key, format,
                      recipe),
          isNarrow ? fmt::format("set it to \"fp32\" or \"{}\"", compute)
                   : "set it to \"fp32\"");
  if (precision.master != "none" && (!isNarrow || precision.master != "fp32"))
    return notSupported(
        fmt::format("precision.master \"{}\" in recipe \"{}\"",
                    precision.master, precision.recipe),
        isNarrow ? "set it to \"fp32\" or \"none\""
                 : "set it to \"none\": fp32 parameters are their own master");
  if (isNarrow && precision.master == "none")
    warn("parameters are updated in {} without an fp32 master: an update of "
         "less than 1/{} of a weight is lost",
         compute, compute == "fp16" ? 4096 : 512);
  if (Result<void> done =
          detail::checkScaling(plan, model, train.sequenceLength);
      !done)
    return done;
  if (std::find(train.precision.begin(), train.precision.end(),
                precision.recipe) != train.precision.end())
    return {};
  if (isNarrow)
    return refuse("precision recipe \"{}\", but the training settings allow "
                  "{}; add it to precision there",
                  precision.recipe, fmt::join(train.precision, ", "));
  warn("the plan computes in {}, the training settings name {}",
       precision.recipe, fmt::join(train.precision, ", "));
  return {};
}

Result<void> PlanChecker::checkValueRule(const PlanRule &rule,
                                         const char *key) {
  Result<Glob> glob = Glob::parse(rule.match);
  if (!glob)
    return refuse("{}: {}", key, glob.message());
  // Values are known to the passes alone, their segments are known here.
  const std::string segment = rule.match.substr(0, rule.match.find('.'));
  const std::vector<std::string> segments = {"embedding", "block", "head"};
  if (rule.match.find('.') == std::string::npos &&
      rule.match.find('*') == std::string::npos)
    return refuse("{}: \"{}\" names no value; names are \"segment.value\", "
                  "such as \"block.n1\"",
                  key, rule.match);
  if (segment.find_first_of("*?[") == std::string::npos &&
      std::find(segments.begin(), segments.end(), segment) == segments.end())
    return refuse("{}: unknown segment \"{}\" in \"{}\"; segments are {}", key,
                  segment, rule.match, fmt::join(segments, ", "));
  if (std::string fault = detail::axisFault(rule, plan, model); !fault.empty())
    return refuse("{}: {}", key, fault);
  std::set<std::string> used;
  for (const auto &[factor, axes] : rule.split) {
    for (const std::string &axis : axes)
      if (!used.insert(axis).second)
        return refuse("{}: rule \"{}\" uses axis \"{}\" twice; an axis stands "
                      "in one place only",
                      key, rule.match, axis);
    if ((factor == "k" || factor == "t") && sizeOf(axes) > 1)
      return refuse("{}: rule \"{}\" splits factor '{}' over {}, but {} whole "
                    "in every op that reads it; leave the factor out",
                    key, rule.match, factor, fmt::join(axes, ", "),
                    factor == "k" ? "a head is" : "the keys of attention are");
  }
  return {};
}

Result<void> PlanChecker::checkValueRules() {
  for (const PlanRule &rule : plan.tensor.values)
    if (Result<void> done = checkValueRule(rule, "tensor.values"); !done)
      return done;
  for (const PlanRule &rule : plan.tensor.saved)
    if (Result<void> done = checkValueRule(rule, "tensor.saved"); !done)
      return done;
  for (const char *name : {"block.x", "block.delta"})
    if (auto layout = valueLayout(plan, model, name, "b s d"); !layout)
      return refuse("tensor.values: {}", layout.message());
  return {};
}

Result<void> PlanChecker::checkParameterRules() {
  for (const PlanRule &rule : plan.tensor.parameters)
    if (Result<Glob> glob = Glob::parse(rule.match); !glob)
      return refuse("tensor.parameters: {}", glob.message());
  for (const ParameterFamily &family : parameters(model)) {
    Result<PlanDims> dims = parameterLayout(plan, model, family);
    if (!dims)
      return refuse("tensor.parameters: {}", dims.message());
  }
  return checkWholeFactors();
}

/// Padding a vocabulary, ffn or head factor never shows in a result; padding
/// any other would (sequences that a step lacks are the data's matter). Where
/// queries are a part of a fused parameter it has no r to be padded.
Result<void> PlanChecker::checkWholeFactors() {
  std::vector<std::string> paddable = {"f", "g", "v"};
  if (!model.fusedQkv)
    paddable.push_back("r");
  const std::map<std::string, std::int64_t> sizes = factorSizes(plan, model);
  for (const auto &[factor, padded] : paddedSizes(plan, model))
    if (padded != sizes.at(factor) &&
        std::find(paddable.begin(), paddable.end(), factor) == paddable.end())
      return refuse("factor '{}' of size {} cannot be cut into the equal parts "
                    "that a rule asks for (it would be padded to {}; only "
                    "{} may be padded)",
                    factor, sizes.at(factor), padded,
                    fmt::join(paddable, ", "));
  return {};
}

void PlanChecker::warnAboutPadding(const char *what, std::int64_t size,
                                   std::int64_t padded) {
  const double percent =
      100.0 * static_cast<double>(padded - size) / static_cast<double>(size);
  // Less is not worth a user's time.
  if (percent >= 1)
    warn("{} {} padded from {} to {}: {:.1f} % of it is wasted work and memory",
         what,
         what[std::char_traits<char>::length(what) - 1] == 's' ? "are" : "is",
         size, padded, percent);
}

void PlanChecker::warnAboutPadding() {
  const std::map<std::string, std::int64_t> sizes = factorSizes(plan, model);
  const std::map<std::string, std::int64_t> padded = paddedSizes(plan, model);
  warnAboutPadding("attention heads", sizes.at("g") * sizes.at("r"),
                   padded.at("g") * padded.at("r"));
  warnAboutPadding("the vocabulary", sizes.at("v"), padded.at("v"));
  warnAboutPadding("the ffn size", sizes.at("f"), padded.at("f"));
  warnAboutPadding("the sequence length", train.sequenceLength,
                   paddedLength(plan, model, train.sequenceLength));
}

void PlanChecker::warnAboutIdleAxes() {
  const std::int64_t dp = plan.axisSize("dp"), tp = plan.axisSize("tp");
  std::set<std::string> used;
  for (const ParameterFamily &family : parameters(model))
    if (Result<PlanDims> dims = parameterLayout(plan, model, family))
      for (const std::vector<std::string> &axes : *dims)
        used.insert(axes.begin(), axes.end());
  if (used.count(dataAxes(plan).back()))
    warn("a rule of tensor.parameters splits over dp for computing, which "
         "gathers the batch of {} ranks; to store parameters in shards use "
         "zero",
         dp);
  if (tp > 1 && !used.count("tp") && !used.count("tp.kv") &&
      !used.count("tp.copy"))
    warn("no parameter is split over tp: its {} ranks do the same work", tp);
  bool splitsBatch = false;
  Result<std::optional<PlanDims>> x =
      valueLayout(plan, model, "block.x", "b s d");
  if (x && *x)
    splitsBatch =
        std::ranges::all_of(dataAxes(plan), [&](const std::string &axis) {
          return std::ranges::count((**x)[0], axis) > 0;
        });
  if (dp > 1 && !splitsBatch)
    warn("no rule of tensor.values splits block.x along b over dp: its {} "
         "ranks do the same work",
         dp);
}

void PlanChecker::warnAboutRules() {
  for (const PlanRule &rule : plan.tensor.parameters) {
    Result<Glob> glob = Glob::parse(rule.match);
    bool isUsed = false;
    for (const ParameterFamily &family : parameters(model)) {
      isUsed = isUsed || (!family.alias.empty() && glob->matches(family.alias));
      for (std::int64_t layer = 0; layer < family.layers && !isUsed; ++layer)
        isUsed = glob->matches(family.instanceName(layer));
    }
    if (!isUsed)
      warn("rule \"{}\" of tensor.parameters matches none of the model's "
           "parameters",
           rule.match);
  }
}

Result<std::vector<PlanWarning>> PlanChecker::check() {
  using Check = Result<void> (PlanChecker::*)();
  const Check checks[] = {
      &PlanChecker::checkModel,         &PlanChecker::checkMesh,
      &PlanChecker::checkPlaces,        &PlanChecker::checkLayers,
      &PlanChecker::checkParallelism,   &PlanChecker::checkMemoryFeatures,
      &PlanChecker::checkPrecision,     &PlanChecker::checkBatch,
      &PlanChecker::checkDevices,       &PlanChecker::checkValueRules,
      &PlanChecker::checkParameterRules};
  for (Check check : checks)
    if (Result<void> done = (this->*check)(); !done)
      return done.error();
  warnAboutPadding();
  warnAboutIdleAxes();
  warnAboutRules();
  for (PlanWarning &warning : detail::zeroWarnings(plan, model))
    warnings.push_back(std::move(warning));
  return std::move(warnings);
}

} // namespace

Result<std::vector<PlanWarning>> checkPlan(const Plan &plan,
                                           const ModelConfig &model,
                                           const TrainSettings &train,
                                           const Cluster *cluster) {
  return PlanChecker(plan, model, train, cluster).check();
}

} // namespace heddle
