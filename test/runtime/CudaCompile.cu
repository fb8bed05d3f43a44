//===- CudaCompile.cu - Instantiates every skeleton under nvcc ------------===//
//
// Compiled, never run: all instructions must exist on the device, and ptxas
// must report neither spills nor stack.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Random.h"
#include "heddle/Runtime/Skeletons.h"
#include "test/runtime/Functors.h"

using namespace heddle;
using namespace heddle::test;

struct Noise {
  uint64_t seed;
  HEDDLE_FN void operator()(int32_t index, float &x) const {
    x = random::normalAt(seed, 1, uint64_t(index)) +
        math::tanh(x) * math::erf(x);
  }
};

heddle_rt_status instantiate(heddle_rt_stream *s, int64_t rows, int64_t n,
                             float *x, float *y, bf16 *narrowed, f16 *half,
                             int32_t *labels, int64_t *count, double *sum,
                             float *workspace) {
  heddle_rt_status all[] = {
      elementwise(s, "swiglu", n, SwiGlu{}, in(x), in(y), out(x)),
      elementwise(s, "swiglu", n, SwiGlu{}, in(narrowed), in(half),
                  out(narrowed)),
      elementwise(s, "adamw", n, AdamW{}, in(x), inout(y), inout(y), inout(y),
                  inScalar(x), inScalar(x), inScalar(x)),
      elementwise(s, "noise", n, Noise{1}, columnIndex(), inout(x)),
      rowwise(s, "norm", rows, n, RmsNorm{1e-5f, 1.0f}, in(x), inColumn(y),
              out(y), outRow(y)),
      rowwise(s, "norm", rows, n, RmsNorm{1e-5f, 1.0f}, in(narrowed),
              inColumn(y), out(narrowed), outRow(y)),
      rowwise(s, "cross entropy", rows, n, CrossEntropy{}, in(x), inRow(labels),
              outRow(y), outRow(y), outRow(y)),
      rowwise(s, "embedding", rows, n, CopyRow{}, gathered(x, labels, 0, rows),
              out(y)),
      rowwise(s, "repeat", rows, n, CopyRow{},
              in(x).pitched(2 * n).grouped(4).repeated(8), out(y)),
      columnwise(s, "norm columns", rows, n, NormColumns{}, workspace, in(x),
                 in(y), inRow(x), inoutColumn(x), inoutColumn(y)),
      reduceAll(s, "sum squares", n, SumSquares{}, workspace, in(x),
                inoutScalar(sum)),
      reduceAll(s, "count", n, CountLabels{}, workspace, in(labels),
                outScalar(count)),
      segmentSort(s, "sort", n, labels, 0, rows, labels),
      segmentSum(s, "embedding gradient", n, n, rows, labels, in(x), inout(y))};
  for (heddle_rt_status status : all)
    if (status != HEDDLE_RT_OK)
      return status;
  return HEDDLE_RT_OK;
}
