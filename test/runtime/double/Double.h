//===- Double.h - What tests may ask of the test double -------------------===//
//
// A GPU per rank, imitated in host memory. The double does what the vendors'
// documents say may happen, at its worst: streams run late and in any order
// that events allow, memory is full of NaN, NCCL has not finished when a call
// returns. What the documents forbid it refuses, with a sentence.
//
// Documents, as cited where a behaviour is written:
//   [CUDART]   docs.nvidia.com/cuda/cuda-runtime-api
//   [CUDA]     docs.nvidia.com/cuda/cuda-c-programming-guide
//   [CUBLAS]   docs.nvidia.com/cuda/cublas
//   [NCCL]     docs.nvidia.com/deeplearning/nccl/user-guide
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DOUBLE_DOUBLE_H
#define HEDDLE_DOUBLE_DOUBLE_H

#include <cstdint>
#include <string>

namespace heddle::gpu {

/// How the devices of this process behave from now on. To be set while none is
/// at work.
struct Settings {
  int devices = 16;
  /// Each thread is like a process that sees one GPU, its own, as device 0
  /// (CUDA_VISIBLE_DEVICES).
  bool devicePerThread = false;
  int multiprocessors = 2; ///< few, so that loops over a grid really loop
  int64_t memoryBytes = int64_t(1) << 31; ///< of a device
  uint64_t seed = 1;                      ///< of all orders
  /// Collectives that may run at a time on a device. 1: the worst that a
  /// device full of other work allows.
  int concurrentCollectives = 1 << 30;
};
void configure(const Settings &settings);

/// Makes call `number` (from 1) of a function, on any device, return `code`
/// and do nothing. A number of 0 forgets all.
void failCall(const std::string &function, int64_t number, int code);

/// Communicators of NCCL that are neither destroyed nor aborted, on all
/// devices.
int64_t openCommunicators();

/// What the double refused last on this thread, or "": a sentence with the
/// rule's source.
const std::string &lastRefusal();

} // namespace heddle::gpu

#endif
