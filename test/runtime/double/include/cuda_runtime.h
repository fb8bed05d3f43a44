//===- cuda_runtime.h - CUDA's kernel language, for a host compiler -------===//
//
// A thread of a kernel is a fiber (Fibers.h); one block runs at a time, so that
// what a block shares is one variable. Ranks are threads, so that it is one per
// thread of the host.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DOUBLE_CUDA_RUNTIME_H
#define HEDDLE_DOUBLE_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#include <cstring>
#include <functional>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local

extern constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace heddle::gpu {

/// All threads of the block.
void barrier(const char *file, int line);
void warpBarrier(unsigned mask, const char *file, int line);
/// What `lane` of the same warp passed.
uint32_t shuffle(unsigned mask, uint32_t word, int lane);
int laneOf();

/// Queues a grid. `thread` is called once per thread of it.
cudaError_t launchGrid(const cudaLaunchConfig_t &config, size_t parameterBytes,
                       std::function<void()> thread);

template <class T>
T shuffled(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) % 4 == 0, "a shuffle moves words");
  uint32_t words[sizeof(T) / 4];
  std::memcpy(words, &value, sizeof value);
  for (uint32_t &word : words)
    word = shuffle(mask, word, lane);
  std::memcpy(&value, words, sizeof value);
  return value;
}

} // namespace heddle::gpu

#define __syncthreads() heddle::gpu::barrier(__FILE__, __LINE__)

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  heddle::gpu::warpBarrier(mask, __FILE__, __LINE__);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return heddle::gpu::shuffled(mask, value, heddle::gpu::laneOf() ^ lanes);
}
/// Lanes past the end of the warp get their own value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
  const int own = heddle::gpu::laneOf(), from = own + int(lanes);
  return heddle::gpu::shuffled(mask, value, from < 32 ? from : own);
}

/// Threads take turns only where they wait for each other.
inline unsigned atomicMax(unsigned *to, unsigned value) {
  const unsigned before = *to;
  *to = before > value ? before : value;
  return before;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config,
                               void (*kernel)(Parameters...),
                               Arguments... arguments) {
  return heddle::gpu::launchGrid(*config, (sizeof(Parameters) + ... + 0),
                                 [=] { kernel(Parameters(arguments)...); });
}

#endif
