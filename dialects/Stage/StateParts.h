//===- StateParts.h - which stages hold a state -----------------*- C++ -*-===//

#ifndef HEDDLE_DIALECTS_STAGE_STATEPARTS_H
#define HEDDLE_DIALECTS_STAGE_STATEPARTS_H

#include "dialects/Stage/Stage.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace heddle::stage {

/// Which end of a chain the states without layers belong to.
class StateParts {
public:
  /// From who is called with a state, or what `note` has written.
  explicit StateParts(mlir::ModuleOp module);

  /// Writes the parts onto the states (`stage.part`): segments do not outlive
  /// Lowering.
  void note();

  /// None for states of layers.
  std::optional<Part> partOf(llvm::StringRef state) const;
  /// The same for the state that an op reads or writes.
  std::optional<Part> partOf(mlir::Operation *op) const;
  transformer::StateOp stateOf(llvm::StringRef name) const {
    return states.lookup(name);
  }

private:
  llvm::StringMap<transformer::StateOp> states;
  llvm::StringMap<Part> parts; ///< by parameter
};

} // namespace heddle::stage

#endif // HEDDLE_DIALECTS_STAGE_STATEPARTS_H
