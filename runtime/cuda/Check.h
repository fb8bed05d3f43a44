//===- Check.h - Statuses of CUDA's libraries as sentences ----------------===//

#ifndef RUNTIME_CUDA_CHECK_H
#define RUNTIME_CUDA_CHECK_H

#include "runtime/common/Status.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace heddle::cuda {

/// "<what>: CUDA: out of memory (cudaErrorMemoryAllocation)". That one is
/// OUT_OF_MEMORY, others are DEVICE_ERROR; also clears CUDA's last error, which
/// would be reported again by the next launch.
heddle_rt_status failed(cudaError_t error, const std::string &what);
heddle_rt_status failed(cublasStatus_t status, const std::string &what);
/// With what NCCL itself says of its last error. DEVICE_ERROR, or PEER_FAILED
/// where NCCL says that another rank or the way to it failed.
heddle_rt_status failed(ncclResult_t result, const std::string &what);

inline bool succeeded(cudaError_t error) { return error == cudaSuccess; }
inline bool succeeded(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS;
}
inline bool succeeded(ncclResult_t result) { return result == ncclSuccess; }

/// OK, or a sentence that begins with the formatted text: the call, and what
/// it was for.
template <class Result, class... Args>
heddle_rt_status checked(Result result, fmt::format_string<Args...> what,
                         Args &&...args) {
  return succeeded(result)
             ? HEDDLE_RT_OK
             : failed(result, fmt::format(what, std::forward<Args>(args)...));
}

} // namespace heddle::cuda

#endif
