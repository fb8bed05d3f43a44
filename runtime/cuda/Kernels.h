//===- Kernels.h - The runtime's own kernels ------------------------------===//
//
// Launchers, so that what nvcc compiles is kept to the .cu files. Arguments
// have been checked. Each returns what the launch does.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_CUDA_KERNELS_H
#define RUNTIME_CUDA_KERNELS_H

#include "heddle/Runtime/heddle_rt.h"
#include "runtime/common/AttentionPointers.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace heddle::cuda {

inline constexpr int64_t kMostHeadSize = 256;
inline constexpr int64_t kMostFrequencies = 256;

/// heddle_rt_attention, without matrix units: the meaning for every mask,
/// format and size; not the speed.
cudaError_t launchAttention(cudaStream_t stream,
                            const heddle_rt_attention_args &args,
                            const runtime::AttentionPointers &pointers);
cudaError_t launchAttentionGrad(cudaStream_t stream,
                                const heddle_rt_attention_args &args,
                                const runtime::AttentionPointers &pointers);

cudaError_t launchRope(cudaStream_t stream, const heddle_rt_rope_args &args,
                       const void *input, const int32_t *positions,
                       void *output);

/// Floats as integers of the same order, with NaN above all: i32, of f64 i64.
cudaError_t launchToKeys(cudaStream_t stream, heddle_rt_dtype dtype,
                         const void *floats, void *keys, int64_t elements);
cudaError_t launchFromKeys(cudaStream_t stream, heddle_rt_dtype dtype,
                           const void *keys, void *floats, int64_t elements);

/// heddle_rt_amax and heddle_rt_quantize.
cudaError_t launchAmax(cudaStream_t stream, heddle_rt_dtype dtype,
                       const void *input, int64_t elements, float *amax);
cudaError_t launchQuantize(cudaStream_t stream,
                           const heddle_rt_quantize_args &args,
                           const void *input, const float *amax, void *codes,
                           float *scale);

/// Numbers that a scale of a block is for: of a row, or of as many rows.
inline constexpr int64_t kBlockLength = 128;
/// heddle_rt_quantize with blocks of 1 or kBlockLength rows by kBlockLength,
/// and scales in f32.
cudaError_t launchQuantizeBlocks(cudaStream_t stream,
                                 const heddle_rt_quantize_args &args,
                                 const void *input, void *codes, float *scales);
/// to[columns, rows] = from[rows, columns], turned.
cudaError_t launchTurnScales(cudaStream_t stream, const float *from,
                             int64_t rows, int64_t columns, float *to);

} // namespace heddle::cuda

#endif
