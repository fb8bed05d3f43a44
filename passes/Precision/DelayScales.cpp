//===- DelayScales.cpp - scales of earlier steps' largest magnitudes ------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Precision/LayerCalls.h"
#include "passes/Precision/Passes.h"

#include "dialects/Stage/StageTable.h"
#include "dialects/Transformer/Scaling.h"

#include "heddle/Support/Mirror.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_DELAYSCALESPASS
#include "passes/Precision/Passes.h.inc"
} // namespace heddle

namespace {

/// Tensors of a layer whose largest magnitudes one of its functions finds, and
/// the states that they have.
struct Group {
  std::string name; ///< "forward" or "backward"
  SmallVector<std::string> tensors;
  StateOp history, amax, now;

  std::optional<unsigned> find(StringRef tensor) const {
    auto place = llvm::find(tensors, tensor);
    if (place == tensors.end())
      return std::nullopt;
    return place - tensors.begin();
  }
  RankedTensorType type() const { return StateOp(amax).getTensorType(); }
};

/// Works on the amaxes of one function.
class FunctionDelayer {
public:
  FunctionDelayer(func::FuncOp function, ArrayRef<Group> groups)
      : function(function), groups(groups), builder(function.getContext()) {}

  /// Lets codes be made with the scales of arguments, the last ones, one per
  /// group. An amax is left only of tensors of `recorded`, and returned.
  void run(const Group *recorded) {
    takeScales();
    llvm::StringMap<Value> found;
    for (AmaxOp amax : amaxes()) {
      Value largest = amax.getResult();
      auto reduce = largest.hasOneUse()
                        ? dyn_cast<dist::AllReduceOp>(*largest.user_begin())
                        : dist::AllReduceOp();
      if (reduce)
        largest = reduce.getResult();
      StringRef tensor =
          amax->getAttrOfType<StringAttr>(kTensorName).getValue();
      largest.replaceAllUsesWith(scaleIn(*amax->getBlock(), tensor));
      amax->removeAttr(kTensorName);
      if (reduce)
        reduce.erase();
      const bool isRecorded =
          recorded && recorded->find(tensor) &&
          amax->getBlock() == &function.getBody().front() &&
          found.try_emplace(tensor, amax.getResult()).second;
      if (!isRecorded)
        amax.erase();
    }
    if (recorded)
      returnFound(*recorded, found);
  }

private:
  SmallVector<AmaxOp> amaxes() {
    SmallVector<AmaxOp> found;
    function.walk([&](AmaxOp op) {
      if (op->hasAttr(kTensorName))
        found.push_back(op);
    });
    return found;
  }

  void takeScales() {
    Block &body = function.getBody().front();
    builder.setInsertionPointToStart(&body);
    for (const Group &group : groups) {
      Value all = addArgument(function, group.name + "_amax", group.type());
      auto number = RankedTensorType::get({}, builder.getF32Type());
      auto split = SplitTensorsOp::create(
          builder, function.getLoc(),
          SmallVector<Type>(group.tensors.size(), number), all);
      SmallVector<std::string> names;
      for (auto [tensor, part] : llvm::zip(group.tensors, split.getParts())) {
        names.push_back(tensor + "_before");
        scales[tensor] = part;
      }
      setNames(split, names);
    }
  }

  /// What a tensor's scale is made of, where a region takes nothing by itself.
  Value scaleIn(Block &block, StringRef tensor) {
    Value scale = scales.lookup(tensor);
    auto region = dyn_cast<RecomputeOp>(block.getParentOp());
    if (!region)
      return scale;
    for (auto [input, argument] :
         llvm::zip(region.getInputs(), block.getArguments()))
      if (input == scale)
        return argument;
    region.getInputsMutable().append(scale);
    return block.addArgument(scale.getType(), region.getLoc());
  }

  void returnFound(const Group &group, const llvm::StringMap<Value> &found) {
    Operation *end = function.getBody().front().getTerminator();
    builder.setInsertionPoint(end);
    auto number = RankedTensorType::get({}, builder.getF32Type());
    SmallVector<Value> all;
    for (const std::string &tensor : group.tensors) {
      all.push_back(found.lookup(tensor));
      if (all.back())
        continue;
      auto none = ZerosOp::create(builder, function.getLoc(), number);
      setNames(none, {tensor + "_none"});
      all.back() = none;
    }
    auto stack =
        StackTensorsOp::create(builder, function.getLoc(), group.type(), all);
    setNames(stack, {group.name + "_now"});
    addResult(function, group.name + "_now", stack.getResult());
  }

  func::FuncOp function;
  ArrayRef<Group> groups;
  OpBuilder builder;
  llvm::StringMap<Value> scales; ///< by tensor
};

/// Gives a step the states, and what it does with them.
class StepDelayer {
public:
  StepDelayer(func::FuncOp step, DictionaryAttr given)
      : step(step), module(step->getParentOfType<ModuleOp>()), given(given),
        mesh(module->getAttrOfType<dist::MeshAttr>(dist::kMeshName)),
        builder(step.getContext()) {}

  LogicalResult run() {
    if (!mesh)
      return module.emitError()
             << "delays scales, but has no " << dist::kMeshName;
    FailureOr<SmallVector<LayerCall>> calls = findLayerCalls(step);
    if (failed(calls) || failed(createStates()))
      return failure();
    recordCalls(*calls);
    zeroNow();
    return updateStates();
  }

private:
  LogicalResult createStates() {
    StateOp like;
    for (auto state : module.getOps<StateOp>())
      if (state.getKind() == StateKind::Parameter && state.getLayers())
        like = state;
    auto steps = given.getAs<IntegerAttr>("history");
    if (!like || !steps || steps.getInt() < 1)
      return module.emitError()
             << "needs parameters of layers and a history of at least one "
                "step to delay scales, found "
             << given;
    builder.setInsertionPointAfter(like);
    for (StringRef name : {"forward", "backward"}) {
      Group group;
      group.name = name.str();
      if (auto tensors = given.getAs<ArrayAttr>(name))
        for (auto tensor : tensors.getAsRange<StringAttr>())
          group.tensors.push_back(tensor.str());
      if (group.tensors.empty())
        return module.emitError() << "has no tensors of " << name
                                  << " whose scales to delay: " << given;
      const auto count = static_cast<int64_t>(group.tensors.size());
      group.history = createState(like, name + ".amax_history",
                                  StateKind::Scaling, {count, steps.getInt()});
      group.amax =
          createState(like, name + ".amax", StateKind::Scaling, {count});
      group.now =
          createState(like, name + ".amax_now", StateKind::Amax, {count});
      groups.push_back(group);
    }
    return success();
  }

  /// One per layer, the same on all ranks that have the layer.
  StateOp createState(StateOp like, const Twine &name, StateKind kind,
                      ArrayRef<int64_t> shape) {
    auto type = RankedTensorType::get(shape, builder.getF32Type());
    auto state =
        StateOp::create(builder, like.getLoc(), ("block.{}." + name).str(),
                        kind, like.getLayersAttr(), type);
    state.setFileShape(shape);
    state.setFileOrder(llvm::to_vector(llvm::seq<int64_t>(0, type.getRank())));
    state->setAttr(dist::kLayoutName,
                   dist::LayoutAttr::get(mesh, type.getRank()));
    state->setAttr(dist::kGlobalTypeName, TypeAttr::get(type));
    return state;
  }

  /// The first call that finds a tensor's largest magnitude records it: those
  /// behind it find the same.
  void recordCalls(ArrayRef<LayerCall> calls) {
    llvm::StringSet<> recorded;
    for (const LayerCall &call : calls) {
      const Group *group = recordedBy(call, recorded);
      for (func::FuncOp function : call.functions)
        FunctionDelayer(function, groupsOf(call)).run(group);
      addToCall(call, group);
    }
  }

  /// Whose scales a function makes codes with: forward has no gradients.
  ArrayRef<Group> groupsOf(const LayerCall &call) {
    return ArrayRef(groups).take_front(call.isBackward ? 2 : 1);
  }

  const Group *recordedBy(const LayerCall &call, llvm::StringSet<> &recorded) {
    const Group &group = groups[call.isBackward ? 1 : 0];
    bool isNew = false;
    for (func::FuncOp function : call.functions)
      function.walk([&](AmaxOp op) {
        auto tensor = op->getAttrOfType<StringAttr>(kTensorName);
        if (tensor && group.find(tensor) &&
            recorded.insert(tensor.getValue()).second)
          isNew = true;
      });
    return isNew ? &group : nullptr;
  }

  void addToCall(const LayerCall &call, const Group *recorded) {
    builder.setInsertionPoint(call.op);
    SmallVector<Value> more;
    for (const Group &group : groupsOf(call)) {
      auto load = LoadOp::create(builder, call.op->getLoc(), group.type(),
                                 StateOp(group.amax).getSymName(), call.layer);
      setNames(load, {group.name + "_amax"});
      more.push_back(load);
    }
    Operation *made =
        withMore(call.op, more, recorded ? recorded->type() : Type(),
                 recorded ? recorded->name + "_now" : "");
    if (!recorded)
      return;
    builder.setInsertionPointAfter(made);
    Group &group = groups[recorded - groups.begin()];
    auto before = LoadOp::create(builder, made->getLoc(), group.type(),
                                 group.now.getSymName(), call.layer);
    auto most = MaximumOp::create(builder, made->getLoc(), group.type(), before,
                                  made->getResult(made->getNumResults() - 1));
    StoreOp::create(builder, made->getLoc(), most, group.now.getSymName(),
                    call.layer);
  }

  /// Before the first micro-batch, where sums of gradients begin too.
  void zeroNow() {
    Block &body = step.getBody().front();
    Operation *place = &body.front();
    for (auto zero : body.getOps<ZeroOp>())
      place = zero;
    while (isa<stage::LayersOp>(place))
      place = place->getNextNode();
    builder.setInsertionPoint(place);
    for (Group &group : groups)
      ZeroOp::create(builder, step.getLoc(), group.now.getSymName());
  }

  /// Behind the last micro-batch: a step that clips to nothing changes nothing.
  LogicalResult updateStates() {
    Block &body = step.getBody().front();
    ClipFactorOp clip;
    for (auto op : body.getOps<ClipFactorOp>())
      clip = op;
    LoopOp like;
    for (auto loop : body.getOps<LoopOp>())
      if (loop.getOver() == "layer")
        like = loop;
    if (!clip || !like)
      return step.emitError() << "has no loop over layers behind a clip_factor "
                                 "in which scales could be updated";
    Value number = addArgument(step, kStep,
                               RankedTensorType::get({}, builder.getI32Type()));
    auto location = NameLoc::get(builder.getStringAttr("scales"),
                                 NameLoc::get(builder.getStringAttr("step")));
    builder.setInsertionPoint(body.getTerminator());
    auto loop = LoopOp::create(builder, location, TypeRange(), "layer",
                               like.getCount(), /*reversed=*/false,
                               ValueRange(), IntegerAttr(), like.getLimit());
    Block &inside = loop.getBody().emplaceBlock();
    Value layer = inside.addArgument(builder.getIndexType(), location);
    builder.setInsertionPointToStart(&inside);
    for (Group &group : groups)
      update(group, layer, number, clip.getFactor(), location);
    YieldOp::create(builder, location, ValueRange(), ValueRange());
    return success();
  }

  void update(Group &group, Value layer, Value number, Value factor,
              Location location) {
    auto load = [&](StateOp state, const Twine &name) -> Value {
      auto op = LoadOp::create(builder, location, state.getTensorType(),
                               state.getSymName(), layer);
      setNames(op, {(group.name + name).str()});
      return op;
    };
    Value now = overAll(load(group.now, "_now"), location);
    Value history = load(group.history, "_history");
    Value before = load(group.amax, "_before");
    auto next = DelayScalesOp::create(
        builder, location, history.getType(), before.getType(), history, now,
        before, number, factor, given.contains("most_recent"));
    setNames(next, {group.name + "_history_next", group.name + "_next"});
    StoreOp::create(builder, location, next.getNewHistory(),
                    group.history.getSymName(), layer);
    StoreOp::create(builder, location, next.getAmax(), group.amax.getSymName(),
                    layer);
  }

  /// The largest over all ranks that hold parts of the layer's tensors, or
  /// whose micro-batches are of the same step.
  Value overAll(Value value, Location location) {
    SmallVector<Attribute> axes;
    for (Attribute axis : mesh.getNames())
      if (mesh.getSize(cast<StringAttr>(axis)) > 1 &&
          cast<StringAttr>(axis) != stage::kStageAxis)
        axes.push_back(axis);
    StringRef why = "each rank has seen a part of the step's tensors";
    if (!axes.empty())
      value = largest(value, builder.getArrayAttr(axes), why, location);
    auto stages = stage::StageTable::of(module);
    if (stages && stages->copies() > 1)
      value = largest(
          value, builder.getStrArrayAttr({mirrorOf(stage::kStageAxis)}),
          "each copy of the model has seen a part of the step", location);
    return value;
  }

  Value largest(Value value, ArrayAttr axes, StringRef why, Location location) {
    auto op = dist::AllReduceOp::create(
        builder, NameLoc::get(builder.getStringAttr(why), location),
        value.getType(), value, dist::Reduction::Max, mesh, axes);
    setNames(op, {getName(value).str()});
    return op;
  }

  func::FuncOp step;
  ModuleOp module;
  DictionaryAttr given;
  dist::MeshAttr mesh;
  OpBuilder builder;
  SmallVector<Group, 2> groups;
};

struct DelayScalesPass : heddle::impl::DelayScalesPassBase<DelayScalesPass> {
  void runOnOperation() override {
    auto step = getOperation().lookupSymbol<func::FuncOp>("step");
    auto given = getOperation()->getAttrOfType<DictionaryAttr>(kDelayedName);
    if (given && step && failed(StepDelayer(step, given).run()))
      signalPassFailure();
  }
};

} // namespace
