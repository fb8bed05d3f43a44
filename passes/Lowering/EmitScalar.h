//===- EmitScalar.h - arith and math on scalars as C++ ----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_EMITSCALAR_H
#define HEDDLE_PASSES_LOWERING_EMITSCALAR_H

#include "dialects/Rt/Rt.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"

#include <string>

namespace heddle::lowering {

/// The expression of one op of `arith` or `math` on the expressions of its
/// operands, each of which may be used as an operand of any C++ operator. Fails
/// with a diagnostic where there is none.
mlir::FailureOr<std::string> emitScalarOp(mlir::Operation *op,
                                          llvm::ArrayRef<std::string> operands);

/// An expression without the parentheses around the whole of it.
std::string withoutParentheses(const std::string &text);

/// Prints the ops that some values need, as statements. Values that are not
/// made by those ops have been given a name with `bind`.
class ScalarBody {
public:
  ScalarBody(llvm::raw_ostream &os, unsigned indent) : os(os), indent(indent) {}

  void bind(mlir::Value value, std::string expression) {
    names[value] = std::move(expression);
  }
  bool isBound(mlir::Value value) const { return names.contains(value); }
  /// Declares what `roots` need and are not bound; afterwards they are.
  mlir::LogicalResult need(llvm::ArrayRef<mlir::Value> roots);
  /// As `need`, and gives each root a name of its own, so that later
  /// assignments do not change it.
  mlir::LogicalResult hold(llvm::ArrayRef<mlir::Value> roots);
  std::string get(mlir::Value value) const { return names.lookup(value); }
  /// `get` without the parentheses around the whole.
  std::string getBare(mlir::Value value) const;

private:
  mlir::LogicalResult declare(mlir::Operation *op, unsigned uses);
  std::string fresh() { return "v" + std::to_string(next++); }

  llvm::raw_ostream &os;
  unsigned indent, next = 0;
  llvm::DenseMap<mlir::Value, std::string> names;
  llvm::StringSet<> declared; ///< names of constants that were printed
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_EMITSCALAR_H
