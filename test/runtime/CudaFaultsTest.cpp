// What runtime/cuda says when a call of the vendors' libraries fails, when
// ranks do not come, and what the double refuses.

#include "OnDevice.h"

#include "double/Double.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using heddle::ranks::runRanks;
using heddle::ranks::RunResult;
using heddle::test::OnDevice;
using testing::HasSubstr;

namespace {

/// A bit of everything on two ranks.
heddle_rt_status program(heddle_rt_context *context) {
  int32_t rank = 0, size = 0;
  heddle_rt_stream *compute = nullptr, *comm = nullptr;
  heddle_rt_event *ready = nullptr;
  heddle_rt_comm *tp = nullptr;
  void *shared = nullptr, *pinned = nullptr;
  HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &compute));
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "comm", 1, &comm));
  HEDDLE_RT_TRY(heddle_rt_event_create(context, "ready", &ready));
  HEDDLE_RT_TRY(
      heddle_rt_alloc(context, HEDDLE_RT_COMM, 4096, "bucket", &shared));
  HEDDLE_RT_TRY(
      heddle_rt_alloc(context, HEDDLE_RT_HOST, 4096, "staging", &pinned));
  HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, rank, size, "tp", &tp));
  auto *x = static_cast<float *>(shared);
  HEDDLE_RT_TRY(heddle_rt_zero(compute, x, 4096));
  heddle_rt_gemm_args args{};
  args.name = "layer 0";
  args.m = args.n = args.k = args.lda = args.ldb = args.ldc = 8;
  args.alpha = 1;
  args.batch = 2;
  args.stride_a = args.stride_b = 0; // shared
  args.stride_c = 64;
  HEDDLE_RT_TRY(heddle_rt_gemm(compute, &args, x, x + 64, x + 128));
  HEDDLE_RT_TRY(heddle_rt_event_record(ready, compute));
  HEDDLE_RT_TRY(heddle_rt_stream_wait(comm, ready));
  HEDDLE_RT_TRY(
      heddle_rt_all_reduce(tp, comm, x, x, 256, HEDDLE_RT_F32, HEDDLE_RT_MAX));
  HEDDLE_RT_TRY(
      heddle_rt_all_gather(tp, comm, x, x + 256, 4, 8, HEDDLE_RT_F32));
  HEDDLE_RT_TRY(heddle_rt_copy(comm, pinned, x, 1024));
  return heddle_rt_stream_synchronize(comm);
}

struct Planned {
  const char *function;
  int64_t call;
  int code;
  const char *says; ///< a part of the sentence
};

/// Whichever call of a library fails: the program ends with one sentence that
/// names the call's purpose, and with the library's own word for the failure.
void expectSentences(const std::vector<Planned> &all) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON;
  options.timeout_seconds = 20;
  for (const Planned &planned : all) {
    SCOPED_TRACE(planned.function);
    heddle::gpu::failCall(planned.function, planned.call, planned.code);
    const RunResult result = runRanks(2, options, program);
    heddle::gpu::failCall("", 0, 0);
    EXPECT_FALSE(result);
    EXPECT_THAT(result.message, HasSubstr(planned.says));
    EXPECT_EQ(result.message.find('\n'), std::string::npos) << result.message;
    EXPECT_EQ(heddle::gpu::openCommunicators(), 0);
  }
}

constexpr int kBroken = cudaErrorUnknown;
TEST(Statuses, OfCudaBecomeOneSentence) {
  expectSentences(
      {{"cudaGetDeviceCount", 1, cudaErrorNoDevice,
        "cannot see any GPU: CUDA:"},
       {"cudaDeviceGetPCIBusId", 1, kBroken, "for its place on the bus: CUDA:"},
       {"cudaMalloc", 1, cudaErrorMemoryAllocation, "out of memory"},
       {"cudaHostAlloc", 1, cudaErrorMemoryAllocation,
        "allocation staging: 4096 bytes of pinned host memory: CUDA: "
        "out of memory"},
       {"cudaMalloc", 4, cudaErrorMemoryAllocation, // behind two workspaces
        "of scratch memory for stream comm: CUDA: out of memory"},
       {"cudaStreamCreateWithPriority", 3, kBroken, "cannot make stream"},
       {"cudaEventCreateWithFlags", 1, kBroken,
        "cannot make event ready: CUDA:"},
       {"cudaEventRecord", 1, kBroken, "event ready on stream compute: CUDA:"},
       {"cudaStreamWaitEvent", 1, kBroken,
        "stream comm waits for event ready: CUDA:"},
       {"cudaStreamQuery", 1, kBroken, "work on the GPU: CUDA:"},
       {"cudaMemsetAsync", 1, kBroken, "CUDA:"},
       {"cudaMemcpyAsync", 1, kBroken,
        "copy of 1024 bytes on stream comm: CUDA:"},
       {"cudaMemcpy2DAsync", 1, kBroken,
        "all_gather(tp): cudaMemcpy2DAsync: CUDA:"},
       {"cudaLaunchKernelExC", 1, kBroken,
        "all_reduce(tp): to keys of a maximum: CUDA:"},
       {"cudaLaunchKernelExC", 3, kBroken, "of a maximum: CUDA:"}});
}

TEST(Statuses, OfBlasBecomeOneSentence) {
  expectSentences(
      {{"cublasLtCreate", 1, CUBLAS_STATUS_NOT_INITIALIZED,
        "cannot start cuBLASLt"},
       {"cublasLtMatmulDescCreate", 1, CUBLAS_STATUS_ALLOC_FAILED,
        "layer 0: descriptor: cuBLASLt:"},
       {"cublasLtMatmulDescSetAttribute", 1, CUBLAS_STATUS_INVALID_VALUE,
        "layer 0: transpose of b"},
       {"cublasLtMatmulDescSetAttribute", 2, CUBLAS_STATUS_INVALID_VALUE,
        "layer 0: transpose of"},
       {"cublasLtMatrixLayoutCreate", 3, CUBLAS_STATUS_ALLOC_FAILED,
        "layer 0: layout of"},
       {"cublasLtMatrixLayoutSetAttribute", 1, CUBLAS_STATUS_INVALID_VALUE,
        "layer 0: 2 products"},
       {"cublasLtMatmulPreferenceCreate", 1, CUBLAS_STATUS_ALLOC_FAILED,
        "layer 0: preferences"},
       {"cublasLtMatmulPreferenceSetAttribute", 1, CUBLAS_STATUS_INVALID_VALUE,
        "layer 0: workspace"},
       {"cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED,
        "layer 0: no algorithm for m 8, n 8, k 8 of f32 to f32"},
       {"cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_SUCCESS,
        "layer 0: no algorithm for m 8, n 8, k 8 of f32 to f32"},
       {"cublasLtMatmul", 1, CUBLAS_STATUS_EXECUTION_FAILED,
        "layer 0: cublasLtMatmul: cuBLASLt:"}});
}

TEST(Statuses, OfNcclBecomeOneSentence) {
  expectSentences(
      {{"ncclGetUniqueId", 1, ncclSystemError, "ncclGetUniqueId: NCCL"},
       {"ncclCommInitRankConfig", 1, ncclInvalidUsage,
        "ncclCommInitRankConfig: NCCL: invalid usage"},
       {"ncclCommSplit", 1, ncclSystemError, "ncclCommSplit for tp: NCCL"},
       {"ncclMemAlloc", 1, ncclUnhandledCudaError,
        "allocation bucket: 4096 bytes: NCCL"},
       {"ncclCommWindowRegister", 1, ncclInvalidArgument,
        "ncclCommWindowRegister of bucket with tp: NCCL"},
       {"ncclGroupStart", 1, ncclInternalError, "ncclGroupStart: NCCL"},
       {"ncclGroupEnd", 1, ncclInternalError,
        "all_reduce(tp): ncclGroupEnd: NCCL"},
       {"ncclAllReduce", 1, ncclUnhandledCudaError,
        "all_reduce(tp): ncclAllReduce: NCCL"},
       {"ncclAllGather", 1, ncclInvalidArgument,
        "all_gather(tp): ncclAllGather: NCCL"},
       {"ncclCommGetAsyncError", 1, ncclRemoteError, "NCCL: remote"},
       {"ncclCommFinalize", 1, ncclInternalError,
        "ncclCommFinalize of tp: NCCL"}});
}

// As Slurm and others start ranks: each process sees its own GPU alone.
TEST(Devices, AreEachRanksOwnWhereItSeesOne) {
  heddle::gpu::Settings settings;
  settings.devicePerThread = true;
  heddle::gpu::configure(settings);
  heddle_rt_options options{};
  options.timeout_seconds = 20;
  const RunResult result = runRanks(3, options, program);
  EXPECT_TRUE(result) << result.message;
  // Three ranks on two GPUs.
  settings.devices = 2;
  heddle::gpu::configure(settings);
  EXPECT_THAT(runRanks(3, options, program).message,
              testing::MatchesRegex("ranks . and . both have GPU 0000:0.:00.0 "
                                    "of machine .*; start at most one rank per "
                                    "GPU.*"));
  heddle::gpu::configure({});
}

// A process of its own, as launchers number it on its machine.
TEST(Devices, AreOfTheRanksNumberOrDealtOut) {
  using Variables = std::vector<std::pair<const char *, const char *>>;
  const std::pair<Variables, int> launches[] = {
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "3"}}, 3},
      {{{"SLURM_STEP_ID", "0"},
        {"SLURM_PROCID", "0"},
        {"SLURM_STEP_NUM_TASKS", "1"},
        {"SLURM_LOCALID", "5"}},
       5}};
  for (const auto &[variables, number] : launches)
    for (const int devices : {1, 8}) {
      SCOPED_TRACE(variables.front().first + std::to_string(devices));
      heddle::gpu::Settings settings;
      settings.devices = devices;
      heddle::gpu::configure(settings);
      for (const auto &[name, value] : variables)
        setenv(name, value, 1);
      heddle_rt_context *context = nullptr;
      EXPECT_EQ(heddle_rt_init(nullptr, &context), HEDDLE_RT_OK)
          << heddle_rt_last_error();
      for (const auto &[name, value] : variables)
        unsetenv(name);
      int device = -1;
      EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, devices == 1 ? 0 : number);
      if (context)
        EXPECT_EQ(heddle_rt_finalize(context), HEDDLE_RT_OK);
    }
  cudaSetDevice(0);
  heddle::gpu::configure({});
}

TEST(Devices, AreNotSharedWhereAllSeeAll) {
  heddle::gpu::Settings settings;
  settings.devices = 1;
  heddle::gpu::configure(settings);
  heddle_rt_options options{};
  options.timeout_seconds = 20;
  EXPECT_THAT(runRanks(2, options, program).message,
              HasSubstr("ranks 0 and 1 both have GPU 0000:00:00.0 of machine"));
  settings.devices = 0;
  heddle::gpu::configure(settings);
  EXPECT_THAT(runRanks(1, options, program).message, HasSubstr("any GPU"));
  heddle::gpu::configure({});
}

TEST(Program, HoldsWithoutFailures) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    heddle::gpu::Settings settings;
    settings.seed = seed;
    settings.concurrentCollectives = 1;
    heddle::gpu::configure(settings);
    const RunResult result = runRanks(2, options, program);
    EXPECT_TRUE(result) << "seed " << seed << ": " << result.message;
    EXPECT_EQ(heddle::gpu::openCommunicators(), 0);
  }
  heddle::gpu::configure({});
}

TEST(Waiting, NamesTheRanksThatHaveNotBegun) {
  heddle_rt_options options{};
  options.timeout_seconds = 1;
  std::atomic<int> ended = 0;
  const RunResult result =
      runRanks(4, options, [&](heddle_rt_context *context) {
        int32_t rank = 0, size = 0;
        heddle_rt_stream *stream = nullptr;
        heddle_rt_comm *dp = nullptr;
        HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
        HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
        HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, rank, size, "dp", &dp));
        OnDevice<float> x(context, stream, {1});
        if (rank == 2) { // goes its own way
          while (ended < 3)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return heddle::runtime::invalid("was elsewhere");
        }
        heddle_rt_status status = heddle_rt_all_reduce(
            dp, stream, x.data(), x.data(), 1, HEDDLE_RT_F32, HEDDLE_RT_SUM);
        if (status == HEDDLE_RT_OK)
          status = heddle_rt_stream_synchronize(stream);
        ++ended;
        return status;
      });
  EXPECT_EQ(result.status, HEDDLE_RT_PEER_FAILED);
  EXPECT_EQ(result.message, "all_reduce(dp) waited for its peers for 1 s; "
                            "missing: rank 2 (does not answer)");
}

// An error that comes while ranks wait: what one finds, the other hears.
TEST(Waiting, AsksNcclForErrorsThatComeLater) {
  heddle_rt_options options{};
  options.timeout_seconds = 20;
  const RunResult result =
      runRanks(2, options, [&](heddle_rt_context *context) {
        int32_t rank = 0, size = 0;
        heddle_rt_stream *stream = nullptr;
        heddle_rt_comm *dp = nullptr;
        HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
        HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
        HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, rank, size, "dp", &dp));
        OnDevice<float> x(context, stream, {1});
        if (rank == 1) { // is late, and the link breaks
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          heddle::gpu::failCall("ncclCommGetAsyncError", 1, ncclRemoteError);
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        HEDDLE_RT_TRY(heddle_rt_all_reduce(dp, stream, x.data(), x.data(), 1,
                                           HEDDLE_RT_F32, HEDDLE_RT_SUM));
        return heddle_rt_stream_synchronize(stream);
      });
  heddle::gpu::failCall("", 0, 0);
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message, HasSubstr("communicator dp: NCCL: remote"));
}

// What the vendors forbid is refused; each rule is one that a fault of
// runtime/cuda would break.
TEST(Double, RefusesWhatTheVendorsRefuse) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  void *memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 64, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_THAT(heddle::gpu::lastRefusal(), HasSubstr("default stream"));
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 65, stream), cudaErrorInvalidValue);
  EXPECT_THAT(heddle::gpu::lastRefusal(), HasSubstr("ends beyond"));
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 0, 64, stream),
            cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  static_cast<char *>(memory)[64] = 0;
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_THAT(heddle::gpu::lastRefusal(), HasSubstr("wrote beside"));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  cudaGetLastError();
}

__global__ void halfABarrier(float *x) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  x[threadIdx.x] = 1;
}

TEST(Double, FindsABarrierThatThreadsMiss) {
  heddle::gpu::configure({});
  ASSERT_EQ(cudaSetDevice(15), cudaSuccess); // it ends with its device
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  void *memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 256), cudaSuccess);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(64);
  config.stream = stream;
  ASSERT_EQ(
      cudaLaunchKernelEx(&config, halfABarrier, static_cast<float *>(memory)),
      cudaSuccess);
  cudaError_t state = cudaErrorNotReady;
  while (state == cudaErrorNotReady)
    state = cudaStreamQuery(stream);
  EXPECT_EQ(state, cudaErrorLaunchFailure);
  EXPECT_THAT(heddle::gpu::lastRefusal(),
              HasSubstr("a barrier that not every thread of block 0 reaches"));
  cudaSetDevice(0);
  cudaGetLastError();
}

} // namespace
