// The collective cases on ranks that a launcher started: one exit code for all.
// With the argument `fail`, rank 1 gives up instead; with `die` it is gone
// without a word (or the rank that is named behind it), with `hang` it does
// nothing more, with `stop` the named one is stopped; with `both-send`,
// neighbours send to each other and then receive, all on one stream.

#include "CollectiveCases.h"

#include "runtime/common/Ending.h"
#include "runtime/common/Status.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

static heddle_rt_status sendFirst(heddle_rt_context *context, int32_t rank,
                                  int32_t size) {
  heddle_rt_stream *stream = nullptr;
  heddle_rt_comm *comm = nullptr;
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
  HEDDLE_RT_TRY(heddle_rt_comm_split(context, 0, rank, size, "pp", &comm));
  const float own = 1;
  float got = 0;
  HEDDLE_RT_TRY(heddle_rt_send(comm, stream, &own, 1, HEDDLE_RT_F32, rank ^ 1));
  HEDDLE_RT_TRY(
      heddle_rt_receive(comm, stream, &got, 1, HEDDLE_RT_F32, rank ^ 1));
  HEDDLE_RT_TRY(heddle_rt_stream_synchronize(stream));
  return got == 1 ? HEDDLE_RT_OK
                  : heddle_rt_launch_failed("receive", "another number");
}

int main(int count, char **arguments) {
  heddle_rt_context *context = nullptr;
  if (heddle_rt_init(nullptr, &context) != HEDDLE_RT_OK) {
    std::fprintf(stderr, "%s\n", heddle_rt_last_error());
    return 2;
  }
  int32_t rank = 0, size = 0;
  heddle_rt_status status = heddle_rt_rank(context, &rank, &size);
  const std::string what = count > 1 ? arguments[1] : "";
  if (what == "fail" && rank == 1)
    heddle_rt_abort(context, 7, "told to fail");
  if (what == "die" && rank == (count > 2 ? std::atoi(arguments[2]) : 1))
    raise(SIGKILL);
  if (what == "hang" && rank == 1)
    pause();
  if (what == "stop" && rank == std::atoi(arguments[2]))
    raise(SIGSTOP);
  if (status == HEDDLE_RT_OK)
    status = what == "both-send" ? sendFirst(context, rank, size)
                                 : heddle::test::runCollectiveCases(context);
  if (status != HEDDLE_RT_OK)
    heddle_rt_abort(context, 1, heddle_rt_last_error());
  status = heddle_rt_finalize(context);
  if (status == HEDDLE_RT_OK && rank == 0)
    std::printf("conformance holds on %d ranks\n", size);
  const int code = status != HEDDLE_RT_OK;
  heddle::runtime::recordEnding(code);
  return code;
}
