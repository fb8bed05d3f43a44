//===- VerifyLayouts.cpp - no op touches a layout it knows nothing of -----===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Sharding/Passes.h"

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;

namespace heddle {
#define GEN_PASS_DEF_VERIFYLAYOUTSPASS
#include "passes/Sharding/Passes.h.inc"
} // namespace heddle

/// Ops that hand a value on as it is: types on both sides are equal by their
/// own verifiers.
static bool handsOn(Operation *op) {
  return isa<func::CallOp, func::ReturnOp, dist::ReshardOp, transformer::LoadOp,
             transformer::StoreOp, transformer::AccumulateOp,
             transformer::LoopOp, transformer::YieldOp, transformer::GetOp,
             transformer::ZerosOp>(op);
}

static LogicalResult verifyOp(Operation *op) {
  if (isa<dist::FactorRuleOpInterface>(op) || handsOn(op))
    return success();
  auto hasLayout = [](Type type) {
    return static_cast<bool>(dist::getLayout(type));
  };
  if (llvm::any_of(op->getOperandTypes(), hasLayout) ||
      llvm::any_of(op->getResultTypes(), hasLayout))
    return op->emitOpError()
           << "has no factor rule, but a tensor with a layout";
  return success();
}

/// The residual stream is whole or split at the edge of a segment, never
/// partial.
static LogicalResult verifyEdges(func::FuncOp function) {
  if (function.isExternal() || function.getSymName() == "step")
    return success();
  auto check = [&](Type type, const char *what,
                   unsigned index) -> LogicalResult {
    dist::LayoutAttr layout = dist::getLayout(type);
    if (layout && layout.isPartial() && layout.getRank() == 3)
      return function.emitError()
             << what << " " << index << " is partial (" << layout.getShortForm()
             << ") at the edge of a segment";
    return success();
  };
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (failed(check(type, "argument", i)))
      return failure();
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (!function.getResultAttr(i, transformer::kGradientName) &&
        failed(check(type, "result", i)))
      return failure();
  return success();
}

namespace heddle {
namespace {
struct VerifyLayoutsPass : impl::VerifyLayoutsPassBase<VerifyLayoutsPass> {
  void runOnOperation() override {
    bool ok = true;
    getOperation().walk([&](Operation *op) { ok &= succeeded(verifyOp(op)); });
    for (auto function : getOperation().getOps<func::FuncOp>())
      ok &= succeeded(verifyEdges(function));
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
} // namespace heddle
