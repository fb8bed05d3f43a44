//===- ScaledProducts.h - which products a recipe scales --------*- C++ -*-===//

#ifndef HEDDLE_PASSES_PLANNING_SCALEDPRODUCTS_H
#define HEDDLE_PASSES_PLANNING_SCALEDPRODUCTS_H

#include "heddle/Plan/Scaling.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace heddle {

/// Writes onto the products of a layer with parameters, and for the gradients
/// of those, which formats and blocks their operands are to have; those of
/// `plain` layers, by parameter, and attention's, stay as they are. Signs by
/// which tokens are mixed follow from `seed`, that of the training settings.
void markScaledProducts(mlir::ModuleOp module, const ScalingRecipe &recipe,
                        const llvm::StringMap<std::vector<std::int64_t>> &plain,
                        std::uint64_t seed);

} // namespace heddle

#endif // HEDDLE_PASSES_PLANNING_SCALEDPRODUCTS_H
