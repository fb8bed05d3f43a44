// Compiled twice: against the double's headers and, where they are, against the
// vendors'. What holds for both is the same for both.

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#define SAME_VALUE(NAME, VALUE)                                                \
  static_assert(int(NAME) == (VALUE), #NAME " has another value")
// A cast, since the vendors' C++ headers add overloads of a few names.
template <auto>
constexpr bool kThere = true;
#define SAME_FUNCTION(NAME, RESULT, ...)                                       \
  static_assert(kThere<static_cast<RESULT (*)(__VA_ARGS__)>(&NAME)>)

SAME_VALUE(cudaSuccess, 0);
SAME_VALUE(cudaErrorInvalidValue, 1);
SAME_VALUE(cudaErrorMemoryAllocation, 2);
SAME_VALUE(cudaErrorInvalidConfiguration, 9);
SAME_VALUE(cudaErrorNoDevice, 100);
SAME_VALUE(cudaErrorInvalidDevice, 101);
SAME_VALUE(cudaErrorInvalidResourceHandle, 400);
SAME_VALUE(cudaErrorNotReady, 600);
SAME_VALUE(cudaErrorIllegalAddress, 700);
SAME_VALUE(cudaErrorLaunchFailure, 719);
SAME_VALUE(cudaErrorStreamCaptureUnsupported, 900);
SAME_VALUE(cudaErrorStreamCaptureInvalidated, 901);
SAME_VALUE(cudaErrorStreamCaptureIsolation, 905);
SAME_VALUE(cudaErrorCapturedEvent, 907);
SAME_VALUE(cudaErrorStreamCaptureWrongThread, 908);
SAME_VALUE(cudaStreamCaptureModeGlobal, 0);
SAME_VALUE(cudaStreamCaptureModeThreadLocal, 1);
SAME_VALUE(cudaStreamCaptureModeRelaxed, 2);
SAME_VALUE(cudaErrorUnknown, 999);
SAME_VALUE(cudaMemcpyHostToHost, 0);
SAME_VALUE(cudaMemcpyHostToDevice, 1);
SAME_VALUE(cudaMemcpyDeviceToHost, 2);
SAME_VALUE(cudaMemcpyDeviceToDevice, 3);
SAME_VALUE(cudaMemcpyDefault, 4);
SAME_VALUE(cudaDevAttrMultiProcessorCount, 16);
SAME_VALUE(cudaDevAttrComputeCapabilityMajor, 75);
SAME_VALUE(CUDA_R_32F, 0);
SAME_VALUE(CUDA_R_16F, 2);
SAME_VALUE(CUDA_R_16BF, 14);
SAME_VALUE(CUDA_R_8F_E4M3, 28);
SAME_VALUE(CUDA_R_8F_E5M2, 29);
SAME_VALUE(CUBLAS_STATUS_SUCCESS, 0);
SAME_VALUE(CUBLAS_STATUS_NOT_INITIALIZED, 1);
SAME_VALUE(CUBLAS_STATUS_ALLOC_FAILED, 3);
SAME_VALUE(CUBLAS_STATUS_INVALID_VALUE, 7);
SAME_VALUE(CUBLAS_STATUS_EXECUTION_FAILED, 13);
SAME_VALUE(CUBLAS_STATUS_NOT_SUPPORTED, 15);
SAME_VALUE(CUBLAS_OP_N, 0);
SAME_VALUE(CUBLAS_OP_T, 1);
SAME_VALUE(CUBLAS_COMPUTE_32F, 68);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSA, 3);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSB, 4);
SAME_VALUE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 17);
SAME_VALUE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 18);
SAME_VALUE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 31);
SAME_VALUE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 32);
SAME_VALUE(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, 0);
SAME_VALUE(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, 4);
SAME_VALUE(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, 5);
SAME_VALUE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5);
SAME_VALUE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8);
SAME_VALUE(ncclSuccess, 0);
SAME_VALUE(ncclUnhandledCudaError, 1);
SAME_VALUE(ncclSystemError, 2);
SAME_VALUE(ncclInternalError, 3);
SAME_VALUE(ncclInvalidArgument, 4);
SAME_VALUE(ncclInvalidUsage, 5);
SAME_VALUE(ncclRemoteError, 6);
SAME_VALUE(ncclInProgress, 7);
SAME_VALUE(ncclSum, 0);
SAME_VALUE(ncclMax, 2);
SAME_VALUE(ncclUint8, 1);
SAME_VALUE(ncclInt32, 2);
SAME_VALUE(ncclInt64, 4);
SAME_VALUE(ncclFloat16, 6);
SAME_VALUE(ncclFloat32, 7);
SAME_VALUE(ncclFloat64, 8);
SAME_VALUE(ncclBfloat16, 9);
SAME_VALUE(cudaStreamNonBlocking, 1);
SAME_VALUE(cudaEventDisableTiming, 2);
SAME_VALUE(cudaHostAllocDefault, 0);
SAME_VALUE(NCCL_SPLIT_NOCOLOR, -1);
SAME_VALUE(NCCL_WIN_COLL_SYMMETRIC, 1);
SAME_VALUE(NCCL_UNIQUE_ID_BYTES, 128);

SAME_FUNCTION(cudaGetErrorString, const char *, cudaError_t);
SAME_FUNCTION(cudaGetErrorName, const char *, cudaError_t);
SAME_FUNCTION(cudaGetLastError, cudaError_t);
SAME_FUNCTION(cudaGetDeviceCount, cudaError_t, int *);
SAME_FUNCTION(cudaSetDevice, cudaError_t, int);
SAME_FUNCTION(cudaGetDevice, cudaError_t, int *);
SAME_FUNCTION(cudaDeviceGetAttribute, cudaError_t, int *, cudaDeviceAttr, int);
SAME_FUNCTION(cudaDeviceGetPCIBusId, cudaError_t, char *, int, int);
SAME_FUNCTION(cudaDeviceGetStreamPriorityRange, cudaError_t, int *, int *);
SAME_FUNCTION(cudaMalloc, cudaError_t, void **, size_t);
SAME_FUNCTION(cudaFree, cudaError_t, void *);
SAME_FUNCTION(cudaHostAlloc, cudaError_t, void **, size_t, unsigned);
SAME_FUNCTION(cudaFreeHost, cudaError_t, void *);
SAME_FUNCTION(cudaMemGetInfo, cudaError_t, size_t *, size_t *);
SAME_FUNCTION(cudaStreamBeginCapture, cudaError_t, cudaStream_t,
              cudaStreamCaptureMode);
SAME_FUNCTION(cudaStreamEndCapture, cudaError_t, cudaStream_t, cudaGraph_t *);
SAME_FUNCTION(cudaGraphGetNodes, cudaError_t, cudaGraph_t, cudaGraphNode_t *,
              size_t *);
SAME_FUNCTION(cudaGraphInstantiate, cudaError_t, cudaGraphExec_t *, cudaGraph_t,
              unsigned long long);
SAME_FUNCTION(cudaGraphUpload, cudaError_t, cudaGraphExec_t, cudaStream_t);
SAME_FUNCTION(cudaGraphLaunch, cudaError_t, cudaGraphExec_t, cudaStream_t);
SAME_FUNCTION(cudaGraphExecDestroy, cudaError_t, cudaGraphExec_t);
SAME_FUNCTION(cudaGraphDestroy, cudaError_t, cudaGraph_t);
SAME_FUNCTION(cudaStreamCreateWithFlags, cudaError_t, cudaStream_t *, unsigned);
SAME_FUNCTION(cudaStreamCreateWithPriority, cudaError_t, cudaStream_t *,
              unsigned, int);
SAME_FUNCTION(cudaStreamDestroy, cudaError_t, cudaStream_t);
SAME_FUNCTION(cudaStreamQuery, cudaError_t, cudaStream_t);
SAME_FUNCTION(cudaStreamWaitEvent, cudaError_t, cudaStream_t, cudaEvent_t,
              unsigned);
SAME_FUNCTION(cudaEventCreateWithFlags, cudaError_t, cudaEvent_t *, unsigned);
SAME_FUNCTION(cudaEventDestroy, cudaError_t, cudaEvent_t);
SAME_FUNCTION(cudaEventRecord, cudaError_t, cudaEvent_t, cudaStream_t);
SAME_FUNCTION(cudaEventQuery, cudaError_t, cudaEvent_t);
SAME_FUNCTION(cudaMemcpyAsync, cudaError_t, void *, const void *, size_t,
              cudaMemcpyKind, cudaStream_t);
SAME_FUNCTION(cudaMemcpy2DAsync, cudaError_t, void *, size_t, const void *,
              size_t, size_t, size_t, cudaMemcpyKind, cudaStream_t);
SAME_FUNCTION(cudaMemsetAsync, cudaError_t, void *, int, size_t, cudaStream_t);
SAME_FUNCTION(cudaMemset2DAsync, cudaError_t, void *, size_t, int, size_t,
              size_t, cudaStream_t);
SAME_FUNCTION(cublasLtGetStatusName, const char *, cublasStatus_t);
SAME_FUNCTION(cublasLtGetStatusString, const char *, cublasStatus_t);
SAME_FUNCTION(cublasLtCreate, cublasStatus_t, cublasLtHandle_t *);
SAME_FUNCTION(cublasLtDestroy, cublasStatus_t, cublasLtHandle_t);
SAME_FUNCTION(cublasLtMatmulDescCreate, cublasStatus_t, cublasLtMatmulDesc_t *,
              cublasComputeType_t, cudaDataType_t);
SAME_FUNCTION(cublasLtMatmulDescDestroy, cublasStatus_t, cublasLtMatmulDesc_t);
SAME_FUNCTION(cublasLtMatmulDescSetAttribute, cublasStatus_t,
              cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
              const void *, size_t);
SAME_FUNCTION(cublasLtMatrixLayoutCreate, cublasStatus_t,
              cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t,
              int64_t);
SAME_FUNCTION(cublasLtMatrixLayoutDestroy, cublasStatus_t,
              cublasLtMatrixLayout_t);
SAME_FUNCTION(cublasLtMatrixLayoutSetAttribute, cublasStatus_t,
              cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
              const void *, size_t);
SAME_FUNCTION(cublasLtMatmulPreferenceCreate, cublasStatus_t,
              cublasLtMatmulPreference_t *);
SAME_FUNCTION(cublasLtMatmulPreferenceDestroy, cublasStatus_t,
              cublasLtMatmulPreference_t);
SAME_FUNCTION(cublasLtMatmulPreferenceSetAttribute, cublasStatus_t,
              cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
              const void *, size_t);
SAME_FUNCTION(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t, cublasLtHandle_t,
              cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
              cublasLtMatmulHeuristicResult_t *, int *);
SAME_FUNCTION(cublasLtMatmul, cublasStatus_t, cublasLtHandle_t,
              cublasLtMatmulDesc_t, const void *, const void *,
              cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t,
              const void *, const void *, cublasLtMatrixLayout_t, void *,
              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *,
              size_t, cudaStream_t);
SAME_FUNCTION(ncclGetErrorString, const char *, ncclResult_t);
SAME_FUNCTION(ncclGetLastError, const char *, ncclComm_t);
SAME_FUNCTION(ncclGetUniqueId, ncclResult_t, ncclUniqueId *);
SAME_FUNCTION(ncclCommInitRankConfig, ncclResult_t, ncclComm_t *, int,
              ncclUniqueId, int, ncclConfig_t *);
SAME_FUNCTION(ncclCommSplit, ncclResult_t, ncclComm_t, int, int, ncclComm_t *,
              ncclConfig_t *);
SAME_FUNCTION(ncclCommFinalize, ncclResult_t, ncclComm_t);
SAME_FUNCTION(ncclCommDestroy, ncclResult_t, ncclComm_t);
SAME_FUNCTION(ncclCommAbort, ncclResult_t, ncclComm_t);
SAME_FUNCTION(ncclCommGetAsyncError, ncclResult_t, ncclComm_t, ncclResult_t *);
SAME_FUNCTION(ncclMemAlloc, ncclResult_t, void **, size_t);
SAME_FUNCTION(ncclMemFree, ncclResult_t, void *);
SAME_FUNCTION(ncclCommWindowRegister, ncclResult_t, ncclComm_t, void *, size_t,
              ncclWindow_t *, int);
SAME_FUNCTION(ncclCommWindowDeregister, ncclResult_t, ncclComm_t, ncclWindow_t);
SAME_FUNCTION(ncclAllReduce, ncclResult_t, const void *, void *, size_t,
              ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
SAME_FUNCTION(ncclReduceScatter, ncclResult_t, const void *, void *, size_t,
              ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
SAME_FUNCTION(ncclAllGather, ncclResult_t, const void *, void *, size_t,
              ncclDataType_t, ncclComm_t, cudaStream_t);
SAME_FUNCTION(ncclSend, ncclResult_t, const void *, size_t, ncclDataType_t, int,
              ncclComm_t, cudaStream_t);
SAME_FUNCTION(ncclRecv, ncclResult_t, void *, size_t, ncclDataType_t, int,
              ncclComm_t, cudaStream_t);
SAME_FUNCTION(ncclGroupStart, ncclResult_t);
SAME_FUNCTION(ncclGroupEnd, ncclResult_t);

static_assert(sizeof(cudaLaunchConfig_t) == 56);
static_assert(offsetof(cudaLaunchConfig_t, stream) == 32);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64);
static_assert(sizeof(cublasLtMatmulDescOpaque_t) == 256);
static_assert(sizeof(cublasLtMatrixLayoutOpaque_t) == 64);
static_assert(sizeof(cublasLtMatmulPreferenceOpaque_t) == 64);
static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64);
static_assert(sizeof(ncclUniqueId) == 128);
static_assert(offsetof(ncclConfig_t, blocking) == 16);
static_assert(offsetof(ncclConfig_t, commName) == 48);
static_assert(std::is_same_v<cudaStream_t, CUstream_st *>);
static_assert(std::is_same_v<cudaEvent_t, CUevent_st *>);
