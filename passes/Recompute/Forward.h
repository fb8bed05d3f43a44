//===- Forward.h - what forward of a block computes -------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_RECOMPUTE_FORWARD_H
#define HEDDLE_PASSES_RECOMPUTE_FORWARD_H

#include "passes/Recompute/Choices.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace heddle::recompute {

/// Ops of forward that backward repeats where it needs what they make.
using Repeated = llvm::DenseSet<mlir::Operation *>;

/// Bytes of a value on one rank, of one micro-batch.
int64_t bytesOf(mlir::Value value);

/// Forward of a block: its values by name, and which of them a choice repeats.
class Forward {
public:
  explicit Forward(mlir::func::FuncOp function);

  mlir::func::FuncOp getFunction() const { return function; }
  /// The value that is saved under a name; null where there is none.
  mlir::Value saved(llvm::StringRef name) const { return byName.lookup(name); }
  /// The name under which a value is saved, or would be. What a collective, a
  /// cast or a part of a rank makes of a value has that value's name.
  std::string nameToSave(mlir::Value value);
  /// Whether an op is always repeated: it reads only parameters and what else a
  /// layer is given, and takes no time.
  bool isAlwaysRepeated(mlir::Operation *op);
  /// Whether repeating an op takes operations or traffic that count.
  static bool isCostly(mlir::Operation *op);
  /// Whether an op is the product of queries and keys in front of attention's
  /// probabilities: few operations for the bytes that it takes to save these.
  static bool makesScores(mlir::Operation *op);
  /// Whether an op is the product of probabilities and values.
  static bool readsProbabilities(mlir::Operation *op);
  /// Arguments that go from block to block.
  bool isCarried(mlir::Value value);

  /// What a choice repeats; `needed`: values that backward reads. Fails with a
  /// message where it names no value of the block.
  mlir::FailureOr<Repeated> resolve(const Choice &choice,
                                    mlir::ValueRange needed);

private:
  mlir::FailureOr<Repeated> listed(const Choice &choice);
  Repeated selective(const Choice &choice, mlir::ValueRange needed);
  /// Whether a value can be made of needed ones by ops that cost nothing that
  /// counts, and that the choice lets be repeated; adds these to `repeated`.
  bool isCheap(mlir::Value value, const Choice &choice, mlir::ValueRange needed,
               Repeated &repeated);
  /// Whether a product with a parameter reads what an op makes, or what a
  /// collective makes of it.
  bool makesLinearInput(mlir::Operation *op);
  Repeated full(mlir::ValueRange needed);
  /// The value of which all of `needed` that depends on what goes from block to
  /// block can be made; null where that takes more than what goes itself.
  mlir::Value inputOf(llvm::ArrayRef<mlir::Operation *> needed);
  llvm::StringRef baseName(mlir::Value value) const;

  mlir::func::FuncOp function;
  llvm::StringMap<mlir::Value> byName;            ///< saved ones
  llvm::DenseMap<mlir::Value, std::string> names; ///< the same, the other way
};

} // namespace heddle::recompute

#endif // HEDDLE_PASSES_RECOMPUTE_FORWARD_H
