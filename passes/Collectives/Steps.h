//===- Steps.h - a reshard as collectives -----------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_COLLECTIVES_STEPS_H
#define HEDDLE_PASSES_COLLECTIVES_STEPS_H

#include "dialects/Dist/Dist.h"

#include "mlir/IR/Builders.h"

namespace heddle::collectives {

/// Builds the collectives that bring `input`, what a rank holds of a tensor of
/// type `from`, to what it holds of one of type `to`. Both have layouts and one
/// shape. Fails with a message at `location` where stored sizes differ. The
/// reason in the location (dist::ReshardReason) goes to each step, with both
/// layouts, the step's bytes and `number`, which tells reshards apart.
mlir::FailureOr<mlir::Value>
buildReshard(mlir::OpBuilder &builder, mlir::Location location,
             mlir::Value input, mlir::RankedTensorType from,
             mlir::RankedTensorType to, std::int64_t number);

} // namespace heddle::collectives

#endif // HEDDLE_PASSES_COLLECTIVES_STEPS_H
