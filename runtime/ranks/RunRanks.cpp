#include "runtime/ranks/RunRanks.h"

#include "runtime/common/Status.h"
#include "runtime/ranks/ThreadTransport.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace heddle::ranks {

using Body = std::function<heddle_rt_status(heddle_rt_context *)>;

namespace {

heddle_rt_status call(const Body &body, heddle_rt_context *context) {
  try {
    return body(context);
  } catch (const std::exception &error) {
    return runtime::invalid("{}", error.what());
  }
}

/// One rank from start to end. Its sentence is the thread's last error.
heddle_rt_status runRank(const heddle_rt_options &options, const Body &body) {
  heddle_rt_context *context = nullptr;
  if (heddle_rt_status status = heddle_rt_init(&options, &context)) {
    options.threads->abort(options.rank, 2, runtime::lastError());
    return status;
  }
  const heddle_rt_status status = call(body, context);
  if (status == HEDDLE_RT_OK)
    return heddle_rt_finalize(context);
  const std::string why = runtime::lastError();
  heddle_rt_abort(context, status == HEDDLE_RT_INVALID_ARGUMENT ? 2 : 1,
                  why.c_str());
  heddle_rt_finalize(context);
  return runtime::failWith(status, why);
}

} // namespace

RunResult runRanks(int size, const heddle_rt_options &options,
                   const Body &body) {
  heddle_rt_threads group(size);
  std::mutex mutex;
  RunResult result;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      heddle_rt_options own = options;
      own.threads = &group;
      own.rank = rank;
      own.size = size;
      const heddle_rt_status status = runRank(own, body);
      if (status == HEDDLE_RT_OK)
        return;
      const std::scoped_lock lock(mutex);
      // Whoever only heard of a failure must not hide who failed.
      const bool first = group.aborted ? group.failedRank == rank
                                       : result.status == HEDDLE_RT_OK;
      if (first)
        result = {status, rank, runtime::lastError()};
    });
  for (std::thread &thread : threads)
    thread.join();
  return result;
}

} // namespace heddle::ranks
