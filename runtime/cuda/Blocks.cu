// Codes of 8 bits with a scale for each block of 128 numbers, or of 128 x 128,
// as cuBLASLt multiplies them on this architecture; and their scales as it
// wants them. Codes and scales are the host's bits: a maximum has no order.

#include "heddle/Runtime/Scales.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/QuantizeGrid.h"

namespace heddle::cuda {
namespace {

constexpr int kWarpsOfBlock = kQuantizeThreads / kWarp;
constexpr int kLength = int(kBlockLength);

HEDDLE_FN int64_t blocksOf(int64_t n, int64_t length) {
  return (n + length - 1) / length;
}
__device__ __forceinline__ uint32_t largestOfWarp(uint32_t most) {
  for (int lanes = kWarp / 2; lanes; lanes /= 2)
    most = larger(most, __shfl_xor_sync(0xffffffffu, most, lanes));
  return most;
}

/// Blocks of a row, of codes that lie as the input: a warp has one in its
/// registers.
template <class T, class Code>
__global__ void __launch_bounds__(kQuantizeThreads)
    rowBlocksKernel(const T *input, int64_t rows, int64_t columns,
                    bool powerOfTwo, Code *codes, float *scales) {
  constexpr int kEach = kLength / kWarp;
  const int64_t across = blocksOf(columns, kLength), blocks = rows * across;
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t block =
           int64_t(blockIdx.x) * kWarpsOfBlock + int(threadIdx.x) / kWarp;
       block < blocks; block += int64_t(gridDim.x) * kWarpsOfBlock) {
    const int64_t left = block % across * kLength;
    const int64_t first = block / across * columns + left;
    float values[kEach];
    uint32_t most = 0;
    for (int k = 0; k < kEach; ++k) {
      const int at = k * kWarp + lane;
      values[k] = left + at < columns ? widen(input[first + at]) : 0.0f;
      most = larger(most, magnitudeBits(values[k]));
    }
    const float up = upScale(math::fromBits(largestOfWarp(most)),
                             largest(Code()), powerOfTwo);
    if (lane == 0)
      scales[block] = 1.0f / up;
    for (int k = 0; k < kEach; ++k) {
      const int at = k * kWarp + lane;
      if (left + at < columns)
        narrow(values[k] * up, codes[first + at]);
    }
  }
}

/// 128 rows of the input by as many columns, with one scale (kSquare), or by a
/// warp's columns with one of each, whose codes are then turned. What is read
/// twice is still in a cache.
template <class T, class Code, bool kSquare, bool kTurned>
__global__ void __launch_bounds__(kQuantizeThreads)
    tileKernel(const T *input, int64_t rows, int64_t columns, bool powerOfTwo,
               Code *codes, float *scales) {
  constexpr int kWide = kSquare ? kLength : kWarp, kPitch = kLength + 1;
  __shared__ uint32_t partial[kQuantizeThreads];
  __shared__ float ups[kWarp];
  __shared__ uint8_t turned[kTurned ? kWide * kPitch : 1];
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const int64_t down = blocksOf(rows, kLength);
  const int64_t across = blocksOf(columns, kWide);
  for (int64_t tile = blockIdx.x; tile < down * across; tile += gridDim.x) {
    const int64_t top = tile / across * kLength, left = tile % across * kWide;
    uint32_t most = 0;
    for (int r = warp; r < kLength; r += kWarpsOfBlock)
      for (int c = lane; c < kWide; c += kWarp)
        if (top + r < rows && left + c < columns)
          most = larger(most, magnitudeBits(widen(
                                  input[(top + r) * columns + left + c])));
    partial[threadIdx.x] = most;
    __syncthreads();
    if (warp == 0) {
      for (int w = 1; w < kWarpsOfBlock; ++w)
        most = larger(most, partial[w * kWarp + lane]);
      if (kSquare)
        most = largestOfWarp(most);
      const float up =
          upScale(math::fromBits(most), largest(Code()), powerOfTwo);
      ups[lane] = up;
      // Of turned codes, what was down is across.
      const int64_t place = kSquare && !kTurned ? tile
                            : kSquare ? left / kLength * down + top / kLength
                                      : (left + lane) * down + top / kLength;
      if (kSquare ? lane == 0 : left + lane < columns)
        scales[place] = 1.0f / up;
    }
    __syncthreads();
    for (int r = warp; r < kLength; r += kWarpsOfBlock)
      for (int c = lane; c < kWide; c += kWarp) {
        if (top + r >= rows || left + c >= columns)
          continue;
        Code code;
        narrow(widen(input[(top + r) * columns + left + c]) * ups[lane], code);
        if (kTurned)
          turned[c * kPitch + r] = code.bits;
        else
          codes[(top + r) * columns + left + c] = code;
      }
    // What is shared is written anew behind barriers of the next tile.
    if (kTurned) {
      __syncthreads();
      for (int i = int(threadIdx.x); i < kWide * kLength;
           i += kQuantizeThreads) {
        const int c = i / kLength, r = i % kLength;
        if (top + r < rows && left + c < columns)
          codes[(left + c) * rows + top + r].bits = turned[c * kPitch + r];
      }
    }
  }
}

template <class T, class Code>
cudaError_t quantize(cudaStream_t stream, const heddle_rt_quantize_args &args,
                     const void *input, void *codes, float *scales) {
  const int64_t rows = args.rows, columns = args.columns;
  const bool square = args.block_rows > 1, turned = args.transposed != 0;
  if (rows * columns == 0)
    return cudaSuccess;
  const int64_t pieces =
      square || turned
          ? blocksOf(rows, kLength) *
                blocksOf(columns, square ? kLength : kWarp)
          : blocksOf(rows * blocksOf(columns, kLength), kWarpsOfBlock);
  cudaLaunchConfig_t config = quantizeGrid(stream, pieces);
  auto *kernel = !square && !turned ? rowBlocksKernel<T, Code>
                 : !square          ? tileKernel<T, Code, false, true>
                 : turned           ? tileKernel<T, Code, true, true>
                                    : tileKernel<T, Code, true, false>;
  return cudaLaunchKernelEx(&config, kernel, static_cast<const T *>(input),
                            rows, columns, args.power_of_two != 0,
                            static_cast<Code *>(codes), scales);
}

template <class T>
cudaError_t quantizeFrom(cudaStream_t stream,
                         const heddle_rt_quantize_args &args, const void *input,
                         void *codes, float *scales) {
  return args.codes == HEDDLE_RT_F8E4M3
             ? quantize<T, f8e4m3>(stream, args, input, codes, scales)
             : quantize<T, f8e5m2>(stream, args, input, codes, scales);
}

__global__ void __launch_bounds__(kQuantizeThreads)
    turnScalesKernel(const float *from, int64_t rows, int64_t columns,
                     float *to) {
  const int64_t stride = int64_t(gridDim.x) * kQuantizeThreads;
  for (int64_t i = int64_t(blockIdx.x) * kQuantizeThreads + threadIdx.x;
       i < rows * columns; i += stride)
    to[i] = from[i % rows * columns + i / rows];
}

} // namespace

cudaError_t launchQuantizeBlocks(cudaStream_t stream,
                                 const heddle_rt_quantize_args &args,
                                 const void *input, void *codes,
                                 float *scales) {
  switch (args.input) {
  case HEDDLE_RT_F32:
    return quantizeFrom<float>(stream, args, input, codes, scales);
  case HEDDLE_RT_F16:
    return quantizeFrom<f16>(stream, args, input, codes, scales);
  default:
    return quantizeFrom<bf16>(stream, args, input, codes, scales);
  }
}

cudaError_t launchTurnScales(cudaStream_t stream, const float *from,
                             int64_t rows, int64_t columns, float *to) {
  cudaLaunchConfig_t config =
      quantizeGrid(stream, blocksOf(rows * columns, kQuantizeThreads));
  return cudaLaunchKernelEx(&config, turnScalesKernel, from, rows, columns, to);
}

} // namespace heddle::cuda
