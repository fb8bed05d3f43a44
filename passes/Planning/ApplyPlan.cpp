//===- ApplyPlan.cpp - a plan's decisions onto the module -----------------===//

#include "passes/Planning/ApplyPlan.h"

#include "passes/Planning/ScaledProducts.h"
#include "passes/Planning/SegmentValues.h"

#include "dialects/Stage/Stage.h"
#include "heddle/Cost/RankSizes.h"
#include "heddle/Model/Parameters.h"
#include "heddle/Plan/PlanLayout.h"
#include "heddle/Schedule/Generate.h"
#include "heddle/Support/Glob.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace heddle;
using dist::LayoutAttr;
using dist::MeshAttr;

/// What the plan pins: layouts by name, for passes/Sharding.
static constexpr llvm::StringLiteral kValuesName = "dist.values";
static constexpr llvm::StringLiteral kSavedLayoutsName = "dist.saved";

namespace {
/// Writes layouts of one plan as attributes.
class PlanWriter {
public:
  PlanWriter(ModuleOp module, const Plan &plan, const ModelConfig &model,
             const TrainSettings &train)
      : module(module), plan(plan), model(model), train(train),
        builder(module.getContext()), padded(paddedSizes(plan, model)) {
    SmallVector<Attribute> names;
    SmallVector<int64_t> sizes;
    for (const auto &[name, size] : meshOfPlan(plan, model).axes) {
      names.push_back(builder.getStringAttr(name));
      sizes.push_back(size);
    }
    mesh = MeshAttr::get(module.getContext(), builder.getArrayAttr(names),
                         builder.getDenseI64ArrayAttr(sizes));
  }

  LogicalResult run() {
    module->setAttr(dist::kMeshName, mesh);
    module->setAttr("dist.plan", builder.getStringAttr(writePlan(plan)));
    module->setAttr(dist::kStorageName, storage());
    module->setAttr(dist::kOverlapName, overlap());
    if (plan.precision.recipe != "fp32")
      module->setAttr(transformer::kPrecisionName, precision());
    if (std::optional<ScalingRecipe> scaling = scalingOf(plan.precision))
      markScaledProducts(module, *scaling, plainProducts(),
                         static_cast<std::uint64_t>(train.seed));
    if (failed(writeRecompute()) || failed(writeOffload()) ||
        failed(writeParameters()) || failed(writeValues()))
      return failure();
    return writeSchedule();
  }

private:
  llvm::StringMap<std::vector<std::int64_t>> plainProducts() {
    llvm::StringMap<std::vector<std::int64_t>> layers;
    for (const ParameterFamily &family : parameters(model))
      layers[family.name] = plainLayers(plan, family);
    return layers;
  }

  LayoutAttr layoutOf(const PlanDims &axes, StringRef letters,
                      ArrayRef<int64_t> shape) {
    SmallVector<StringRef> names;
    llvm::SplitString(letters, names);
    SmallVector<Attribute> dims;
    SmallVector<int64_t> stored;
    for (auto [i, list] : llvm::enumerate(axes)) {
      SmallVector<Attribute> here;
      for (const std::string &axis : list)
        here.push_back(builder.getStringAttr(axis));
      dims.push_back(builder.getArrayAttr(here));
      auto size = padded.find(names[i].str());
      bool pads =
          size != padded.end() && i < shape.size() && size->second != shape[i];
      stored.push_back(pads ? size->second : 0);
    }
    return LayoutAttr::get(mesh, builder.getArrayAttr(dims),
                           builder.getDenseI64ArrayAttr(stored));
  }

  DictionaryAttr storage() {
    auto axes = [&](const std::vector<std::string> &list) {
      SmallVector<Attribute> names;
      for (const std::string &axis : list)
        if (axisSize(axis) > 1)
          names.push_back(builder.getStringAttr(axis));
      return builder.getArrayAttr(names);
    };
    static constexpr StringRef kGather[] = {"every_pass", "every_micro_batch",
                                            "once_per_step"};
    const bool everyMicroBatch =
        plan.zero.reduce == PlanReduce::EveryMicroBatch;
    ArrayAttr none = builder.getArrayAttr({}), zero = axes(zeroAxes(plan));
    NamedAttrList entries;
    // Sums that are reduced after the last micro-batch are whole until then.
    entries.set("gradient_sum",
                plan.zero.stage >= 2 && everyMicroBatch ? zero : none);
    entries.set("gradient", zero);
    entries.set("optimizer", zero);
    entries.set("parameter", plan.zero.stage >= 3 ? zero : none);
    entries.set("data", axes(dataAxes(plan)));
    entries.set("reduce", builder.getStringAttr(
                              everyMicroBatch ? "every_micro_batch" : "last"));
    entries.set("gather", builder.getStringAttr(
                              kGather[static_cast<int>(plan.zero.gather)]));
    return entries.getDictionary(module.getContext());
  }

  DictionaryAttr overlap() {
    const bool overlaps = plan.overlapMemoryBytes.has_value();
    NamedAttrList entries;
    entries.set("reductions", builder.getBoolAttr(overlaps));
    entries.set("bucket_bytes",
                builder.getI64IntegerAttr(plan.buckets.gradientBytes));
    entries.set("order", builder.getStringAttr(plan.buckets.order ==
                                                       PlanBucketOrder::Backward
                                                   ? "backward"
                                                   : "forward"));
    entries.set("prefetch",
                builder.getI64IntegerAttr(layersAhead(plan, model)));
    entries.set("memory_bytes",
                builder.getI64IntegerAttr(plan.overlapMemoryBytes.value_or(0)));
    return entries.getDictionary(module.getContext());
  }

  /// Of words that `checkPlan` has let through.
  Type formatOf(StringRef word) {
    return llvm::StringSwitch<Type>(word)
        .Case("bf16", builder.getBF16Type())
        .Case("fp16", builder.getF16Type())
        .Default(builder.getF32Type());
  }

  DictionaryAttr precision() {
    NamedAttrList entries;
    for (const auto &[key, word] :
         {std::pair("compute", &plan.precision.compute),
          std::pair("master", &plan.precision.master),
          std::pair("gradients", &plan.precision.gradients),
          std::pair("reduce", &plan.precision.reduce)})
      if (*word != "none") // a master that is not there
        entries.set(key, TypeAttr::get(formatOf(*word)));
    return entries.getDictionary(module.getContext());
  }

  /// Where any layer computes anything again.
  LogicalResult writeRecompute() {
    SmallVector<Attribute> all;
    bool any = false;
    for (const PlanRecompute &one : plan.recompute) {
      NamedAttrList entry;
      entry.set("first", builder.getI64IntegerAttr(one.layers.first));
      entry.set("last", builder.getI64IntegerAttr(one.layers.last));
      Result<std::vector<std::string>> values = one.values;
      if (one.kind == PlanRecomputeKind::Budget)
        values = valuesOfBudget(one.budgetBytes);
      if (!values)
        return module.emitError() << values.message();
      if (one.kind == PlanRecomputeKind::Selective)
        entry.set("selective", builder.getUnitAttr());
      else if (one.kind == PlanRecomputeKind::Full)
        entry.set("full", builder.getUnitAttr());
      else
        entry.set("values", builder.getStrArrayAttr(
                                llvm::to_vector_of<StringRef>(*values)));
      if (plan.save == PlanSave::LinearInputs)
        entry.set("linear_inputs", builder.getUnitAttr());
      if (!one.prune)
        entry.set("whole", builder.getUnitAttr());
      any |= one.kind != PlanRecomputeKind::Values || !one.values.empty();
      all.push_back(entry.getDictionary(module.getContext()));
    }
    if (any)
      module->setAttr(transformer::kRecomputeName, builder.getArrayAttr(all));
    return success();
  }

  LogicalResult writeOffload() {
    if (plan.offload.saved.empty() && !plan.offload.optimizer)
      return success();
    if (Result<void> checked = checkOffload(model, train, plan); !checked)
      return module.emitError() << "plan: " << checked.error().message;
    NamedAttrList entries;
    entries.set("saved", builder.getStrArrayAttr(llvm::to_vector_of<StringRef>(
                             plan.offload.saved)));
    if (plan.offload.optimizer)
      entries.set("optimizer", builder.getUnitAttr());
    module->setAttr(transformer::kOffloadName,
                    entries.getDictionary(module.getContext()));
    return success();
  }

  /// What is computed again so that a layer saves no more than that.
  Result<std::vector<std::string>> valuesOfBudget(std::int64_t bytes) {
    Result<RankSizes> sizes = rankSizes(model, train, plan);
    if (!sizes)
      return sizes.error();
    for (const LayersUnder &layers : sizes->recompute)
      if (layers.choice.kind == PlanRecomputeKind::Budget &&
          layers.choice.budgetBytes == bytes)
        return layers.choice.values;
    return std::vector<std::string>(); // of no layer: a later entry counts
  }

  int64_t axisSize(StringRef axis) {
    return mesh.getIndex(axis) < 0 ? 1 : mesh.getSize(axis);
  }

  /// The table of a plan with stages.
  LogicalResult writeSchedule() {
    if (plan.stages.schedule == PlanScheduleKind::None)
      return success();
    Result<ScheduleTable> schedule = scheduleOfPlan(plan);
    if (!schedule)
      return module.emitError() << schedule.error().message;
    SmallVector<Attribute> places, rows;
    for (const std::vector<PlanRange> &chunks : plan.stages.layers) {
      SmallVector<Attribute> ranges;
      for (const PlanRange &range : chunks)
        ranges.push_back(builder.getStringAttr(range.text()));
      places.push_back(builder.getArrayAttr(ranges));
    }
    for (const std::string &row : writeRows(*schedule))
      rows.push_back(builder.getStringAttr(row));
    module.getContext()->loadDialect<stage::StageDialect>();
    OpBuilder atBegin = OpBuilder::atBlockBegin(module.getBody());
    auto table = stage::TableOp::create(
        atBegin, module.getLoc(), "schedule", plan.microBatches,
        builder.getArrayAttr(places), builder.getArrayAttr(rows));
    return table.verify();
  }

  LogicalResult writeParameters() {
    std::vector<ParameterFamily> families = parameters(model);
    for (auto state : module.getOps<transformer::StateOp>()) {
      if (state.getKind() != transformer::StateKind::Parameter)
        continue;
      auto family =
          llvm::find_if(families, [&](const ParameterFamily &candidate) {
            return candidate.name == state.getSymName();
          });
      if (family == families.end())
        return state.emitOpError() << "is no parameter of the plan's model";
      Result<PlanDims> axes = parameterLayout(plan, model, *family);
      if (!axes)
        return state.emitOpError() << axes.error().message;
      state->setAttr(
          dist::kLayoutName,
          layoutOf(*axes, family->letters, state.getTensorType().getShape()));
    }
    return success();
  }

  /// Each rule has to name a value: one that pins nothing is a mistake.
  LogicalResult checkNames(ArrayRef<PlanRule> rules,
                           ArrayRef<SegmentValue> values, StringRef key) {
    for (const PlanRule &rule : rules) {
      Result<Glob> glob = Glob::parse(rule.match);
      if (glob && llvm::any_of(values, [&](const SegmentValue &value) {
            return glob->matches(value.name);
          }))
        continue;
      StringRef segment = StringRef(rule.match).split('.').first;
      SmallVector<StringRef> names, ofSegment;
      for (const SegmentValue &value : values) {
        names.push_back(value.name);
        if (StringRef(value.name).split('.').first == segment)
          ofSegment.push_back(value.name);
      }
      return module.emitError()
             << "plan: " << key << ": rule \"" << rule.match
             << "\" matches no value; values are "
             << llvm::join(ofSegment.empty() ? names : ofSegment, ", ");
    }
    return success();
  }

  /// Writes what `rules` (`valueLayout` or `savedLayout`) say of `values`.
  template <class Rules>
  LogicalResult writePins(StringRef attribute, ArrayRef<SegmentValue> values,
                          Rules rules) {
    SmallVector<NamedAttribute> pins;
    for (const SegmentValue &value : values) {
      Result<std::optional<PlanDims>> axes =
          rules(plan, model, value.name, value.factors);
      if (!axes)
        return module.emitError() << "plan: " << axes.error().message;
      if (*axes)
        pins.push_back(
            builder.getNamedAttr(value.name, layoutOf(**axes, value.factors,
                                                      value.type.getShape())));
    }
    module->setAttr(attribute, builder.getDictionaryAttr(pins));
    return success();
  }

  LogicalResult writeValues() {
    std::vector<SegmentValue> values = findSegmentValues(module), saved;
    ArrayRef<int64_t> edgeShape;
    for (const SegmentValue &value : values)
      if (value.name == "block.x")
        edgeShape = value.type.getShape();
    padded["s"] = paddedLength(plan, model, edgeShape[1]);
    llvm::copy_if(values, std::back_inserter(saved),
                  [](const SegmentValue &value) { return value.isSaved; });
    if (failed(checkNames(plan.tensor.values, values, "tensor.values")) ||
        failed(checkNames(plan.tensor.saved, saved, "tensor.saved")) ||
        failed(writePins(kValuesName, values, valueLayout)) ||
        failed(writePins(kSavedLayoutsName, saved, savedLayout)))
      return failure();
    NamedAttrList pins(module->getAttrOfType<DictionaryAttr>(kValuesName));
    // The step's inputs are whole along sequences, which attention needs of its
    // keys anyway; along b they follow what flows through the blocks.
    LayoutAttr tokens;
    for (StringRef name : {"block.x", "block.delta"}) {
      if (!pins.get(name))
        pins.set(name, layoutOf({dataAxes(plan), {}, {}}, "b s d", edgeShape));
      auto edge = cast<LayoutAttr>(pins.get(name));
      tokens = LayoutAttr::get(
          mesh,
          builder.getArrayAttr({edge.getAxes(0), builder.getArrayAttr({})}),
          builder.getDenseI64ArrayAttr(
              edge.getPadded().asArrayRef().take_front(2)));
    }
    for (StringRef name :
         {StringRef("tokens"), StringRef("labels"), StringRef("positions"),
          StringRef("documents"), StringRef(transformer::kTokenNumbers)})
      pins.set(name, tokens);
    module->setAttr(kBatchLayoutName, tokens);
    module->setAttr(kValuesName, pins.getDictionary(module.getContext()));
    return success();
  }

  ModuleOp module;
  const Plan &plan;
  const ModelConfig &model;
  const TrainSettings &train;
  Builder builder;
  std::map<std::string, std::int64_t> padded;
  MeshAttr mesh;
};
} // namespace

LogicalResult heddle::applyPlan(ModuleOp module, const Plan &plan,
                                const ModelConfig &model,
                                const TrainSettings &train) {
  return PlanWriter(module, plan, model, train).run();
}
