//===- LowerStep.h - the step: states, loops, calls => rt -------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_LOWERSTEP_H
#define HEDDLE_PASSES_LOWERING_LOWERSTEP_H

#include "passes/Lowering/Lowering.h"

namespace heddle::lowering {

/// A family of buffers, one per iteration of a loop or layer of a state. All
/// `rt.buffer`s of one name are one object of memory.
struct Family {
  std::string name, reason;
  mlir::RankedTensorType type;
  llvm::StringRef memoryClass;
  int64_t stride = 0; ///< bytes from one entry to the next; 0: one entry
  int64_t offset = 0; ///< bytes to entry 0
  /// Where there are several sets of entries, as many as a schedule has in
  /// flight: which one, and bytes from one to the next.
  mlir::Value set = {};
  std::vector<int64_t> setStrides = {}; ///< on each pipeline stage
  llvm::StringRef pool = {};            ///< the table that says which set
  /// Where not all layers have an entry: the table of the layers' positions.
  std::string positions = {};
  /// All layers have an entry, but some may not read theirs again.
  bool readBySome = false;
  llvm::StringRef arena = kCompute;
  /// Bytes of all entries on each pipeline stage, where they differ.
  std::vector<int64_t> bytesByStage = {};
};

/// Lowers `@step` into the function `into` of the program.
mlir::LogicalResult lowerStep(Program &program, mlir::func::FuncOp step,
                              const llvm::StringMap<Signature> &signatures,
                              rt::FuncOp into);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_LOWERSTEP_H
