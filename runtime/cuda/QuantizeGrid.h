//===- QuantizeGrid.h - What kernels of codes have in common --------------===//

#ifndef RUNTIME_CUDA_QUANTIZEGRID_H
#define RUNTIME_CUDA_QUANTIZEGRID_H

#include "heddle/Runtime/SkeletonsCuda.h"

#include <cuda_runtime.h>

namespace heddle::cuda {

inline constexpr int kQuantizeThreads = 256;

/// Blocks take turns where there are more pieces than fill the device.
inline cudaLaunchConfig_t quantizeGrid(cudaStream_t stream, int64_t pieces) {
  const int64_t most = mostBlocks();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(pieces < 1      ? 1
                                 : pieces < most ? pieces
                                                 : most));
  config.blockDim = dim3(kQuantizeThreads);
  config.stream = stream;
  return config;
}

HEDDLE_FN uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

} // namespace heddle::cuda

#endif
