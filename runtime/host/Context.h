//===- Context.h - What the handles of heddle_rt.h are on the host --------===//

#ifndef RUNTIME_HOST_CONTEXT_H
#define RUNTIME_HOST_CONTEXT_H

#include "runtime/common/Late.h"
#include "runtime/common/Races.h"
#include "runtime/common/RangeLog.h"
#include "runtime/common/Status.h"
#include "runtime/common/Trace.h"
#include "runtime/host/Collective.h"
#include "runtime/host/Transport.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

struct heddle_rt_stream {
  heddle_rt_context *context;
  std::string name;
  int race; ///< its number in Races
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

struct heddle_rt_comm {
  heddle_rt_context *context;
  std::string axis;
  int32_t color, rank, size;
  int number; ///< in Trace
  std::unique_ptr<heddle::host::Seat> seat;
  heddle::runtime::CallHash hash;
  heddle::runtime::MessageHash messages;
  heddle::runtime::LateOrder order;
  int64_t sequence = 0; ///< collectives queued so far
};

namespace heddle::host {

struct Allocation {
  std::string name;
  heddle_rt_memory_class kind;
  int64_t bytes;
  void *mapped; ///< with the canaries
  int64_t mappedBytes;
  size_t number; ///< in Trace
};

/// A collective with what the checks and the trace need to know about it.
struct QueuedCollective {
  heddle_rt_comm *comm;
  const char *operation;
  int64_t elements;
  heddle_rt_dtype dtype;
  double bytes; ///< this rank must send
  int32_t peer; ///< of a send or receive, else -1
  std::vector<heddle_rt_access> accesses;
  std::shared_ptr<Collective> collective; ///< NULL while recording
};

/// Between group_begin and group_end.
struct OpenGroup {
  heddle_rt_stream *stream = nullptr;
  std::vector<std::shared_ptr<Collective>> members;
  std::vector<heddle_rt_comm *> comms; ///< of each member
};

} // namespace heddle::host

struct heddle_rt_context {
  heddle_rt_mode mode = HEDDLE_RT_MODE_EAGER;
  bool checking = false;
  int computeThreads = 1;
  double timeoutSeconds = 600;
  int32_t rank = 0, size = 1;

  std::unique_ptr<heddle_rt_threads> alone; ///< the group of a single rank
  std::unique_ptr<heddle::host::Transport> transport; ///< NULL while recording
  std::deque<heddle_rt_stream> streams;
  std::deque<heddle_rt_event> events;
  std::deque<heddle_rt_comm> comms;
  std::map<uintptr_t, heddle::host::Allocation> allocations;
  std::set<std::string> names; ///< what messages may point to

  heddle::runtime::Races races;
  heddle::runtime::Trace trace;
  heddle::runtime::RangeLog ranges;
  std::unique_ptr<heddle::runtime::Late> late; ///< before the comms it uses go
  std::unique_ptr<heddle::host::OpenGroup> group;
  /// Messages that left from a copy and may not have been received yet.
  std::vector<std::shared_ptr<heddle::host::Collective>> sent;

  /// After the first failure that cannot be taken back.
  heddle_rt_status dead = HEDDLE_RT_OK;
  std::string why;
  int exitCode = 0;

  heddle_rt_context();
  ~heddle_rt_context();

  bool recording() const { return mode == HEDDLE_RT_MODE_RECORD; }
  /// Whether ranges are looked at. Else nobody needs to collect them.
  bool watching() const { return checking || recording(); }
  const char *intern(const std::string &name) {
    return names.insert(name).first->c_str();
  }
  /// Keeps a failure that ends this context.
  heddle_rt_status die(heddle_rt_status status);
  /// OK, or why nothing can be queued any more.
  heddle_rt_status alive();
};

namespace heddle::host {

/// Bounds, lifetimes and order of a piece of work; nothing where nobody
/// watches.
heddle_rt_status watch(heddle_rt_stream *stream, const char *name,
                       const heddle_rt_access *accesses, size_t count);

/// Queues work that has been checked, with its line in the trace. `run` is
/// called at once, later or never, as the mode is.
template <class Run>
heddle_rt_status
queueWork(heddle_rt_stream *stream, const runtime::Trace::Call &call,
          const std::vector<heddle_rt_access> &accesses, Run run);

/// OK where work may be queued on `stream` now.
heddle_rt_status openFor(heddle_rt_stream *stream, const char *what);

heddle_rt_status queueCollective(heddle_rt_stream *stream,
                                 QueuedCollective queued);

/// Waits until all messages of `sent` are received.
heddle_rt_status awaitSent(heddle_rt_context *context);

/// Starts the members of the context's open group, which must be there.
heddle_rt_status closeGroup(heddle_rt_context *context);

/// Frees one allocation; CHECK_FAILED if somebody wrote beside it.
heddle_rt_status release(heddle_rt_context *context, uintptr_t begin);

/// One dimension of a block in memory.
struct Extent {
  int64_t count, stride; ///< in elements
};
/// Appends the runs of bytes of a block, outermost dimension first. Dimensions
/// that lie densely in each other become one run. `writes` is theirs.
void appendRuns(std::vector<heddle_rt_access> &accesses, const void *base,
                int64_t elementBytes, std::vector<Extent> extents,
                int32_t writes);

template <class Run>
heddle_rt_status
queueWork(heddle_rt_stream *stream, const runtime::Trace::Call &call,
          const std::vector<heddle_rt_access> &accesses, Run run) {
  heddle_rt_context *context = stream->context;
  const char *name = runtime::orUnnamed(call.name, call.operation);
  HEDDLE_RT_TRY(openFor(stream, name));
  HEDDLE_RT_TRY(watch(stream, name, accesses.data(), accesses.size()));
  switch (context->mode) {
  case HEDDLE_RT_MODE_RECORD:
    context->trace.add(call);
    return HEDDLE_RT_OK;
  case HEDDLE_RT_MODE_LATE:
    context->late->work(stream->late, std::move(run));
    return HEDDLE_RT_OK;
  default:
    return context->die(run());
  }
}

} // namespace heddle::host

#endif
