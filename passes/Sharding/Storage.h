//===- Storage.h - how states are stored ------------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_SHARDING_STORAGE_H
#define HEDDLE_PASSES_SHARDING_STORAGE_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::sharding {

/// `dist.storage` of a module, read; without it nothing is sharded and sums are
/// reduced after the last micro-batch.
struct Storage {
  enum class Gather { EveryPass, EveryMicroBatch, OncePerStep };

  /// Axes over which a parameter, a sum of gradients, a gradient and optimizer
  /// state are in runs.
  mlir::ArrayAttr parameter, gradientSum, gradient, optimizer;
  mlir::ArrayAttr data; ///< gradients are partial sums over these
  bool reduceEveryMicroBatch = false;
  Gather gather = Gather::EveryPass;

  /// Fails with a message where an entry is not what it should be.
  static mlir::FailureOr<Storage> read(mlir::ModuleOp module);

  mlir::ArrayAttr runsOf(transformer::StateKind kind) const;
};

} // namespace heddle::sharding

#endif // HEDDLE_PASSES_SHARDING_STORAGE_H
