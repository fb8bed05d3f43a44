//===- GemmCall.h - A checked matrix product ------------------------------===//

#ifndef RUNTIME_COMMON_GEMMCALL_H
#define RUNTIME_COMMON_GEMMCALL_H

#include "runtime/common/Status.h"

#include <cstddef>
#include <vector>

namespace heddle::runtime {

/// How many blocks of `size` cover `elements`; the last may be smaller.
inline int64_t countBlocks(int64_t elements, int64_t size) {
  return (elements + size - 1) / size;
}

/// An operand as it lies in memory.
struct Matrix {
  const char *name;
  int64_t rows, columns, leading, stride;
  heddle_rt_dtype dtype;
};

struct GemmCall {
  heddle_rt_gemm_args args;
  Matrix a, b, c;

  explicit GemmCall(const heddle_rt_gemm_args &given);
  const char *name() const { return orUnnamed(args.name, "gemm"); }
  /// Whether operands are codes: alpha is to be multiplied by two scales, or
  /// each code by that of its block.
  bool isScaled() const;
  bool hasBlocks() const { return args.block_k > 0; }
  /// Whether operands have scales beside those of their blocks.
  bool hasTwoLevels() const {
    return isScaled() && args.scales == HEDDLE_RT_F8E4M3;
  }
  /// Numbers that belong to an operand of so many rows, with blocks of some.
  int64_t scalesOf(int64_t rows, int64_t blockRows) const;
  bool isEmpty() const { return args.batch == 0 || args.m == 0 || args.n == 0; }
  double flops() const {
    return 2.0 * double(args.m) * double(args.n) * double(args.k) *
           double(args.batch);
  }
  /// Sizes, formats, leading dimensions, overlaps; what heddle_rt_gemm says.
  heddle_rt_status check(const void *a, const void *b, const void *c) const;
  std::vector<heddle_rt_access> accesses(const void *a, const void *b,
                                         const void *c) const;
};

} // namespace heddle::runtime

#endif
