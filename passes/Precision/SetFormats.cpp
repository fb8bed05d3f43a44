//===- SetFormats.cpp - formats of segments and states --------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Precision/Formats.h"
#include "passes/Precision/Passes.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_SETFORMATSPASS
#include "passes/Precision/Passes.h.inc"
} // namespace heddle

namespace {

/// Formats of the functions that are no step.
class SegmentFormats {
public:
  explicit SegmentFormats(const Formats &formats) : formats(formats) {}

  /// Forward before its backward, which takes what is saved as it was made.
  LogicalResult run(func::FuncOp function) {
    for (BlockArgument argument : function.getArguments())
      if (isFloat(argument))
        setFormat(argument, formatOfArgument(function, argument));
    llvm::DenseSet<Value> gradients = findGradients(function);
    if (failed(noteScaleAxes(function)))
      return failure();
    for (Operation &op : function.getBody().front().without_terminator())
      for (OpResult result : op.getResults())
        if (isFloat(result))
          setFormat(result, formatOfResult(result, gradients));
    Operation *end = function.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      if (auto name = function.getResultAttrOfType<StringAttr>(i, kSavedName))
        saved[keyOf(function, name.getValue())] = precision::formatOf(value);
      if (function.getResultAttr(i, kGradientName) &&
          !gradients.contains(value))
        return function.emitError()
               << "result " << i << " is the gradient of a parameter and "
               << "something else, which have different formats";
    }
    function.setFunctionType(FunctionType::get(
        function.getContext(), function.getBody().getArgumentTypes(),
        end->getOperandTypes()));
    return success();
  }

private:
  /// A saved value's name within its segment.
  static std::string keyOf(func::FuncOp function, StringRef name) {
    StringRef segment = function.getSymName();
    segment.consume_back("_bwd");
    return (segment + "." + name).str();
  }

  Type formatOfArgument(func::FuncOp function, BlockArgument argument) {
    // The loss scale is a number of the step's and no value of the model's.
    if (cast<RankedTensorType>(argument.getType()).getRank() == 0)
      return Float32Type::get(function.getContext());
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                      kSavedName);
    Type known = name ? saved.lookup(keyOf(function, name.getValue())) : Type();
    return known ? known : Type(formats.compute);
  }

  Type formatOfResult(OpResult result, const llvm::DenseSet<Value> &gradients) {
    if (gradients.contains(result))
      return formats.gradients;
    if (isStatistic(result))
      return Float32Type::get(result.getContext());
    if (handsOn(result.getOwner()))
      return precision::formatOf(result.getOwner()->getOperand(0));
    return formats.compute;
  }

  const Formats &formats;
  llvm::StringMap<Type> saved;
};

struct SetFormatsPass : heddle::impl::SetFormatsPassBase<SetFormatsPass> {
  LogicalResult set(ModuleOp module, const Formats &formats) {
    for (auto state : module.getOps<StateOp>())
      state.setType(
          withFormat(state.getTensorType(), formats.of(state.getKind())));
    SegmentFormats segments(formats);
    auto step = module.lookupSymbol<func::FuncOp>("step");
    for (auto function : module.getOps<func::FuncOp>())
      if (function != step && failed(segments.run(function)))
        return failure();
    return step ? setStepFormats(step, formats) : success();
  }

  void runOnOperation() override {
    FailureOr<std::optional<Formats>> formats = Formats::read(getOperation());
    if (failed(formats) || (*formats && failed(set(getOperation(), **formats))))
      signalPassFailure();
  }
};

} // namespace
