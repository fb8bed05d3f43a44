//===- CudaKernels.h - What ptxas says of kernels ---------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_CUDAKERNELS_H
#define HEDDLE_TOOLS_CUDAKERNELS_H

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::tool {

/// What one kernel takes of a multiprocessor, per thread; of a block, `shared`.
struct CudaKernel {
  std::string name; ///< as in the source
  int64_t registers = 0, stackBytes = 0, spillBytes = 0, sharedBytes = 0;
};

/// Reads what `nvcc -Xptxas -v` prints; other lines are left out.
std::vector<CudaKernel> readPtxas(std::string_view words);

nlohmann::ordered_json cudaKernelsJson(const std::vector<CudaKernel> &kernels);

} // namespace heddle::tool

#endif
