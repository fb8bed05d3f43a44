//===- CountProgram.h - what a program does -------------------*- C++ -*-===//

#ifndef HEDDLE_TEST_NUMERICS_COUNTPROGRAM_H
#define HEDDLE_TEST_NUMERICS_COUNTPROGRAM_H

#include "heddle/Cost/Traffic.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>

namespace heddle {

/// What a program does, counted by walking it.
struct Counted {
  double products = 0, attention = 0;
  std::map<AxisList, AxisTraffic> traffic;
  std::int64_t gathersBeside = 0; ///< calls on the stream for them, in rt
  /// Calls for later layers while one computes, in rt.
  std::int64_t gathersAhead = 0;
};

/// Counts in the per-rank program on tensors.
Counted countInTensors(mlir::ModuleOp module);

/// Counts in the rt program, from the sizes that the runtime is called with.
Counted countInRuntime(mlir::ModuleOp module);

/// The same of a rank of a pipeline stage, walking its slots.
Counted countInStage(mlir::ModuleOp module, int64_t stage);

} // namespace heddle

#endif // HEDDLE_TEST_NUMERICS_COUNTPROGRAM_H
