//===- WriteTables.cpp - what training must know of a program -------------===//

#include "passes/Planning/WriteTables.h"

#include "passes/Planning/ApplyPlan.h"

#include "dialects/Rt/ObjectPlaces.h"
#include "dialects/Rt/Rt.h"
#include "dialects/Stage/StageTable.h"
#include "dialects/Stage/StateParts.h"
#include "heddle/Model/Parameters.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using transformer::StateKind;
using transformer::StateOp;

namespace {

/// Where the entries of one object of memory begin.
struct Place {
  SmallVector<int64_t> offsets; ///< on each stage; 0 where it has none
  int64_t stride = 0, arena = 0;
  rt::BufType type;
};

class TableWriter {
public:
  TableWriter(ModuleOp module, rt::ProgramOp program)
      : module(module), program(program), builder(module.getContext()),
        stages(stage::StageTable::of(module)), parts(module) {
    auto step = program.lookupSymbol<rt::FuncOp>(program.getEntryAttr());
    step.walk([&](rt::BufferOp buffer) {
      Place &place = places[buffer.getName()];
      for (int64_t stride : buffer.getStrides())
        place.stride = std::max(place.stride, stride);
      place.type = cast<rt::BufType>(buffer.getType());
      place.arena = this->program.getArenaIndex(buffer.getArena());
    });
    if (auto noted =
            program->getAttrOfType<DictionaryAttr>(rt::kObjectPlacesName))
      for (NamedAttribute entry : noted)
        for (Attribute offset : cast<ArrayAttr>(entry.getValue())) {
          auto number = dyn_cast<IntegerAttr>(offset);
          places[entry.getName()].offsets.push_back(number ? number.getInt()
                                                           : 0);
        }
  }

  LogicalResult run(const Plan &plan, const ModelConfig &model,
                    const TrainSettings &train) {
    SmallVector<Attribute> states;
    for (auto state : module.getOps<StateOp>()) {
      if (state.getKind() == StateKind::GradientSum ||
          state.getKind() == StateKind::Gathered ||
          state.getKind() == StateKind::Amax) // of one step only
        continue;
      FailureOr<Attribute> entry = describeState(state);
      if (failed(entry))
        return failure();
      states.push_back(*entry);
    }
    NamedAttrList tables;
    tables.set("version", number(1));
    tables.set("program", builder.getStringAttr(model.name));
    if (stages)
      tables.set("stages", describeStages());
    tables.set("inputs", describeInputs(plan, model, train));
    tables.set("outputs", describeOutputs());
    tables.set("states", builder.getArrayAttr(states));
    tables.set("optimizer", describeOptimizer(train.optimizer));
    tables.set("schedule", describeSchedule(train.schedule));
    if (plan.precision.scalesLoss())
      tables.set("loss_scaling", describeLossScale(train.lossScale));
    tables.set("sequence_length", number(train.sequenceLength));
    tables.set("global_batch", number(plan.globalBatch()));
    tables.set("micro_batches", number(plan.microBatches));
    tables.set("vocabulary_size", number(model.vocabulary));
    tables.set("seed", number(static_cast<int64_t>(train.seed)));
    tables.set("flops_per_step",
               real(modelFlopsPerStep(model, plan.globalBatch(),
                                      train.sequenceLength)));
    program.setTablesAttr(tables.getDictionary(module.getContext()));
    return success();
  }

private:
  IntegerAttr number(int64_t value) { return builder.getI64IntegerAttr(value); }
  FloatAttr real(double value) { return builder.getF64FloatAttr(value); }
  StringAttr text(StringRef value) { return builder.getStringAttr(value); }
  ArrayAttr numbers(ArrayRef<int64_t> values) {
    return builder.getArrayAttr(llvm::map_to_vector(
        values, [&](int64_t value) -> Attribute { return number(value); }));
  }

  static StringRef dtypeOf(Type type) {
    if (type.isF32())
      return "f32";
    if (type.isF64())
      return "f64";
    if (type.isBF16())
      return "bf16";
    if (type.isF16())
      return "f16";
    return type.isInteger(64) ? "i64" : "i32";
  }

  void setPlace(NamedAttrList &entry, const Place &place) {
    entry.set("arena", number(place.arena));
    entry.set("offset", number(place.offsets.front()));
    if (!llvm::all_equal(place.offsets))
      entry.set("by_stage", numbers(place.offsets));
    entry.set("dtype", text(dtypeOf(place.type.getElementType())));
  }

  /// Shapes and axes; `leading` is a dimension before them that nothing cuts.
  void setLayout(NamedAttrList &entry, RankedTensorType global,
                 dist::LayoutAttr layout,
                 std::optional<int64_t> leading = std::nullopt) {
    SmallVector<int64_t> shape, padded, local;
    SmallVector<Attribute> dims;
    if (leading) {
      for (auto *sizes : {&shape, &padded, &local})
        sizes->push_back(*leading);
      dims.push_back(builder.getArrayAttr({}));
    }
    for (auto [dim, size] : llvm::enumerate(global.getShape())) {
      shape.push_back(size);
      padded.push_back(layout.getStoredSize(dim, size));
      local.push_back(padded.back() /
                      layout.getMesh().getGroupSize(layout.getAxes(dim)));
      dims.push_back(layout.getAxes(dim));
    }
    entry.set("shape", numbers(shape));
    entry.set("padded", numbers(padded));
    entry.set("local", numbers(local));
    entry.set("dims", builder.getArrayAttr(dims));
  }

  /// The row of elements that a state is stored as, or in.
  void setRow(NamedAttrList &entry, RankedTensorType whole,
              dist::LayoutAttr layout, int64_t stored) {
    // What is stored is the row, or one rank's run of it.
    const bool isRun = !layout.getRuns().empty();
    const int64_t row =
        isRun ? layout.getRowElements(whole.getShape()) : stored;
    entry.set("runs", layout.getRuns());
    entry.set("row", number(row));
    entry.set("in_row", builder.getBoolAttr(isRun && stored == row));
  }

  FailureOr<Attribute> describeState(StateOp state) {
    auto noted = state->getAttrOfType<DictionaryAttr>(transformer::kPlaceName);
    auto object = noted ? noted.getAs<StringAttr>("object") : StringAttr();
    auto found = object ? places.find(object.getValue()) : places.end();
    auto layout = state->getAttrOfType<dist::LayoutAttr>(dist::kLayoutName);
    auto global = state->getAttrOfType<TypeAttr>(dist::kGlobalTypeName);
    if (found == places.end() || found->second.offsets.empty() || !layout ||
        !global)
      return state.emitOpError() << "has no place in the program";
    auto numberOf = [&](StringRef key) {
      return noted.getAs<IntegerAttr>(key).getInt();
    };
    Place place = found->second;
    for (int64_t &offset : place.offsets)
      offset += numberOf("offset");
    StateOp parameter = state;
    if (std::optional<StringRef> of = state.getOf())
      parameter = module.lookupSymbol<StateOp>(*of);
    NamedAttrList entry;
    entry.set("name", text(parameter.getSymName()));
    entry.set("kind", text(transformer::stringifyStateKind(state.getKind())));
    entry.set("layers", number(stages && state.getLayers() ? stages->layers()
                                                           : state.getCount()));
    std::optional<stage::Part> part = parts.partOf(state.getSymName());
    if (stages && part)
      entry.set("held_by", numbers(placesOf(*part)));
    setPlace(entry, place);
    auto whole = cast<RankedTensorType>(global.getValue());
    setLayout(entry, whole, layout);
    setRow(entry, whole, layout, numberOf("elements"));
    entry.set("letters", text(parameter.getFactors().value_or("")));
    entry.set("layer_stride", number(numberOf("stride")));
    NamedAttrList file;
    file.set("shape", numbers(*parameter.getFileShape()));
    file.set("order", numbers(*parameter.getFileOrder()));
    entry.set("file", file.getDictionary(module.getContext()));
    entry.set("decay", builder.getBoolAttr(parameter.getDecay()));
    if (state.getKind() == StateKind::Parameter ||
        state.getKind() == StateKind::Master) {
      NamedAttrList initial;
      initial.set("type", text(transformer::stringifyInitializer(
                              *parameter.getInitializer())));
      if (parameter.getInitializerStd())
        initial.set("std",
                    real(parameter.getInitializerStd()->convertToDouble()));
      entry.set("init", initial.getDictionary(module.getContext()));
    }
    return Attribute(entry.getDictionary(module.getContext()));
  }

  /// The stages that have a part of the model.
  SmallVector<int64_t> placesOf(stage::Part part) {
    SmallVector<int64_t> held;
    for (int64_t place = 0; place < stages->places(); ++place)
      if (stages->has(part, place))
        held.push_back(place);
    return held;
  }

  DictionaryAttr describeStages() {
    SmallVector<Attribute> layers;
    for (int64_t place = 0; place < stages->places(); ++place) {
      SmallVector<int64_t> held;
      for (int64_t i = 0; i < stages->heldBy(place); ++i)
        held.push_back(stages->layerAt(place, i));
      layers.push_back(numbers(held));
    }
    NamedAttrList entry;
    entry.set("axis", text(stage::kStageAxis));
    entry.set("layers", builder.getArrayAttr(layers));
    return entry.getDictionary(module.getContext());
  }

  /// The step's inputs are [micro-batch, sequence, position], each micro-batch
  /// in the layout that the plan gives it, or numbers: one, or one per layer.
  DictionaryAttr describeInputs(const Plan &plan, const ModelConfig &model,
                                const TrainSettings &train) {
    auto mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
    dist::LayoutAttr whole = dist::LayoutAttr::get(mesh, 0);
    auto batch = module->getAttrOfType<dist::LayoutAttr>(kBatchLayoutName);
    NamedAttrList inputs;
    for (auto &[name, place] : places) {
      if (!name.starts_with("inputs."))
        continue;
      NamedAttrList entry;
      setPlace(entry, place);
      Type element = place.type.getElementType();
      if (place.type.getRank() == 0)
        setLayout(entry, RankedTensorType::get({}, element), whole,
                  place.stride ? std::optional(stages ? stages->mostOfPlace()
                                                      : model.layers)
                               : std::nullopt);
      else
        setLayout(entry,
                  RankedTensorType::get({plan.globalBatch() / plan.microBatches,
                                         train.sequenceLength},
                                        element),
                  batch, plan.microBatches);
      inputs.set(name.drop_front(strlen("inputs.")),
                 entry.getDictionary(module.getContext()));
    }
    return inputs.getDictionary(module.getContext());
  }

  DictionaryAttr describeOutputs() {
    NamedAttrList outputs;
    for (auto &[name, place] : places)
      if (name.starts_with("outputs.")) {
        NamedAttrList entry;
        setPlace(entry, place);
        outputs.set(name.drop_front(strlen("outputs.")),
                    entry.getDictionary(module.getContext()));
      }
    return outputs.getDictionary(module.getContext());
  }

  DictionaryAttr describeOptimizer(const OptimizerSettings &settings) {
    NamedAttrList entry;
    entry.set("type", text(optimizerName(settings.kind)));
    entry.set("learning_rate", real(settings.lr));
    entry.set("betas", builder.getArrayAttr({real(settings.betas.first),
                                             real(settings.betas.second)}));
    entry.set("eps", real(settings.eps));
    entry.set("weight_decay", real(settings.weightDecay));
    entry.set("clip_norm", real(settings.clipNorm));
    return entry.getDictionary(module.getContext());
  }

  DictionaryAttr describeLossScale(const LossScaleSettings &settings) {
    NamedAttrList entry;
    entry.set("initial", real(settings.initial));
    entry.set("growth_interval", number(settings.growthInterval));
    entry.set("hysteresis", number(settings.hysteresis));
    entry.set("minimum", real(settings.minimum));
    return entry.getDictionary(module.getContext());
  }

  DictionaryAttr describeSchedule(const LrSchedule &schedule) {
    NamedAttrList entry;
    entry.set("type", text(scheduleName(schedule.kind)));
    entry.set("warmup_steps", number(schedule.warmupSteps));
    entry.set("steps", number(schedule.steps));
    entry.set("final_lr", real(schedule.finalLr));
    return entry.getDictionary(module.getContext());
  }

  ModuleOp module;
  rt::ProgramOp program;
  Builder builder;
  std::optional<stage::StageTable> stages;
  stage::StateParts parts;
  std::map<StringRef, Place> places;
};

} // namespace

LogicalResult heddle::writeTables(ModuleOp module, const Plan &plan,
                                  const ModelConfig &model,
                                  const TrainSettings &train) {
  for (auto program : module.getOps<rt::ProgramOp>())
    if (failed(TableWriter(module, program).run(plan, model, train)))
      return failure();
  return success();
}
