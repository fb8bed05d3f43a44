#include "heddle/Plan/PlanPoint.h"

#include "PlanNames.h"
#include "PlanRules.h"

#include "heddle/Plan/Scaling.h"
#include "heddle/Support/Check.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace heddle {

std::string planAxisName(PlanAxis axis) {
  return std::string(detail::planAxes[static_cast<std::size_t>(axis)]);
}

std::int64_t PlanPoint::size(PlanAxis axis) const {
  const std::int64_t sizes[] = {pp, dp, cp, tp};
  return sizes[static_cast<std::size_t>(axis)];
}

std::int64_t PlanPoint::stride(PlanAxis axis) const {
  std::int64_t ranks = 1;
  for (auto inner = order.rbegin(); *inner != axis; ++inner)
    ranks *= size(*inner);
  return ranks;
}

/// Whether odd chunks run from the last rank to the first.
static bool turnsBack(PlanScheduleKind schedule) {
  return schedule == PlanScheduleKind::ZbV ||
         schedule == PlanScheduleKind::VHalf ||
         schedule == PlanScheduleKind::VMin ||
         schedule == PlanScheduleKind::DualPipeV;
}

std::int64_t PlanPoint::stageOf(std::int64_t rank, std::int64_t chunk) const {
  return chunk * pp + (turnsBack(schedule) && chunk % 2 ? pp - 1 - rank : rank);
}

std::int64_t PlanPoint::layersOf(std::int64_t rank) const {
  std::int64_t sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    sum += layers[static_cast<std::size_t>(stageOf(rank, chunk))];
  return sum;
}

std::vector<std::int64_t> PlanPoint::recomputedOf(std::int64_t rank) const {
  std::vector<std::int64_t> again(static_cast<std::size_t>(chunks), 0);
  if (!recomputed.empty())
    spreadRecomputed(rank, recomputed[static_cast<std::size_t>(rank)], again);
  return again;
}

void PlanPoint::spreadRecomputed(std::int64_t rank, std::int64_t left,
                                 std::span<std::int64_t> again) const {
  std::fill(again.begin(), again.end(), 0);
  if (left <= 0)
    return;
  auto held = [&](std::size_t chunk) {
    return layers[static_cast<std::size_t>(
        stageOf(rank, static_cast<std::int64_t>(chunk)))];
  };
  std::int64_t level = 0; // layers that a chunk keeps at most
  for (std::size_t chunk = 0; chunk < again.size(); ++chunk)
    level = std::max(level, held(chunk));
  // One layer of each chunk that keeps most, the first chunks first.
  for (; left > 0 && level > 0; --level)
    for (std::size_t chunk = 0; chunk < again.size() && left > 0; ++chunk)
      if (held(chunk) - again[chunk] == level) {
        ++again[chunk];
        --left;
      }
}

std::int64_t PlanPoint::hostRows() const {
  const std::int64_t all = std::accumulate(layers.begin(), layers.end(), 0L);
  const std::int64_t ahead =
      overlaps ? std::min(prefetch, std::max<std::int64_t>(all - 1, 0)) : 0;
  return std::max<std::int64_t>(ahead, 1) + 1;
}

std::string PlanPoint::text() const {
  std::string text = fmt::format("pp{} dp{} cp{} tp{}{}{}, {} x {}", pp, dp, cp,
                                 tp, sequenceParallel ? " sp" : "",
                                 ep > 1 ? fmt::format(" ep{}", ep) : "",
                                 microBatches, microBatch);
  if (schedule != PlanScheduleKind::None)
    text += fmt::format(", {}{}", scheduleWord(schedule),
                        chunks > 1 ? fmt::format(" v{}", chunks) : "");
  text += fmt::format(", zero {}", zeroStage);
  if (zeroStage > 0 && shardGroup < dp * cp)
    text += fmt::format(" over {}", shardGroup);
  if (const std::int64_t count =
          std::accumulate(recomputed.begin(), recomputed.end(), 0L))
    text += fmt::format(
        ", {} recompute {}",
        recompute == PointRecompute::Full ? "full" : "selective", count);
  if (offloadsOptimizer)
    text += ", optimizer offloaded";
  if (offloaded)
    text += ", offloaded " + offloadedText(offloaded);
  if (attention == PlanAttention::Unfused)
    text += ", unfused attention";
  if (dropoutMasks == PlanMasks::Saved)
    text += ", masks saved";
  if (save == PlanSave::LinearInputs)
    text += ", linear inputs saved";
  if (gradients != "fp32")
    text += fmt::format(", gradients {}", gradients);
  if (reduceFormat != "fp32")
    text += fmt::format(", reduced in {}", reduceFormat);
  return text;
}

//===----------------------------------------------------------------------===//
// Saved values
//===----------------------------------------------------------------------===//

std::span<const std::string_view> savedNames() {
  static constexpr std::string_view names[] = {"x1",
                                               "n1",
                                               "n1_mean",
                                               "n1_rstd",
                                               "q",
                                               "k",
                                               "qn_rstd",
                                               "kn_rstd",
                                               "qr",
                                               "kr",
                                               "v",
                                               "p",
                                               "p_dropped",
                                               "p_dropped_mask",
                                               "o",
                                               "lse",
                                               "a_dropped_mask",
                                               "x2",
                                               "n2",
                                               "n2_mean",
                                               "n2_rstd",
                                               "gate",
                                               "up",
                                               "m",
                                               "dn_dropped_mask"};
  static_assert(std::size(names) <= 32);
  return names;
}

std::string offloadedText(std::uint32_t offloaded) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < savedNames().size(); ++i)
    if (offloaded >> i & 1)
      names.push_back(savedNames()[i]);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, "."));
}

/// 0 where it is none.
static std::uint32_t savedBit(std::string_view name) {
  const auto found = std::ranges::find(savedNames(), name);
  return found == savedNames().end()
             ? 0
             : std::uint32_t{1} << (found - savedNames().begin());
}

std::optional<std::uint32_t> readOffloaded(std::string_view text) {
  if (text == "none")
    return 0;
  std::uint32_t bits = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::uint32_t bit = savedBit(text.substr(begin, end - begin));
    if (bit == 0 || bits & bit)
      return std::nullopt;
    bits |= bit;
    begin = end + 1;
  }
  return bits;
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

bool isOfExperts(const ParameterFamily &family) {
  return family.letters.starts_with("e ") && family.letters != "e d";
}

std::int64_t partElements(const PlanPoint &point, const ModelConfig &model,
                          const ParameterFamily &family) {
  const HeadSplit heads =
      splitHeads(model.kvHeads, model.queryHeadsPerKvHead, point.tp);
  const std::vector<std::string> letters = detail::splitWords(family.letters);
  const bool ofExperts = isOfExperts(family);
  std::int64_t elements = 1;
  for (std::size_t dim = 0; dim < letters.size(); ++dim) {
    const std::string &letter = letters[dim];
    const std::int64_t size = family.shape[dim];
    if (letter == "g")
      elements *= heads.paddedG / heads.kv;
    else if (letter == "r")
      elements *= heads.paddedR / heads.copy;
    else if (letter == "f" || letter == "v" || letter.ends_with("_f"))
      elements *= (size + point.tp - 1) / point.tp;
    else if (letter == "e" && ofExperts)
      elements *= (size + point.ep - 1) / point.ep;
    else
      elements *= size;
  }
  return elements;
}

std::int64_t shardsOf(const PlanPoint &point, const ParameterFamily &family) {
  if (point.zeroStage == 0)
    return 1;
  return isOfExperts(family)
             ? std::max<std::int64_t>(point.shardGroup / point.ep, 1)
             : point.shardGroup;
}

std::int64_t blockBytes(const PlanPoint &point, const ModelConfig &model) {
  constexpr std::int64_t alignment = 64;
  std::int64_t plain = 0, sparse = 0;
  for (const ParameterFamily &family : parameters(model)) {
    if (family.segment != Segment::Block)
      continue;
    const std::int64_t bytes = (rowElements(partElements(point, model, family),
                                            shardsOf(point, family)) *
                                    point.computeBytes() +
                                alignment - 1) /
                               alignment * alignment;
    const bool isInAll = family.layers == model.layers;
    if (isInAll || !model.hasExperts(family.layerNumbers.front()))
      plain += bytes;
    if (isInAll || model.hasExperts(family.layerNumbers.front()))
      sparse += bytes;
  }
  return std::max(plain, sparse);
}

//===----------------------------------------------------------------------===//
// To a plan
//===----------------------------------------------------------------------===//

static PlanStages stagesOf(const PlanPoint &point) {
  PlanStages stages;
  stages.schedule = point.schedule;
  std::vector<std::int64_t> begins(point.layers.size() + 1);
  std::partial_sum(point.layers.begin(), point.layers.end(),
                   begins.begin() + 1);
  for (std::int64_t rank = 0; rank < point.pp; ++rank) {
    std::vector<PlanRange> &row = stages.layers.emplace_back();
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
      const auto stage = static_cast<std::size_t>(point.stageOf(rank, chunk));
      row.push_back(point.layers[stage] == 0
                        ? PlanRange()
                        : PlanRange{begins[stage], begins[stage + 1] - 1});
      if (stage + 1 == point.layers.size())
        stages.head = {rank, chunk};
    }
  }
  return stages;
}

/// As ranges of layers of the model, in order.
static std::vector<PlanRecompute> recomputeOf(const PlanPoint &point,
                                              const PlanStages &stages) {
  std::vector<PlanRecompute> entries;
  for (std::size_t rank = 0; rank < point.recomputed.size(); ++rank) {
    const std::vector<std::int64_t> again =
        point.recomputedOf(static_cast<std::int64_t>(rank));
    for (std::size_t chunk = 0; chunk < again.size(); ++chunk) {
      const PlanRange &range = stages.layers[rank][chunk];
      if (again[chunk] > 0)
        entries.push_back({{range.first, range.first + again[chunk] - 1},
                           point.recompute == PointRecompute::Full
                               ? PlanRecomputeKind::Full
                               : PlanRecomputeKind::Selective,
                           {},
                           0});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const PlanRecompute &a, const PlanRecompute &b) {
              return a.layers.first < b.layers.first;
            });
  // Neighbours become one range.
  std::vector<PlanRecompute> joined;
  for (const PlanRecompute &entry : entries)
    if (!joined.empty() && joined.back().layers.last + 1 == entry.layers.first)
      joined.back().layers.last = entry.layers.last;
    else
      joined.push_back(entry);
  return joined;
}

Plan planOf(const PlanPoint &point, const ModelConfig &model) {
  HEDDLE_CHECK(std::accumulate(point.layers.begin(), point.layers.end(), 0L) ==
                   model.layers,
               "{} layers in stages", model.layers);
  Plan plan;
  for (PlanAxis axis : point.order)
    plan.mesh.emplace_back(planAxisName(axis), point.size(axis));
  if (model.experts)
    plan.mesh.emplace_back("ep", point.ep);
  plan.microBatch = point.microBatch;
  plan.microBatches = point.microBatches;
  plan.stages = stagesOf(point);
  plan.tensor.parameters = megatronRules(model);
  plan.tensor.values =
      detail::valuesBetweenBlocks(point.cp, point.sequenceParallel);
  plan.context = point.context;
  plan.zero = {point.zeroStage, point.shardGroup, point.prefetch, point.reduce,
               point.gather};
  plan.recompute = recomputeOf(point, plan.stages);
  plan.offload.optimizer = point.offloadsOptimizer;
  for (std::size_t i = 0; i < savedNames().size(); ++i)
    if (point.offloaded >> i & 1)
      plan.offload.saved.emplace_back(savedNames()[i]);
  plan.attention = point.attention;
  plan.dropoutMasks = point.dropoutMasks;
  plan.save = point.save;
  plan.precision.recipe = point.recipe;
  plan.precision.compute = computeFormat(point.recipe);
  setDefaultScaling(plan.precision);
  if (!point.scaling.empty()) {
    setScaling(plan.precision, point.scaling);
    plan.precision.blockLength = point.blockLength;
  }
  plan.precision.master = point.hasMaster() ? "fp32" : "none";
  plan.precision.gradients = point.gradients;
  plan.precision.reduce = point.reduceFormat;
  plan.buckets.gradientBytes = point.bucketBytes;
  if (point.overlaps)
    plan.overlapMemoryBytes = point.prefetch * blockBytes(point, model);
  return plan;
}

//===----------------------------------------------------------------------===//
// From a plan
//===----------------------------------------------------------------------===//

namespace {

class PointReader {
public:
  PointReader(const Plan &plan, const ModelConfig &model)
      : plan(plan), model(model) {}
  Result<PlanPoint> read();

private:
  Result<void> readOrder();
  Result<void> readStages();
  Result<void> readRecompute();
  Result<void> readOffload();
  void readRest();
  Error differs(const char *key, const char *what) const {
    return Error{fmt::format("plan: {}: {}; estimates know plans of the short "
                             "forms megatron and sequence_parallel",
                             key, what)};
  }

  const Plan &plan;
  const ModelConfig &model;
  PlanPoint point;
};

} // namespace

Result<void> PointReader::readOrder() {
  std::size_t place = 0;
  for (const auto &[name, size] : plan.mesh)
    for (PlanAxis axis :
         {PlanAxis::Pp, PlanAxis::Dp, PlanAxis::Cp, PlanAxis::Tp})
      if (name == planAxisName(axis) && place < point.order.size())
        point.order[place++] = axis;
  if (place < point.order.size())
    return differs("mesh", "one of pp, dp, cp, tp is missing");
  point.pp = plan.axisSize("pp");
  point.dp = plan.axisSize("dp");
  point.cp = plan.axisSize("cp");
  point.tp = plan.axisSize("tp");
  point.ep = plan.axisSize("ep");
  if (point.dp * point.cp % point.ep != 0)
    return Error{fmt::format("plan: mesh: ep is {}, expected a divisor of dp x "
                             "cp = {}, over which experts are dealt out",
                             point.ep, point.dp * point.cp)};
  return {};
}

Result<void> PointReader::readStages() {
  if (plan.stages.schedule == PlanScheduleKind::Table)
    return differs("stages.schedule", "found a table of slots");
  if (plan.stages.schedule == PlanScheduleKind::DualPipe)
    return differs("stages.schedule", "found two copies of the model");
  point.schedule = plan.stages.schedule;
  const auto ranks = static_cast<std::size_t>(point.pp);
  if (plan.stages.layers.size() != ranks || plan.stages.layers[0].empty())
    return differs("stages.layers", "found another number of ranks than pp");
  point.chunks = std::ssize(plan.stages.layers[0]);
  point.layers.assign(ranks * plan.stages.layers[0].size(), 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (std::ssize(plan.stages.layers[rank]) != point.chunks)
      return differs("stages.layers", "found ranks of unequal chunks");
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
      const PlanRange &range =
          plan.stages.layers[rank][static_cast<std::size_t>(chunk)];
      point.layers[static_cast<std::size_t>(
          point.stageOf(static_cast<std::int64_t>(rank), chunk))] =
          range.empty() ? 0 : range.last - range.first + 1;
    }
  }
  if (std::accumulate(point.layers.begin(), point.layers.end(), 0L) !=
      model.layers)
    return differs("stages.layers", "found other layers than the model's");
  return {};
}

Result<void> PointReader::readRecompute() {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(point.pp));
  for (const PlanRecompute &entry : plan.recompute) {
    if (entry.kind == PlanRecomputeKind::Values && entry.values.empty())
      continue;
    const PointRecompute kind =
        entry.kind == PlanRecomputeKind::Full        ? PointRecompute::Full
        : entry.kind == PlanRecomputeKind::Selective ? PointRecompute::Selective
                                                     : PointRecompute::None;
    if (kind == PointRecompute::None ||
        (point.recompute != PointRecompute::None && point.recompute != kind))
      return differs("recompute", "found a list of values, a budget, or layers "
                                  "of different kinds");
    point.recompute = kind;
    for (std::size_t rank = 0; rank < counts.size(); ++rank)
      for (const PlanRange &range : plan.stages.layers[rank])
        counts[rank] += std::max<std::int64_t>(
            std::min(range.last, entry.layers.last) -
                std::max(range.first, entry.layers.first) + 1,
            0);
  }
  if (point.recompute != PointRecompute::None)
    point.recomputed = std::move(counts);
  return {};
}

Result<void> PointReader::readOffload() {
  point.offloadsOptimizer = plan.offload.optimizer;
  for (const std::string &name : plan.offload.saved) {
    const std::uint32_t bit = savedBit(name);
    if (bit == 0)
      return differs("offload.saved", "found a value that no layer saves");
    point.offloaded |= bit;
  }
  return {};
}

void PointReader::readRest() {
  point.context = plan.context;
  point.microBatch = plan.microBatch;
  point.microBatches = plan.microBatches;
  point.zeroStage = plan.zero.stage;
  point.shardGroup = plan.zero.shardGroup;
  point.prefetch = plan.zero.prefetch;
  point.reduce = plan.zero.reduce;
  point.gather = plan.zero.gather;
  point.attention = plan.attention;
  point.dropoutMasks = plan.dropoutMasks;
  point.save = plan.save;
  point.recipe = plan.precision.recipe;
  PlanPrecision usual;
  usual.recipe = plan.precision.recipe;
  setDefaultScaling(usual);
  if (plan.precision.scaling != usual.scaling ||
      plan.precision.blockLength != usual.blockLength) {
    point.scaling = plan.precision.scaling;
    point.blockLength = plan.precision.blockLength;
  }
  point.gradients = plan.precision.gradients;
  point.reduceFormat = plan.precision.reduce;
  point.bucketBytes = plan.buckets.gradientBytes;
  point.overlaps = plan.overlapMemoryBytes.has_value();
  for (const PlanRule &rule : plan.tensor.values)
    if (auto axes = rule.split.find("s"); axes != rule.split.end())
      point.sequenceParallel |=
          std::count(axes->second.begin(), axes->second.end(), "tp") > 0;
}

Result<PlanPoint> PointReader::read() {
  if (Result<void> done = readOrder(); !done)
    return done.error();
  if (Result<void> done = readStages(); !done)
    return done.error();
  if (Result<void> done = readRecompute(); !done)
    return done.error();
  if (Result<void> done = readOffload(); !done)
    return done.error();
  readRest();
  const Plan same = planOf(point, model);
  if (plan.tensor.parameters != same.tensor.parameters)
    return differs("tensor.parameters", "found other rules");
  if (plan.tensor.values != same.tensor.values || !plan.tensor.saved.empty())
    return differs("tensor", "found other rules for values");
  if (point.recompute != PointRecompute::None &&
      plan.recompute != same.recompute)
    return differs("recompute", "found other layers than the first ones of "
                                "each chunk");
  if (!plan.precision.exceptions.empty() ||
      plan.precision.master != same.precision.master)
    return differs("precision", "found exceptions, or no masters");
  if (plan.precision.amaxHistory != same.precision.amaxHistory ||
      plan.precision.amaxAlgorithm != same.precision.amaxAlgorithm)
    return differs("precision", "found another history than the usual one");
  return std::move(point);
}

Result<PlanPoint> pointOf(const Plan &plan, const ModelConfig &model) {
  return PointReader(plan, model).read();
}

std::vector<std::string> notCompiledYet(const PlanPoint &point,
                                        const ModelConfig &model) {
  std::vector<std::string> names;
  if (whyNotCompiled(model))
    names.push_back(fmt::format("model family {}", familyName(model.family)));
  if (point.cp > 1)
    names.push_back(fmt::format("context parallelism (cp {})", point.cp));
  if (point.ep > 1)
    names.push_back(fmt::format("expert parallelism (ep {})", point.ep));
  if (point.schedule == PlanScheduleKind::DualPipe)
    names.push_back("two copies of the model in numbers (dualpipe)");
  return names;
}

} // namespace heddle
