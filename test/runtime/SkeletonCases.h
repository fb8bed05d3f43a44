//===- SkeletonCases.h - Every skeleton, launched on one arena ------------===//
//
// Included by two files, one with the host's skeletons and one with CUDA's, so
// that both run the same launches on the same bytes.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TEST_RUNTIME_SKELETONCASES_H
#define HEDDLE_TEST_RUNTIME_SKELETONCASES_H

#include "heddle/Runtime/Skeletons.h"
#include "test/runtime/Functors.h"

#include <algorithm>

namespace heddle::test {

/// Where the parts of an arena lie, a guard behind each; `shift` elements off
/// what 16 bytes would want.
struct SkeletonArena {
  static constexpr int64_t kGuard = 64; ///< bytes

  int64_t rows, columns, shift;
  int64_t x, y, z;          ///< f32 [rows, columns]
  int64_t wide;             ///< f32 [rows, 2 columns]
  int64_t p, q;             ///< bf16 [rows, columns]
  int64_t weight, bias;     ///< f32 [columns]
  int64_t one, two, three;  ///< f32 [rows]
  int64_t labels;           ///< i32 [rows], below `rows` and `columns`; some -1
  int64_t scalars;          ///< f32 [4], then f64, i64
  int64_t used;             ///< bytes that are compared
  int64_t workspace, bytes; ///< of a launch; all

  SkeletonArena(int64_t rows, int64_t columns, int64_t shift)
      : rows(rows), columns(columns), shift(shift) {
    const int64_t n = rows * columns;
    int64_t at = 0;
    const auto take = [&](int64_t elements, int64_t size) {
      at = (at + 511) / 512 * 512 + shift * size;
      const int64_t begin = at;
      at += elements * size + kGuard;
      return begin;
    };
    x = take(n, 4), y = take(n, 4), z = take(n, 4), wide = take(2 * n, 4);
    p = take(n, 2), q = take(n, 2);
    weight = take(columns, 4), bias = take(columns, 4);
    one = take(rows, 4), two = take(rows, 4), three = take(rows, 4);
    labels = take(rows, 4);
    at = (at + 511) / 512 * 512;
    scalars = at;
    at += 32 + kGuard;
    used = at;
    at = (at + 511) / 512 * 512;
    workspace = at;
    at +=
        std::max({reduceAllWorkspace(n), columnwiseWorkspace(rows, columns, 2),
                  segmentWorkspace(rows)}) +
        kGuard;
    bytes = at;
  }
};

inline constexpr int kSkeletonCases = 14;

/// Queues one of kSkeletonCases.
inline heddle_rt_status runSkeleton(int which, heddle_rt_stream *s,
                                    const SkeletonArena &a, char *arena) {
  const auto f32 = [&](int64_t at) {
    return reinterpret_cast<float *>(arena + at);
  };
  const auto b16 = [&](int64_t at) {
    return reinterpret_cast<bf16 *>(arena + at);
  };
  float *x = f32(a.x), *y = f32(a.y), *z = f32(a.z), *w = f32(a.weight);
  auto *labels = reinterpret_cast<int32_t *>(arena + a.labels);
  auto *total = reinterpret_cast<double *>(arena + a.scalars + 16);
  auto *count = reinterpret_cast<int64_t *>(arena + a.scalars + 24);
  float *scalars = f32(a.scalars), *workspace = f32(a.workspace);
  const int64_t rows = a.rows, n = a.columns, all = rows * n;
  const RmsNorm norm{1e-5f, 1.0f / float(n)};
  switch (which) {
  case 0:
    return elementwise(s, "swiglu", all, SwiGlu{}, in(x), in(y), out(z));
  case 1:
    return elementwise(s, "swiglu narrow", all, SwiGlu{}, in(b16(a.p)), in(y),
                       out(b16(a.q)));
  case 2:
    return elementwise(s, "adamw", all, AdamW{0.9f, 0.95f, 1e-8f, 0.1f}, in(x),
                       inout(y), inout(z), inout(f32(a.wide)),
                       inScalar(scalars), inScalar(scalars + 1),
                       inScalar(scalars + 2));
  case 3:
    return rowwise(s, "norm", rows, n, norm, in(x), inColumn(w), out(y),
                   outRow(f32(a.one)));
  case 4: // in place
    return rowwise(s, "norm narrow", rows, n, norm, in(b16(a.p)), inColumn(w),
                   out(b16(a.p)), outRow(f32(a.one)));
  case 5:
    return rowwise(s, "cross entropy", rows, n, CrossEntropy{int32_t(n)}, in(x),
                   inRow(labels), outRow(f32(a.one)), outRow(f32(a.two)),
                   outRow(f32(a.three)));
  case 6:
    return rowwise(s, "embedding", rows, n, CopyRow{},
                   gathered(x, labels, 1, rows - 1), out(y));
  case 7:
    return rowwise(s, "repeat", rows, n, CopyRow{},
                   in(f32(a.wide)).pitched(2 * n).grouped(3).repeated(2),
                   out(y));
  case 8:
    return columnwise(s, "norm columns", rows, n, NormColumns{}, workspace,
                      in(x), in(y), inRow(f32(a.one)), inoutColumn(w),
                      inoutColumn(f32(a.bias)));
  case 9:
    return reduceAll(s, "sum squares", all, SumSquares{}, workspace, in(x),
                     inoutScalar(total));
  case 10:
    return reduceAll(s, "count", rows, CountLabels{}, workspace, in(labels),
                     outScalar(count));
  case 11:
    return rowwise(s, "lanes", rows, n, CountLanes{}, in(x),
                   outRow(f32(a.one)));
  case 12:
    return rowwise(s, "scale", rows, n, ScaleRow{}, in(x), out(y),
                   inoutRow(f32(a.one)));
  default: {
    auto *sorted = reinterpret_cast<int32_t *>(workspace);
    if (heddle_rt_status status =
            segmentSort(s, "sort", rows, labels, 0, rows, sorted))
      return status;
    return segmentSum(s, "embedding gradient", rows, n, rows, sorted, in(x),
                      inout(y));
  }
  }
}

} // namespace heddle::test

#endif
