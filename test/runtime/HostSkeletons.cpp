// The host's skeletons beside CUDA's in one program: under another name, and
// with a launcher that runs them at once.

#include "heddle/Runtime/heddle_rt.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

static heddle_rt_status runAtOnce(heddle_rt_stream *, const char *,
                                  heddle_rt_body body, const void *args, size_t,
                                  int64_t items, int64_t,
                                  const heddle_rt_access *, int32_t) {
  body(args, 0, items);
  return HEDDLE_RT_OK;
}

#define heddle heddleHost
#define heddle_rt_host_launch runAtOnce
#include "test/runtime/SkeletonCases.h"
#undef heddle
#undef heddle_rt_host_launch

void runHostSkeleton(int which, int64_t rows, int64_t columns, int64_t shift,
                     char *arena) {
  heddleHost::test::runSkeleton(
      which, nullptr, heddleHost::test::SkeletonArena(rows, columns, shift),
      arena);
}
