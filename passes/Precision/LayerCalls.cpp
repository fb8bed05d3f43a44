//===- LayerCalls.cpp - calls of a layer's functions, with more -----------===//

#include "passes/Precision/LayerCalls.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

/// The layer of the states that are loaded beside a call, or that its gradients
/// are added to: weights' gradients read no state.
static Value layerBeside(Operation *call) {
  auto isKnown = [&](Value layer) {
    Operation *maker = layer ? layer.getDefiningOp() : nullptr;
    return layer && (!maker || maker->getBlock() != call->getBlock() ||
                     maker->isBeforeInBlock(call));
  };
  for (Operation &op : *call->getBlock()) {
    if (auto load = dyn_cast<LoadOp>(op); load && isKnown(load.getIndex()))
      return load.getIndex();
    if (auto sum = dyn_cast<AccumulateOp>(op); sum && isKnown(sum.getIndex()))
      return sum.getIndex();
  }
  return {};
}

FailureOr<SmallVector<LayerCall>> precision::findLayerCalls(func::FuncOp step) {
  auto module = step->getParentOfType<ModuleOp>();
  SmallVector<LayerCall> calls;
  WalkResult walked = step.walk([&](Operation *op) {
    SmallVector<StringRef> callees = calleesOf(op);
    if (callees.empty() || !callees.front().starts_with("block"))
      return WalkResult::advance();
    LayerCall call{
        op, {}, layerBeside(op), callees.front().starts_with("block_bwd")};
    for (StringRef callee : callees)
      call.functions.push_back(module.lookupSymbol<func::FuncOp>(callee));
    if (!call.layer) {
      op->emitOpError() << "stands beside nothing of a layer's state";
      return WalkResult::interrupt();
    }
    calls.push_back(call);
    return WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return failure();
  return calls;
}

/// What says that a value of that type is whole on each rank.
static DictionaryAttr attributesOf(func::FuncOp function, StringRef name,
                                   RankedTensorType type) {
  auto module = function->getParentOfType<ModuleOp>();
  auto mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
  NamedAttrList attributes;
  attributes.set(kArgumentName, StringAttr::get(type.getContext(), name));
  attributes.set(dist::kGlobalTypeName, TypeAttr::get(type));
  attributes.set(dist::kLayoutName,
                 dist::LayoutAttr::get(mesh, type.getRank()));
  return attributes.getDictionary(type.getContext());
}

Value precision::addArgument(func::FuncOp function, StringRef name,
                             RankedTensorType type) {
  unsigned at = function.getNumArguments();
  (void)function.insertArgument(at, type, attributesOf(function, name, type),
                                function.getLoc());
  return function.getArgument(at);
}

void precision::addResult(func::FuncOp function, StringRef name, Value value) {
  unsigned at = function.getNumResults();
  auto type = cast<RankedTensorType>(value.getType());
  (void)function.insertResult(at, type, attributesOf(function, name, type));
  function.getBody().front().getTerminator()->insertOperands(at, value);
}

Operation *precision::withMore(Operation *call, ValueRange operands,
                               Type result, StringRef name) {
  OpBuilder builder(call);
  OperationState state(call->getLoc(), call->getName());
  state.addOperands(call->getOperands());
  state.addOperands(operands);
  state.addTypes(call->getResultTypes());
  state.addAttributes(call->getAttrs());
  SmallVector<std::string> names;
  for (Value value : call->getResults())
    names.push_back(getName(value).str());
  if (result) {
    state.addTypes(result);
    names.push_back(name.str());
  }
  Operation *made = builder.create(state);
  setNames(made, names);
  for (auto [from, to] : llvm::zip(call->getResults(), made->getResults()))
    from.replaceAllUsesWith(to);
  call->erase();
  return made;
}
