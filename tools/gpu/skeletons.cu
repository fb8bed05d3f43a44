// CUDA's skeletons on a GPU against the host's, bit by bit. Exit 1 with the
// first launches that differ.

#include "test/runtime/SkeletonCompare.h"

#include <cstdio>

int main() {
  using namespace heddle::test;
  heddle_rt_context *context = nullptr;
  heddle_rt_stream *stream = nullptr;
  if (heddle_rt_init(nullptr, &context) != HEDDLE_RT_OK ||
      heddle_rt_stream_create(context, "s", 0, &stream) != HEDDLE_RT_OK) {
    std::fprintf(stderr, "error: %s\n", heddle_rt_last_error());
    return 1;
  }
  int launches = 0, wrong = 0;
  uint64_t seed = 0;
  for (const SkeletonShape &shape : skeletonShapes())
    for (int which = 0; which < kSkeletonCases; ++which, ++launches) {
      const std::string found =
          compareSkeleton(context, stream, which, shape, ++seed);
      if (!found.empty() && ++wrong <= 10)
        std::fprintf(stderr, "%s\n", found.c_str());
    }
  std::printf("%d launches, %d differ from the host\n", launches, wrong);
  return heddle_rt_finalize(context) != HEDDLE_RT_OK || wrong > 0;
}
