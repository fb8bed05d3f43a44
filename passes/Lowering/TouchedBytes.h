//===- TouchedBytes.h - Bytes that are in use, range by range ---*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_TOUCHEDBYTES_H
#define HEDDLE_PASSES_LOWERING_TOUCHEDBYTES_H

#include "mlir/IR/BuiltinOps.h"

#include <utility>
#include <vector>

namespace heddle::lowering {

/// Bytes of device memory in use during a step, of ranks that have the same.
struct TouchedBytes {
  int64_t peak = 0; ///< the most at one piece of work
  /// Of all pieces of work together: a lifetime that is one piece longer or
  /// shorter changes it, wherever the peak is.
  int64_t sum = 0;
  /// First and last of runs of ranks, ascending.
  std::vector<std::pair<int64_t, int64_t>> ranks;
};

/// For each pipeline stage the figures of all its ranks (they differ where a
/// run of a state is padding that others never read), with every loop, case
/// and slot run with its numbers. A byte is in use from a write to the last
/// read before it is written anew; one that a step reads first holds what the
/// step before left, from that write to the end and from the start to that
/// read. Other streams' work lasts until the main one waits for it. Objects,
/// and how they are placed, are not looked at.
mlir::FailureOr<std::vector<std::vector<TouchedBytes>>>
touchedBytes(mlir::ModuleOp module);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_TOUCHEDBYTES_H
