//===- GraphsOnDouble.cpp - Work that runtime/cuda queues again -----------===//
//
// The same calls with and without CUDA graphs, in orders that the double draws:
// whatever a graph has of another buffer, another step or another stream shows
// in a number. What the vendors forbid while a stream is captured, the double
// refuses.
//
//===----------------------------------------------------------------------===//

#include "runtime/common/Status.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/ranks/RunRanks.h"
#include "test/runtime/double/Double.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using heddle::ranks::runRanks;
using heddle::ranks::RunResult;
using heddle::runtime::fail;
using testing::HasSubstr;

namespace {

constexpr int64_t kSide = 16, kCount = kSide * kSide, kBytes = kCount * 4;
constexpr int kSets = 2, kMicroBatches = 4, kSteps = 4;

/// Two stages of two ranks each, as an emitted program has them: buffers of two
/// sets used in turn, messages to the next stage, sums over the ranks of one.
struct Program {
  heddle_rt_context *context = nullptr;
  int32_t rank = 0, size = 0, stage = 0;
  heddle_rt_stream *compute = nullptr, *comm = nullptr;
  heddle_rt_event *ready[kSets] = {}, *reduced[kSets] = {};
  heddle_rt_event *begun = nullptr, *ended = nullptr;
  heddle_rt_comm *tp = nullptr, *pp = nullptr;
  float *weight = nullptr, *input = nullptr, *total = nullptr;
  float *x[kSets] = {}, *y[kSets] = {}, *sum[kSets] = {};

  heddle_rt_status make(heddle_rt_context *with);
  heddle_rt_status forward(int64_t set);
  heddle_rt_status reduce(int64_t set);
  heddle_rt_status step();
  heddle_rt_status allocate(heddle_rt_memory_class kind, const char *name,
                            float **memory) {
    void *made = nullptr;
    HEDDLE_RT_TRY(heddle_rt_alloc(context, kind, kBytes, name, &made));
    *memory = static_cast<float *>(made);
    return HEDDLE_RT_OK;
  }
};

/// As emitted programs call functions.
template <auto Function, class... Numbers>
heddle_rt_status graph(const char *name, heddle_rt_graph_part part, Program &p,
                       Numbers... numbers) {
  auto call = [&] { return (p.*Function)(numbers...); };
  const int64_t all[] = {int64_t(numbers)..., 0};
  return heddle_rt_graph(
      p.compute, name, part,
      [](void *given) { return (*static_cast<decltype(call) *>(given))(); },
      &call, all, sizeof...(numbers));
}

heddle_rt_status Program::make(heddle_rt_context *with) {
  context = with;
  HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
  stage = rank / 2;
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &compute));
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "comm", 1, &comm));
  HEDDLE_RT_TRY(heddle_rt_event_create(context, "begun", &begun));
  HEDDLE_RT_TRY(heddle_rt_event_create(context, "ended", &ended));
  for (int set = 0; set < kSets; ++set) {
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "ready", &ready[set]));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "reduced", &reduced[set]));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMPUTE, "x", &x[set]));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMM, "y", &y[set]));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMM, "sum", &sum[set]));
  }
  HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMPUTE, "weight", &weight));
  HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMPUTE, "input", &input));
  HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMPUTE, "total", &total));
  HEDDLE_RT_TRY(heddle_rt_comm_split(context, stage, rank % 2, 2, "tp", &tp));
  return heddle_rt_comm_split(context, rank % 2, stage, 2, "pp", &pp);
}

/// y = x * weight, where x is the stage before's y.
heddle_rt_status Program::forward(int64_t set) {
  if (stage == 0)
    HEDDLE_RT_TRY(heddle_rt_copy(compute, x[set], input, kBytes));
  else
    HEDDLE_RT_TRY(
        heddle_rt_receive(pp, compute, x[set], kCount, HEDDLE_RT_F32, 0));
  heddle_rt_gemm_args args{};
  args.name = "forward";
  args.m = args.n = args.k = args.lda = args.ldb = args.ldc = kSide;
  args.alpha = 1;
  args.batch = 1;
  args.a = args.b = args.c = HEDDLE_RT_F32;
  HEDDLE_RT_TRY(heddle_rt_gemm(compute, &args, x[set], weight, y[set]));
  HEDDLE_RT_TRY(heddle_rt_event_record(ready[set], compute));
  return stage == 0
             ? heddle_rt_send(pp, compute, y[set], kCount, HEDDLE_RT_F32, 1)
             : HEDDLE_RT_OK;
}

/// Beside the next forward: sum = y of both ranks, total += sum.
heddle_rt_status Program::reduce(int64_t set) {
  HEDDLE_RT_TRY(heddle_rt_stream_wait(comm, ready[set]));
  HEDDLE_RT_TRY(heddle_rt_all_reduce(tp, comm, y[set], sum[set], kCount,
                                     HEDDLE_RT_F32, HEDDLE_RT_SUM));
  // The maximum of sums that are alike, by way of scratch memory.
  HEDDLE_RT_TRY(heddle_rt_all_reduce(tp, comm, sum[set], sum[set], kCount,
                                     HEDDLE_RT_F32, HEDDLE_RT_MAX));
  heddle_rt_gemm_args args{};
  args.name = "total";
  args.m = args.n = args.k = args.lda = args.ldb = args.ldc = kSide;
  args.alpha = 1;
  args.beta = 1;
  args.batch = 1;
  args.a = args.b = args.c = HEDDLE_RT_F32;
  HEDDLE_RT_TRY(heddle_rt_gemm(comm, &args, sum[set], weight, total));
  return heddle_rt_event_record(reduced[set], comm);
}

heddle_rt_status Program::step() {
  HEDDLE_RT_TRY(heddle_rt_zero(compute, total, kBytes));
  HEDDLE_RT_TRY(heddle_rt_event_record(begun, compute));
  HEDDLE_RT_TRY(heddle_rt_stream_wait(comm, begun));
  for (int64_t micro = 0; micro < kMicroBatches; ++micro) {
    const int64_t set = micro % kSets;
    if (micro >= kSets) // its bytes are read no more
      HEDDLE_RT_TRY(heddle_rt_stream_wait(compute, reduced[set]));
    HEDDLE_RT_TRY(
        graph<&Program::forward>("forward", HEDDLE_RT_GRAPH_SLOT, *this, set));
    HEDDLE_RT_TRY(
        graph<&Program::reduce>("reduce", HEDDLE_RT_GRAPH_SLOT, *this, set));
    // What the host writes between two steps, here the device does.
    HEDDLE_RT_TRY(heddle_rt_copy(compute, input, x[set], kBytes));
  }
  HEDDLE_RT_TRY(heddle_rt_event_record(ended, comm));
  return heddle_rt_stream_wait(compute, ended);
}

/// Trains on inputs that differ by step; every step's total.
heddle_rt_status train(heddle_rt_context *context, bool stays,
                       std::vector<float> &totals, std::string &graphs) {
  Program p;
  HEDDLE_RT_TRY(p.make(context));
  std::vector<float> numbers(kCount);
  for (int64_t i = 0; i < kCount; ++i)
    numbers[size_t(i)] = float(i * 7 % 11) / 8 + float(p.rank);
  HEDDLE_RT_TRY(heddle_rt_copy(p.compute, p.weight, numbers.data(), kBytes));
  for (int step = 0; step < kSteps; ++step) {
    for (int64_t i = 0; i < kCount; ++i)
      numbers[size_t(i)] = float((i + step) % 5);
    HEDDLE_RT_TRY(heddle_rt_copy(p.compute, p.input, numbers.data(), kBytes));
    HEDDLE_RT_TRY(graph<&Program::step>("step", HEDDLE_RT_GRAPH_STEP, p));
    HEDDLE_RT_TRY(heddle_rt_copy(p.compute, numbers.data(), p.total, kBytes));
    HEDDLE_RT_TRY(heddle_rt_stream_synchronize(p.compute));
    totals.insert(totals.end(), numbers.begin(), numbers.end());
  }
  if (stays)
    graphs = heddle::ranks::graphsOf(context);
  return HEDDLE_RT_OK;
}

/// HEDDLE_GRAPHS as long as it lives.
class Graphs {
public:
  explicit Graphs(const char *use) { setenv("HEDDLE_GRAPHS", use, 1); }
  ~Graphs() { unsetenv("HEDDLE_GRAPHS"); }
};

struct Trained {
  std::vector<std::vector<float>> totals;
  std::string graphs; ///< of the last rank
};

Trained trained(const char *use, uint64_t seed, bool checking = false) {
  const Graphs graphs(use);
  heddle::gpu::Settings settings;
  settings.seed = seed;
  settings.concurrentCollectives = seed % 2 ? 1 : 4;
  heddle::gpu::configure(settings);
  heddle_rt_options options{};
  options.checking = checking ? HEDDLE_RT_CHOICE_ON : HEDDLE_RT_CHOICE_OFF;
  options.timeout_seconds = 20;
  Trained all{std::vector<std::vector<float>>(4), ""};
  const RunResult result =
      runRanks(4, options, [&](heddle_rt_context *context) {
        int32_t rank = 0, size = 0;
        HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
        return train(context, rank == 3, all.totals[size_t(rank)], all.graphs);
      });
  EXPECT_TRUE(result) << use << ", seed " << seed << ": " << result.message;
  EXPECT_EQ(heddle::gpu::openCommunicators(), 0);
  heddle::gpu::configure({});
  return all;
}

TEST(Graphs, GiveTheSameBitsInEveryOrder) {
  const Trained plain = trained("off", 1);
  EXPECT_EQ(plain.graphs, "");
  EXPECT_NE(plain.totals[3][0], plain.totals[3][kCount]); // steps differ
  for (uint64_t seed = 1; seed <= 4; ++seed)
    for (const char *use : {"slots", "step", "off"})
      ASSERT_EQ(trained(use, seed).totals, plain.totals)
          << use << ", seed " << seed;
}

// Of the second stage: forward is a piece behind the message, reduce one of
// four nodes (the maximum has three), each for both sets of buffers. A whole
// step has its beginning, and each copy beside the forward behind it.
TEST(Graphs, AreOneForEachFunctionAndSetOfBuffers) {
  EXPECT_EQ(trained("slots", 1).graphs,
            "4 CUDA graphs of 12 nodes, 0.0 MB of the GPU's memory");
  EXPECT_THAT(trained("step", 1).graphs, HasSubstr(" of 29 nodes"));
}

// Each piece of work is looked at, or waited for by the host.
TEST(Graphs, AreNotMadeWhereTheHostHasAPart) {
  const Trained plain = trained("off", 1);
  const Trained checked = trained("slots", 1, true);
  EXPECT_EQ(checked.graphs, "");
  EXPECT_EQ(checked.totals, plain.totals);
  setenv("HEDDLE_COMM", "staged", 1);
  const Trained staged = trained("slots", 1);
  unsetenv("HEDDLE_COMM");
  EXPECT_EQ(staged.graphs, "");
  EXPECT_EQ(staged.totals, plain.totals);
}

/// Ranks with `body` as a slot's function, `calls` times; then `after`. The
/// numbers of a call are those of `numberOf(rank, call)`.
template <class Body>
RunResult runBody(
    int calls, const Body &body, int ranks = 1,
    const std::function<heddle_rt_status(Program &)> &after = nullptr,
    int64_t (*numberOf)(int rank, int call) = [](int, int) -> int64_t {
      return 0;
    },
    const std::function<void()> &ended = nullptr) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_OFF;
  options.timeout_seconds = ended ? 1 : 20;
  return runRanks(ranks, options, [&](heddle_rt_context *context) {
    Program p;
    p.context = context;
    HEDDLE_RT_TRY(heddle_rt_rank(context, &p.rank, &p.size));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &p.compute));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "comm", 1, &p.comm));
    HEDDLE_RT_TRY(p.allocate(HEDDLE_RT_COMPUTE, "x", &p.x[0]));
    HEDDLE_RT_TRY(p.allocate(HEDDLE_RT_COMPUTE, "y", &p.y[0]));
    HEDDLE_RT_TRY(
        heddle_rt_comm_split(context, 0, p.rank, p.size, "tp", &p.tp));
    for (int i = 0; i < calls; ++i) {
      struct Given {
        const Body &body;
        Program &p;
        int call;
      } given{body, p, i};
      const int64_t number = numberOf(p.rank, i);
      if (ended) // a rank that stays away has done what it was asked before
        HEDDLE_RT_TRY(heddle_rt_stream_synchronize(p.compute));
      HEDDLE_RT_TRY(heddle_rt_graph(
          p.compute, "body", HEDDLE_RT_GRAPH_SLOT,
          [](void *at) {
            const auto &g = *static_cast<Given *>(at);
            return g.body(g.p, g.call);
          },
          &given, &number, 1));
    }
    const heddle_rt_status status = heddle_rt_stream_synchronize(p.compute);
    if (ended)
      ended();
    HEDDLE_RT_TRY(status);
    return after ? after(p) : HEDDLE_RT_OK;
  });
}

// A number by value is what it was when the graph was made: it has to be among
// the numbers, or in memory.
TEST(Graphs, HaveTheirParametersFromTheCapture) {
  float found = 0;
  const RunResult result = runBody(
      5,
      [](Program &p, int call) {
        const float two = 2;
        if (call == 0)
          HEDDLE_RT_TRY(heddle_rt_copy(p.compute, p.x[0], &two, sizeof two));
        heddle_rt_gemm_args args{};
        args.name = "by value";
        args.m = args.n = args.k = args.lda = args.ldb = args.ldc = 1;
        args.alpha = float(call + 1);
        args.batch = 1;
        return heddle_rt_gemm(p.compute, &args, p.x[0], p.x[0], p.y[0]);
      },
      1,
      [&](Program &p) {
        HEDDLE_RT_TRY(heddle_rt_copy(p.compute, &found, p.y[0], sizeof found));
        return heddle_rt_stream_synchronize(p.compute);
      });
  EXPECT_TRUE(result) << result.message;
  EXPECT_EQ(found, 2 * 2 * 2); // of the second call, and not 5 * 2 * 2
}

// Two streams in turn, with no event between them; and calls that queue nothing
// make no graph.
TEST(Graphs, EndWhereAnotherStreamComes) {
  float found = 0;
  std::string graphs;
  const RunResult result = runBody(
      5,
      [](Program &p, int call) {
        const float two = 2;
        if (call == 0) {
          HEDDLE_RT_TRY(heddle_rt_copy(p.comm, p.x[0], &two, sizeof two));
          HEDDLE_RT_TRY(heddle_rt_zero(p.comm, p.y[0], kBytes));
        }
        heddle_rt_gemm_args args{};
        args.name = "added";
        args.m = args.n = args.k = args.lda = args.ldb = args.ldc = 1;
        args.alpha = args.beta = 1;
        args.batch = 1;
        HEDDLE_RT_TRY(heddle_rt_zero(p.compute, p.x[0] + 1, 4));
        HEDDLE_RT_TRY(heddle_rt_gemm(p.comm, &args, p.x[0], p.x[0], p.y[0]));
        return heddle_rt_copy(p.compute, p.x[0], p.y[0], 0);
      },
      1,
      [&](Program &p) {
        HEDDLE_RT_TRY(heddle_rt_copy(p.comm, &found, p.y[0], sizeof found));
        graphs = heddle::ranks::graphsOf(p.context);
        return heddle_rt_stream_synchronize(p.comm);
      });
  EXPECT_TRUE(result) << result.message;
  EXPECT_EQ(found, 5 * 2 * 2);
  EXPECT_THAT(graphs, HasSubstr("2 CUDA graphs of 2 nodes"));
}

TEST(Graphs, RefuseToBeWaitedForWithin) {
  EXPECT_THAT(
      runBody(2, [](Program &p,
                    int) { return heddle_rt_stream_synchronize(p.compute); })
          .message,
      HasSubstr("stream compute is waited for within a graph"));
}

// NCCL would hang, or move the wrong bytes.
TEST(Graphs, RefuseRanksThatDiffer) {
  const auto queue = [](Program &p, int) {
    return heddle_rt_all_reduce(p.tp, p.compute, p.x[0], p.y[0], kCount,
                                HEDDLE_RT_F32, HEDDLE_RT_SUM);
  };
  EXPECT_THAT(runBody(3, queue, 2, nullptr,
                      [](int rank, int call) -> int64_t {
                        return rank == 1 ? call : 0;
                      })
                  .message,
              HasSubstr("[NCCL, Using NCCL with CUDA Graphs]"));
}

// A rank that stays away is named, also where a graph waits for it.
TEST(Graphs, NameTheRanksThatHaveNotBegun) {
  std::atomic<bool> ended = false;
  const auto queue = [&](Program &p, int call) {
    while (p.rank == 1 && call == 3 && !ended)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (p.rank == 1 && call == 3)
      return heddle::runtime::invalid("was elsewhere");
    return heddle_rt_all_reduce(p.tp, p.compute, p.x[0], p.x[0], kCount,
                                HEDDLE_RT_F32, HEDDLE_RT_SUM);
  };
  const RunResult result = runBody(
      4, queue, 2, nullptr,
      [](int rank, int call) -> int64_t { return rank == 1 && call == 3; },
      [&] { ended = true; });
  EXPECT_THAT(result.message,
              HasSubstr("all_reduce(tp) waited for its peers for 1 s; missing: "
                        "rank 1 (does not answer)"));
}

TEST(Graphs, OfWholeStepsAreNotTooLong) {
  const Graphs graphs("step");
  heddle_rt_options options{};
  const RunResult result =
      runRanks(1, options, [&](heddle_rt_context *context) {
        Program p;
        p.context = context;
        HEDDLE_RT_TRY(
            heddle_rt_stream_create(context, "compute", 0, &p.compute));
        HEDDLE_RT_TRY(p.allocate(HEDDLE_RT_COMPUTE, "x", &p.x[0]));
        return heddle_rt_graph(
            p.compute, "step", HEDDLE_RT_GRAPH_STEP,
            [](void *given) {
              auto &p = *static_cast<Program *>(given);
              for (int i = 0; i <= 5000; ++i)
                HEDDLE_RT_TRY(heddle_rt_zero(p.compute, p.x[0], 4));
              return HEDDLE_RT_OK;
            },
            &p, nullptr, 0);
      });
  EXPECT_THAT(result.message,
              HasSubstr("step: a step of 5001 pieces of work is too long for "
                        "graphs of the whole step, at most 5000"));
}

TEST(Graphs, SettingIsRead) {
  const Graphs graphs("all");
  EXPECT_THAT(runBody(1, [](Program &, int) { return HEDDLE_RT_OK; }).message,
              HasSubstr("HEDDLE_GRAPHS=all: expected slots"));
}

TEST(Graphs, FailuresBecomeOneSentence) {
  const auto queue = [](Program &p, int) {
    return heddle_rt_zero(p.compute, p.x[0], kBytes);
  };
  const struct {
    const char *function;
    int64_t call;
    const char *says;
  } planned[] = {
      {"cudaStreamBeginCapture", 1, "body: a graph of stream compute: CUDA:"},
      {"cudaStreamEndCapture", 1, "body: a graph of stream compute: CUDA:"},
      {"cudaGraphInstantiate", 1,
       "body: a graph of 1 nodes of stream compute: CUDA:"},
      {"cudaGraphUpload", 1, "body: a graph of 1 nodes"},
      {"cudaMemGetInfo", 2, "body: memory behind a graph: CUDA:"},
      {"cudaGraphLaunch", 2, "body: a graph on stream compute: CUDA:"},
      {"cudaMemsetAsync", 2, "zeros of 1024 bytes on stream compute: CUDA:"}};
  for (const auto &[function, call, says] : planned) {
    heddle::gpu::failCall(function, call, cudaErrorUnknown);
    const RunResult result = runBody(4, queue);
    heddle::gpu::failCall("", 0, 0);
    EXPECT_THAT(result.message, HasSubstr(says)) << function;
  }
}

// What the vendors forbid while a thread captures.
TEST(Capture, RefusesWhatTheVendorsRefuse) {
  heddle::gpu::configure({});
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t outside = nullptr, event = nullptr;
  void *memory = nullptr;
  for (cudaStream_t *to : {&stream, &other})
    ASSERT_EQ(cudaStreamCreateWithFlags(to, cudaStreamNonBlocking),
              cudaSuccess);
  for (cudaEvent_t *to : {&outside, &event})
    ASSERT_EQ(cudaEventCreateWithFlags(to, cudaEventDisableTiming),
              cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(outside, other), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
            cudaErrorInvalidValue);
  void *more = nullptr;
  const std::pair<const char *, std::function<cudaError_t()>> forbidden[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&more, 64); }},
      {"cudaHostAlloc",
       [&] { return cudaHostAlloc(&more, 64, cudaHostAllocDefault); }},
      {"cudaFree", [&] { return cudaFree(memory); }},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(other); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(outside); }},
      {"cudaStreamWaitEvent",
       [&] { return cudaStreamWaitEvent(stream, outside, 0); }}};
  for (const auto &[name, call] : forbidden) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    EXPECT_NE(call(), cudaSuccess) << name;
    EXPECT_THAT(heddle::gpu::lastRefusal(), HasSubstr(name));
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph),
              cudaErrorStreamCaptureInvalidated)
        << name;
  }
  // An event of a capture is no point of a stream.
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0),
            cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  cudaFree(memory);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(other);
  cudaEventDestroy(outside);
  cudaEventDestroy(event);
  cudaGetLastError();
}

} // namespace
