// Rotary positions, and floats as integers of their order.

#include "heddle/Runtime/Formats.h"
#include "runtime/cuda/Kernels.h"

#include <cuda_runtime.h>

namespace heddle::cuda {
namespace {

constexpr int kThreads = 256;

cudaLaunchConfig_t configOf(cudaStream_t stream, int64_t blocks) {
  constexpr int64_t kMostBlocks = 1 << 16;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks < kMostBlocks ? blocks : kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return config;
}

//===----------------------------------------------------------------------===//
// Rotary positions
//===----------------------------------------------------------------------===//

/// By value: the caller's frequencies are read during the call.
struct Rope {
  int64_t positions, heads, half;
  bool inverse;
  double frequencies[kMostFrequencies];
};

/// A block takes a position, a thread pairs of it: the sines of a pair serve
/// all heads. The angle is reduced in fp64, as on the host.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ropeKernel(const __grid_constant__ Rope rope, const T *input,
               const int32_t *positions, T *output) {
  for (int64_t p = blockIdx.x; p < rope.positions; p += gridDim.x)
    for (int64_t i = threadIdx.x; i < rope.half; i += kThreads) {
      const double angle = double(positions[p]) * rope.frequencies[i];
      uint32_t quarter;
      const float r = math::reduceAngle(angle, quarter);
      const float cosine = math::sineOrCosine(r, quarter + 1u);
      const float turn = math::sineOrCosine(r, quarter);
      const float sine = rope.inverse ? -turn : turn;
      for (int64_t h = 0; h < rope.heads; ++h) {
        const int64_t at = (p * rope.heads + h) * 2 * rope.half + i;
        const float a = widen(input[at]), b = widen(input[at + rope.half]);
        narrow(a * cosine - b * sine, output[at]);
        narrow(b * cosine + a * sine, output[at + rope.half]);
      }
    }
}

template <class T>
cudaError_t rotate(cudaStream_t stream, const Rope &rope, const void *input,
                   const int32_t *positions, void *output) {
  cudaLaunchConfig_t config = configOf(stream, rope.positions);
  return cudaLaunchKernelEx(&config, ropeKernel<T>, rope,
                            static_cast<const T *>(input), positions,
                            static_cast<T *>(output));
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

HEDDLE_FN int32_t keyOf(float x) {
  const auto bits = int32_t(math::bitsOf(x));
  return x != x ? INT32_MAX : bits >= 0 ? bits : bits ^ INT32_MAX;
}
HEDDLE_FN float ofKey(int32_t key) {
  return math::fromBits(uint32_t(key >= 0 ? key : key ^ INT32_MAX));
}
HEDDLE_FN int64_t keyOf(double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return x != x ? INT64_MAX : bits >= 0 ? bits : bits ^ INT64_MAX;
}
HEDDLE_FN double ofKey(int64_t key) {
  const int64_t bits = key >= 0 ? key : key ^ INT64_MAX;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

template <class T, class Key>
__global__ void __launch_bounds__(kThreads)
    toKeysKernel(const T *floats, Key *keys, int64_t n) {
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += stride)
    keys[i] = keyOf(widen(floats[i]));
}
template <class T, class Key>
__global__ void __launch_bounds__(kThreads)
    fromKeysKernel(const Key *keys, T *floats, int64_t n) {
  const int64_t stride = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += stride)
    narrow(ofKey(keys[i]), floats[i]);
}

template <class T, class Key>
cudaError_t toKeys(cudaStream_t stream, const void *floats, void *keys,
                   int64_t n) {
  cudaLaunchConfig_t config = configOf(stream, (n + kThreads - 1) / kThreads);
  return cudaLaunchKernelEx(&config, toKeysKernel<T, Key>,
                            static_cast<const T *>(floats),
                            static_cast<Key *>(keys), n);
}
template <class T, class Key>
cudaError_t fromKeys(cudaStream_t stream, const void *keys, void *floats,
                     int64_t n) {
  cudaLaunchConfig_t config = configOf(stream, (n + kThreads - 1) / kThreads);
  return cudaLaunchKernelEx(&config, fromKeysKernel<T, Key>,
                            static_cast<const Key *>(keys),
                            static_cast<T *>(floats), n);
}

} // namespace

cudaError_t launchRope(cudaStream_t stream, const heddle_rt_rope_args &args,
                       const void *input, const int32_t *positions,
                       void *output) {
  Rope rope{
      args.positions, args.heads, args.head_size / 2, args.inverse != 0, {}};
  for (int64_t i = 0; i < rope.half; ++i)
    rope.frequencies[i] = args.frequencies[i];
  switch (args.dtype) {
  case HEDDLE_RT_BF16:
    return rotate<bf16>(stream, rope, input, positions, output);
  case HEDDLE_RT_F16:
    return rotate<f16>(stream, rope, input, positions, output);
  default:
    return rotate<float>(stream, rope, input, positions, output);
  }
}

cudaError_t launchToKeys(cudaStream_t stream, heddle_rt_dtype dtype,
                         const void *floats, void *keys, int64_t elements) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return toKeys<float, int32_t>(stream, floats, keys, elements);
  case HEDDLE_RT_BF16:
    return toKeys<bf16, int32_t>(stream, floats, keys, elements);
  case HEDDLE_RT_F16:
    return toKeys<f16, int32_t>(stream, floats, keys, elements);
  case HEDDLE_RT_F64:
    return toKeys<double, int64_t>(stream, floats, keys, elements);
  default:
    return cudaErrorInvalidValue;
  }
}

cudaError_t launchFromKeys(cudaStream_t stream, heddle_rt_dtype dtype,
                           const void *keys, void *floats, int64_t elements) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return fromKeys<float, int32_t>(stream, keys, floats, elements);
  case HEDDLE_RT_BF16:
    return fromKeys<bf16, int32_t>(stream, keys, floats, elements);
  case HEDDLE_RT_F16:
    return fromKeys<f16, int32_t>(stream, keys, floats, elements);
  case HEDDLE_RT_F64:
    return fromKeys<double, int64_t>(stream, keys, floats, elements);
  default:
    return cudaErrorInvalidValue;
  }
}

} // namespace heddle::cuda
