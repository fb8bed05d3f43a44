//===- StreamsOnDouble.cpp - Order and memory of runtime/cuda, by numbers -===//
//
// Several steps are queued without waiting, on streams that the double runs in
// any order that events allow: whatever is not ordered shows in a number.
//
//===----------------------------------------------------------------------===//

#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"
#include "test/runtime/double/Double.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

using heddle::ranks::runRanks;
using heddle::ranks::RunResult;
using testing::HasSubstr;

namespace {

constexpr int64_t kCount = 300, kBytes = kCount * 4;
constexpr int kSteps = 4;

/// What rank r contributes in step k.
float valueOf(int rank, int step, int64_t i) {
  return float(rank + 1) * 100 + float(step) * 10 + float(i % 7);
}

struct Places {
  heddle_rt_context *context = nullptr;
  int32_t rank = 0, size = 0;
  heddle_rt_stream *compute = nullptr, *comm = nullptr, *copy = nullptr;
  heddle_rt_event *loaded = nullptr, *reduced = nullptr, *stored = nullptr;
  heddle_rt_comm *tp = nullptr;
  float *in = nullptr, *out = nullptr;           ///< pinned [kSteps, kCount]
  float *own = nullptr, *sum = nullptr, *bucket; ///< device

  heddle_rt_status make(heddle_rt_context *with) {
    context = with;
    HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &compute));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "comm", 1, &comm));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "copy", 1, &copy));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "loaded", &loaded));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "reduced", &reduced));
    HEDDLE_RT_TRY(heddle_rt_event_create(context, "stored", &stored));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_HOST, kSteps * kBytes, "in", &in));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_HOST, kSteps * kBytes, "out", &out));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMPUTE, kBytes, "own", &own));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMM, kBytes, "bucket", &bucket));
    HEDDLE_RT_TRY(allocate(HEDDLE_RT_COMPUTE, kBytes, "sum", &sum));
    for (int step = 0; step < kSteps; ++step)
      for (int64_t i = 0; i < kCount; ++i)
        in[step * kCount + i] = valueOf(rank, step, i);
    return heddle_rt_comm_split(context, 0, rank, size, "tp", &tp);
  }
  heddle_rt_status allocate(heddle_rt_memory_class kind, int64_t bytes,
                            const char *name, float **memory) {
    void *made = nullptr;
    HEDDLE_RT_TRY(heddle_rt_alloc(context, kind, bytes, name, &made));
    *memory = static_cast<float *>(made);
    return HEDDLE_RT_OK;
  }
};

/// compute loads, comm reduces, copy stores; each buffer is used again by the
/// next step.
heddle_rt_status queueStep(const Places &p, int step) {
  if (step > 0) // comm may still read the bucket, and copy the sum
    HEDDLE_RT_TRY(heddle_rt_stream_wait(p.compute, p.stored));
  HEDDLE_RT_TRY(heddle_rt_copy(p.compute, p.own, p.in + step * kCount, kBytes));
  HEDDLE_RT_TRY(heddle_rt_zero(p.compute, p.sum, kBytes));
  HEDDLE_RT_TRY(heddle_rt_copy(p.compute, p.bucket, p.own, kBytes));
  HEDDLE_RT_TRY(heddle_rt_event_record(p.loaded, p.compute));
  HEDDLE_RT_TRY(heddle_rt_stream_wait(p.comm, p.loaded));
  HEDDLE_RT_TRY(heddle_rt_all_reduce(p.tp, p.comm, p.bucket, p.sum, kCount,
                                     HEDDLE_RT_F32, HEDDLE_RT_SUM));
  HEDDLE_RT_TRY(heddle_rt_event_record(p.reduced, p.comm));
  HEDDLE_RT_TRY(heddle_rt_stream_wait(p.copy, p.reduced));
  HEDDLE_RT_TRY(heddle_rt_copy(p.copy, p.out + step * kCount, p.sum, kBytes));
  return heddle_rt_event_record(p.stored, p.copy);
}

heddle_rt_status runSteps(heddle_rt_context *context) {
  Places p;
  HEDDLE_RT_TRY(p.make(context));
  for (int step = 0; step < kSteps; ++step)
    HEDDLE_RT_TRY(queueStep(p, step));
  HEDDLE_RT_TRY(heddle_rt_stream_synchronize(p.copy));
  for (int step = 0; step < kSteps; ++step)
    for (int64_t i = 0; i < kCount; ++i) {
      float expected = 0;
      for (int rank = 0; rank < p.size; ++rank)
        expected += valueOf(rank, step, i);
      if (p.out[step * kCount + i] != expected)
        return heddle::runtime::fail(HEDDLE_RT_CHECK_FAILED,
                                     "step {}, element {}: {} and not {}", step,
                                     i, p.out[step * kCount + i], expected);
    }
  return HEDDLE_RT_OK;
}

RunResult run(const std::function<heddle_rt_status(heddle_rt_context *)> &body,
              bool checking, uint64_t seed, int ranks = 3) {
  heddle::gpu::Settings settings;
  settings.seed = seed;
  settings.concurrentCollectives = seed % 2 ? 1 : 4;
  heddle::gpu::configure(settings);
  heddle_rt_options options{};
  options.checking = checking ? HEDDLE_RT_CHOICE_ON : HEDDLE_RT_CHOICE_OFF;
  options.timeout_seconds = 20;
  const RunResult result = runRanks(ranks, options, body);
  heddle::gpu::configure({});
  return result;
}

TEST(Streams, GiveTheSameNumbersInEveryOrder) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const RunResult result = run(runSteps, seed % 3 == 0, seed);
    EXPECT_TRUE(result) << "seed " << seed << ": " << result.message;
  }
}

TEST(Streams, AMissingEventIsNamed) {
  const RunResult result = run(
      [](heddle_rt_context *context) {
        Places p;
        HEDDLE_RT_TRY(p.make(context));
        HEDDLE_RT_TRY(heddle_rt_copy(p.compute, p.bucket, p.in, kBytes));
        return heddle_rt_all_reduce(p.tp, p.comm, p.bucket, p.sum, kCount,
                                    HEDDLE_RT_F32, HEDDLE_RT_SUM);
      },
      true, 1);
  EXPECT_THAT(result.message, HasSubstr("no event orders them"));
}

TEST(Streams, WaitingForAnEventNeverRecordedIsRefused) {
  const RunResult result = run(
      [](heddle_rt_context *context) {
        Places p;
        HEDDLE_RT_TRY(p.make(context));
        return heddle_rt_stream_wait(p.comm, p.loaded);
      },
      false, 1);
  EXPECT_THAT(result.message, HasSubstr("never recorded"));
}

TEST(Memory, BytesBesideAnAllocationAreWatched) {
  for (const int64_t at : {int64_t(-1), kBytes}) {
    const RunResult result = run(
        [&](heddle_rt_context *context) {
          float *memory = nullptr;
          Places p;
          HEDDLE_RT_TRY(p.make(context));
          HEDDLE_RT_TRY(
              p.allocate(HEDDLE_RT_COMPUTE, kBytes, "victim", &memory));
          // The double's memory is the host's: a kernel gone astray.
          reinterpret_cast<char *>(memory)[at] = 1;
          return HEDDLE_RT_OK;
        },
        true, 1, 1);
    EXPECT_THAT(result.message, HasSubstr(at < 0 ? "before the start of "
                                                   "allocation victim"
                                                 : "beyond the end of "
                                                   "allocation victim"));
  }
}

TEST(Memory, IsAlignedAndFullOfNaN) {
  const RunResult result = run(
      [&](heddle_rt_context *context) -> heddle_rt_status {
        Places p;
        HEDDLE_RT_TRY(p.make(context));
        for (const heddle_rt_memory_class kind :
             {HEDDLE_RT_COMPUTE, HEDDLE_RT_COMM, HEDDLE_RT_HOST})
          for (const int64_t bytes : {4, 4096, 5000}) {
            float *memory = nullptr;
            HEDDLE_RT_TRY(p.allocate(kind, bytes, "some", &memory));
            if (reinterpret_cast<uintptr_t>(memory) % 4096 != 0)
              return heddle::runtime::invalid("not aligned");
            if (memory[0] == memory[0])
              return heddle::runtime::invalid("not NaN");
            HEDDLE_RT_TRY(heddle_rt_free(context, memory));
          }
        return HEDDLE_RT_OK;
      },
      true, 1, 2);
  EXPECT_TRUE(result) << result.message;
}

} // namespace
