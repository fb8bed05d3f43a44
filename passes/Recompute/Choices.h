//===- Choices.h - what a plan wants to be computed again -------*- C++ -*-===//

#ifndef HEDDLE_PASSES_RECOMPUTE_CHOICES_H
#define HEDDLE_PASSES_RECOMPUTE_CHOICES_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::recompute {

/// What backward of a layer computes again, as `kRecomputeName` says it.
struct Choice {
  enum class Kind { Values, Selective, Full };
  Kind kind = Kind::Values;
  llvm::SmallVector<std::string> values; ///< of Values; none: nothing
  /// Also what backward does not read: of Full all, of Selective the product of
  /// probabilities and values.
  bool whole = false;
  bool keepsLinearInputs =
      false; ///< of Selective: those of parameters' products

  bool operator==(const Choice &) const = default;
  /// "listed", "selective" or "full": why a region is there.
  llvm::StringRef text() const;
};

/// The choice of each of `layers` layers; fails with a message where the
/// attribute has another form than it should.
mlir::FailureOr<llvm::SmallVector<Choice>> readChoices(mlir::ModuleOp module,
                                                       int64_t layers);

} // namespace heddle::recompute

#endif // HEDDLE_PASSES_RECOMPUTE_CHOICES_H
