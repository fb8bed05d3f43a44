//===- Pull.h - functions of a layer under one choice -----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_RECOMPUTE_PULL_H
#define HEDDLE_PASSES_RECOMPUTE_PULL_H

#include "passes/Recompute/Forward.h"

namespace heddle::recompute {

/// Backward of a layer under one choice.
struct Pulled {
  /// The functions that make it, in the order in which they run: one, or that
  /// of input gradients and that of weight gradients. Each finds its arguments
  /// by name; what it takes of forward is `transformer.saved`, what of the half
  /// before `transformer.kept`.
  llvm::SmallVector<mlir::func::FuncOp> halves;
  /// What forward has to save for them.
  llvm::SetVector<mlir::Value> saved;
};

/// Copies backward's functions, which stay, so that they compute what
/// `repeated` says; new ones are called `suffix` behind the old names.
Pulled pull(Forward &forward, const Repeated &repeated, const Choice &choice,
            llvm::ArrayRef<mlir::func::FuncOp> halves, llvm::StringRef suffix);

} // namespace heddle::recompute

#endif // HEDDLE_PASSES_RECOMPUTE_PULL_H
