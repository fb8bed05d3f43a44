//===- Lifetimes.h - when objects of memory are needed ----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_MEMORY_LIFETIMES_H
#define HEDDLE_PASSES_MEMORY_LIFETIMES_H

#include "dialects/Rt/Rt.h"

#include "llvm/ADT/MapVector.h"

namespace heddle::memory {

/// All `rt.buffer`s of one name.
struct Object {
  std::string name, reason, memoryClass, arena;
  int64_t begin = 0, bytes = 0; ///< from the smallest offset of its buffers on
  int64_t layerStride = 0;      ///< bytes from one entry to the next, 0 for one
  llvm::SmallVector<rt::BufferOp> buffers;
  /// First and last position in its function at which it must keep its bytes.
  int64_t first = -1, last = -1;
  /// The loop over slots, where it keeps its bytes for all of them; "" else.
  llvm::StringRef heldIn;
  int64_t offset = 0;

  /// Lives from step to step.
  bool isPersistent() const;
};

/// The objects of a function, with their lifetimes in it. Positions count the
/// ops of the body, loops' bodies included.
struct FunctionObjects {
  rt::FuncOp function;
  llvm::MapVector<mlir::StringRef, Object> objects;
  /// Position of each call.
  llvm::SmallVector<std::pair<int64_t, rt::CallOp>> calls;
  /// What stands at each position, for reports.
  llvm::SmallVector<mlir::Operation *> positions;
};

/// Finds the objects of `function` on a pipeline stage: those of cases and
/// loops that it never runs are none of it. Within a loop or a case an object
/// keeps its bytes for the whole of it, unless each iteration writes it before
/// it reads it, whichever cases run, and nobody outside touches it.
FunctionObjects findObjects(rt::FuncOp function, int64_t stage);

} // namespace heddle::memory

#endif // HEDDLE_PASSES_MEMORY_LIFETIMES_H
