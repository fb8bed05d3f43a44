//===- Packing.h - offsets for objects with lifetimes -----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_MEMORY_PACKING_H
#define HEDDLE_PASSES_MEMORY_PACKING_H

#include "passes/Memory/Lifetimes.h"

namespace heddle::memory {

/// Every object begins at a multiple of this.
inline constexpr int64_t kAlignment = 64;

/// Places objects whose lifetimes overlap at different bytes, from `base` on:
/// the largest first, each at the lowest place that is free. `base` is aligned.
/// Returns where the last byte ends, 0 where nothing was placed.
int64_t pack(llvm::ArrayRef<Object *> objects, int64_t base);

/// Most bytes of `objects` that are needed at one position, and that position.
std::pair<int64_t, int64_t> findPeak(llvm::ArrayRef<Object *> objects);

/// Bytes of `objects` that are needed at `position`.
int64_t liveBytes(llvm::ArrayRef<Object *> objects, int64_t position);

} // namespace heddle::memory

#endif // HEDDLE_PASSES_MEMORY_PACKING_H
