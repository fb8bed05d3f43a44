//===- Cut.h - the parts of stages-cut --------------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_STAGES_CUT_H
#define HEDDLE_PASSES_STAGES_CUT_H

#include "dialects/Stage/StageTable.h"
#include "dialects/Stage/StateParts.h"

#include "mlir/IR/Builders.h"

namespace heddle::stages {

/// Replaces the loop over micro-batches by a run of the table's slots.
mlir::FailureOr<stage::RunOp> cutMicroBatches(transformer::LoopOp loop,
                                              stage::TableOp table,
                                              const stage::StageTable &stages);

/// Makes the rest of the step that of a place.
mlir::LogicalResult cutStep(mlir::func::FuncOp step, stage::RunOp run,
                            const stage::StageTable &stages,
                            const stage::StateParts &parts);

/// A loop over layers with other bounds; `loop` is erased.
transformer::LoopOp withBounds(transformer::LoopOp loop, int64_t count,
                               mlir::Value limit);

} // namespace heddle::stages

#endif // HEDDLE_PASSES_STAGES_CUT_H
