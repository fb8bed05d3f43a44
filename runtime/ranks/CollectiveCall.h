//===- CollectiveCall.h - Checked calls of collectives --------------------===//
//
// The arguments of every collective of heddle_rt.h are checked here, for all
// backends: sizes, buffers, overlaps. What is left of a call is what it moves.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_COLLECTIVECALL_H
#define RUNTIME_RANKS_COLLECTIVECALL_H

#include "runtime/common/Status.h"
#include "runtime/ranks/RankContext.h"

#include <vector>

namespace heddle::ranks {

struct Buffer {
  const void *data = nullptr;
  int64_t elements = 0;
};

struct CollectiveCall {
  const char *operation; ///< "all_reduce", ...
  heddle_rt_dtype dtype;
  int64_t elements = 0; ///< of the whole, per rank; 0: nothing is to be done
  double bytes = 0;     ///< that this rank must send
  Buffer input = {}, output = {};
  int32_t peer = -1; ///< of a send or receive

  std::vector<heddle_rt_access> accesses() const;
};

/// Handles and dtype. To be called first; `Comm` and `Stream` are a backend's.
template <class Comm, class Stream>
heddle_rt_status checkHandles(const CollectiveCall &call, const Comm *comm,
                              const Stream *stream);

heddle_rt_status checkAllReduce(CollectiveCall &call, const CommSeat &comm,
                                const void *input, void *output,
                                int64_t elements,
                                heddle_rt_reduction reduction);
heddle_rt_status checkReduceScatter(CollectiveCall &call, const CommSeat &comm,
                                    const void *input, void *output,
                                    int64_t outer, int64_t slice,
                                    heddle_rt_reduction reduction);
heddle_rt_status checkAllGather(CollectiveCall &call, const CommSeat &comm,
                                const void *input, void *output, int64_t outer,
                                int64_t slice);
heddle_rt_status checkAllToAll(CollectiveCall &call, const CommSeat &comm,
                               const void *input, void *output,
                               const heddle_rt_all_to_all_shape *shape);
heddle_rt_status checkPermute(CollectiveCall &call, const CommSeat &comm,
                              const void *input, void *output, int64_t elements,
                              const int32_t *from);
heddle_rt_status checkSend(CollectiveCall &call, const CommSeat &comm,
                           const void *input, int64_t elements, int32_t peer);
heddle_rt_status checkReceive(CollectiveCall &call, const CommSeat &comm,
                              void *output, int64_t elements, int32_t peer);

/// Enters the call into the hashes of its communicator, and into what a rank
/// tells who watches it.
void count(const CollectiveCall &call, CommSeat &comm, runtime::Flight &flight);

heddle_rt_status checkDtype(const CollectiveCall &call);

template <class Comm, class Stream>
heddle_rt_status checkHandles(const CollectiveCall &call, const Comm *comm,
                              const Stream *stream) {
  if (!comm || !stream)
    return runtime::invalid("heddle_rt_{}: {} is NULL", call.operation,
                            comm ? "stream" : "comm");
  if (comm->context != stream->context)
    return runtime::invalid("heddle_rt_{}: communicator {} and stream {} are "
                            "of different contexts",
                            call.operation, comm->axis, stream->name);
  HEDDLE_RT_TRY(checkDtype(call));
  return comm->context->alive();
}

} // namespace heddle::ranks

#endif
