//===- Formats.h - the formats that a plan names ----------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_PRECISION_FORMATS_H
#define HEDDLE_PASSES_PRECISION_FORMATS_H

#include "dialects/Transformer/Transformer.h"

#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace heddle::precision {

/// `transformer.precision` of a module, read.
struct Formats {
  mlir::FloatType compute, gradients, reduce;
  /// Of what the optimizer updates beside each parameter; none where it updates
  /// the parameters as they are.
  mlir::FloatType master;

  /// Nothing where the module has none; fails with a message where an entry is
  /// not what it should be.
  static mlir::FailureOr<std::optional<Formats>> read(mlir::ModuleOp module);

  /// The format of all states of a kind.
  mlir::FloatType of(transformer::StateKind kind) const;
};

/// `type` with other elements; what is no float stays.
mlir::RankedTensorType withFormat(mlir::RankedTensorType type,
                                  mlir::Type format);
void setFormat(mlir::Value value, mlir::Type format);
mlir::Type formatOf(mlir::Value value);
bool isFloat(mlir::Value value);

/// Whether a result is a number per row or of all: statistics of a norm, a
/// softmax or the loss. It is f32 in every recipe.
bool isStatistic(mlir::OpResult result);

/// Whether an op hands its operand's values on, in the operand's format.
bool handsOn(mlir::Operation *op);

/// The values of a segment that are gradients of parameters and nothing else.
llvm::DenseSet<mlir::Value> findGradients(mlir::func::FuncOp function);

/// Notes of each product that the recipe scales which axes cut its operands,
/// but for those of data, whose ranks have other tensors. Where blocks have
/// scales, fails with a message if one lies on several ranks.
mlir::LogicalResult noteScaleAxes(mlir::func::FuncOp function);

/// Sets formats in the segments, then in the step; states have them already.
mlir::LogicalResult setStepFormats(mlir::func::FuncOp step,
                                   const Formats &formats);

} // namespace heddle::precision

#endif // HEDDLE_PASSES_PRECISION_FORMATS_H
