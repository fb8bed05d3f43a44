//===- Bounds.h - How much a program may say ------------------------------===//
//
// Places, strides and sizes are multiplied and added wherever they are read.
// Each is bounded where it is verified, far above what any device has and low
// enough that no reader's sum leaves 64 bits. Products of several are taken by
// product().
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_RT_BOUNDS_H
#define HEDDLE_DIALECTS_RT_BOUNDS_H

#include "llvm/Support/MathExtras.h"

#include <cstdint>
#include <initializer_list>

namespace heddle::rt {

/// Bytes of an arena, whatever lowering has before its size is known; offsets
/// and strides in it.
inline constexpr int64_t kMostBytes = int64_t(1) << 60;
/// Elements that a buffer spans, offsets and strides in it, rows, columns.
inline constexpr int64_t kMostPlaces = int64_t(1) << 53;
/// Of a mesh (heddle/Runtime/Tables.h).
inline constexpr int64_t kMostRanks = int64_t(1) << 31;
/// Each of which a checker may walk through.
inline constexpr int64_t kMostStages = int64_t(1) << 16;

/// Of counts, each of which is bounded; where it is larger than any buffer or
/// one of them is negative, a number that no buffer has.
inline int64_t product(std::initializer_list<int64_t> factors) {
  constexpr int64_t kNone = 2 * kMostPlaces;
  int64_t result = 1;
  for (int64_t factor : factors)
    if (factor < 0 || llvm::MulOverflow(result, factor, result) ||
        result > kNone)
      return kNone;
  return result;
}

} // namespace heddle::rt

#endif // HEDDLE_DIALECTS_RT_BOUNDS_H
