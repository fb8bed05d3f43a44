//===- LayerCalls.h - calls of a layer's functions, with more -*- C++ -*-===//

#ifndef HEDDLE_PASSES_PRECISION_LAYERCALLS_H
#define HEDDLE_PASSES_PRECISION_LAYERCALLS_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::precision {

/// A call of one of some functions of a layer.
struct LayerCall {
  mlir::Operation *op;
  llvm::SmallVector<mlir::func::FuncOp> functions;
  mlir::Value layer; ///< what states of the layer are asked for with
  bool isBackward;
};

/// Those of a step, in its order. Fails with a message where a call stands
/// beside nothing of a layer's state.
mlir::FailureOr<llvm::SmallVector<LayerCall>>
findLayerCalls(mlir::func::FuncOp step);

/// Another argument of a function, behind the others, whole on each rank.
mlir::Value addArgument(mlir::func::FuncOp function, llvm::StringRef name,
                        mlir::RankedTensorType type);
/// Another result of a function, behind the others, whole on each rank.
void addResult(mlir::func::FuncOp function, llvm::StringRef name,
               mlir::Value value);

/// Calls with more operands, behind the others, and where there is a type, a
/// result of that name. The old call is erased.
mlir::Operation *withMore(mlir::Operation *call, mlir::ValueRange operands,
                          mlir::Type result, llvm::StringRef name);

} // namespace heddle::precision

#endif // HEDDLE_PASSES_PRECISION_LAYERCALLS_H
