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
  explicit StateParts(mlir::ModuleOp module);

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
