//===- ReverseMode.h - gradients behind the ops of a function ---*- C++ -*-===//

#ifndef HEDDLE_PASSES_AUTODIFF_REVERSEMODE_H
#define HEDDLE_PASSES_AUTODIFF_REVERSEMODE_H

#include "dialects/Transformer/Transformer.h"
#include "passes/Autodiff/Names.h"

#include "mlir/IR/Builders.h"

namespace heddle::autodiff {

/// Whether values of this type have a gradient.
bool isDifferentiable(mlir::Type type);

/// Appends the backward of a function's ops in front of its terminator.
///
/// Use: `seed` gradients, `run`, then `take` those of the arguments.
class ReverseMode {
public:
  /// Knows `function`'s ops and names as they are now.
  explicit ReverseMode(mlir::func::FuncOp function);

  /// Adds to the gradient of `value`. `reader`: what the gradient comes from,
  /// for its name where there are several.
  void seed(mlir::Value value, mlir::Value gradient, llvm::StringRef reader);

  /// Visits the ops in reverse order. Fails with a message at an op that has no
  /// gradient but lies on the way.
  llvm::LogicalResult run();

  /// The whole gradient of an argument; zeros where nothing depends on it.
  mlir::Value take(mlir::BlockArgument argument);

  /// Removes ops nobody reads, and names what has no name yet.
  void finish();

  mlir::OpBuilder builder;
  Names names; ///< of the function

private:
  struct Contribution {
    mlir::Value gradient;
    std::string reader;
  };

  void findActive();
  llvm::LogicalResult visit(mlir::Operation *op);
  mlir::Value total(mlir::Value value);
  void nameIfNew(mlir::Value value, llvm::StringRef name);

  mlir::func::FuncOp function;
  llvm::SmallVector<mlir::Operation *> ops;
  /// What depends on a float argument.
  llvm::DenseSet<mlir::Value> active;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Contribution>> contributions;
};

} // namespace heddle::autodiff

#endif // HEDDLE_PASSES_AUTODIFF_REVERSEMODE_H
