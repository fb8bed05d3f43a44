#include "runtime/cuda/Check.h"

namespace heddle::cuda {

heddle_rt_status failed(cudaError_t error, const std::string &what) {
  cudaGetLastError();
  return runtime::fail(error == cudaErrorMemoryAllocation
                           ? HEDDLE_RT_OUT_OF_MEMORY
                           : HEDDLE_RT_DEVICE_ERROR,
                       "{}: CUDA: {} ({})", what, cudaGetErrorString(error),
                       cudaGetErrorName(error));
}

heddle_rt_status failed(cublasStatus_t status, const std::string &what) {
  return runtime::fail(HEDDLE_RT_DEVICE_ERROR, "{}: cuBLASLt: {} ({})", what,
                       cublasLtGetStatusString(status),
                       cublasLtGetStatusName(status));
}

heddle_rt_status failed(ncclResult_t result, const std::string &what) {
  const std::string more = runtime::orUnnamed(ncclGetLastError(nullptr), "");
  return runtime::fail(result == ncclRemoteError || result == ncclSystemError
                           ? HEDDLE_RT_PEER_FAILED
                           : HEDDLE_RT_DEVICE_ERROR,
                       "{}: NCCL: {}{}{}", what, ncclGetErrorString(result),
                       more.empty() ? "" : ": ", more);
}

} // namespace heddle::cuda
