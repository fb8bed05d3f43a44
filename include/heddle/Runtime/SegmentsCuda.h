//===- SegmentsCuda.h - Sums over positions that name one row, CUDA -------===//

#ifndef HEDDLE_RUNTIME_SEGMENTSCUDA_H
#define HEDDLE_RUNTIME_SEGMENTSCUDA_H

#include "heddle/Runtime/SkeletonsCuda.h"

namespace heddle {
namespace cuda {

/// One block sorts, four bits (kDigits = 16) a pass, so that the counters fit
/// on chip: thread t owns a run of positions, and the counters lie as
/// [digit][thread], so that their running sum is the stable order.
template <int kDigits>
__global__ void __launch_bounds__(kLanes)
    segmentSortKernel(int64_t n, const int32_t *index, int64_t first,
                      int64_t count, int32_t *workspace) {
  __shared__ int32_t counter[kDigits * kLanes];
  __shared__ int32_t total[kLanes];
  int32_t *rows = workspace, *order = rows + n;
  int32_t *otherRows = order + n, *otherOrder = otherRows + n;
  const int64_t run = (n + kLanes - 1) / kLanes;
  const int64_t begin = threadIdx.x * run;
  const int64_t end = begin + run < n ? begin + run : n;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t local = int64_t(index[i]) - first;
    rows[i] = int32_t(local >= 0 && local < count ? local : count);
    order[i] = int32_t(i);
  }
  for (int shift = 0; shift == 0 || (count >> shift) != 0; shift += 8)
    for (int digit = shift; digit < shift + 8; digit += 4) {
      for (int d = 0; d < kDigits; ++d)
        counter[d * kLanes + threadIdx.x] = 0;
      for (int64_t i = begin; i < end; ++i)
        ++counter[((rows[i] >> digit) & 15) * kLanes + threadIdx.x];
      __syncthreads();
      int32_t sum = 0; // of this thread's run of counters
      for (int k = 0; k < kDigits; ++k)
        sum += counter[threadIdx.x * kDigits + k];
      total[threadIdx.x] = sum;
      __syncthreads();
      int32_t before = 0;
      for (unsigned t = 0; t < threadIdx.x; ++t)
        before += total[t];
      for (int k = 0; k < kDigits; ++k) {
        const int32_t own = counter[threadIdx.x * kDigits + k];
        counter[threadIdx.x * kDigits + k] = before;
        before += own;
      }
      __syncthreads();
      for (int64_t i = begin; i < end; ++i) {
        const int32_t to =
            counter[((rows[i] >> digit) & 15) * kLanes + threadIdx.x]++;
        otherRows[to] = rows[i];
        otherOrder[to] = order[i];
      }
      __syncthreads();
      int32_t *swapped = rows;
      rows = otherRows;
      otherRows = swapped;
      swapped = order;
      order = otherOrder;
      otherOrder = swapped;
    }
}

/// A block looks at one sorted position at a time and works where a segment
/// begins.
template <class D, class G>
__global__ void __launch_bounds__(kLanes)
    segmentSumKernel(int64_t n, int64_t columns, int64_t count,
                     const int32_t *workspace, D from, G gradient) {
  const int64_t pitch = from.pitch ? from.pitch : columns;
  const int32_t *rows = workspace, *order = rows + n;
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const int32_t row = rows[i];
    if (row >= count || (i > 0 && rows[i - 1] == row))
      continue;
    for (int64_t c = threadIdx.x; c < columns; c += kLanes) {
      const auto column = from.slice(0, c, columns);
      float sum = 0;
      for (int64_t j = i; j < n && rows[j] == row; ++j)
        sum += column.load(order[j] * pitch);
      const auto g = gradient.slice(row, c, columns);
      g.storeElement(0, g.load(0) + sum);
    }
  }
}

} // namespace cuda

inline heddle_rt_status segmentSort(heddle_rt_stream *stream, const char *name,
                                    int64_t n, const int32_t *index,
                                    int64_t first, int64_t rows,
                                    int32_t *workspace) {
  const heddle_rt_access accesses[] = {{index, n * int64_t(sizeof(int32_t)), 0},
                                       {workspace, segmentWorkspace(n), 1}};
  if (heddle_rt_status status = heddle_rt_note(stream, name, accesses, 2))
    return status;
  return cuda::launch(stream, name, 1, cuda::segmentSortKernel<16>, n, index,
                      first, rows, workspace);
}

template <class D, class G>
heddle_rt_status segmentSum(heddle_rt_stream *stream, const char *name,
                            int64_t n, int64_t columns, int64_t rows,
                            const int32_t *workspace, D from, G gradient) {
  static_assert(D::shape == Full && D::mode == Read && D::kAccesses == 1);
  static_assert(G::shape == Full && G::mode == ReadWrite);
  if (from.group != 1 || from.period != 0)
    return heddle_rt_launch_failed(name, "rows to be summed must be distinct");
  heddle_rt_access accesses[3];
  from.declare(n, columns, accesses);
  gradient.declare(rows, columns, accesses + 1);
  accesses[2] = {workspace, segmentWorkspace(n), 0};
  if (heddle_rt_status status = heddle_rt_note(stream, name, accesses, 3))
    return status;
  return cuda::launch(stream, name, n, cuda::segmentSumKernel<D, G>, n, columns,
                      rows, workspace, from, gradient);
}

} // namespace heddle

#endif
