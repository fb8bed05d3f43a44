// What the host alone promises: in eager mode a message leaves from a copy.

#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <gtest/gtest.h>

#include <vector>

using heddle::ranks::runRanks;
using heddle::ranks::RunResult;

namespace {

TEST(Messages, EagerSendsDoNotWait) {
  const RunResult result = runRanks(2, {}, [](heddle_rt_context *context) {
    heddle_rt_stream *stream = nullptr;
    heddle_rt_comm *comm = nullptr;
    int32_t rank = 0, ranks = 0;
    HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &ranks));
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
    HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, rank, ranks, "pp", &comm));
    for (size_t size : {1, 1 << 20}) {
      std::vector<float> own(size, float(rank + 1)), got(size);
      HEDDLE_RT_TRY(heddle_rt_send(comm, stream, own.data(), int64_t(size),
                                   HEDDLE_RT_F32, 1 - rank));
      own.assign(size, -1.0f); // it left from a copy
      HEDDLE_RT_TRY(heddle_rt_receive(comm, stream, got.data(), int64_t(size),
                                      HEDDLE_RT_F32, 1 - rank));
      EXPECT_EQ(got, std::vector<float>(size, float(2 - rank)));
    }
    return heddle_rt_stream_synchronize(stream);
  });
  EXPECT_TRUE(result) << result.message;
}

} // namespace
