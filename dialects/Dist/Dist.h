//===- Dist.h - meshes, layouts, factor rules, collectives ------*- C++ -*-===//
//
// The one header of the dist dialect.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_DIST_DIST_H
#define HEDDLE_DIALECTS_DIST_DIST_H

#include "dialects/Dist/FactorRule.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/Dist/DistDialect.h.inc"
#include "dialects/Dist/DistEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Dist/DistAttrs.h.inc"

#include "dialects/Dist/DistInterfaces.h.inc"

#define GET_OP_CLASSES
#include "dialects/Dist/DistOps.h.inc"

namespace heddle::dist {

/// Name of the discardable attribute that keeps a value's layout where its type
/// no longer does: on `transformer.state`, function arguments and results after
/// partitioning. Its shape is in `kGlobalTypeName`.
inline constexpr llvm::StringLiteral kLayoutName = "dist.layout";
/// The whole tensor's type, beside `kLayoutName`.
inline constexpr llvm::StringLiteral kGlobalTypeName = "dist.global";
/// The mesh, on the module.
inline constexpr llvm::StringLiteral kMeshName = "dist.mesh";
/// How states are stored, on the module; a dictionary, all entries optional:
/// "parameter", "gradient_sum", "gradient", "optimizer": the axes over which
/// states of this kind are in runs; "data": the axes over which ranks compute
/// on different sequences, so that gradients are sums over them; "reduce":
/// "every_micro_batch" or "last", when these sums are taken; "gather":
/// "every_pass", "every_micro_batch" or "once_per_step", how long a parameter
/// that is stored in runs stays whole.
inline constexpr llvm::StringLiteral kStorageName = "dist.storage";

/// Name of the attribute of per-rank ops that says which part of a factor a
/// rank has: a dictionary of `ShardAttr` by factor.
inline constexpr llvm::StringLiteral kShardsName = "shards";

/// Whether `attribute` is a dictionary of `ShardAttr`.
bool isShards(mlir::Attribute attribute);

/// The part of `factor` that `op` works on; null where that is the whole.
ShardAttr getShard(mlir::Operation *op, llvm::StringRef factor);

/// What runs beside computing, on the module; a dictionary, all entries
/// optional: "reductions" (a bool: reduce gradients while backward runs),
/// "bucket_bytes" and "order" ("backward" or "forward") of buckets of
/// gradients, "prefetch" (blocks whose parameters are gathered ahead) and
/// "memory_bytes" (that this may take).
inline constexpr llvm::StringLiteral kOverlapName = "dist.overlap";

/// The layout in the encoding of a tensor type, or null.
LayoutAttr getLayout(mlir::Type type);
inline LayoutAttr getLayout(mlir::Value value) {
  return getLayout(value.getType());
}

/// `type` with this layout, or without one where it is null.
mlir::RankedTensorType withLayout(mlir::RankedTensorType type,
                                  LayoutAttr layout);

/// What one rank holds of a tensor of this type: stored sizes divided by the
/// axes that cut them, no encoding.
mlir::RankedTensorType getLocalType(mlir::RankedTensorType type);

/// The layout that each result of `op` has, given those of its operands; those
/// wanted of the `results` decide factors that no operand has (rows of a table
/// whose gradient is made). A result gets a null layout where no operand has
/// one. Fails with a message where the operands break (F3) to (F5).
mlir::FailureOr<llvm::SmallVector<LayoutAttr>>
deriveResultLayouts(mlir::Operation *op, const FactorRule &rule,
                    llvm::ArrayRef<LayoutAttr> operands,
                    llvm::ArrayRef<LayoutAttr> results,
                    llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

} // namespace heddle::dist

#endif // HEDDLE_DIALECTS_DIST_DIST_H
