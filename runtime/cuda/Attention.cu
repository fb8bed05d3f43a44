// Attention on the ordinary units of a GPU. A warp has a query (forward, its
// gradient) or a key (the gradients of keys and values) and walks over tiles of
// the others, which its block shares. No atomics: sums have one order.

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/Random.h"
#include "runtime/cuda/Kernels.h"

#include <cuda_runtime.h>

namespace heddle::cuda {
namespace {

using Args = heddle_rt_attention_args;
using Strides = heddle_rt_attention_strides;

constexpr int kWarpSize = 32;
constexpr int kWarpsPerBlock = 8;
constexpr int kThreads = kWarpSize * kWarpsPerBlock;

/// Pointers by element type, and what a kernel needs of the arguments once.
template <class T>
struct Operands {
  const T *q, *k, *v, *o, *gradO;
  T *out, *gradQ, *gradK, *gradV;
  float *lse;
  Args args;
  uint32_t threshold; ///< of dropout
  float kept;         ///< what a probability that stays is multiplied by
};

__device__ __forceinline__ float warpSum(float x) {
  for (int lanes = kWarpSize / 2; lanes; lanes /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}
__device__ __forceinline__ float warpMax(float x) {
  for (int lanes = kWarpSize / 2; lanes; lanes /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, x, lanes);
    x = other > x ? other : x;
  }
  return x;
}

/// Whose softmax a row is: query i of head (g, r), a row of [queries, heads].
struct Row {
  int64_t b, g, i, r;
};

__device__ __forceinline__ int64_t offsetOf(const Strides &s, const Row &row) {
  return row.b * s.batch + row.i * s.sequence + row.g * s.group +
         row.r * s.head;
}
__device__ __forceinline__ int64_t keyOffset(const Strides &s, int64_t b,
                                             int64_t j, int64_t g) {
  return b * s.batch + j * s.sequence + g * s.group;
}
__device__ __forceinline__ int64_t lseOffset(const Args &a, const Row &row) {
  return ((row.b * a.queries + row.i) * a.groups + row.g) * a.heads + row.r;
}

/// heddle_rt_attention's rule.
__device__ __forceinline__ bool sees(const Args &a, int64_t b, int64_t i,
                                     int64_t j) {
  const int64_t q = b * a.queries + i, k = b * a.keys + j;
  if (a.query_documents && a.query_documents[q] != a.key_documents[k])
    return false;
  const int64_t pi = a.query_positions ? a.query_positions[q] : i;
  const int64_t pj = a.key_positions ? a.key_positions[k] : j;
  return (!a.causal || pj <= pi) && (a.window == 0 || pi - pj < a.window);
}

/// What dropout multiplies a probability by.
template <class T>
__device__ __forceinline__ float keeps(const Operands<T> &x, const Row &row,
                                       int64_t j) {
  const Args &a = x.args;
  if (x.threshold == 0 && x.kept == 1.0f)
    return 1.0f;
  const int64_t head = a.first_head + row.g * a.group_heads + row.r;
  const uint32_t word = random::dropoutWord(
      uint64_t(*a.seed), 1, uint32_t(head),
      uint32_t(a.token_numbers[row.b * a.queries + row.i]), uint32_t(j));
  return word >= x.threshold ? x.kept : 0.0f;
}

/// Elements lane, lane + 32, ... of a vector in memory.
template <int kPerLane, class T>
__device__ __forceinline__ void loadLanes(float (&to)[kPerLane], const T *from,
                                          int64_t size, int lane) {
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    const int64_t at = lane + kWarpSize * c;
    to[c] = at < size ? widen(from[at]) : 0.0f;
  }
}
template <int kPerLane, class T>
__device__ __forceinline__ void storeLanes(const float (&from)[kPerLane], T *to,
                                           int64_t size, int lane) {
#pragma unroll
  for (int c = 0; c < kPerLane; ++c) {
    const int64_t at = lane + kWarpSize * c;
    if (at < size)
      narrow(from[c], to[at]);
  }
}
template <int kPerLane>
__device__ __forceinline__ void toShared(const float (&from)[kPerLane],
                                         float *to, int lane) {
#pragma unroll
  for (int c = 0; c < kPerLane; ++c)
    to[lane + kWarpSize * c] = from[c];
}

/// Sizes of a kernel for heads of at most 32 kPerLane elements.
template <int kPerLane>
struct Sizes {
  static constexpr int kWidth = kWarpSize * kPerLane;
  static constexpr int kPitch = kWidth + 1; ///< no two rows in one bank
  /// So that two tiles fit in the 48 KiB that every block may have.
  static constexpr int kTile = kPerLane <= 4 ? 32 : 16;
};

/// A tile of `kTile` vectors, zeros where there are none. `address(t)` is the
/// t-th one's, NULL: none.
template <int kPerLane, class T, class Address>
__device__ __forceinline__ void loadTile(float *tile, int64_t size,
                                         const Address &address) {
  using S = Sizes<kPerLane>;
  const int lane = int(threadIdx.x) % kWarpSize;
  for (int t = int(threadIdx.x) / kWarpSize; t < S::kTile;
       t += kWarpsPerBlock) {
    const T *from = address(t);
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      const int64_t at = lane + kWarpSize * c;
      tile[t * S::kPitch + at] = from && at < size ? widen(from[at]) : 0.0f;
    }
  }
}

template <int kPerLane>
__device__ __forceinline__ float dot(const float *a, const float *b) {
  float sum = 0;
#pragma unroll 8
  for (int c = 0; c < Sizes<kPerLane>::kWidth; ++c)
    sum = ::fmaf(a[c], b[c], sum);
  return sum;
}

/// sum += the tile's vectors, each times its weight.
template <int kPerLane>
__device__ __forceinline__ void addWeighted(float (&sum)[kPerLane],
                                            const float *weights,
                                            const float *tile, int lane) {
  using S = Sizes<kPerLane>;
#pragma unroll 4
  for (int t = 0; t < S::kTile; ++t) {
    const float w = weights[t];
#pragma unroll
    for (int c = 0; c < kPerLane; ++c)
      sum[c] = ::fmaf(w, tile[t * S::kPitch + lane + kWarpSize * c], sum[c]);
  }
}

struct Span {
  int64_t begin, end;
};

/// Keys that queries [first, last] may see, as far as indices say it.
__device__ __forceinline__ Span keysOf(const Args &a, int64_t first,
                                       int64_t last) {
  Span span{0, a.keys};
  if (a.query_positions)
    return span;
  if (a.causal && last + 1 < span.end)
    span.end = last + 1;
  if (a.window > 0 && first - a.window + 1 > 0)
    span.begin = first - a.window + 1;
  return span;
}
/// Queries that may see keys [first, last].
__device__ __forceinline__ Span queriesOf(const Args &a, int64_t first,
                                          int64_t last) {
  Span span{0, a.queries};
  if (a.query_positions)
    return span;
  if (a.causal)
    span.begin = first < a.queries ? first : a.queries;
  if (a.window > 0 && last + a.window < span.end)
    span.end = last + a.window;
  return span;
}

/// The rows of a block: kWarpsPerBlock of one (b, g), a warp each.
struct Rows {
  Row own;
  bool valid;
  int64_t firstQuery, lastQuery;
};
__device__ __forceinline__ int64_t blocksOf(int64_t rows) {
  return (rows + kWarpsPerBlock - 1) / kWarpsPerBlock;
}
__device__ __forceinline__ Rows rowsOf(const Args &a, int64_t item) {
  const int64_t count = a.queries * a.heads, blocks = blocksOf(count);
  const int64_t first = item % blocks * kWarpsPerBlock;
  const int64_t last =
      first + kWarpsPerBlock < count ? first + kWarpsPerBlock : count;
  const int64_t n = first + threadIdx.x / kWarpSize;
  const int64_t own = n < count ? n : count - 1;
  const int64_t plane = item / blocks;
  return {{plane / a.groups, plane % a.groups, own / a.heads, own % a.heads},
          n < count,
          first / a.heads,
          (last - 1) / a.heads};
}

template <class T, int kPerLane>
__global__ void __launch_bounds__(kThreads, 2) forwardKernel(Operands<T> x) {
  using S = Sizes<kPerLane>;
  __shared__ float keys[S::kTile * S::kPitch], values[S::kTile * S::kPitch];
  __shared__ float queries[kWarpsPerBlock * S::kWidth];
  __shared__ float weights[kWarpsPerBlock * S::kTile];
  const Args &a = x.args;
  const int lane = int(threadIdx.x) % kWarpSize;
  const int warp = int(threadIdx.x) / kWarpSize;
  float *query = queries + warp * S::kWidth,
        *weight = weights + warp * S::kTile;
  const int64_t items = a.batch * a.groups * blocksOf(a.queries * a.heads);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Rows rows = rowsOf(a, item);
    const Row &row = rows.own;
    float sum[kPerLane];
    loadLanes(sum, x.q + offsetOf(a.q, row), a.head_size, lane);
    toShared(sum, query, lane);
    for (int c = 0; c < kPerLane; ++c)
      sum[c] = 0;
    float most = -math::kInfinity, total = 0;
    const Span span = keysOf(a, rows.firstQuery, rows.lastQuery);
    for (int64_t tile = span.begin; tile < span.end; tile += S::kTile) {
      __syncthreads(); // nobody reads the last tile any more
      loadTile<kPerLane, T>(keys, a.head_size, [&](int t) -> const T * {
        return tile + t < span.end
                   ? x.k + keyOffset(a.k, row.b, tile + t, row.g)
                   : nullptr;
      });
      loadTile<kPerLane, T>(values, a.head_size, [&](int t) -> const T * {
        return tile + t < span.end
                   ? x.v + keyOffset(a.v, row.b, tile + t, row.g)
                   : nullptr;
      });
      __syncthreads();
      const int64_t j = tile + lane;
      const bool seen =
          lane < S::kTile && j < span.end && sees(a, row.b, row.i, j);
      const float score =
          seen ? a.scale * dot<kPerLane>(query, keys + lane * S::kPitch)
               : -math::kInfinity;
      const float next = warpMax(score), above = next > most ? next : most;
      const float p = seen ? math::exp(score - above) : 0.0f;
      const float shrink = above == most ? 1.0f : math::exp(most - above);
      total = total * shrink + warpSum(p);
      most = above;
      if (lane < S::kTile)
        weight[lane] = seen ? p * keeps(x, row, j) : 0.0f;
      __syncwarp();
      for (int c = 0; c < kPerLane; ++c)
        sum[c] *= shrink;
      addWeighted(sum, weight, values, lane);
      __syncwarp(); // before the weights are written again
    }
    if (!rows.valid)
      continue;
    for (int c = 0; c < kPerLane; ++c)
      sum[c] = total > 0 ? sum[c] / total : 0.0f;
    storeLanes(sum, x.out + offsetOf(a.o, row), a.head_size, lane);
    if (lane == 0)
      x.lse[lseOffset(a, row)] =
          total > 0 ? most + math::log(total) : -math::kInfinity;
  }
}

/// Probability of a key that is seen.
__device__ __forceinline__ float probability(float score, float lse) {
  return math::exp(score - lse);
}

template <class T, int kPerLane>
__global__ void __launch_bounds__(kThreads, 2) queryGradKernel(Operands<T> x) {
  using S = Sizes<kPerLane>;
  __shared__ float keys[S::kTile * S::kPitch], values[S::kTile * S::kPitch];
  __shared__ float vectors[kWarpsPerBlock * S::kWidth];
  __shared__ float weights[kWarpsPerBlock * S::kTile];
  const Args &a = x.args;
  const int lane = int(threadIdx.x) % kWarpSize;
  const int warp = int(threadIdx.x) / kWarpSize;
  float *vector = vectors + warp * S::kWidth;
  float *weight = weights + warp * S::kTile;
  const int64_t items = a.batch * a.groups * blocksOf(a.queries * a.heads);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Rows rows = rowsOf(a, item);
    const Row &row = rows.own;
    float query[kPerLane], gradO[kPerLane], sum[kPerLane];
    loadLanes(sum, x.o + offsetOf(a.o, row), a.head_size, lane);
    loadLanes(gradO, x.gradO + offsetOf(a.grad_o, row), a.head_size, lane);
    loadLanes(query, x.q + offsetOf(a.q, row), a.head_size, lane);
    float part = 0;
    for (int c = 0; c < kPerLane; ++c) {
      part = ::fmaf(sum[c], gradO[c], part);
      sum[c] = 0;
    }
    const float delta = warpSum(part), lse = x.lse[lseOffset(a, row)];
    const Span span = keysOf(a, rows.firstQuery, rows.lastQuery);
    for (int64_t tile = span.begin; tile < span.end; tile += S::kTile) {
      __syncthreads();
      loadTile<kPerLane, T>(keys, a.head_size, [&](int t) -> const T * {
        return tile + t < span.end
                   ? x.k + keyOffset(a.k, row.b, tile + t, row.g)
                   : nullptr;
      });
      loadTile<kPerLane, T>(values, a.head_size, [&](int t) -> const T * {
        return tile + t < span.end
                   ? x.v + keyOffset(a.v, row.b, tile + t, row.g)
                   : nullptr;
      });
      toShared(query, vector, lane);
      __syncthreads();
      const int64_t j = tile + lane;
      const bool seen =
          lane < S::kTile && j < span.end && sees(a, row.b, row.i, j);
      const float score =
          seen ? a.scale * dot<kPerLane>(vector, keys + lane * S::kPitch) : 0;
      __syncwarp();
      toShared(gradO, vector, lane);
      __syncwarp();
      const float gradP =
          seen ? dot<kPerLane>(vector, values + lane * S::kPitch) *
                     keeps(x, row, j)
               : 0.0f;
      if (lane < S::kTile)
        weight[lane] =
            seen ? probability(score, lse) * (gradP - delta) * a.scale : 0.0f;
      __syncwarp();
      addWeighted(sum, weight, keys, lane);
    }
    // gradQ may be gradO: every lane has read its elements of this row.
    if (rows.valid)
      storeLanes(sum, x.gradQ + offsetOf(a.grad_q, row), a.head_size, lane);
  }
}

/// A warp has key j of (b, g); tiles are rows of [queries, heads].
template <class T, int kPerLane>
__global__ void __launch_bounds__(kThreads, 2) keyGradKernel(Operands<T> x) {
  using S = Sizes<kPerLane>;
  __shared__ float queries[S::kTile * S::kPitch], grads[S::kTile * S::kPitch];
  __shared__ float deltas[S::kTile];
  __shared__ float vectors[kWarpsPerBlock * S::kWidth];
  __shared__ float weights[2 * kWarpsPerBlock * S::kTile];
  const Args &a = x.args;
  const int lane = int(threadIdx.x) % kWarpSize;
  const int warp = int(threadIdx.x) / kWarpSize;
  float *vector = vectors + warp * S::kWidth;
  float *weightV = weights + 2 * warp * S::kTile, *weightK = weightV + S::kTile;
  const int64_t blocks = blocksOf(a.keys), items = a.batch * a.groups * blocks;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t plane = item / blocks, b = plane / a.groups,
                  g = plane % a.groups;
    const int64_t first = item % blocks * kWarpsPerBlock, own = first + warp;
    const int64_t j = own < a.keys ? own : a.keys - 1;
    float key[kPerLane], value[kPerLane], sumK[kPerLane], sumV[kPerLane];
    loadLanes(key, x.k + keyOffset(a.k, b, j, g), a.head_size, lane);
    loadLanes(value, x.v + keyOffset(a.v, b, j, g), a.head_size, lane);
    for (int c = 0; c < kPerLane; ++c)
      sumK[c] = sumV[c] = 0;
    const Span span = queriesOf(a, first, first + kWarpsPerBlock - 1);
    const int64_t end = span.end * a.heads;
    for (int64_t tile = span.begin * a.heads; tile < end; tile += S::kTile) {
      const auto rowAt = [&](int t) -> Row {
        return {b, g, (tile + t) / a.heads, (tile + t) % a.heads};
      };
      __syncthreads();
      loadTile<kPerLane, T>(queries, a.head_size, [&](int t) -> const T * {
        return tile + t < end ? x.q + offsetOf(a.q, rowAt(t)) : nullptr;
      });
      loadTile<kPerLane, T>(grads, a.head_size, [&](int t) -> const T * {
        return tile + t < end ? x.gradO + offsetOf(a.grad_o, rowAt(t))
                              : nullptr;
      });
      // A warp made these rows of the tile itself.
      for (int t = warp; t < S::kTile && tile + t < end; t += kWarpsPerBlock) {
        const T *o = x.o + offsetOf(a.o, rowAt(t));
        float part = 0;
        for (int c = 0; c < kPerLane; ++c) {
          const int64_t at = lane + kWarpSize * c;
          part = ::fmaf(at < a.head_size ? widen(o[at]) : 0.0f,
                        grads[t * S::kPitch + at], part);
        }
        part = warpSum(part);
        if (lane == 0)
          deltas[t] = part;
      }
      toShared(key, vector, lane);
      __syncthreads();
      const Row row = rowAt(lane);
      const bool seen =
          lane < S::kTile && tile + lane < end && sees(a, b, row.i, j);
      const float score =
          seen ? a.scale * dot<kPerLane>(vector, queries + lane * S::kPitch)
               : 0;
      __syncwarp();
      toShared(value, vector, lane);
      __syncwarp();
      float p = 0, gradS = 0;
      if (seen) {
        const float keep = keeps(x, row, j);
        p = probability(score, x.lse[lseOffset(a, row)]);
        const float gradP =
            dot<kPerLane>(vector, grads + lane * S::kPitch) * keep;
        gradS = p * (gradP - deltas[lane]) * a.scale;
        p *= keep;
      }
      if (lane < S::kTile) {
        weightV[lane] = p;
        weightK[lane] = gradS;
      }
      __syncwarp();
      addWeighted(sumV, weightV, grads, lane);
      addWeighted(sumK, weightK, queries, lane);
    }
    if (own >= a.keys)
      continue;
    storeLanes(sumK, x.gradK + keyOffset(a.grad_k, b, j, g), a.head_size, lane);
    storeLanes(sumV, x.gradV + keyOffset(a.grad_v, b, j, g), a.head_size, lane);
  }
}

template <class T>
cudaError_t launch(cudaStream_t stream, void (*kernel)(Operands<T>),
                   const Operands<T> &x, int64_t rowsPerPlane) {
  const int64_t items = x.args.batch * x.args.groups *
                        ((rowsPerPlane + kWarpsPerBlock - 1) / kWarpsPerBlock);
  constexpr int64_t kMostBlocks = 1 << 20;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(items < kMostBlocks ? items : kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return items == 0 ? cudaSuccess : cudaLaunchKernelEx(&config, kernel, x);
}

template <class T>
Operands<T> operandsOf(const Args &args, const runtime::AttentionPointers &p) {
  Operands<T> x = {};
  x.q = static_cast<const T *>(p.q);
  x.k = static_cast<const T *>(p.k);
  x.v = static_cast<const T *>(p.v);
  x.o = static_cast<const T *>(p.o);
  x.out = const_cast<T *>(x.o);
  x.lse = const_cast<float *>(p.lse);
  x.gradO = static_cast<const T *>(p.gradO);
  x.gradQ = static_cast<T *>(const_cast<void *>(p.gradQ));
  x.gradK = static_cast<T *>(const_cast<void *>(p.gradK));
  x.gradV = static_cast<T *>(const_cast<void *>(p.gradV));
  x.args = args;
  x.threshold = random::dropoutThreshold(args.dropout);
  x.kept = float(1 / (1 - args.dropout));
  return x;
}

template <class T, int kPerLane>
cudaError_t run(cudaStream_t stream, const Operands<T> &x, bool grad) {
  const int64_t rows = x.args.queries * x.args.heads;
  if (!grad)
    return launch<T>(stream, forwardKernel<T, kPerLane>, x, rows);
  // In this order: gradQ may overwrite gradO.
  const cudaError_t error =
      launch<T>(stream, keyGradKernel<T, kPerLane>, x, x.args.keys);
  return error == cudaSuccess
             ? launch<T>(stream, queryGradKernel<T, kPerLane>, x, rows)
             : error;
}

template <class T>
cudaError_t run(cudaStream_t stream, const Args &args,
                const runtime::AttentionPointers &pointers, bool grad) {
  const Operands<T> x = operandsOf<T>(args, pointers);
  if (args.head_size <= 32)
    return run<T, 1>(stream, x, grad);
  if (args.head_size <= 64)
    return run<T, 2>(stream, x, grad);
  if (args.head_size <= 128)
    return run<T, 4>(stream, x, grad);
  return run<T, 8>(stream, x, grad);
}

cudaError_t runOn(cudaStream_t stream, const Args &args,
                  const runtime::AttentionPointers &pointers, bool grad) {
  switch (args.dtype) {
  case HEDDLE_RT_BF16:
    return run<bf16>(stream, args, pointers, grad);
  case HEDDLE_RT_F16:
    return run<f16>(stream, args, pointers, grad);
  default:
    return run<float>(stream, args, pointers, grad);
  }
}

} // namespace

cudaError_t launchAttention(cudaStream_t stream, const Args &args,
                            const runtime::AttentionPointers &pointers) {
  return runOn(stream, args, pointers, false);
}

cudaError_t launchAttentionGrad(cudaStream_t stream, const Args &args,
                                const runtime::AttentionPointers &pointers) {
  return runOn(stream, args, pointers, true);
}

} // namespace heddle::cuda
