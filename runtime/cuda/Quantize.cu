// Largest magnitudes, and codes of 8 bits. Both give the host's bits: a maximum
// has no order, and each code depends on nothing but its number and amax.

#include "heddle/Runtime/Scales.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/QuantizeGrid.h"

namespace heddle::cuda {
namespace {

/// Elements of 16 bytes.
template <class T>
inline constexpr int kPacked = 16 / int(sizeof(T));

bool isAligned(const void *at, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % uintptr_t(bytes) == 0;
}

//===----------------------------------------------------------------------===//
// The largest magnitude
//===----------------------------------------------------------------------===//

template <class T>
__global__ void __launch_bounds__(kQuantizeThreads)
    amaxKernel(const T *input, int64_t n, bool packs, uint32_t *amax) {
  constexpr int kPack = kPacked<T>;
  const int64_t stride = int64_t(gridDim.x) * kQuantizeThreads;
  const int64_t first = int64_t(blockIdx.x) * kQuantizeThreads + threadIdx.x;
  const int64_t whole = packs ? n / kPack : 0;
  uint32_t most = 0;
  for (int64_t p = first; p < whole; p += stride) {
    const auto pack =
        *reinterpret_cast<const Pack<T, kPack> *>(input + p * kPack);
    for (int k = 0; k < kPack; ++k)
      most = larger(most, magnitudeBits(widen(pack.v[k])));
  }
  for (int64_t i = whole * kPack + first; i < n; i += stride)
    most = larger(most, magnitudeBits(widen(input[i])));
  for (int lanes = kWarp / 2; lanes; lanes /= 2)
    most = larger(most, __shfl_down_sync(0xffffffffu, most, lanes));
  if (threadIdx.x % kWarp == 0)
    atomicMax(amax, most);
}

template <class T>
cudaError_t findLargest(cudaStream_t stream, const void *input, int64_t n,
                        float *amax) {
  if (const cudaError_t error = cudaMemsetAsync(amax, 0, sizeof *amax, stream))
    return error;
  const int64_t each = kQuantizeThreads * kPacked<T>;
  cudaLaunchConfig_t config = quantizeGrid(stream, (n + each - 1) / each);
  return cudaLaunchKernelEx(
      &config, amaxKernel<T>, static_cast<const T *>(input), n,
      isAligned(input, 16), reinterpret_cast<uint32_t *>(amax));
}

//===----------------------------------------------------------------------===//
// Codes
//===----------------------------------------------------------------------===//

/// What all threads multiply by; one of them tells its inverse.
template <class Code>
__device__ __forceinline__ float upOf(const float *amax, bool powerOfTwo,
                                      float *scale) {
  const float up = upScale(*amax, largest(Code()), powerOfTwo);
  if (blockIdx.x == 0 && threadIdx.x == 0)
    *scale = 1.0f / up;
  return up;
}

template <class T, class Code>
__global__ void __launch_bounds__(kQuantizeThreads)
    quantizeKernel(const T *input, int64_t n, bool packs, const float *amax,
                   bool powerOfTwo, Code *codes, float *scale) {
  constexpr int kPack = kPacked<T>;
  const float up = upOf<Code>(amax, powerOfTwo, scale);
  const int64_t stride = int64_t(gridDim.x) * kQuantizeThreads;
  const int64_t first = int64_t(blockIdx.x) * kQuantizeThreads + threadIdx.x;
  const int64_t whole = packs ? n / kPack : 0;
  for (int64_t p = first; p < whole; p += stride) {
    const auto from =
        *reinterpret_cast<const Pack<T, kPack> *>(input + p * kPack);
    Pack<Code, kPack> to;
    for (int k = 0; k < kPack; ++k)
      narrow(widen(from.v[k]) * up, to.v[k]);
    *reinterpret_cast<Pack<Code, kPack> *>(codes + p * kPack) = to;
  }
  for (int64_t i = whole * kPack + first; i < n; i += stride)
    narrow(widen(input[i]) * up, codes[i]);
}

/// A block turns squares of kTile, so that both sides are read and written
/// along their rows.
template <class T, class Code>
__global__ void __launch_bounds__(kQuantizeThreads)
    turnKernel(const T *input, int64_t rows, int64_t columns, const float *amax,
               bool powerOfTwo, Code *codes, float *scale) {
  constexpr int kTile = 64, kPitch = kTile + 1;
  __shared__ uint8_t turned[kTile * kPitch];
  const float up = upOf<Code>(amax, powerOfTwo, scale);
  const int64_t wide = (columns + kTile - 1) / kTile;
  const int64_t tiles = (rows + kTile - 1) / kTile * wide;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t top = tile / wide * kTile, left = tile % wide * kTile;
    for (int i = int(threadIdx.x); i < kTile * kTile; i += kQuantizeThreads) {
      const int r = i / kTile, c = i % kTile;
      if (top + r >= rows || left + c >= columns)
        continue;
      Code code;
      narrow(widen(input[(top + r) * columns + left + c]) * up, code);
      turned[c * kPitch + r] = code.bits;
    }
    __syncthreads();
    for (int i = int(threadIdx.x); i < kTile * kTile; i += kQuantizeThreads) {
      const int c = i / kTile, r = i % kTile;
      if (top + r < rows && left + c < columns)
        codes[(left + c) * rows + top + r].bits = turned[c * kPitch + r];
    }
    __syncthreads();
  }
}

template <class T, class Code>
cudaError_t quantize(cudaStream_t stream, const heddle_rt_quantize_args &args,
                     const void *input, const float *amax, void *codes,
                     float *scale) {
  const auto *from = static_cast<const T *>(input);
  auto *to = static_cast<Code *>(codes);
  const bool powerOfTwo = args.power_of_two != 0;
  const int64_t n = args.rows * args.columns;
  const int64_t each = args.transposed ? 4096 : kQuantizeThreads * kPacked<T>;
  cudaLaunchConfig_t config = quantizeGrid(stream, (n + each - 1) / each);
  if (args.transposed)
    return cudaLaunchKernelEx(&config, turnKernel<T, Code>, from, args.rows,
                              args.columns, amax, powerOfTwo, to, scale);
  return cudaLaunchKernelEx(&config, quantizeKernel<T, Code>, from, n,
                            isAligned(input, 16) &&
                                isAligned(codes, kPacked<T>),
                            amax, powerOfTwo, to, scale);
}

template <class T>
cudaError_t quantizeFrom(cudaStream_t stream,
                         const heddle_rt_quantize_args &args, const void *input,
                         const float *amax, void *codes, float *scale) {
  return args.codes == HEDDLE_RT_F8E4M3
             ? quantize<T, f8e4m3>(stream, args, input, amax, codes, scale)
             : quantize<T, f8e5m2>(stream, args, input, amax, codes, scale);
}

} // namespace

cudaError_t launchAmax(cudaStream_t stream, heddle_rt_dtype dtype,
                       const void *input, int64_t elements, float *amax) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return findLargest<float>(stream, input, elements, amax);
  case HEDDLE_RT_F16:
    return findLargest<f16>(stream, input, elements, amax);
  default:
    return findLargest<bf16>(stream, input, elements, amax);
  }
}

cudaError_t launchQuantize(cudaStream_t stream,
                           const heddle_rt_quantize_args &args,
                           const void *input, const float *amax, void *codes,
                           float *scale) {
  switch (args.input) {
  case HEDDLE_RT_F32:
    return quantizeFrom<float>(stream, args, input, amax, codes, scale);
  case HEDDLE_RT_F16:
    return quantizeFrom<f16>(stream, args, input, amax, codes, scale);
  default:
    return quantizeFrom<bf16>(stream, args, input, amax, codes, scale);
  }
}

} // namespace heddle::cuda
