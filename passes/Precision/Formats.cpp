//===- Formats.cpp - the formats that a plan names ------------------------===//

#include "passes/Precision/Formats.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

FailureOr<std::optional<Formats>> Formats::read(ModuleOp module) {
  Attribute given = module->getAttr(kPrecisionName);
  if (!given)
    return std::optional<Formats>();
  Formats formats;
  auto entries = dyn_cast<DictionaryAttr>(given);
  for (auto [key, format] : {std::pair("compute", &formats.compute),
                             std::pair("master", &formats.master),
                             std::pair("gradients", &formats.gradients),
                             std::pair("reduce", &formats.reduce)}) {
    auto type = entries ? entries.getAs<TypeAttr>(key) : TypeAttr();
    *format = type ? dyn_cast<FloatType>(type.getValue()) : FloatType();
    const bool isLeftOut =
        format == &formats.master && entries && !entries.get(key);
    if (!*format && !isLeftOut)
      return module.emitError()
             << kPrecisionName << " needs float types as compute, gradients, "
             << "reduce and, where there is one, master, found " << given;
  }
  return std::optional<Formats>(formats);
}

FloatType Formats::of(StateKind kind) const {
  switch (kind) {
  case StateKind::Parameter:
  case StateKind::Gathered:
    return compute;
  case StateKind::GradientSum:
  case StateKind::Gradient:
    return gradients;
  case StateKind::Master:
    return master;
  case StateKind::AdamM:
  case StateKind::AdamV:
  case StateKind::Scaling:
  case StateKind::Amax:
    return Float32Type::get(compute.getContext());
  }
  llvm_unreachable("all kinds of states are handled");
}

RankedTensorType precision::withFormat(RankedTensorType type, Type format) {
  if (!isa<FloatType>(type.getElementType()))
    return type;
  return RankedTensorType::get(type.getShape(), format, type.getEncoding());
}

void precision::setFormat(Value value, Type format) {
  value.setType(withFormat(cast<RankedTensorType>(value.getType()), format));
}

Type precision::formatOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

bool precision::isFloat(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

bool precision::isStatistic(OpResult result) {
  return llvm::TypeSwitch<Operation *, bool>(result.getOwner())
      .Case<RmsNormOp, LayerNormOp, AttentionOp>(
          [&](auto) { return result.getResultNumber() > 0; })
      .Case<RowMaxOp, RowSumExpOp, PickOp, TokenLossOp, MeanCountedOp>(
          [](auto) { return true; })
      .Default([](Operation *) { return false; });
}

bool precision::handsOn(Operation *op) {
  return isa<dist::ReshardOp, dist::AllReduceOp, dist::ReduceScatterOp,
             dist::AllGatherOp, dist::AllToAllOp, dist::PermuteOp,
             dist::SliceOp, dist::MakePartialOp, dist::ToRowOp, dist::FromRowOp,
             AddOp, ZerosLikeOp>(op);
}

/// Whether everything that reads `value` makes or returns a gradient of a
/// parameter.
static bool isOnlyGradient(func::FuncOp function, Value value,
                           const llvm::DenseSet<Value> &gradients) {
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<func::ReturnOp>(user))
      return static_cast<bool>(
          function.getResultAttr(use.getOperandNumber(), kGradientName));
    return (handsOn(user) || isa<StackTensorsOp>(user)) &&
           gradients.contains(user->getResult(0));
  });
}

llvm::DenseSet<Value> precision::findGradients(func::FuncOp function) {
  llvm::DenseSet<Value> gradients;
  SmallVector<Value> open(
      function.getBody().front().getTerminator()->getOperands());
  while (!open.empty()) {
    Value value = open.pop_back_val();
    if (!value.getDefiningOp() || !isFloat(value) ||
        !isOnlyGradient(function, value, gradients) ||
        !gradients.insert(value).second)
      continue;
    Operation *maker = value.getDefiningOp();
    if (handsOn(maker) || isa<StackTensorsOp>(maker))
      llvm::append_range(open, maker->getOperands());
  }
  return gradients;
}
