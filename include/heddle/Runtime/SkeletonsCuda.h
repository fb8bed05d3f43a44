//===- SkeletonsCuda.h - Kernels as CUDA launches -------------------------===//
//
// The functions of SkeletonsHost.h, which says what they mean, under nvcc.
// Launched with cudaLaunchKernelEx, a plain function call, so that this file
// also compiles against a double of the CUDA runtime. The arithmetic is the
// host's, element by element and in the same order, given -fmad=false.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_SKELETONSCUDA_H
#define HEDDLE_RUNTIME_SKELETONSCUDA_H

#include "heddle/Runtime/Operands.h"

#include <cuda_runtime.h>

#include <utility>

namespace heddle {
namespace cuda {

template <class O>
using SliceOf = decltype(std::declval<const O &>().slice(0, 0, 0));
template <class O>
using ValueOf = decltype(std::declval<const SliceOf<O> &>().load(0));

//===----------------------------------------------------------------------===//
// Inner functions: one element, with one value per operand.
//===----------------------------------------------------------------------===//

template <class F, class... O>
struct Loops {
  __device__ __forceinline__ static void
  element(const F &f, int64_t i, const SliceOf<O> &...s, ValueOf<O>... v) {
    f(v...);
    (s.storeElement(i, v), ...);
  }
  __device__ __forceinline__ static void apply(const F &f, const float *values,
                                               int64_t column, int64_t i,
                                               const SliceOf<O> &...s,
                                               ValueOf<O>... v) {
    f.apply(values, int32_t(column), v...);
    (s.storeElement(i, v), ...);
  }
  __device__ __forceinline__ static void applyOnce(const F &f,
                                                   const float *values,
                                                   const SliceOf<O> &...s,
                                                   ValueOf<O>... v) {
    f.apply(values, 0, v...);
    (s.storeOnce(v), ...);
  }
  template <class Value>
  __device__ __forceinline__ static void
  applyTotal(const F &f, Value total, const SliceOf<O> &...s, ValueOf<O>... v) {
    f.apply(total, v...);
    (s.storeOnce(v), ...);
  }
};

//===----------------------------------------------------------------------===//
// elementwise: neighbours a thread, so many that the narrowest format's are 16
// bytes, where all operands allow it.
//===----------------------------------------------------------------------===//

/// What one access of memory moves: 16 bytes at most, several such for more.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T v[n];
};

template <class O>
inline constexpr bool kHasElements =
    O::kAccesses == 1 && (O::shape == Full || O::shape == PerColumn);
template <class O>
inline constexpr int kPerAccess =
    kHasElements<O> ? 16 / int(sizeof(typename O::Element)) : 1;

/// Elements of a pack. More than eight would take too many registers.
template <class... O>
constexpr int packOf() {
  int most = 4;
  ((most = kPerAccess<O> > most ? kPerAccess<O> : most), ...);
  return most < 8 ? most : 8;
}

template <class... O>
inline constexpr int kPackOf = packOf<O...>();

/// n neighbouring elements of an operand: as packs where it has elements, the
/// one value otherwise.
template <class O, int n>
struct Several {
  using Element = typename O::Element;
  ValueOf<O> value[n];

  __device__ __forceinline__ Several(const SliceOf<O> &s, int64_t i) {
    if constexpr (kHasElements<O> && (O::mode & Read) != 0) {
      const auto pack = *reinterpret_cast<const Pack<Element, n> *>(s.data + i);
      for (int k = 0; k < n; ++k)
        value[k] = widen(pack.v[k]);
    } else {
      for (int k = 0; k < n; ++k)
        value[k] = s.load(i + k);
    }
  }
  __device__ __forceinline__ void store(const SliceOf<O> &s, int64_t i) const {
    if constexpr (kHasElements<O> && (O::mode & Write) != 0) {
      Pack<Element, n> pack;
      for (int k = 0; k < n; ++k)
        narrow(value[k], pack.v[k]);
      *reinterpret_cast<Pack<Element, n> *>(s.data + i) = pack;
    }
  }
};

template <int n, class F, class... O>
__device__ __forceinline__ void severalElements(const F &f, int64_t i,
                                                const SliceOf<O> &...s,
                                                Several<O, n>... v) {
  for (int k = 0; k < n; ++k)
    f(v.value[k]...);
  (v.store(s, i), ...);
}

template <class F, class... O>
__device__ __forceinline__ void
elementwiseThread(bool packs, int64_t n, const F &f, const SliceOf<O> &...s) {
  constexpr int kPack = kPackOf<O...>;
  const int64_t stride = int64_t(gridDim.x) * kLanes;
  const int64_t first = int64_t(blockIdx.x) * kLanes + threadIdx.x;
  const int64_t whole = packs ? n / kPack : 0;
  for (int64_t p = first; p < whole; p += stride)
    severalElements<kPack, F, O...>(f, p * kPack, s...,
                                    Several<O, kPack>(s, p * kPack)...);
  for (int64_t i = whole * kPack + first; i < n; i += stride)
    Loops<F, O...>::element(f, i, s..., s.load(i)...);
}
template <class F, class... O>
__global__ void __launch_bounds__(kLanes)
    elementwiseKernel(bool packs, int64_t n, F f, O... o) {
  elementwiseThread<F, O...>(packs, n, f, o.slice(0, 0, n)...);
}

//===----------------------------------------------------------------------===//
// Reductions of a block of kLanes threads.
//===----------------------------------------------------------------------===//

/// Combines pass P of all threads; every thread gets the result. Ends with a
/// barrier, so that `shared` can be used again.
template <int P, class F>
__device__ __forceinline__ void reduceBlock(const F &f, float *s,
                                            int64_t columns, float *shared) {
  constexpr int kBefore = ReducedBefore<F, P>::value;
  constexpr int kOwn = F::kReductions[P];
  float t[kBefore + kOwn];
  for (int k = 0; k < kBefore; ++k)
    t[k] = s[k];
  for (int lanes = kWarp / 2; lanes; lanes /= 2) {
    for (int k = 0; k < kOwn; ++k)
      t[kBefore + k] = __shfl_down_sync(0xffffffffu, s[kBefore + k], lanes);
    f.template combine<P>(s, t);
  }
  if (threadIdx.x % kWarp == 0)
    for (int k = 0; k < kOwn; ++k)
      shared[k * kWarps + threadIdx.x / kWarp] = s[kBefore + k];
  __syncthreads();
  for (int k = 0; k < kOwn; ++k)
    s[kBefore + k] = shared[k * kWarps];
  for (int w = 1; w < warpsWithColumns(columns); ++w) {
    for (int k = 0; k < kOwn; ++k)
      t[kBefore + k] = shared[k * kWarps + w];
    f.template combine<P>(s, t);
  }
  __syncthreads();
}

template <int P, class F, class... S>
__device__ __forceinline__ void reduceRow(const F &f, float *values,
                                          int64_t columns, float *shared,
                                          const S &...s) {
  f.template init<P>(values);
  for (int64_t c = threadIdx.x; c < columns; c += kLanes)
    f.template accumulate<P>(values, int32_t(c), s.load(c)...);
  reduceBlock<P>(f, values, columns, shared);
}

template <class F>
struct MostReduced {
  static constexpr int most() {
    int found = 1;
    if constexpr (F::kPasses > 0)
      for (int n : F::kReductions)
        found = n > found ? n : found;
    return found;
  }
  static constexpr int value = most();
};

template <int n, class F, class... O>
__device__ __forceinline__ void
severalColumns(const F &f, const float *values, int64_t c,
               const SliceOf<O> &...s, Several<O, n>... v) {
  for (int k = 0; k < n; ++k)
    f.apply(values, int32_t(c + k), v.value[k]...);
  (v.store(s, c), ...);
}

/// The elements of a row, as packs where their places allow it.
template <class F, class... O>
__device__ __forceinline__ void applyRow(const F &f, const float *values,
                                         bool packs, int64_t n,
                                         const SliceOf<O> &...s) {
  constexpr int kPack = kPackOf<O...>;
  const int64_t whole = packs ? n / kPack : 0;
  for (int64_t p = threadIdx.x; p < whole; p += kLanes)
    severalColumns<kPack, F, O...>(f, values, p * kPack, s...,
                                   Several<O, kPack>(s, p * kPack)...);
  for (int64_t c = whole * kPack + threadIdx.x; c < n; c += kLanes)
    Loops<F, O...>::apply(f, values, c, c, s..., s.load(c)...);
}

template <class F, class... O, int... P>
__device__ __forceinline__ void
reduceThenApply(const F &f, bool packs, int64_t n, float *shared,
                std::integer_sequence<int, P...>, const SliceOf<O> &...s) {
  using L = Loops<F, O...>;
  float values[kReduced<F> + 1];
  (reduceRow<P>(f, values, n, shared, s...), ...);
  // All threads have made their slices: what a row has once may be replaced.
  if constexpr (F::kPasses == 0 &&
                ((kWritesOnce<O> && (O::mode & Read)) || ...))
    __syncthreads();
  // It reads elements of the first column, which this thread alone overwrites.
  if constexpr ((kWritesOnce<O> || ...))
    if (threadIdx.x == 0)
      L::applyOnce(f, values, s..., s.load(0)...);
  if constexpr ((kWritesElements<O> || ...))
    applyRow<F, O...>(f, values, packs, n, s...);
}

/// One block per row.
template <class F, class... O>
__global__ void __launch_bounds__(kLanes)
    rowwiseKernel(bool packs, int64_t rows, int64_t n, F f, O... o) {
  __shared__ float shared[MostReduced<F>::value * kWarps];
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
    reduceThenApply<F, O...>(f, packs, n, shared,
                             std::make_integer_sequence<int, F::kPasses>(),
                             o.slice(r, 0, n)...);
}

//===----------------------------------------------------------------------===//
// columnwise: sums of kRowChunk rows, then of these sums.
//===----------------------------------------------------------------------===//

/// A block takes kLanes columns of one chunk of rows at a time; partial sums
/// lie as [chunk][value][column].
template <class F, class... O>
__global__ void __launch_bounds__(kLanes)
    columnChunksKernel(int64_t rows, int64_t columns, F f, float *partial,
                       O... o) {
  constexpr int kOwn = F::kReductions[0];
  const int64_t wide = (columns + kLanes - 1) / kLanes;
  const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
  for (int64_t item = blockIdx.x; item < wide * chunks; item += gridDim.x) {
    const int64_t chunk = item / wide;
    const int64_t c = item % wide * kLanes + threadIdx.x;
    if (c >= columns)
      continue;
    const int64_t top = chunk * kRowChunk;
    const int64_t bottom = top + kRowChunk < rows ? top + kRowChunk : rows;
    float s[kOwn];
    f.template init<0>(s);
    for (int64_t r = top; r < bottom; ++r)
      f.template accumulate<0>(s, int32_t(c),
                               o.slice(r, c, columns).load(0)...);
    for (int k = 0; k < kOwn; ++k)
      partial[(chunk * kOwn + k) * columns + c] = s[k];
  }
}
template <class F, class... O>
__device__ __forceinline__ void applyColumn(const F &f, const float *s,
                                            int64_t c,
                                            const SliceOf<O> &...slices) {
  Loops<F, O...>::apply(f, s, c, 0, slices..., slices.load(0)...);
}
template <class F, class... O>
__global__ void __launch_bounds__(kLanes)
    columnTotalsKernel(int64_t rows, int64_t columns, F f, const float *partial,
                       O... o) {
  constexpr int kOwn = F::kReductions[0];
  const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
  const int64_t stride = int64_t(gridDim.x) * kLanes;
  for (int64_t c = int64_t(blockIdx.x) * kLanes + threadIdx.x; c < columns;
       c += stride) {
    float s[kOwn], t[kOwn];
    f.template init<0>(s);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (int k = 0; k < kOwn; ++k)
        t[k] = partial[(chunk * kOwn + k) * columns + c];
      if (chunk == 0)
        for (int k = 0; k < kOwn; ++k)
          s[k] = t[k];
      else
        f.template combine<0>(s, t);
    }
    applyColumn<F, O...>(f, s, c, o.slice(0, c, columns)...);
  }
}

//===----------------------------------------------------------------------===//
// reduceAll
//===----------------------------------------------------------------------===//

template <class Value>
__device__ __forceinline__ Value sumBlock(Value sum, int64_t elements,
                                          Value *shared) {
  for (int lanes = kWarp / 2; lanes; lanes /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % kWarp == 0)
    shared[threadIdx.x / kWarp] = sum;
  __syncthreads();
  sum = shared[0];
  for (int w = 1; w < warpsWithColumns(elements); ++w)
    sum += shared[w];
  __syncthreads();
  return sum;
}

template <class F, class... O>
__global__ void __launch_bounds__(kLanes)
    reduceChunksKernel(int64_t n, F f, typename F::Value *partial, O... o) {
  using Value = typename F::Value;
  __shared__ Value shared[kWarps];
  const int64_t chunks = (n + kReduceChunk - 1) / kReduceChunk;
  for (int64_t item = blockIdx.x; item < chunks; item += gridDim.x) {
    const int64_t top = item * kReduceChunk;
    const int64_t count = n - top < kReduceChunk ? n - top : kReduceChunk;
    Value sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += kLanes)
      sum += f.map(o.slice(0, top, n).load(i)...);
    sum = sumBlock(sum, count, shared);
    if (threadIdx.x == 0)
      partial[item] = sum;
  }
}

template <class O>
__device__ __forceinline__ SliceOf<O> scalarSlice(const O &o) {
  if constexpr (O::shape == Scalar)
    return o.slice(0, 0, 0);
  else
    return {};
}
template <class O>
__device__ __forceinline__ ValueOf<O> scalarValue(const O &o) {
  if constexpr (O::shape == Scalar)
    return o.slice(0, 0, 0).load(0);
  else
    return {};
}
template <class F, class... O>
__global__ void __launch_bounds__(kLanes)
    reduceTotalKernel(int64_t n, F f, const typename F::Value *partial,
                      O... o) {
  using Value = typename F::Value;
  __shared__ Value shared[kWarps];
  const int64_t chunks = (n + kReduceChunk - 1) / kReduceChunk;
  Value sum = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kLanes)
    sum += partial[i];
  sum = sumBlock(sum, chunks, shared);
  if (threadIdx.x == 0)
    Loops<F, O...>::applyTotal(f, sum, scalarSlice(o)..., scalarValue(o)...);
}

//===----------------------------------------------------------------------===//
// Launching
//===----------------------------------------------------------------------===//

/// Blocks of a grid whose blocks take turns until the work is done: enough to
/// fill the device several times.
inline int64_t mostBlocks() {
  int device = 0, multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                             device) != cudaSuccess)
    return 1;
  return int64_t(multiprocessors) * 8;
}

template <class... Parameters, class... Arguments>
heddle_rt_status launch(heddle_rt_stream *stream, const char *name,
                        int64_t blocks, void (*kernel)(Parameters...),
                        Arguments... arguments) {
  const int64_t most = mostBlocks();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks < 1      ? 1
                                 : blocks < most ? blocks
                                                 : most));
  config.blockDim = dim3(kLanes);
  config.stream = static_cast<cudaStream_t>(heddle_rt_native_stream(stream));
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  return error == cudaSuccess
             ? HEDDLE_RT_OK
             : heddle_rt_launch_failed(name, cudaGetErrorString(error));
}

template <class... O>
struct Ranges {
  static constexpr int kCount = (0 + ... + O::kAccesses);
  heddle_rt_access access[kCount + 1]; ///< and room for a workspace

  Ranges(int64_t rows, int64_t columns, const O &...o) {
    heddle_rt_access *next = access;
    ((o.declare(rows, columns, next), next += O::kAccesses), ...);
  }
};

/// Whether packs of `n` elements are aligned, those of every row where rows
/// begin so many elements apart.
template <int n, class O>
bool packs(const O &o, int64_t columns) {
  if constexpr (kHasElements<O>) {
    int64_t distance = columns;
    if constexpr (O::shape == Full)
      distance = o.pitch ? o.pitch : columns;
    else
      distance = 0; // the same in every row
    using P = Pack<typename O::Element, n>;
    return reinterpret_cast<uintptr_t>(o.data) % alignof(P) == 0 &&
           distance * int64_t(sizeof(typename O::Element)) %
                   int64_t(alignof(P)) ==
               0;
  } else {
    return true;
  }
}

} // namespace cuda

template <class F, class... O>
heddle_rt_status elementwise(heddle_rt_stream *stream, const char *name,
                             int64_t n, F f, O... o) {
  static_assert(!(kWritesOnce<O> || ...),
                "an elementwise output is an element");
  const cuda::Ranges<O...> ranges(1, n, o...);
  if (heddle_rt_status status =
          heddle_rt_note(stream, name, ranges.access, ranges.kCount))
    return status;
  if (n == 0)
    return HEDDLE_RT_OK;
  constexpr int kPack = cuda::kPackOf<O...>;
  return cuda::launch(stream, name, (n + kPack * kLanes - 1) / (kPack * kLanes),
                      cuda::elementwiseKernel<F, O...>,
                      (cuda::packs<kPack>(o, 0) && ...), n, f, o...);
}

template <class F, class... O>
heddle_rt_status rowwise(heddle_rt_stream *stream, const char *name,
                         int64_t rows, int64_t columns, F f, O... o) {
  static_assert(!(((O::mode & Write) != 0 &&
                   (O::shape == PerColumn || O::shape == Scalar)) ||
                  ...),
                "rows would write one element together");
  const cuda::Ranges<O...> ranges(rows, columns, o...);
  if (heddle_rt_status status =
          heddle_rt_note(stream, name, ranges.access, ranges.kCount))
    return status;
  if (rows == 0 || columns == 0)
    return HEDDLE_RT_OK;
  constexpr int kPack = cuda::kPackOf<O...>;
  return cuda::launch(stream, name, rows, cuda::rowwiseKernel<F, O...>,
                      (cuda::packs<kPack>(o, columns) && ...), rows, columns, f,
                      o...);
}

template <class F, class... O>
heddle_rt_status columnwise(heddle_rt_stream *stream, const char *name,
                            int64_t rows, int64_t columns, F f,
                            float *workspace, O... o) {
  static_assert(F::kPasses == 1, "columns are reduced in one pass");
  static_assert(!(((O::mode & Write) != 0 && O::shape != PerColumn) || ...),
                "a column-wise output has one element per column");
  cuda::Ranges<O...> ranges(rows, columns, o...);
  ranges.access[ranges.kCount] = {
      workspace, columnwiseWorkspace(rows, columns, F::kReductions[0]), 1};
  if (heddle_rt_status status =
          heddle_rt_note(stream, name, ranges.access, ranges.kCount + 1))
    return status;
  const int64_t wide = (columns + kLanes - 1) / kLanes;
  const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
  if (columns == 0)
    return HEDDLE_RT_OK;
  if (heddle_rt_status status = cuda::launch(stream, name, wide * chunks,
                                             cuda::columnChunksKernel<F, O...>,
                                             rows, columns, f, workspace, o...))
    return status;
  return cuda::launch(stream, name, wide, cuda::columnTotalsKernel<F, O...>,
                      rows, columns, f, workspace, o...);
}

template <class F, class... O>
heddle_rt_status reduceAll(heddle_rt_stream *stream, const char *name,
                           int64_t n, F f, void *workspace, O... o) {
  static_assert(!(((O::mode & Write) != 0 && O::shape != Scalar) || ...),
                "an output of reduceAll is a scalar");
  auto *partial = static_cast<typename F::Value *>(workspace);
  cuda::Ranges<O...> ranges(1, n, o...);
  ranges.access[ranges.kCount] = {workspace, reduceAllWorkspace(n), 1};
  if (heddle_rt_status status =
          heddle_rt_note(stream, name, ranges.access, ranges.kCount + 1))
    return status;
  if (heddle_rt_status status =
          cuda::launch(stream, name, (n + kReduceChunk - 1) / kReduceChunk,
                       cuda::reduceChunksKernel<F, O...>, n, f, partial, o...))
    return status;
  return cuda::launch(stream, name, 1, cuda::reduceTotalKernel<F, O...>, n, f,
                      partial, o...);
}

} // namespace heddle

#endif
