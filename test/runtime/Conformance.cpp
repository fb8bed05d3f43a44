// The collective cases on ranks that a launcher started: one exit code for all.
// With the argument `fail`, rank 1 gives up instead.

#include "CollectiveCases.h"

#include "runtime/common/Ending.h"

#include <cstdio>
#include <cstring>

int main(int count, char **arguments) {
  heddle_rt_context *context = nullptr;
  if (heddle_rt_init(nullptr, &context) != HEDDLE_RT_OK) {
    std::fprintf(stderr, "%s\n", heddle_rt_last_error());
    return 2;
  }
  int32_t rank = 0, size = 0;
  heddle_rt_status status = heddle_rt_rank(context, &rank, &size);
  if (count > 1 && std::strcmp(arguments[1], "fail") == 0 && rank == 1)
    heddle_rt_abort(context, 7, "told to fail");
  if (status == HEDDLE_RT_OK)
    status = heddle::test::runCollectiveCases(context);
  if (status != HEDDLE_RT_OK)
    heddle_rt_abort(context, 1, heddle_rt_last_error());
  status = heddle_rt_finalize(context);
  if (status == HEDDLE_RT_OK && rank == 0)
    std::printf("conformance holds on %d ranks\n", size);
  const int code = status != HEDDLE_RT_OK;
  heddle::runtime::recordEnding(code);
  return code;
}
