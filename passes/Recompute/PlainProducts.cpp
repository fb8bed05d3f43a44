//===- PlainProducts.cpp - layers that differ in formats ------------------===//

#include "passes/Recompute/PlainProducts.h"

#include "dialects/Transformer/Scaling.h"

using namespace mlir;
using namespace heddle::recompute;
using namespace heddle::transformer;

FailureOr<PlainProducts> PlainProducts::find(ArrayRef<func::FuncOp> functions) {
  PlainProducts found;
  for (func::FuncOp function : functions) {
    WalkResult walked = function->walk([&](ContractOp op) {
      FailureOr<std::optional<Scaling>> scaling = Scaling::of(op);
      if (failed(scaling))
        return WalkResult::interrupt();
      if (*scaling && !(*scaling)->plainLayers.empty() &&
          !llvm::is_contained(found.lists, (*scaling)->plainLayers))
        found.lists.push_back((*scaling)->plainLayers);
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
  }
  return found;
}

SmallVector<bool> PlainProducts::keyOf(int64_t layer) const {
  return llvm::map_to_vector(lists, [&](ArrayRef<int64_t> layers) {
    return llvm::is_contained(layers, layer);
  });
}

void PlainProducts::settle(func::FuncOp function, int64_t layer) {
  function->walk([&](ContractOp op) {
    std::optional<Scaling> scaling = *Scaling::of(op); // `find` has read it
    if (!scaling || scaling->plainLayers.empty())
      return;
    if (llvm::is_contained(scaling->plainLayers, layer)) {
      op->removeAttr(kScaledName);
      op->removeAttr(kScaleAxesName);
      return;
    }
    scaling->plainLayers.clear();
    scaling->set(op);
  });
}
