//===- SegmentsHost.h - Sums over positions that name one row -------------===//
//
// The gradient of a table from which rows were gathered: sort the positions by
// row once, then add up each row's segment in the order of the positions. The
// same functions as SegmentsCuda.h, the same order of sums.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_SEGMENTSHOST_H
#define HEDDLE_RUNTIME_SEGMENTSHOST_H

#include "heddle/Runtime/SkeletonsHost.h"

namespace heddle {

namespace host {

struct SortCall {
  const int32_t *index;
  int64_t n, first, rows;
  int32_t *workspace;
};

/// Stable sort by row, byte by byte. Indices of other shards get row `rows`,
/// the last. Leaves the sorted rows, then the positions they came from.
inline void segmentSortBody(const void *args, int64_t, int64_t) {
  const SortCall call = *static_cast<const SortCall *>(args);
  const int64_t n = call.n;
  int32_t *rows = call.workspace, *order = rows + n;
  int32_t *otherRows = order + n, *otherOrder = otherRows + n;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t local = int64_t(call.index[i]) - call.first;
    rows[i] = int32_t(local >= 0 && local < call.rows ? local : call.rows);
    order[i] = int32_t(i);
  }
  for (int shift = 0; shift == 0 || (call.rows >> shift) != 0; shift += 16) {
    for (int byte = shift; byte < shift + 16; byte += 8) { // two: results end
      int64_t start[257] = {};                             // where they began
      for (int64_t i = 0; i < n; ++i)
        ++start[((rows[i] >> byte) & 255) + 1];
      for (int b = 0; b < 256; ++b)
        start[b + 1] += start[b];
      for (int64_t i = 0; i < n; ++i) {
        const int64_t to = start[(rows[i] >> byte) & 255]++;
        otherRows[to] = rows[i];
        otherOrder[to] = order[i];
      }
      std::swap(rows, otherRows);
      std::swap(order, otherOrder);
    }
  }
}

template <class D, class G>
struct SegmentCall {
  int64_t n, columns, rows;
  const int32_t *workspace;
  D from;
  G gradient;
};

/// Items are rows of the shard; a thread owns rows, found by bisection.
template <class D, class G>
void segmentSumBody(const void *args, int64_t begin, int64_t end) {
  const auto &call = *static_cast<const SegmentCall<D, G> *>(args);
  const int32_t *rows = call.workspace, *order = rows + call.n;
  int64_t low = 0;
  for (int64_t high = call.n; low < high;) {
    const int64_t middle = (low + high) / 2;
    if (rows[middle] < begin)
      low = middle + 1;
    else
      high = middle;
  }
  while (low < call.n && rows[low] < end) {
    const int32_t row = rows[low];
    int64_t last = low;
    while (last < call.n && rows[last] == row)
      ++last;
    for (int64_t first = 0; first < call.columns; first += kBlock) {
      const int64_t left = call.columns - first;
      const int64_t count = left < kBlock ? left : kBlock;
      alignas(64) float sum[kBlock];
      for (int64_t c = 0; c < count; ++c)
        sum[c] = 0;
      for (int64_t i = low; i < last; ++i) {
        const auto d = call.from.slice(order[i], first, call.columns);
        HEDDLE_SIMD
        for (int64_t c = 0; c < count; ++c)
          sum[c] += d.load(c);
      }
      const auto g = call.gradient.slice(row, first, call.columns);
      HEDDLE_SIMD
      for (int64_t c = 0; c < count; ++c)
        g.storeElement(c, g.load(c) + sum[c]);
    }
    low = last;
  }
}

} // namespace host

/// Sorts the positions of `index` (n of them) by index - first, in a shard of
/// `rows` rows, into `workspace`: segmentWorkspace(n) bytes. Positions of one
/// row keep their order; those of rows elsewhere are left out.
inline heddle_rt_status segmentSort(heddle_rt_stream *stream, const char *name,
                                    int64_t n, const int32_t *index,
                                    int64_t first, int64_t rows,
                                    int32_t *workspace) {
  const host::SortCall call{index, n, first, rows, workspace};
  const heddle_rt_access accesses[] = {{index, n * int64_t(sizeof(int32_t)), 0},
                                       {workspace, segmentWorkspace(n), 1}};
  return heddle_rt_host_launch(stream, name, host::segmentSortBody, &call,
                               sizeof call, 1, 1, accesses, 2);
}

/// gradient[row, :] += sum of from[i, :] over the positions i sorted under that
/// row, in their order. `from` is a whole input, [n, columns]; `gradient` an
/// inout of [rows, columns]. Rows without a position are not touched.
template <class D, class G>
heddle_rt_status segmentSum(heddle_rt_stream *stream, const char *name,
                            int64_t n, int64_t columns, int64_t rows,
                            const int32_t *workspace, D from, G gradient) {
  static_assert(D::shape == Full && D::mode == Read && D::kAccesses == 1);
  static_assert(G::shape == Full && G::mode == ReadWrite);
  if (from.group != 1 || from.period != 0)
    return heddle_rt_launch_failed(name, "rows to be summed must be distinct");
  const host::SegmentCall<D, G> call{n,         columns, rows,
                                     workspace, from,    gradient};
  heddle_rt_access accesses[3];
  from.declare(n, columns, accesses);
  gradient.declare(rows, columns, accesses + 1);
  accesses[2] = {workspace, segmentWorkspace(n), 0};
  return heddle_rt_host_launch(stream, name, host::segmentSumBody<D, G>, &call,
                               sizeof call, rows, host::grainOf(columns),
                               accesses, 3);
}

} // namespace heddle

#endif
