//===- Import.h - a model as transformer IR ---------------------*- C++ -*-===//
//
// The way from lib/Model to IR. What the module contains is in README.md.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_IMPORT_IMPORT_H
#define HEDDLE_PASSES_IMPORT_IMPORT_H

#include "heddle/Model/ModelConfig.h"
#include "heddle/Model/TrainSettings.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/LogicalResult.h"

namespace heddle {

/// Sizes of a step that no model fixes.
struct StepShape {
  std::int64_t sequences = 0;      ///< of one micro-batch, over all of dp
  std::int64_t sequenceLength = 0; ///< tokens
  std::int64_t microBatches = 1;   ///< per step
  /// Attention is a product for the scores, their softmax and a product with
  /// the values.
  bool unfusedAttention = false;
  /// The layers' masks of dropout are values.
  bool savesMasks = false;
  /// Products of layers have noise, with which their gradients may be rounded.
  bool hasNoise = false;
};

/// The model's forward segments on whole fp32 tensors, and its parameters as
/// states. Fails with a message at the context's diagnostics where `shape` and
/// model do not fit.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importModel(mlir::MLIRContext &context, const ModelConfig &config,
            const StepShape &shape);

/// Writes the optimizer that `autodiff-build-step` shall use onto the module.
void setOptimizer(mlir::ModuleOp module, const OptimizerSettings &settings);

/// Lets `autodiff-build-backward` scale the loss by an input of the step.
void setLossScaled(mlir::ModuleOp module);

} // namespace heddle

#endif // HEDDLE_PASSES_IMPORT_IMPORT_H
