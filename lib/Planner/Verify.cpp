#include "heddle/Planner/Verify.h"

#include "heddle/Cost/LiveMemory.h"
#include "heddle/Plan/PlanLayout.h"
#include "heddle/Schedule/CheckStages.h"
#include "heddle/Schedule/Generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace heddle;

namespace {

template <typename... Arguments>
Error wrong(fmt::format_string<Arguments...> text, Arguments &&...arguments) {
  return Error{"answer: " +
               fmt::format(text, std::forward<Arguments>(arguments)...)};
}

class Verifier {
public:
  Verifier(const PlanProblem &problem, const CostedPlan &costed,
           const MemoryEstimator &memory)
      : problem(problem), model(problem.model), costed(costed), memory(memory),
        plan(planOf(costed.point, problem.model)) {}

  Result<void> verify();

private:
  Result<void> verifySizes() const;
  Result<void> verifyLayers() const;
  Result<void> verifyParameters() const;
  Result<void> verifyDemands() const;
  Result<void> verifyCompiledMemory() const;
  Result<void> verifyMemory() const;
  double statesAt(std::size_t place) const;
  Result<double> savedAt(const ScheduleTable &table, std::size_t place) const;
  bool holds(const ParameterFamily &family, std::size_t place,
             std::int64_t &instances) const;

  const PlanProblem &problem;
  const ModelConfig &model;
  const CostedPlan &costed;
  const MemoryEstimator &memory;
  const Plan plan;
};

} // namespace

Result<void> Verifier::verifySizes() const {
  const std::int64_t data = plan.axisSize("dp") * plan.axisSize("cp");
  if (plan.ranks() > problem.cluster.devices())
    return wrong("{} ranks, but {} devices", plan.ranks(),
                 problem.cluster.devices());
  if (plan.globalBatch() != problem.train.globalBatch)
    return wrong("{} sequences a step, expected {}", plan.globalBatch(),
                 problem.train.globalBatch);
  if (problem.train.sequenceLength % plan.axisSize("cp") != 0)
    return wrong("sequences of {} over cp {}", problem.train.sequenceLength,
                 plan.axisSize("cp"));
  if (plan.zero.shardGroup < 1 || data % plan.zero.shardGroup != 0)
    return wrong("a shard group of {} in dp x cp of {}", plan.zero.shardGroup,
                 data);
  const std::int64_t ep = plan.axisSize("ep");
  if (ep > 1 &&
      (!model.experts || model.experts->count % ep != 0 || data % ep != 0))
    return wrong("ep {} divides not both the experts and dp x cp of {}", ep,
                 data);
  if (std::find(problem.train.precision.begin(), problem.train.precision.end(),
                plan.precision.recipe) == problem.train.precision.end())
    return wrong("precision {}, but the settings name {}",
                 plan.precision.recipe,
                 fmt::join(problem.train.precision, ", "));
  return {};
}

/// Along the chain of stages, layer by layer.
Result<void> Verifier::verifyLayers() const {
  Result<ScheduleTable> table = scheduleOfPlan(plan);
  if (!table)
    return table.error();
  const Placement &placement = table->placement;
  std::int64_t next = 0;
  for (std::int64_t stage = 0; stage < placement.stages(); ++stage) {
    const PlanPlace at = placement.placeOf({0, stage});
    const PlanRange &range =
        plan.stages.layers[static_cast<std::size_t>(at.rank)]
                          [static_cast<std::size_t>(at.chunk)];
    if (range.empty())
      continue;
    if (range.first != next)
      return wrong("stage {} begins with layer {}, expected {}", stage,
                   range.first, next);
    next = range.last + 1;
  }
  if (next != model.layers)
    return wrong("stages end with layer {}, the model has {}", next - 1,
                 model.layers);
  if (plan.stages.head != placement.placeOf({0, placement.stages() - 1}) ||
      plan.stages.embedding != placement.placeOf({0, 0}))
    return wrong("the embedding or the head is not at its end of the stages");
  return {};
}

/// By the rules of the plan: parts times the ranks that have different ones are
/// the parameter, or what it is padded to.
Result<void> Verifier::verifyParameters() const {
  ReshardMesh mesh = meshOfPlan(plan, model);
  for (const ParameterFamily &family : parameters(model)) {
    Result<PlanDims> dims = parameterLayout(plan, model, family);
    if (!dims)
      return dims.error();
    std::int64_t ranks = 1;
    for (const std::vector<std::string> &axes : *dims)
      for (const std::string &axis : axes)
        for (const auto &[name, size] : mesh.axes)
          ranks *= name == axis ? size : 1;
    const std::int64_t part = partElements(costed.point, model, family);
    if (part * ranks < family.elements())
      return wrong("{} elements on each of {} ranks, {} has {}", part, ranks,
                   family.name, family.elements());
    if (part * ranks > 2 * family.elements())
      return wrong("{} is padded from {} to {} elements", family.name,
                   family.elements(), part * ranks);
  }
  return {};
}

Result<void> Verifier::verifyDemands() const {
  Result<PlanPoint> point = pointOf(plan, model);
  if (!point)
    return point.error();
  for (const PlanDemand &demand : problem.demands)
    if (!demand.allows(choiceOf(*point, demand.key)))
      return wrong("{} is {}, but {} was demanded", planKeyName(demand.key),
                   choiceOf(*point, demand.key), demand.text());
  return {};
}

/// Bytes that exact formulas say, where they know them.
Result<void> Verifier::verifyCompiledMemory() const {
  const std::int64_t capacity = problem.cluster.planBytesPerDevice();
  Result<std::vector<RankSizes>> places =
      placeSizes(model, problem.train, plan);
  if (!places) // a layout that the formulas do not know
    return verifyMemory();
  for (const RankSizes &sizes : *places) {
    const std::int64_t bytes =
        liveMemory(model, problem.train, sizes).peakBytes();
    // The estimate has one in a hundred, and what libraries take.
    if (static_cast<double>(bytes) > 1.01 * static_cast<double>(capacity))
      return wrong("place {} needs {} bytes, a device has {}",
                   sizes.stages.place, bytes, capacity);
  }
  return {};
}

/// How often a place has a parameter.
bool Verifier::holds(const ParameterFamily &family, std::size_t place,
                     std::int64_t &instances) const {
  const bool begins =
                 static_cast<std::size_t>(plan.stages.embedding.rank) == place,
             ends = static_cast<std::size_t>(plan.stages.head.rank) == place;
  instances = 0;
  if (family.segment == Segment::Head)
    instances = ends;
  else if (family.segment == Segment::Embedding)
    instances = begins || (ends && !family.alias.empty());
  else
    for (const PlanRange &range : plan.stages.layers[place])
      for (std::int64_t layer = range.first; layer <= range.last; ++layer)
        instances += family.layerNumbers.empty() ||
                     std::count(family.layerNumbers.begin(),
                                family.layerNumbers.end(), layer) > 0;
  return instances > 0;
}

/// Bytes of states without any rounding: less than what is stored.
double Verifier::statesAt(std::size_t place) const {
  const PlanZero &zero = plan.zero;
  const double compute = plan.precision.compute == "fp32" ? 4 : 2,
               gradient = plan.precision.gradients == "fp32" ? 4 : 2,
               numbers =
                   (problem.train.optimizer.kind == OptimizerKind::AdamW ? 8
                                                                         : 0) +
                   (plan.precision.master == "none" ? 0 : 4);
  double bytes = 0;
  for (const ParameterFamily &family : parameters(model)) {
    std::int64_t instances = 0;
    if (!holds(family, place, instances))
      continue;
    double elements = static_cast<double>(family.elements());
    Result<PlanDims> dims = parameterLayout(plan, model, family);
    bool isDealt = false;
    for (const std::vector<std::string> &axes : *dims)
      for (const std::string &axis : axes) {
        isDealt |= axis == "ep";
        for (const auto &[name, size] : meshOfPlan(plan, model).axes)
          if (name == axis)
            elements /= static_cast<double>(size);
      }
    const std::int64_t group =
        zero.stage == 0 ? 1
        : isDealt
            ? std::max<std::int64_t>(zero.shardGroup / plan.axisSize("ep"), 1)
            : zero.shardGroup;
    const double shard = 1.0 / static_cast<double>(group);
    const bool cutsSums =
        zero.stage >= 2 && zero.reduce == PlanReduce::EveryMicroBatch;
    bytes += static_cast<double>(instances) * elements *
             (compute * (zero.stage >= 3 ? shard : 1) +
              gradient * (cutsSums ? shard : 1) +
              (plan.offload.optimizer ? 0 : numbers * shard));
  }
  return bytes;
}

/// The most that is saved at once, slot by slot.
Result<double> Verifier::savedAt(const ScheduleTable &table,
                                 std::size_t place) const {
  std::vector<SavedBytes> ofChunk;
  for (const PlanRange &range : plan.stages.layers[place]) {
    SavedBytes bytes;
    for (std::int64_t layer = range.first; layer <= range.last; ++layer) {
      Result<LayerSaved> saved =
          memory.layerSaved(costed.point, model.hasExperts(layer));
      if (!saved)
        return saved.error();
      PointRecompute kind = PointRecompute::None;
      for (const PlanRecompute &entry : plan.recompute)
        if (entry.layers.contains(layer))
          kind = entry.kind == PlanRecomputeKind::Full
                     ? PointRecompute::Full
                     : PointRecompute::Selective;
      const SavedBytes &each = saved->of(kind);
      bytes.all += each.all;
      bytes.forWeights += each.forWeights;
      bytes.kept += each.kept;
    }
    ofChunk.push_back(bytes);
  }
  std::int64_t now = 0, most = 0;
  for (const Slot slot : table.rows[place]) {
    const SavedBytes &bytes = ofChunk[static_cast<std::size_t>(slot.chunk())];
    switch (slot.kind()) {
    case SlotKind::Forward:
      most = std::max(most, now += bytes.all);
      break;
    case SlotKind::InputGrad:
      most = std::max(most, now += bytes.kept);
      now -= bytes.forInputs();
      break;
    case SlotKind::WeightGrad:
      now -= bytes.forWeights + bytes.kept;
      break;
    case SlotKind::Backward:
      now -= bytes.all;
      break;
    case SlotKind::Optimizer:
      break;
    }
  }
  return static_cast<double>(most);
}

Result<void> Verifier::verifyMemory() const {
  const std::int64_t capacity = problem.cluster.planBytesPerDevice();
  Result<ScheduleTable> table = scheduleOfPlan(plan);
  if (!table)
    return table.error();
  for (std::size_t place = 0; place < plan.stages.layers.size(); ++place) {
    Result<double> saved = savedAt(*table, place);
    if (!saved)
      return saved.error();
    const double bytes = statesAt(place) + *saved;
    if (bytes > static_cast<double>(capacity))
      return wrong("place {} needs {:.0f} bytes for states and what is saved "
                   "alone, a device has {}",
                   place, bytes, capacity);
    if (bytes > static_cast<double>(costed.peakBytes))
      return wrong("place {} needs {:.0f} bytes for states and what is saved "
                   "alone, the answer says {} in all",
                   place, bytes, costed.peakBytes);
  }
  return {};
}

Result<void> Verifier::verify() {
  for (auto check : {&Verifier::verifySizes, &Verifier::verifyLayers,
                     &Verifier::verifyParameters, &Verifier::verifyDemands})
    if (Result<void> done = (this->*check)(); !done)
      return done;
  if (costed.peakBytes > problem.cluster.planBytesPerDevice())
    return wrong("{} bytes at the peak, a device has {}", costed.peakBytes,
                 problem.cluster.planBytesPerDevice());
  if (!notCompiledYet(costed.point, model).empty())
    return verifyMemory();
  if (Result<std::vector<PlanWarning>> checked =
          checkPlan(plan, model, problem.train, &problem.cluster);
      !checked)
    return checked.error();
  if (Result<std::vector<PlanWarning>> checked = checkStages(plan); !checked)
    return checked.error();
  return verifyCompiledMemory();
}

Result<void> heddle::verifyPlan(const PlanProblem &problem,
                                const CostedPlan &plan,
                                const MemoryEstimator &memory) {
  Result<void> verified = Verifier(problem, plan, memory).verify();
  if (!verified)
    return Error{fmt::format("{} ({})", verified.message(), plan.point.text())};
  return verified;
}
