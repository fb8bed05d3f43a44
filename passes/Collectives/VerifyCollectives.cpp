//===- VerifyCollectives.cpp - nothing moves data silently ----------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Collectives/Passes.h"

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;

namespace heddle {
#define GEN_PASS_DEF_VERIFYCOLLECTIVESPASS
#include "passes/Collectives/Passes.h.inc"
} // namespace heddle

static bool hasLayout(Type type) {
  if (auto stack = dyn_cast<transformer::StackType>(type))
    type = stack.getElementType();
  return static_cast<bool>(dist::getLayout(type));
}

namespace heddle {
namespace {
struct VerifyCollectivesPass
    : impl::VerifyCollectivesPassBase<VerifyCollectivesPass> {
  void runOnOperation() override {
    bool ok = true;
    getOperation().walk([&](Operation *op) {
      if (isa<dist::ReshardOp>(op)) {
        op->emitOpError() << "is left; it moves data without saying how";
        ok = false;
      }
      if (llvm::any_of(op->getOperandTypes(), hasLayout) ||
          llvm::any_of(op->getResultTypes(), hasLayout)) {
        op->emitOpError() << "has a layout in a type; it should be one rank's";
        ok = false;
      }
    });
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
} // namespace heddle
