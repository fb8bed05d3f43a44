// Late mode, checking mode and recording mode on one small program: two
// streams, a bucket that is reduced on one while the other goes on.

#include "runtime/common/Status.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/ranks/RunRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

using heddle::ranks::runRanks;
using heddle::ranks::RunResult;
using testing::HasSubstr;

namespace {

enum class Fault {
  None,
  ReduceDoesNotWait,   ///< for the gradients
  BucketReusedEarly,   ///< before it was reduced
  ForwardDoesNotWait,  ///< for the optimizer of the step before
  EventOneKernelEarly, ///< gradients ready is recorded before the last kernel
};

constexpr int64_t kWidth = 256, kLayers = 3;

struct Add { ///< y = scale * (x + y)
  const float *x;
  float *y, scale;
  static void body(const void *args, int64_t begin, int64_t end) {
    const Add call = *static_cast<const Add *>(args);
    for (int64_t i = begin; i < end; ++i)
      call.y[i] = call.scale * (call.x[i] + call.y[i]);
  }
};

heddle_rt_status add(heddle_rt_stream *stream, const char *name, const float *x,
                     float *y, float scale) {
  const Add call{x, y, scale};
  const heddle_rt_access accesses[] = {{x, kWidth * 4, 0}, {y, kWidth * 4, 1}};
  return heddle_rt_host_launch(stream, name, Add::body, &call, sizeof call,
                               kWidth, 64, accesses, 2);
}

/// What a training program does, as small as it gets.
struct Program {
  Fault fault;
  heddle_rt_stream *compute, *comm;
  heddle_rt_event *ready, *free, *updated;
  heddle_rt_comm *dp;
  float *arena;
  float *bias; ///< something different on each rank, that never changes
  int32_t rank = 0, size = 0;

  float *weights(int64_t layer) const { return arena + layer * kWidth; }
  float *activations() const { return arena + kLayers * kWidth; }
  float *bucket() const { return arena + (kLayers + 1) * kWidth; }

  heddle_rt_status start(heddle_rt_context *context) {
    HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &compute));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "comm", 1, &comm));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "ready", &ready));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "free", &free));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "updated", &updated));
    HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, rank, size, "dp", &dp));
    void *memory;
    HEDDLE_RT_TRY(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE,
                                  (kLayers + 2) * kWidth * 4, "arena",
                                  &memory));
    arena = static_cast<float *>(memory);
    HEDDLE_RT_TRY(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, kWidth * 4,
                                  "bias", &memory));
    bias = static_cast<float *>(memory);
    if (heddle_rt_context_mode(context) != HEDDLE_RT_MODE_RECORD)
      for (int64_t i = 0; i < kWidth; ++i)
        bias[i] = std::sin(float(i * (rank + 1)));
    HEDDLE_RT_TRY(heddle_rt_zero(compute, arena, kLayers * kWidth * 4));
    HEDDLE_RT_TRY(heddle_rt_event_record(updated, compute));
    return heddle_rt_event_record(free, compute);
  }

  heddle_rt_status backward(int64_t layer) {
    if (fault != Fault::BucketReusedEarly)
      HEDDLE_RT_TRY(heddle_rt_stream_wait(compute, free));
    HEDDLE_RT_TRY(heddle_rt_zero(compute, bucket(), kWidth * 4));
    if (fault == Fault::EventOneKernelEarly)
      HEDDLE_RT_TRY(heddle_rt_event_record(ready, compute));
    HEDDLE_RT_TRY(add(compute, "grad", activations(), bucket(), 0.5f));
    if (fault != Fault::EventOneKernelEarly)
      HEDDLE_RT_TRY(heddle_rt_event_record(ready, compute));
    if (fault != Fault::ReduceDoesNotWait)
      HEDDLE_RT_TRY(heddle_rt_stream_wait(comm, ready));
    HEDDLE_RT_TRY(heddle_rt_all_reduce(dp, comm, bucket(), bucket(), kWidth,
                                       HEDDLE_RT_F32, HEDDLE_RT_SUM));
    HEDDLE_RT_TRY(add(comm, "sgd", bucket(), weights(layer), 0.25f));
    return heddle_rt_event_record(free, comm);
  }

  heddle_rt_status step() {
    if (fault != Fault::ForwardDoesNotWait)
      HEDDLE_RT_TRY(heddle_rt_stream_wait(compute, updated));
    HEDDLE_RT_TRY(heddle_rt_zero(compute, activations(), kWidth * 4));
    for (int64_t layer = 0; layer < kLayers; ++layer)
      HEDDLE_RT_TRY(
          add(compute, "forward", weights(layer), activations(), 1.0f));
    HEDDLE_RT_TRY(add(compute, "loss", bias, activations(), 1.0f));
    for (int64_t layer = kLayers; layer-- > 0;)
      HEDDLE_RT_TRY(backward(layer));
    return heddle_rt_event_record(updated, comm);
  }
};

/// Weights of rank 0 after three steps that were queued without waiting.
struct Outcome {
  RunResult result;
  std::vector<float> weights;
};

Outcome train(int ranks, heddle_rt_options options, Fault fault) {
  Outcome outcome;
  std::mutex mutex;
  std::vector<Program> programs(static_cast<size_t>(ranks));
  outcome.result = runRanks(ranks, options, [&](heddle_rt_context *context) {
    int32_t rank, size;
    HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
    Program &program = programs[size_t(rank)];
    program.fault = fault;
    HEDDLE_RT_TRY(program.start(context));
    for (int i = 0; i < 3; ++i)
      HEDDLE_RT_TRY(program.step());
    HEDDLE_RT_TRY(heddle_rt_stream_synchronize(program.compute));
    HEDDLE_RT_TRY(heddle_rt_stream_synchronize(program.comm));
    const std::scoped_lock lock(mutex);
    if (rank == 0 && options.mode != HEDDLE_RT_MODE_RECORD)
      outcome.weights.assign(program.arena, program.arena + kLayers * kWidth);
    return HEDDLE_RT_OK;
  });
  return outcome;
}

heddle_rt_options late(uint64_t seed) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_LATE;
  options.seed = seed;
  options.checking = HEDDLE_RT_CHOICE_OFF;
  options.timeout_seconds = 30; // whoever waits in vain says so
  return options;
}

bool sameBits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

TEST(Late, ARightProgramGivesTheSameBitsInEveryOrder) {
  const Outcome eager = train(3, {}, Fault::None);
  ASSERT_TRUE(eager.result) << eager.result.message;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome outcome = train(3, late(seed), Fault::None);
    ASSERT_TRUE(outcome.result) << outcome.result.message;
    EXPECT_TRUE(sameBits(outcome.weights, eager.weights)) << "seed " << seed;
  }
}

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, ShowInSomeOrder) {
  const Outcome right = train(2, {}, Fault::None);
  int seen = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Outcome outcome = train(2, late(seed), GetParam());
    seen += !outcome.result || !sameBits(outcome.weights, right.weights);
  }
  std::printf("%d of 50 seeds\n", seen);
  EXPECT_GT(seen, 25);
}

TEST_P(Faults, AreFoundByTheCheckInOneRun) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON;
  const Outcome outcome = train(2, options, GetParam());
  EXPECT_EQ(outcome.result.status, HEDDLE_RT_CHECK_FAILED);
  EXPECT_THAT(outcome.result.message, HasSubstr("no event orders them"));
}

TEST_P(Faults, AreFoundWithoutRunning) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_RECORD;
  const Outcome outcome = train(2, options, GetParam());
  EXPECT_EQ(outcome.result.status, HEDDLE_RT_CHECK_FAILED);
  EXPECT_THAT(outcome.result.message, HasSubstr("no event orders them"));
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Values(Fault::ReduceDoesNotWait,
                                         Fault::BucketReusedEarly,
                                         Fault::ForwardDoesNotWait,
                                         Fault::EventOneKernelEarly));

TEST(Checking, ARightProgramIsSilent) {
  for (const heddle_rt_mode mode :
       {HEDDLE_RT_MODE_EAGER, HEDDLE_RT_MODE_LATE, HEDDLE_RT_MODE_RECORD}) {
    heddle_rt_options options{};
    options.mode = mode;
    options.checking = HEDDLE_RT_CHOICE_ON;
    const Outcome outcome = train(2, options, Fault::None);
    EXPECT_TRUE(outcome.result) << outcome.result.message;
  }
}

RunResult
runOne(heddle_rt_options options,
       const std::function<heddle_rt_status(heddle_rt_context *,
                                            heddle_rt_stream *)> &body) {
  return runRanks(1, options, [&](heddle_rt_context *context) {
    heddle_rt_stream *stream = nullptr;
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
    return body(context, stream);
  });
}

heddle_rt_options checking() {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON;
  return options;
}

heddle_rt_status alloc(heddle_rt_context *context, const char *name,
                       int64_t bytes, float *&memory) {
  void *made = nullptr;
  const heddle_rt_status status =
      heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, bytes, name, &made);
  memory = static_cast<float *>(made);
  return status;
}

TEST(Checking, SeesAWriteBeyondAnAllocation) {
  for (const int64_t at : {-1, 4}) {
    const auto result = runOne(checking(), [&](auto *context, auto *) {
      float *x;
      HEDDLE_RT_TRY(alloc(context, "states", 16, x));
      x[at] = 1; // an undeclared write, as a wrong kernel makes
      return HEDDLE_RT_OK;
    });
    EXPECT_EQ(result.status, HEDDLE_RT_CHECK_FAILED);
    EXPECT_THAT(result.message,
                HasSubstr(at < 0 ? "before the start of allocation states"
                                 : "beyond the end of allocation states"));
  }
}

TEST(Checking, PoisonsNewAndDeadMemory) {
  const auto result = runOne(checking(), [](auto *context, auto *stream) {
    float *x;
    HEDDLE_RT_TRY(alloc(context, "x", 64, x));
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[15]));
    HEDDLE_RT_TRY(heddle_rt_zero(stream, x, 64));
    HEDDLE_RT_TRY(heddle_rt_poison(stream, x + 4, 8));
    EXPECT_EQ(x[3], 0);
    EXPECT_TRUE(std::isnan(x[4]) && std::isnan(x[5]));
    EXPECT_EQ(x[6], 0);
    return HEDDLE_RT_OK;
  });
  EXPECT_TRUE(result) << result.message;
}

TEST(Checking, PoisonDoesNothingOtherwise) {
  const auto result = runOne({}, [](auto *, auto *stream) {
    float x[2] = {1, 2};
    HEDDLE_RT_TRY(heddle_rt_poison(stream, x, 8));
    EXPECT_EQ(x[0], 1);
    return HEDDLE_RT_OK;
  });
  EXPECT_TRUE(result) << result.message;
}

TEST(Checking, KeepsCallsInsideTheirAllocation) {
  const auto result = runOne(checking(), [](auto *context, auto *stream) {
    float *x;
    HEDDLE_RT_TRY(alloc(context, "states", 64, x));
    return heddle_rt_zero(stream, x + 8, 64);
  });
  EXPECT_EQ(result.status, HEDDLE_RT_INVALID_ARGUMENT);
  EXPECT_EQ(result.message,
            "zero writes 64 bytes at offset 32 of states, which has 64 bytes");
}

TEST(Checking, FreeingWhatIsInUseIsARace) {
  heddle_rt_options options = checking();
  options.mode = HEDDLE_RT_MODE_LATE;
  const auto result = runOne(options, [](auto *context, auto *stream) {
    float *x;
    HEDDLE_RT_TRY(alloc(context, "x", 64, x));
    HEDDLE_RT_TRY(heddle_rt_zero(stream, x, 64));
    return heddle_rt_free(context, x);
  });
  EXPECT_EQ(result.status, HEDDLE_RT_CHECK_FAILED);
  EXPECT_THAT(result.message, HasSubstr("heddle_rt_free on stream the host"));
}

TEST(Checking, TellsInterleavedColumnsApart) {
  const auto result = runOne(checking(), [](auto *context, auto *stream) {
    heddle_rt_stream *other;
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "other", 0, &other));
    std::vector<float> x(6 * 4), a(4, 1.0f);
    heddle_rt_gemm_args args{};
    args.m = args.n = args.k = 2;
    args.lda = args.ldb = 2;
    args.ldc = 6; // columns of one matrix, written by two streams
    args.alpha = 1;
    args.batch = 1;
    args.name = "left";
    HEDDLE_RT_TRY(heddle_rt_gemm(stream, &args, a.data(), a.data(), x.data()));
    args.name = "middle";
    HEDDLE_RT_TRY(
        heddle_rt_gemm(other, &args, a.data(), a.data(), x.data() + 2));
    args.name = "across";
    return heddle_rt_gemm(other, &args, a.data(), a.data(), x.data() + 1);
  });
  EXPECT_EQ(result.status, HEDDLE_RT_CHECK_FAILED);
  EXPECT_THAT(result.message, HasSubstr("across on stream other writes what "
                                        "left on stream s writes"));
}

TEST(Events, WaitingForOneNeverRecordedIsAnError) {
  const auto result = runOne({}, [](auto *context, auto *stream) {
    heddle_rt_event *event;
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "ready", &event));
    return heddle_rt_stream_wait(stream, event);
  });
  EXPECT_EQ(result.message,
            "stream s waits for event ready, which was never recorded");
}

/// Two streams record an event, in an order that nothing fixes; who waits has
/// the record in mind that was queued last before him.
TEST(Events, RecordedOnTwoStreamsStandForTheLastBeforeTheWait) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    heddle_rt_options options = late(seed);
    options.timeout_seconds = 1;
    const auto result = runOne(options, [](auto *context, auto *first) {
      heddle_rt_stream *second, *reader;
      heddle_rt_event *event;
      HEDDLE_RT_TRY(heddle_rt_stream_create(context, "second", 0, &second));
      HEDDLE_RT_TRY(heddle_rt_stream_create(context, "reader", 0, &reader));
      HEDDLE_RT_TRY(heddle_rt_event_create(context, "event", &event));
      float from[2] = {1, 2}, to[2] = {}, read[2] = {};
      HEDDLE_RT_TRY(heddle_rt_copy(first, &to[0], &from[0], 4));
      HEDDLE_RT_TRY(heddle_rt_event_record(event, first));
      HEDDLE_RT_TRY(heddle_rt_stream_wait(reader, event));
      HEDDLE_RT_TRY(heddle_rt_copy(reader, &read[0], &to[0], 4));
      HEDDLE_RT_TRY(heddle_rt_copy(second, &to[1], &from[1], 4));
      HEDDLE_RT_TRY(heddle_rt_event_record(event, second));
      HEDDLE_RT_TRY(heddle_rt_stream_wait(reader, event));
      HEDDLE_RT_TRY(heddle_rt_copy(reader, &read[1], &to[1], 4));
      HEDDLE_RT_TRY(heddle_rt_stream_synchronize(reader));
      EXPECT_EQ(read[0], 1);
      EXPECT_EQ(read[1], 2);
      // The copies read memory of this frame.
      HEDDLE_RT_TRY(heddle_rt_stream_synchronize(first));
      return heddle_rt_stream_synchronize(second);
    });
    EXPECT_TRUE(result) << result.message << ", seed " << seed;
  }
}

/// Rank 5 of 8, tp 4 and dp 2, without peers.
heddle_rt_status recordOne(heddle_rt_context *context, int32_t place,
                           int64_t lastElements) {
  heddle_rt_stream *stream;
  heddle_rt_comm *tp, *dp;
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &stream));
  HEDDLE_RT_TRY(heddle_rt_comm_split(context, 1, place, 4, "tp", &tp));
  HEDDLE_RT_TRY(heddle_rt_comm_split(context, 1, 0, 2, "dp", &dp));
  float *x;
  const int64_t terabyte = int64_t(1) << 40; // no machine has that
  HEDDLE_RT_TRY(alloc(context, "arena", terabyte, x));
  heddle_rt_gemm_args gemm{};
  gemm.name = "up_proj";
  gemm.m = 8, gemm.n = 16, gemm.k = 4;
  gemm.lda = 4, gemm.ldb = 16, gemm.ldc = 16;
  gemm.alpha = 1;
  gemm.batch = 3;
  gemm.stride_a = 32, gemm.stride_c = 128;
  HEDDLE_RT_TRY(heddle_rt_gemm(stream, &gemm, x, x + 1000, x + 2000));
  heddle_rt_attention_args attention{};
  attention.batch = 2;
  attention.queries = attention.keys = 4;
  attention.groups = 1, attention.heads = 3, attention.head_size = 8;
  attention.causal = 1;
  attention.q = attention.o = {96, 24, 24, 8};
  attention.k = attention.v = {32, 8, 8, 0};
  HEDDLE_RT_TRY(heddle_rt_attention(stream, &attention, x, x + 3000, x + 4000,
                                    x + 5000, x + 6000));
  HEDDLE_RT_TRY(heddle_rt_all_reduce(tp, stream, x, x, 1000, HEDDLE_RT_F32,
                                     HEDDLE_RT_SUM));
  HEDDLE_RT_TRY(
      heddle_rt_all_gather(tp, stream, x, x + 1000, 2, 50, HEDDLE_RT_BF16));
  return heddle_rt_reduce_scatter(dp, stream, x, x + 100000, 1, lastElements,
                                  HEDDLE_RT_F32, HEDDLE_RT_SUM);
}

struct Recorded {
  heddle::runtime::Trace trace;
  std::string json;
};

Recorded record(int32_t place, int64_t lastElements) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_RECORD;
  options.rank = 5;
  options.size = 8;
  heddle_rt_context *context = nullptr;
  Recorded recorded;
  EXPECT_EQ(heddle_rt_init(&options, &context), HEDDLE_RT_OK);
  EXPECT_EQ(recordOne(context, place, lastElements), HEDDLE_RT_OK)
      << heddle_rt_last_error();
  recorded.trace = heddle::ranks::traceOf(context);
  const std::string path = testing::TempDir() + "heddle-trace.json";
  EXPECT_EQ(heddle_rt_trace_write(context, path.c_str()), HEDDLE_RT_OK);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  recorded.json = text.str();
  EXPECT_EQ(heddle_rt_finalize(context), HEDDLE_RT_OK)
      << heddle_rt_last_error();
  return recorded;
}

TEST(Recording, TotalsAreThoseWorkedByHand) {
  const auto [trace, json] = record(1, 300);
  EXPECT_EQ(trace.rank, 5);
  EXPECT_EQ(trace.size, 8);
  EXPECT_EQ(trace.gemmFlops, 2.0 * 3 * 8 * 16 * 4);
  // 1 + 2 + 3 + 4 pairs, 8 numbers each, two products, 6 heads.
  EXPECT_EQ(trace.attentionFlops, 2.0 * 2 * 10 * 8 * 6);
  // all_reduce 2 * 3/4 * 4000 bytes, all_gather 3/4 * (4 * 100 * 2) bytes.
  EXPECT_EQ(trace.axes.at("tp").bytes, 6000 + 600);
  EXPECT_EQ(trace.axes.at("tp").calls, 2);
  // reduce_scatter 1/2 * (2 * 300 * 4) bytes.
  EXPECT_EQ(trace.axes.at("dp").bytes, 1200);
  EXPECT_EQ(trace.calls.size(), 5u);
  EXPECT_STREQ(trace.calls[0].name, "up_proj");
  // The scatter's output ends at element 100300.
  EXPECT_EQ(trace.allocations.at(0).highest, 100300 * 4);
  EXPECT_THAT(json, HasSubstr("\"gemm_flops\": 3072"));
  EXPECT_THAT(json, HasSubstr("\"tp\": {\"calls\": 2, \"bytes\": 6600}"));
  EXPECT_THAT(json, HasSubstr("\"highest\": 401200"));
}

TEST(Recording, HashesTellWhoseCallsAgree) {
  const auto a = record(1, 300).trace, b = record(2, 300).trace,
             c = record(1, 299).trace;
  EXPECT_EQ(a.comms[0].hash.value, b.comms[0].hash.value);
  EXPECT_EQ(a.comms[1].hash.value, b.comms[1].hash.value);
  EXPECT_EQ(a.comms[0].hash.value, c.comms[0].hash.value);
  EXPECT_NE(a.comms[1].hash.value, c.comms[1].hash.value);
}

/// One message of rank 0 to rank 1, as one of the two records it.
heddle::runtime::Trace recordMessage(int32_t rank, int64_t elements) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_RECORD;
  options.rank = rank;
  options.size = 2;
  heddle_rt_context *context = nullptr;
  heddle_rt_stream *stream = nullptr;
  heddle_rt_comm *comm = nullptr;
  void *memory = nullptr;
  EXPECT_EQ(heddle_rt_init(&options, &context), HEDDLE_RT_OK);
  EXPECT_EQ(heddle_rt_stream_create(context, "s", 0, &stream), HEDDLE_RT_OK);
  EXPECT_EQ(heddle_rt_comm_split(context, 0, rank, 2, "pp", &comm),
            HEDDLE_RT_OK);
  EXPECT_EQ(heddle_rt_alloc(context, HEDDLE_RT_COMM, 4096, "a", &memory),
            HEDDLE_RT_OK);
  EXPECT_EQ(
      rank == 0
          ? heddle_rt_send(comm, stream, memory, elements, HEDDLE_RT_F32, 1)
          : heddle_rt_receive(comm, stream, memory, elements, HEDDLE_RT_F32, 0),
      HEDDLE_RT_OK);
  heddle::runtime::Trace trace = heddle::ranks::traceOf(context);
  EXPECT_EQ(heddle_rt_finalize(context), HEDDLE_RT_OK);
  return trace;
}

TEST(Recording, MessagesCountWhereTheyLeaveAndAddUpToNothing) {
  const auto sent = recordMessage(0, 10), received = recordMessage(1, 10),
             other = recordMessage(1, 9);
  EXPECT_EQ(sent.axes.at("pp").bytes, 40);
  EXPECT_EQ(received.axes.at("pp").bytes, 0);
  EXPECT_EQ(received.axes.at("pp").calls, 1);
  EXPECT_EQ(sent.calls.at(0).peer, 1);
  const uint64_t left = sent.comms[0].messages.value;
  EXPECT_NE(left, 0u);
  EXPECT_EQ(left + received.comms[0].messages.value, 0u);
  EXPECT_NE(left + other.comms[0].messages.value, 0u);
}

TEST(Recording, RefusesWhatIsInNoAllocation) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_RECORD;
  const auto freed = runOne(options, [](auto *context, auto *stream) {
    float *x;
    HEDDLE_RT_TRY(alloc(context, "x", 64, x));
    HEDDLE_RT_TRY(heddle_rt_zero(stream, x, 64));
    HEDDLE_RT_TRY(heddle_rt_stream_synchronize(stream));
    HEDDLE_RT_TRY(heddle_rt_free(context, x));
    return heddle_rt_zero(stream, x, 64);
  });
  EXPECT_EQ(freed.message, "zero writes 64 bytes that are in no allocation");
}

/// The flags that the system keeps of the mapping in which `at` lies.
std::string mappingFlags(const void *at) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin, end;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2)
      inside = begin <= uintptr_t(at) && uintptr_t(at) < end;
    else if (inside && line.starts_with("VmFlags:"))
      return line + " ";
  }
  return "";
}

TEST(Memory, LargeAllocationsAskForLargePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "this system has none";
  const auto result = runOne({}, [](auto *context, auto *) {
    float *large, *small;
    HEDDLE_RT_TRY(alloc(context, "large", 32 << 20, large));
    HEDDLE_RT_TRY(alloc(context, "small", 1 << 20, small));
    EXPECT_THAT(mappingFlags(large), HasSubstr(" hg "));
    EXPECT_THAT(mappingFlags(small), testing::Not(HasSubstr(" hg ")));
    return HEDDLE_RT_OK;
  });
  EXPECT_TRUE(result) << result.message;
}

TEST(Options, BadSettingsAreNamed) {
  heddle_rt_context *context = nullptr;
  const auto expect = [&](const char *variable, const char *value) {
    setenv(variable, value, 1);
    EXPECT_EQ(heddle_rt_init(nullptr, &context), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(heddle_rt_last_error(), HasSubstr(variable));
    EXPECT_EQ(context, nullptr);
    unsetenv(variable);
  };
  expect("HEDDLE_HOST_MODE", "lazy");
  expect("HEDDLE_RACES", "yes");
  expect("HEDDLE_SEED", "-1");
  expect("HEDDLE_TIMEOUT", "1h");
}

TEST(Threads, SplitAKernelWithoutChangingIt) {
  heddle_rt_options options{};
  options.compute_threads = 4;
  const auto result = runOne(options, [](auto *, auto *stream) {
    std::vector<float> x(10007), y(10007, 1.0f);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(i);
    const Add call{x.data(), y.data(), 2.0f};
    HEDDLE_RT_TRY(heddle_rt_host_launch(stream, "add", Add::body, &call,
                                        sizeof call, 10007, 64, nullptr, 0));
    for (size_t i = 0; i < x.size(); ++i)
      if (y[i] != 2 * (float(i) + 1))
        return heddle::runtime::invalid("element {} is {}", i, y[i]);
    return HEDDLE_RT_OK;
  });
  EXPECT_TRUE(result) << result.message;
}

} // namespace
