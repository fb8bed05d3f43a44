//===- SkeletonsOnDouble.cpp - CUDA's skeletons against the host's --------===//
//
// The text that nvcc compiles, here by the host compiler: its threads are
// fibers, warps run in a random order on a device of two multiprocessors, so
// that persistent loops really loop. Results must be the host's, bit by bit,
// guards and all.
//
//===----------------------------------------------------------------------===//

#include "test/runtime/SkeletonCompare.h"

#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"
#include "test/runtime/double/Double.h"

#include <gtest/gtest.h>

using namespace heddle;
using namespace heddle::test;

namespace {

class Skeleton : public testing::TestWithParam<int> {};

TEST_P(Skeleton, GivesTheHostsBits) {
  heddle_rt_options options{};
  options.checking = HEDDLE_RT_CHOICE_ON; // reads and writes as declared
  uint64_t seed = 0;
  for (const SkeletonShape &shape : skeletonShapes()) {
    gpu::Settings settings;
    settings.seed = ++seed;
    gpu::configure(settings);
    std::string found;
    const ranks::RunResult result =
        ranks::runRanks(1, options, [&](heddle_rt_context *context) {
          heddle_rt_stream *stream = nullptr;
          HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
          found = compareSkeleton(context, stream, GetParam(), shape, seed);
          return HEDDLE_RT_OK;
        });
    EXPECT_EQ(found, "");
    ASSERT_TRUE(result) << result.message;
  }
  gpu::configure({});
}

INSTANTIATE_TEST_SUITE_P(All, Skeleton, testing::Range(0, kSkeletonCases));

} // namespace
