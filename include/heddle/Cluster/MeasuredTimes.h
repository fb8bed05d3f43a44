//===- MeasuredTimes.h - What heddle calibrate measured ---------*- C++ -*-===//
//
// A file that a cluster.yaml names (device: {tables: FILE}): a device's numbers
// and times of kernels and collectives on it. YAML, all keys required:
//
//   version: 1
//   device: {host: true, memory_gib: 8, memory_gbytes_per_s: 10,
//            multiprocessors: 1, peak_tflops: {fp32: 0.1}}
//   products:    [{format: fp32, m: 256, n: 256, k: 256, seconds: 1e-4}, ...]
//   attention:   [{heads: 8, queries: 256, head_size: 64,
//                  forward_seconds: 1e-3, backward_seconds: 2e-3}, ...]
//   memory:      [{bytes: 1048576, seconds: 1e-4}, ...]
//   collectives: [{kind: all_reduce, ranks: 2, bytes: 1024, seconds: 1e-6},
//   ...]
//
// m, n, k of C[m,n] = A B; attention is causal over `queries` keys; bytes that
// a kernel reads and writes; of a collective, of the whole tensor.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_CLUSTER_MEASUREDTIMES_H
#define HEDDLE_CLUSTER_MEASUREDTIMES_H

#include "heddle/Cluster/Cluster.h"

namespace heddle {

struct MeasuredProduct {
  std::string format; ///< "fp32", "bf16", ...
  std::int64_t m = 0, n = 0, k = 0;
  double seconds = 0;
};

struct MeasuredAttention {
  std::int64_t heads = 0, queries = 0, headSize = 0;
  double forwardSeconds = 0, backwardSeconds = 0;
};

struct MeasuredMemory {
  std::int64_t bytes = 0;
  double seconds = 0;
};

struct MeasuredCollective {
  std::string kind; ///< all_reduce, all_gather, reduce_scatter, all_to_all
  std::int64_t ranks = 0, bytes = 0;
  double seconds = 0;
};

struct MeasuredTimes {
  std::vector<MeasuredProduct> products;
  std::vector<MeasuredAttention> attention;
  std::vector<MeasuredMemory> memory;
  std::vector<MeasuredCollective> collectives;
};

/// A device with its times. An error names file, line and key: a number that is
/// not positive, fewer than three products, attentions or kernels of memory, a
/// format without a peak, a collective that is told twice, or a longer message
/// of one that takes less than half of a shorter one's time.
Result<Device> readDeviceFile(const std::filesystem::path &path);

/// The text of such a file, in the order of the device's times.
std::string writeDeviceFile(const Device &device);

} // namespace heddle

#endif // HEDDLE_CLUSTER_MEASUREDTIMES_H
