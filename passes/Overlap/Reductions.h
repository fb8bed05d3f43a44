//===- Reductions.h - how one gradient is reduced ---------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_OVERLAP_REDUCTIONS_H
#define HEDDLE_PASSES_OVERLAP_REDUCTIONS_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::overlap {

/// The ops that bring one gradient from what a rank has to what is stored, in
/// their order: a load or what a call has returned, then at least one
/// collective, then the store or accumulate.
struct Reduction {
  llvm::SmallVector<mlir::Operation *> ops; ///< the last one is `end()`
  transformer::StateOp sum;                 ///< of the gradients
  int64_t bytes = 0;                        ///< before the first collective

  mlir::Operation *end() const { return ops.back(); }
  /// The call whose result is reduced, or null where it is a state's value.
  mlir::Operation *call() const;
  /// "reduce_scatter(dp) all_reduce(tp)": reductions with equal texts can share
  /// a bucket.
  std::string text() const;
};

/// The reductions whose last ops are in `block`, in order.
llvm::SmallVector<Reduction> findReductions(mlir::Block &block,
                                            const mlir::SymbolTable &symbols);

/// `dist.overlap` of a module.
struct Settings {
  bool reductions = false;
  int64_t bucketBytes = 0;
  bool backward = true; ///< the order within a unit

  static Settings read(mlir::ModuleOp module);
};

} // namespace heddle::overlap

#endif // HEDDLE_PASSES_OVERLAP_REDUCTIONS_H
