//===- Propagate.cpp - the pass, and the edges of segments ----------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Sharding/Passes.h"
#include "passes/Sharding/Propagation.h"
#include "passes/Sharding/Storage.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::sharding;
using dist::LayoutAttr;
using transformer::StateKind;
using transformer::StateOp;

namespace heddle {
#define GEN_PASS_DEF_PROPAGATELAYOUTSPASS
#include "passes/Sharding/Passes.h.inc"
} // namespace heddle

/// Layouts by name that planning has written: of values in the program, and of
/// what is saved of them (optional).
static constexpr llvm::StringLiteral kValuesName = "dist.values";
static constexpr llvm::StringLiteral kSavedLayoutsName = "dist.saved";

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

/// The name that layouts of a segment are pinned and saved under: forward and
/// backward share it.
static StringRef segmentOf(func::FuncOp function) {
  StringRef name = function.getSymName();
  name.consume_back("_bwd");
  return name;
}

/// The layout of what flows between segments, or null for another value: `x`,
/// `delta`, their gradients.
static LayoutAttr edgeLayout(StringRef name, RankedTensorType type,
                             const Pinned &pinned) {
  LayoutAttr x = pinned.values.lookup("block.x"),
             delta = pinned.values.lookup("block.delta");
  if (!x || type.getRank() != x.getRank() ||
      !isa<FloatType>(type.getElementType()))
    return {};
  return name.contains("delta") && delta ? delta : x;
}

/// The layout that a result leaves with if it flows between segments, or null.
static LayoutAttr edgeLayoutOf(func::FuncOp function, unsigned index,
                               Value value, const Pinned &pinned) {
  if (function.getResultAttr(index, transformer::kSavedName))
    return {};
  auto name = function.getResultAttrOfType<StringAttr>(
      index, transformer::kArgumentName);
  return edgeLayout(name ? name.getValue() : transformer::getName(value),
                    cast<RankedTensorType>(value.getType()), pinned);
}

/// The layout that an argument comes in with.
static FailureOr<LayoutAttr>
argumentLayout(func::FuncOp function, unsigned index, const Pinned &pinned) {
  auto type = cast<RankedTensorType>(function.getArgument(index).getType());
  StringRef name = transformer::getName(function.getArgument(index));
  if (auto state = function.getArgAttrOfType<FlatSymbolRefAttr>(
          index, transformer::kStateName)) {
    if (LayoutAttr layout = pinned.parameters.lookup(state.getValue()))
      return layout;
    return function.emitError() << "argument " << name << " is state " << state
                                << ", which has no layout";
  }
  if (auto saved = function.getArgAttrOfType<StringAttr>(
          index, transformer::kSavedName)) {
    std::string key = (segmentOf(function) + "." + saved.getValue()).str();
    if (LayoutAttr layout = pinned.saved.lookup(key))
      return layout;
    return function.emitError() << "argument " << name << " was saved as "
                                << saved << ", which forward does not save";
  }
  if (LayoutAttr layout = pinned.values.lookup(name))
    return layout;
  if (LayoutAttr layout = edgeLayout(name, type, pinned))
    return layout;
  if (type.getRank() == 0)
    return LayoutAttr::get(pinned.mesh, 0);
  return function.emitError() << "argument '" << name << "' of type " << type
                              << " has no layout; pin it in dist.values";
}

/// The layout of a parameter's gradient that is made as `made`: the
/// parameter's, and partial as it comes, but for axes that split the parameter.
static LayoutAttr gradientLayout(LayoutAttr parameter, LayoutAttr made) {
  SmallVector<Attribute> partial;
  for (Attribute axis : made.getPartial())
    if (llvm::none_of(
            parameter.getDims().getAsRange<ArrayAttr>(),
            [&](ArrayAttr axes) { return llvm::is_contained(axes, axis); }))
      partial.push_back(axis);
  return parameter.withPartial(ArrayAttr::get(made.getContext(), partial))
      .withPartialMax(made.getPartialMax());
}

/// The layout that result `index` must leave with.
static LayoutAttr resultLayout(func::FuncOp function, unsigned index,
                               Value value, const Propagation &propagation,
                               const Pinned &pinned) {
  LayoutAttr layout = propagation.layoutOf(value);
  if (auto state = function.getResultAttrOfType<FlatSymbolRefAttr>(
          index, transformer::kGradientName)) {
    return gradientLayout(pinned.parameters.lookup(state.getValue()), layout);
  }
  if (auto saved = function.getResultAttrOfType<StringAttr>(
          index, transformer::kSavedName)) {
    LayoutAttr as = pinned.savedAs.lookup(
        (segmentOf(function) + "." + saved.getValue()).str());
    return as ? as : layout.reduced();
  }
  LayoutAttr edge = edgeLayoutOf(function, index, value, pinned);
  return edge ? edge : layout;
}

static LogicalResult checkGradients(func::FuncOp function,
                                    const Pinned &pinned) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto state = function.getResultAttrOfType<FlatSymbolRefAttr>(
            i, transformer::kGradientName))
      if (!pinned.parameters.contains(state.getValue()))
        return function.emitError() << "result " << i << " is the gradient of "
                                    << state << ", which has no layout";
  return success();
}

static LogicalResult
propagateReturn(func::FuncOp function, Propagation &propagation, Pinned &pinned,
                llvm::StringMap<LayoutAttr> &gradientLayouts) {
  Operation *end = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands())) {
    LayoutAttr layout = resultLayout(function, i, value, propagation, pinned);
    end->setOperand(i,
                    propagation.reshard(value, layout, end,
                                        "leaves the segment in this layout"));
    if (auto saved = function.getResultAttrOfType<StringAttr>(
            i, transformer::kSavedName))
      pinned.saved[(segmentOf(function) + "." + saved.getValue()).str()] =
          layout;
    if (auto state = function.getResultAttrOfType<FlatSymbolRefAttr>(
            i, transformer::kGradientName))
      gradientLayouts.try_emplace(state.getValue(), layout);
  }
  function.setFunctionType(FunctionType::get(
      function.getContext(), function.getBody().getArgumentTypes(),
      end->getOperandTypes()));
  return success();
}

LogicalResult
sharding::propagateSegment(func::FuncOp function, Pinned &pinned,
                           llvm::StringMap<LayoutAttr> &gradientLayouts) {
  Propagation propagation(pinned, segmentOf(function));
  if (failed(checkGradients(function, pinned)))
    return failure();
  for (BlockArgument argument : function.getArguments()) {
    FailureOr<LayoutAttr> layout =
        argumentLayout(function, argument.getArgNumber(), pinned);
    if (failed(layout))
      return failure();
    argument.setType(
        dist::withLayout(cast<RankedTensorType>(argument.getType()), *layout));
    // Saved in another layout, a value still has its gradient reduced to that
    // of forward.
    if (!function.getArgAttr(argument.getArgNumber(), transformer::kSavedName))
      propagation.remember(argument);
    if (function.getArgAttr(argument.getArgNumber(), transformer::kStateName))
      propagation.markParameter(argument);
  }
  for (auto [i, value] : llvm::enumerate(
           function.getBody().front().getTerminator()->getOperands())) {
    if (auto state = function.getResultAttrOfType<FlatSymbolRefAttr>(
            i, transformer::kGradientName))
      propagation.markGradient(value,
                               pinned.parameters.lookup(state.getValue()));
    else if (LayoutAttr edge = edgeLayoutOf(function, i, value, pinned))
      propagation.markLeaving(value, edge);
  }
  for (Operation &op : function.getBody().front().without_terminator()) {
    auto rule = dyn_cast<dist::FactorRuleOpInterface>(op);
    if (isa<dist::ReshardOp>(op))
      continue;
    if (!rule)
      return op.emitOpError()
             << "has no factor rule, so it cannot be given a layout";
    if (failed(propagation.visit(rule)))
      return failure();
    for (Value result : op.getResults())
      if (StringRef name = transformer::getName(result); !name.empty()) {
        std::string key = (segmentOf(function) + "." + name).str();
        LayoutAttr layout = pinned.values.lookup(key);
        pinned.forward.try_emplace(key,
                                   layout ? layout : dist::getLayout(result));
      }
  }
  return propagateReturn(function, propagation, pinned, gradientLayouts);
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

static LogicalResult readLayouts(ModuleOp module, StringRef attribute,
                                 dist::MeshAttr mesh,
                                 llvm::StringMap<LayoutAttr> &layouts) {
  auto entries = module->getAttrOfType<DictionaryAttr>(attribute);
  for (NamedAttribute entry :
       entries ? entries.getValue() : ArrayRef<NamedAttribute>()) {
    auto layout = dyn_cast<LayoutAttr>(entry.getValue());
    if (!layout || layout.getMesh() != mesh)
      return module.emitError() << attribute << ": " << entry.getName()
                                << " must be a layout on the module's mesh";
    layouts[entry.getName()] = layout;
  }
  return success();
}

static LogicalResult readPinned(ModuleOp module, Pinned &pinned) {
  pinned.mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
  if (!pinned.mesh || !module->hasAttr(kValuesName))
    return module.emitError()
           << "needs dist.mesh and dist.values; planning writes them";
  if (failed(readLayouts(module, kValuesName, pinned.mesh, pinned.values)) ||
      failed(
          readLayouts(module, kSavedLayoutsName, pinned.mesh, pinned.savedAs)))
    return failure();
  for (auto state : module.getOps<StateOp>())
    if (state.getKind() == StateKind::Parameter)
      if (auto layout = state->getAttrOfType<LayoutAttr>(dist::kLayoutName))
        pinned.parameters[state.getSymName()] = layout;
  return success();
}

/// A sum of gradients is what backward produces; where each micro-batch reduces
/// it, it is reduced over data axes, or those of its runs: copies of runs are
/// summed in the end.
static LayoutAttr sumLayout(LayoutAttr produced, const Storage &storage) {
  if (!produced || !storage.reduceEveryMicroBatch)
    return produced;
  ArrayAttr axes =
      storage.gradientSum.empty() ? storage.data : storage.gradientSum;
  SmallVector<Attribute> left;
  for (Attribute axis : produced.getPartial())
    if (!llvm::is_contained(axes, axis))
      left.push_back(axis);
  return produced.withPartial(ArrayAttr::get(produced.getContext(), left));
}

/// The axes that may cut runs of a state: those that cut none of its
/// dimensions already.
static ArrayAttr freeRuns(ArrayAttr runs, LayoutAttr layout) {
  SmallVector<Attribute> left;
  for (Attribute axis : runs)
    if (llvm::none_of(
            layout.getDims().getAsRange<ArrayAttr>(),
            [&](ArrayAttr axes) { return llvm::is_contained(axes, axis); }))
      left.push_back(axis);
  return ArrayAttr::get(runs.getContext(), left);
}

/// States take their layout into their type: dimensions as the parameter is
/// computed with, or as they were given; runs as the plan stores their kind.
static LogicalResult
setStateTypes(ModuleOp module, const Pinned &pinned,
              const llvm::StringMap<LayoutAttr> &gradientLayouts) {
  FailureOr<Storage> storage = Storage::read(module);
  if (failed(storage))
    return failure();
  for (auto state : module.getOps<StateOp>()) {
    StringRef parameter = state.getOf().value_or(state.getSymName());
    LayoutAttr layout = state->getAttrOfType<LayoutAttr>(dist::kLayoutName);
    if (state.getKind() == StateKind::GradientSum)
      layout = sumLayout(gradientLayouts.lookup(parameter), *storage);
    else if (!layout)
      layout = pinned.parameters.lookup(parameter);
    if (!layout)
      return state.emitOpError() << "has no layout";
    state->removeAttr(dist::kLayoutName);
    state.setType(dist::withLayout(
        state.getTensorType(),
        layout.withRuns(freeRuns(storage->runsOf(state.getKind()), layout))));
  }
  return success();
}

namespace heddle {
namespace {

struct PropagateLayoutsPass
    : impl::PropagateLayoutsPassBase<PropagateLayoutsPass> {
  LogicalResult propagate(ModuleOp module) {
    Pinned pinned;
    llvm::StringMap<LayoutAttr> gradientLayouts;
    if (failed(readPinned(module, pinned)))
      return failure();
    func::FuncOp step;
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.getSymName() == "step")
        step = function;
      else if (failed(propagateSegment(function, pinned, gradientLayouts)))
        return failure();
    }
    if (failed(setStateTypes(module, pinned, gradientLayouts)))
      return failure();
    module->removeAttr(kValuesName);
    module->removeAttr(kSavedLayoutsName);
    return step ? propagateStep(step, pinned) : success();
  }

  void runOnOperation() override {
    if (failed(propagate(getOperation())))
      signalPassFailure();
  }
};

} // namespace
} // namespace heddle
