//===- FactorRule.h - which dimensions of an op are the same ----*- C++ -*-===//
//
// The rule that `FactorRuleOpInterface` states as text, taken apart.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_DIST_FACTORRULE_H
#define HEDDLE_DIALECTS_DIST_FACTORRULE_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/LogicalResult.h"

#include <string>

namespace heddle::dist {

struct FactorRule {
  enum class Reduce { None, Sum, Max };
  struct Factor {
    std::string name;
    Reduce reduce = Reduce::None;
    bool whole = false;
    bool padded = false; ///< may be stored with padding though it is whole
    bool position = false;
  };
  llvm::SmallVector<Factor> factors;
  /// Per operand and result, per dimension, an index into `factors`.
  llvm::SmallVector<llvm::SmallVector<unsigned>> operands, results;
  /// Operands in which the op is linear.
  llvm::SmallVector<unsigned> linear;
  bool additive = false;

  bool isLinearIn(unsigned operand) const;
};

/// Reads a rule. `operandRanks` and `resultRanks` give the number of dimensions
/// of each (they size `...`). On failure `message` says what is wrong.
llvm::FailureOr<FactorRule>
parseFactorRule(llvm::StringRef text, llvm::ArrayRef<int64_t> operandRanks,
                llvm::ArrayRef<int64_t> resultRanks, std::string &message);

/// The rule of an op that implements `FactorRuleOpInterface`; the op has been
/// verified, or the result is a failure.
llvm::FailureOr<FactorRule> getFactorRule(mlir::Operation *op);

/// Checks (F1) to (F8).
mlir::LogicalResult verifyFactors(mlir::Operation *op);

} // namespace heddle::dist

#endif // HEDDLE_DIALECTS_DIST_FACTORRULE_H
