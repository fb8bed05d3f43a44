//===- ApplyPlan.h - a plan's decisions onto the module ---------*- C++ -*-===//

#ifndef HEDDLE_PASSES_PLANNING_APPLYPLAN_H
#define HEDDLE_PASSES_PLANNING_APPLYPLAN_H

#include "heddle/Plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace heddle {

/// Attribute of the module: the layout of a micro-batch's tokens [b, s], which
/// outlives the functions that have it in their types.
inline constexpr llvm::StringLiteral kBatchLayoutName = "dist.batch";

/// Writes a plan onto a module that was imported from `model`: the mesh, the
/// layout of every parameter, of the values that flow between segments and of
/// the step's inputs, what backward computes again, and the plan's text.
/// `checkPlan` has accepted the plan; a parameter that the plan does not know
/// fails with a message.
mlir::LogicalResult applyPlan(mlir::ModuleOp module, const Plan &plan,
                              const ModelConfig &model,
                              const TrainSettings &train);

} // namespace heddle

#endif // HEDDLE_PASSES_PLANNING_APPLYPLAN_H
