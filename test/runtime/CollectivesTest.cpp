// Collectives between thread ranks: values, failures, misuse.

#include "CollectiveCases.h"
#include "OnDevice.h"

#include "heddle/Runtime/Channels.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

using heddle::ranks::runRanks;
using heddle::ranks::RunResult;
using heddle::test::OnDevice;
using testing::AnyOf;
using testing::HasSubstr;

namespace {

struct Rank {
  heddle_rt_context *context = nullptr;
  heddle_rt_stream *stream = nullptr;
  heddle_rt_comm *comm = nullptr;
  int32_t rank = 0, size = 0;
  heddle_rt_status start(heddle_rt_context *given) {
    context = given;
    HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
    return heddle_rt_comm_split(context, 0, rank, size, "tp", &comm);
  }
  template <class T>
  OnDevice<T> on(const std::vector<T> &values) {
    return {context, stream, values};
  }
  OnDevice<float> one() { return on(std::vector<float>{1}); }
  heddle_rt_status reduce(float *data, int64_t n) {
    return heddle_rt_all_reduce(comm, stream, data, data, n, HEDDLE_RT_F32,
                                HEDDLE_RT_SUM);
  }
};

class Groups : public testing::TestWithParam<int> {};

TEST_P(Groups, EveryCollectiveIsItsLoop) {
  const RunResult result =
      runRanks(GetParam(), {}, heddle::test::runCollectiveCases);
  EXPECT_TRUE(result) << "rank " << result.rank << ": " << result.message;
}

TEST_P(Groups, EveryCollectiveIsItsLoopWhenLate) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_LATE;
  options.checking = HEDDLE_RT_CHOICE_ON;
  const RunResult result =
      runRanks(GetParam(), options, heddle::test::runCollectiveCases);
  EXPECT_TRUE(result) << "rank " << result.rank << ": " << result.message;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Groups, testing::Values(1, 2, 3, 4, 5, 8));

TEST(Group, AFailingRankEndsTheOthersAndIsNamed) {
  std::atomic<int> peersFailed = 0;
  const RunResult result = runRanks(4, {}, [&](heddle_rt_context *context) {
    Rank me;
    heddle_rt_status status = me.start(context);
    if (me.rank == 2)
      return heddle::runtime::invalid("no such file: weights.bin");
    void *one = nullptr;
    if (status == HEDDLE_RT_OK)
      status = heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, 4, "one", &one);
    if (status == HEDDLE_RT_OK)
      status = me.reduce(static_cast<float *>(one), 1);
    if (status == HEDDLE_RT_OK) // where it is only queued
      status = heddle_rt_stream_synchronize(me.stream);
    peersFailed += status == HEDDLE_RT_PEER_FAILED;
    EXPECT_THAT(heddle_rt_last_error(),
                HasSubstr("rank 2 failed: no such file: weights.bin"));
    return status;
  });
  EXPECT_EQ(result.status, HEDDLE_RT_INVALID_ARGUMENT);
  EXPECT_EQ(result.rank, 2);
  EXPECT_EQ(result.message, "no such file: weights.bin");
  EXPECT_EQ(peersFailed, 3);
}

TEST(Group, ARankThatLeavesEarlyIsMissed) {
  const RunResult result = runRanks(3, {}, [](heddle_rt_context *context) {
    Rank me;
    HEDDLE_RT_TRY(me.start(context));
    auto one = me.one();
    if (me.rank == 1)
      return HEDDLE_RT_OK;
    HEDDLE_RT_TRY(me.reduce(one.data(), 1));
    return heddle_rt_stream_synchronize(me.stream);
  });
  EXPECT_EQ(result.status, HEDDLE_RT_PEER_FAILED);
  EXPECT_THAT(result.message, HasSubstr("all_reduce(tp) waits for rank 1"));
}

TEST(Group, DifferentSizesAreSeen) {
  const RunResult result = runRanks(2, {}, [](heddle_rt_context *context) {
    Rank me;
    HEDDLE_RT_TRY(me.start(context));
    auto data = me.on(std::vector<float>(8));
    HEDDLE_RT_TRY(me.reduce(data.data(), me.rank == 0 ? 8 : 4));
    return heddle_rt_stream_synchronize(me.stream);
  });
  EXPECT_EQ(result.status, HEDDLE_RT_PEER_FAILED);
  EXPECT_THAT(result.message, HasSubstr("the ranks made different calls"));
}

TEST(Group, ACallThatNobodyAnswersTimesOut) {
  heddle_rt_options options{};
  options.timeout_seconds = 1;
  std::atomic<bool> ended = false;
  const RunResult result =
      runRanks(2, options, [&](heddle_rt_context *context) {
        Rank me;
        HEDDLE_RT_TRY(me.start(context));
        auto one = me.one();
        if (me.rank == 0) {
          heddle_rt_status status = me.reduce(one.data(), 1);
          if (status == HEDDLE_RT_OK)
            status = heddle_rt_stream_synchronize(me.stream);
          ended = true;
          return status;
        }
        while (!ended)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return me.reduce(one.data(), 1);
      });
  EXPECT_EQ(result.status, HEDDLE_RT_PEER_FAILED);
  EXPECT_EQ(result.rank, 0);
  EXPECT_THAT(result.message, HasSubstr("all_reduce(tp) waited"));
}

TEST(Group, SeatsThatDoNotFitAreRefused) {
  const RunResult result = runRanks(4, {}, [](heddle_rt_context *context) {
    int32_t rank, size;
    HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
    heddle_rt_comm *comm;
    // Ranks 2 and 3 both want place 1 of color 1.
    return heddle_rt_comm_split(context, rank / 2, rank == 2 ? 1 : rank % 2, 2,
                                "dp", &comm);
  });
  EXPECT_EQ(result.status, HEDDLE_RT_INVALID_ARGUMENT);
  EXPECT_THAT(result.message, HasSubstr("communicator dp"));
}

TEST(Group, ClosingCheckComparesCalls) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON;
  const RunResult result = runRanks(2, options, [](heddle_rt_context *context) {
    Rank me;
    HEDDLE_RT_TRY(me.start(context));
    auto data = me.on(std::vector<float>{1, 2});
    auto number = me.on(std::vector<int32_t>{1, 2});
    if (me.rank == 0) // the same bytes, so that the transport is content
      return me.reduce(data.data(), 2);
    return heddle_rt_all_reduce(me.comm, me.stream, number.data(),
                                number.data(), 2, HEDDLE_RT_I32, HEDDLE_RT_SUM);
  });
  // At the end, or by the library itself.
  EXPECT_THAT(result.status,
              AnyOf(HEDDLE_RT_CHECK_FAILED, HEDDLE_RT_PEER_FAILED));
  EXPECT_THAT(result.message, HasSubstr("communicator tp"));
}

TEST(Messages, LateSendsWaitForTheirReceives) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_LATE;
  options.timeout_seconds = 1;
  const auto run = [&](bool oneStream) {
    return runRanks(2, options, [&](heddle_rt_context *context) {
      Rank me;
      HEDDLE_RT_TRY(me.start(context));
      heddle_rt_stream *other = me.stream;
      heddle_rt_comm *back = nullptr;
      if (!oneStream)
        HEDDLE_RT_TRY(heddle_rt_stream_create(context, "other", 0, &other));
      // A queue of its own each way, as calls of one communicator begin in
      // order.
      HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, me.rank, 2, "pp", &back));
      auto own = me.on(std::vector<float>{float(me.rank + 1)});
      auto got = me.on(std::vector<float>{0});
      heddle_rt_comm *to = me.rank == 0 ? me.comm : back;
      heddle_rt_comm *from = me.rank == 0 ? back : me.comm;
      HEDDLE_RT_TRY(heddle_rt_send(to, me.stream, own.data(), 1, HEDDLE_RT_F32,
                                   1 - me.rank));
      HEDDLE_RT_TRY(heddle_rt_receive(from, other, got.data(), 1, HEDDLE_RT_F32,
                                      1 - me.rank));
      HEDDLE_RT_TRY(heddle_rt_stream_synchronize(other));
      EXPECT_EQ(got.read()[0], float(2 - me.rank));
      return heddle_rt_stream_synchronize(me.stream);
    });
  };
  const RunResult two = run(false), one = run(true);
  EXPECT_TRUE(two) << two.message;
  EXPECT_EQ(one.status, HEDDLE_RT_PEER_FAILED);
  EXPECT_THAT(one.message, AnyOf(HasSubstr("nothing moved for 1 s"),
                                 HasSubstr("waited for its peers for 1 s")));
}

TEST(Messages, AreReceivedAsTheyWereSent) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON;
  for (bool equal : {true, false}) {
    const RunResult result =
        runRanks(2, options, [&](heddle_rt_context *context) {
          Rank me;
          HEDDLE_RT_TRY(me.start(context));
          auto message = me.one();
          float *data = message.data();
          if (me.rank == 0)
            return heddle_rt_send(me.comm, me.stream, data, 1, HEDDLE_RT_F32,
                                  1);
          // The same bytes, so that the transport is content.
          return heddle_rt_receive(me.comm, me.stream, data, 1,
                                   equal ? HEDDLE_RT_F32 : HEDDLE_RT_I32, 0);
        });
    EXPECT_EQ(result.status, equal ? HEDDLE_RT_OK : HEDDLE_RT_CHECK_FAILED);
    if (!equal)
      EXPECT_THAT(result.message,
                  HasSubstr("communicator tp: its ranks sent other messages"));
  }
}

/// Every rank sends its number and receives that of the one `shift` places
/// before it, over the outer of two axes.
heddle_rt_status passOn(heddle_rt_context *context, int32_t size,
                        int32_t shift) {
  Rank me;
  HEDDLE_RT_TRY(me.start(context));
  heddle_rt_comm *out = nullptr, *in = nullptr;
  HEDDLE_RT_TRY(heddle::openChannel(
      context, me.rank, {"pp", size, /*below=*/2, shift}, &out, &in));
  auto own = me.on(std::vector<int32_t>{me.rank});
  auto result = me.on(std::vector<int32_t>{-1});
  HEDDLE_RT_TRY(heddle_rt_group_begin(context));
  HEDDLE_RT_TRY(heddle_rt_receive(in, me.stream, result.data(), 1,
                                  HEDDLE_RT_I32, heddle::kSender));
  HEDDLE_RT_TRY(heddle_rt_send(out, me.stream, own.data(), 1, HEDDLE_RT_I32,
                               heddle::kReceiver));
  HEDDLE_RT_TRY(heddle_rt_group_end(context));
  const int32_t got = result.read()[0], place = me.rank / 2;
  EXPECT_EQ(got, ((place - shift) % size + size) % size * 2 + me.rank % 2)
      << "rank " << me.rank << " of " << size << " places, shift " << shift;
  return HEDDLE_RT_OK;
}

// Rings of 2 to 6 ranks, one or several of them.
TEST(Channels, GoFromEachPlaceToTheOneShiftFurther) {
  for (int32_t size = 2; size <= 6; ++size)
    for (int32_t shift = 1 - size; shift < size; ++shift) {
      if (shift == 0)
        continue;
      const RunResult result =
          runRanks(2 * size, {}, [&](heddle_rt_context *context) {
            return passOn(context, size, shift);
          });
      EXPECT_TRUE(result) << result.message;
    }
}

TEST(Arguments, AreCheckedBeforeAnythingIsQueued) {
  const RunResult result = runRanks(1, {}, [](heddle_rt_context *context) {
    Rank me;
    HEDDLE_RT_TRY(me.start(context));
    const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
    auto memory = me.on(values);
    float *data = memory.data();
    EXPECT_EQ(me.reduce(nullptr, 1), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_EQ(me.reduce(data, -1), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_EQ(me.reduce(nullptr, 0), HEDDLE_RT_OK);
    EXPECT_EQ(heddle_rt_all_reduce(me.comm, me.stream, data, data + 1, 4,
                                   HEDDLE_RT_F32, HEDDLE_RT_SUM),
              HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(heddle_rt_last_error(), HasSubstr("overlap"));
    EXPECT_EQ(heddle_rt_all_reduce(me.comm, me.stream, data, data, 4,
                                   heddle_rt_dtype(99), HEDDLE_RT_SUM),
              HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_EQ(heddle_rt_send(me.comm, me.stream, data, 1, HEDDLE_RT_F32, 0),
              HEDDLE_RT_INVALID_ARGUMENT);
    const int32_t from[1] = {5};
    EXPECT_EQ(heddle_rt_permute(me.comm, me.stream, data, data + 4, 1,
                                HEDDLE_RT_F32, from),
              HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_EQ(heddle_rt_group_end(context), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_EQ(heddle_rt_group_begin(context), HEDDLE_RT_OK);
    EXPECT_EQ(heddle_rt_zero(me.stream, data, 4), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_EQ(heddle_rt_group_end(context), HEDDLE_RT_OK);
    EXPECT_EQ(memory.read(), values);
    return HEDDLE_RT_OK;
  });
  EXPECT_TRUE(result) << result.message;
}

} // namespace
