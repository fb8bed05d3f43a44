//===- Context.h - What the handles of heddle_rt.h are on the host --------===//

#ifndef RUNTIME_HOST_CONTEXT_H
#define RUNTIME_HOST_CONTEXT_H

#include "runtime/common/Late.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/Collective.h"
#include "runtime/ranks/CollectiveCall.h"
#include "runtime/ranks/RankContext.h"

#include <deque>
#include <memory>
#include <string>
#include <vector>

struct heddle_rt_stream {
  heddle_rt_context *context;
  std::string name;
  int late; ///< its number in Late and in Trace
};

struct heddle_rt_event {
  heddle_rt_context *context;
  std::string name;
  int number = 0; ///< in RangeLog
  bool recorded = false;
  heddle::runtime::Races::Clock clock;
  heddle::runtime::LateEvent late;
};

struct heddle_rt_comm : heddle::ranks::CommSeat {
  heddle_rt_context *context = nullptr;
  heddle::runtime::LateOrder order;
};

namespace heddle::host {

using ranks::Collective;
using ranks::Progress;

/// Between group_begin and group_end.
struct OpenGroup {
  heddle_rt_stream *stream = nullptr;
  std::vector<std::shared_ptr<Collective>> members;
  std::vector<heddle_rt_comm *> comms; ///< of each member
};

} // namespace heddle::host

struct heddle_rt_context : heddle::ranks::RankContext {
  heddle_rt_mode mode = HEDDLE_RT_MODE_EAGER;
  int computeThreads = 1;

  std::deque<heddle_rt_stream> streams;
  std::deque<heddle_rt_event> events;
  std::deque<heddle_rt_comm> comms;
  std::unique_ptr<heddle::runtime::Late> late; ///< before the comms it uses go
  std::unique_ptr<heddle::host::OpenGroup> group;
  ~heddle_rt_context();
};

namespace heddle::host {

/// Queues work that has been checked, with its line in the trace. `run` is
/// called at once, later or never, as the mode is.
template <class Run>
heddle_rt_status
queueWork(heddle_rt_stream *stream, const runtime::Trace::Call &call,
          const std::vector<heddle_rt_access> &accesses, Run run);

/// OK where work may be queued on `stream` now.
heddle_rt_status openFor(heddle_rt_stream *stream, const char *what);

/// Queues a collective that has been checked; `collective` is NULL while
/// recording.
heddle_rt_status queueCollective(heddle_rt_comm *comm, heddle_rt_stream *stream,
                                 const ranks::CollectiveCall &call,
                                 std::shared_ptr<Collective> collective);

/// Starts the members of the context's open group, which must be there.
heddle_rt_status closeGroup(heddle_rt_context *context);

/// Frees one allocation; CHECK_FAILED if somebody wrote beside it.
heddle_rt_status release(heddle_rt_context *context, uintptr_t begin);

template <class Run>
heddle_rt_status
queueWork(heddle_rt_stream *stream, const runtime::Trace::Call &call,
          const std::vector<heddle_rt_access> &accesses, Run run) {
  heddle_rt_context *context = stream->context;
  const char *name = runtime::orUnnamed(call.name, call.operation);
  HEDDLE_RT_TRY(openFor(stream, name));
  HEDDLE_RT_TRY(
      context->watch(stream->late, name, accesses.data(), accesses.size()));
  switch (context->mode) {
  case HEDDLE_RT_MODE_RECORD:
    context->trace.add(call);
    return HEDDLE_RT_OK;
  case HEDDLE_RT_MODE_LATE:
    context->late->work(stream->late, std::move(run));
    return HEDDLE_RT_OK;
  default:
    const runtime::TimeLog::Span span(context->times, context->flight,
                                      call.operation, name, stream->name);
    return context->die(run());
  }
}

} // namespace heddle::host

#endif
