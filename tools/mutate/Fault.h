//===- Fault.h - One fault that can be planted into a module ----*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MUTATE_FAULT_H
#define HEDDLE_TOOLS_MUTATE_FAULT_H

#include "heddle/Support/Result.h"
#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <string>
#include <vector>

namespace heddle::mutate {

struct Fault {
  std::string kind;  ///< "delete a collective"
  std::string where; ///< the op and what it works on
  /// Changes the module that the fault was found in.
  std::function<void()> plant;
  /// Why the changed module means the same, if a rule says so; "": none does.
  /// Decided on the module before it is changed.
  std::string equivalent = {};
  /// The fault takes order or place away and changes no value: where the checks
  /// of order and arenas, which prove that none is missing, still hold, the
  /// program is right.
  bool proven = false;
};

/// The function, the op and what it works on, as `Fault::where`.
std::string describe(mlir::Operation *op);

/// All faults that can be planted into a module after Sharding: wrong layouts
/// and missing reshards.
std::vector<Fault> findLayoutFaults(mlir::ModuleOp module);

/// From Precision to Overlap: formats of values and reductions, masters. None
/// where a plan names no formats.
std::vector<Fault> findFormatFaults(mlir::ModuleOp module);

/// After Collectives: collectives and shards of one rank's tensors.
std::vector<Fault> findCollectiveFaults(mlir::ModuleOp module);

/// After Stages: the table of slots, parts, layers, and what passes between
/// stages; none where there is no table.
std::vector<Fault> findStageFaults(mlir::ModuleOp module);

/// After Recompute: what is computed again, from what, and by which layers;
/// none where nothing is.
std::vector<Fault> findRecomputeFaults(mlir::ModuleOp module);

/// After Overlap: buckets of reductions.
std::vector<Fault> findBucketFaults(mlir::ModuleOp module);

/// After Collectives: what is said of how states lie on the ranks.
std::vector<Fault> findStorageFaults(mlir::ModuleOp module);

/// After Collectives: what decides which elements are dropped.
std::vector<Fault> findDropoutFaults(mlir::ModuleOp module);

/// After Lowering: slots of what is gathered ahead, groups, runs.
std::vector<Fault> findSlotFaults(mlir::ModuleOp module);

/// After Lowering: tables of slots, messages between stages. With `placed`,
/// after Memory: what lies elsewhere on each stage too. None where there are no
/// stages.
std::vector<Fault> findStageProgramFaults(mlir::ModuleOp module, bool placed);

/// After Lowering: queued collectives, products, events. With `placed`, after
/// Memory: places in arenas too.
std::vector<Fault> findProgramFaults(mlir::ModuleOp module, bool placed);

} // namespace heddle::mutate

#endif // HEDDLE_TOOLS_MUTATE_FAULT_H
