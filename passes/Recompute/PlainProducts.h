//===- PlainProducts.h - layers that differ in formats ----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_RECOMPUTE_PLAINPRODUCTS_H
#define HEDDLE_PASSES_RECOMPUTE_PLAINPRODUCTS_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::recompute {

/// Products that a recipe with scales leaves as they are in some layers
/// (`transformer.scaled` with "plain_layers"): functions of one layer are not
/// those of another.
class PlainProducts {
public:
  /// Those of a block's functions; fails with a message where a mark has
  /// another form than it should.
  static mlir::FailureOr<PlainProducts>
  find(llvm::ArrayRef<mlir::func::FuncOp> functions);

  bool empty() const { return lists.empty(); }
  /// Equal for layers with the same plain products; all false: none are.
  llvm::SmallVector<bool> keyOf(int64_t layer) const;
  /// Leaves the marks of a function as those layers have them that are of the
  /// same key as `layer`.
  static void settle(mlir::func::FuncOp function, int64_t layer);

private:
  llvm::SmallVector<llvm::SmallVector<int64_t>> lists; ///< each once
};

} // namespace heddle::recompute

#endif // HEDDLE_PASSES_RECOMPUTE_PLAINPRODUCTS_H
