//===- WriteTables.h - what training must know of a program -----*- C++ -*-===//

#ifndef HEDDLE_PASSES_PLANNING_WRITETABLES_H
#define HEDDLE_PASSES_PLANNING_WRITETABLES_H

#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace heddle {

/// Gives the module's `rt.program` its `tables`: the inputs, outputs and states
/// with places, layouts and checkpoint forms, and the training settings, with
/// the keys of heddle/Runtime/Tables.h. Buffers have been placed; the module
/// still has its states.
mlir::LogicalResult writeTables(mlir::ModuleOp module, const Plan &plan,
                                const ModelConfig &model,
                                const TrainSettings &train);

} // namespace heddle

#endif // HEDDLE_PASSES_PLANNING_WRITETABLES_H
