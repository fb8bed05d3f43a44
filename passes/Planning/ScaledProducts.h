//===- ScaledProducts.h - which products a recipe scales --------*- C++ -*-===//

#ifndef HEDDLE_PASSES_PLANNING_SCALEDPRODUCTS_H
#define HEDDLE_PASSES_PLANNING_SCALEDPRODUCTS_H

#include "heddle/Plan/Scaling.h"

#include "mlir/IR/BuiltinOps.h"

namespace heddle {

/// Writes onto the products of a layer, forward and backward, which formats
/// their operands are to have.
void markScaledProducts(mlir::ModuleOp module, const ScalingRecipe &recipe);

} // namespace heddle

#endif // HEDDLE_PASSES_PLANNING_SCALEDPRODUCTS_H
