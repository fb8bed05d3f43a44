//===- BuildBackward.cpp - each segment's backward ------------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Transformer/Cut.h"
#include "passes/Autodiff/Passes.h"
#include "passes/Autodiff/ReverseMode.h"

using namespace mlir;

namespace heddle {
#define GEN_PASS_DEF_BUILDBACKWARDPASS
#include "passes/Autodiff/Passes.h.inc"
} // namespace heddle

namespace heddle {
namespace {

using namespace transformer;
using autodiff::isDifferentiable;
using autodiff::ReverseMode;

bool hasFloat(TypeRange types) { return llvm::any_of(types, isDifferentiable); }

/// Whether backward exists already, or was made here.
bool isTreated(ModuleOp module, func::FuncOp function) {
  if (module.lookupSymbol((function.getName() + "_bwd").str()))
    return true;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (function.getArgAttr(i, kSavedName))
      return true;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (function.getResultAttr(i, kGradientName))
      return true;
  return function.getName().ends_with("_bwd");
}

bool isSegment(ModuleOp module, func::FuncOp function) {
  return !function.isDeclaration() && hasFloat(function.getArgumentTypes()) &&
         hasFloat(function.getResultTypes()) &&
         llvm::none_of(function.getArgumentTypes(), llvm::IsaPred<StackType>) &&
         !isTreated(module, function);
}

/// Name of a result: what the function says, else the value's.
std::string nameOfResult(func::FuncOp function, unsigned index, Value value) {
  if (auto name =
          function.getResultAttrOfType<StringAttr>(index, kArgumentName))
    return name.str();
  StringRef name = getName(value);
  return name.empty() ? "result" + std::to_string(index) : name.str();
}

/// Gives the joint function an argument in front for the gradient of each float
/// result. They stand in front so that backward, cut from it, has them there.
LogicalResult seedResults(func::FuncOp function, ReverseMode &reverse) {
  Operation *ending = function.getBody().front().getTerminator();
  Builder builder(function.getContext());
  unsigned at = 0;
  for (auto [index, value] : llvm::enumerate(ending->getOperands())) {
    if (!isDifferentiable(value.getType()))
      continue;
    std::string name =
        reverse.names.unique("d_" + nameOfResult(function, index, value));
    NamedAttrList attributes;
    attributes.set(kArgumentName, builder.getStringAttr(name));
    if (failed(function.insertArgument(
            at, value.getType(), attributes.getDictionary(builder.getContext()),
            value.getLoc())))
      return failure();
    reverse.seed(value, function.getArgument(at++), "result");
  }
  return success();
}

/// The argument in front of all others by which the loss is scaled, if it is.
Value addLossScale(func::FuncOp function) {
  if (!function->getParentOfType<ModuleOp>()->hasAttr(kLossScaledName))
    return {};
  Builder builder(function.getContext());
  NamedAttrList attributes;
  attributes.set(kArgumentName, builder.getStringAttr(kLossScale));
  if (failed(function.insertArgument(
          0, RankedTensorType::get({}, builder.getF32Type()),
          attributes.getDictionary(builder.getContext()), function.getLoc())))
    return {};
  return function.getArgument(0);
}

/// Starts from the losses that the function returns.
LogicalResult seedLosses(func::FuncOp function, ReverseMode &reverse,
                         Value scale) {
  Operation *ending = function.getBody().front().getTerminator();
  for (auto [index, value] : llvm::enumerate(ending->getOperands())) {
    auto mean = value.getDefiningOp<MeanCountedOp>();
    if (!mean)
      return ending->emitError() << "@" << function.getName()
                                 << " has a loss, but its result " << index
                                 << " is no mean_counted; a function with a "
                                    "loss returns losses only";
    auto gradient = buildLossGradient(reverse.builder, mean, scale);
    if (failed(gradient))
      return failure();
    reverse.seed(gradient->first, gradient->second, "loss");
  }
  return success();
}

/// Returns the gradients of the float arguments from `firstArgument` on.
LogicalResult returnGradients(func::FuncOp function, ReverseMode &reverse,
                              unsigned firstArgument) {
  Operation *ending = function.getBody().front().getTerminator();
  Builder builder(function.getContext());
  SmallVector<Value> results(ending->getOperands());
  SmallVector<DictionaryAttr> attributes;
  for (unsigned i = firstArgument; i < function.getNumArguments(); ++i) {
    BlockArgument argument = function.getArgument(i);
    if (!isDifferentiable(argument.getType()))
      continue;
    results.push_back(reverse.take(argument));
    NamedAttrList list;
    list.set(kArgumentName,
             builder.getStringAttr("d_" + getName(argument).str()));
    if (Attribute state = function.getArgAttr(i, kStateName))
      list.set(kGradientName, state);
    attributes.push_back(list.getDictionary(function.getContext()));
  }
  unsigned first = function.getNumResults();
  SmallVector<unsigned> indices(attributes.size(), first); // all at the end
  if (failed(function.insertResults(
          indices, ValueRange(ArrayRef(results).drop_front(first)).getTypes(),
          attributes)))
    return failure();
  ending->setOperands(results);
  return success();
}

LogicalResult checkForm(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitError() << "@" << function.getName()
                                << " has several blocks; a segment has one";
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (getName(function.getArgument(i)).empty())
      return function.emitError()
             << "@" << function.getName() << " has no name (" << kArgumentName
             << ") for its argument " << i;
  return success();
}

/// Parts of a parameter are not saved: backward has the parameter.
bool readsParametersOnly(Operation *op) {
  return llvm::all_of(op->getOperands(), [](Value operand) {
    auto argument = dyn_cast<BlockArgument>(operand);
    if (!argument)
      return readsParametersOnly(operand.getDefiningOp());
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function.getArgAttr(argument.getArgNumber(), kStateName) != nullptr;
  });
}

LogicalResult differentiate(func::FuncOp function) {
  if (failed(checkForm(function)))
    return failure();
  Block &body = function.getBody().front();
  // A mean_counted starts backward itself, so nothing comes in from outside.
  bool isLoss = !body.getOps<MeanCountedOp>().empty();
  unsigned results = function.getNumResults();
  Value scale = isLoss ? addLossScale(function) : Value();
  ReverseMode reverse(function);
  if (failed(isLoss ? seedLosses(function, reverse, scale)
                    : seedResults(function, reverse)))
    return failure();
  unsigned seeds = scale ? 1 : 0;
  if (!isLoss)
    seeds = llvm::count_if(function.getResultTypes(), isDifferentiable);
  if (failed(reverse.run()) ||
      failed(returnGradients(function, reverse, seeds)))
    return failure();
  reverse.finish();
  if (isLoss)
    return success();
  std::string name = function.getName().str();
  cut(function, results, name, name + "_bwd", kSavedName, readsParametersOnly);
  return success();
}

struct BuildBackwardPass : impl::BuildBackwardPassBase<BuildBackwardPass> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> segments;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (isSegment(getOperation(), function))
        segments.push_back(function);
    for (func::FuncOp function : segments)
      if (failed(differentiate(function)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace heddle
