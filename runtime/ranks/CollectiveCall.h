//===- CollectiveCall.h - Checked calls of collectives --------------------===//
//
// The collectives of heddle_rt.h are the same functions for all backends
// (CollectiveFunctions.cpp): arguments are checked here, sizes, buffers,
// overlaps. What is left of a call is what it moves; a backend queues it.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_COLLECTIVECALL_H
#define RUNTIME_RANKS_COLLECTIVECALL_H

#include "runtime/common/Status.h"
#include "runtime/ranks/Collective.h"
#include "runtime/ranks/RankContext.h"

#include <vector>

namespace heddle::ranks {

struct Buffer {
  const void *data = nullptr;
  int64_t elements = 0;
};

enum class Operation {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  Permute,
  Send,
  Receive
};

struct CollectiveCall {
  Operation what;
  const char *operation; ///< "all_reduce", ...
  heddle_rt_dtype dtype;
  int64_t elements = 0; ///< of the whole, per rank; 0: nothing is to be done
  double bytes = 0;     ///< that this rank must send
  Buffer input = {}, output = {};
  int32_t peer = -1; ///< of a send or receive
  heddle_rt_reduction reduction = HEDDLE_RT_SUM;
  int64_t outer = 1, slice = 0; ///< of reduce_scatter and all_gather
  heddle_rt_all_to_all_shape shape = {};
  std::vector<int32_t> from = {}; ///< of permute

  std::vector<heddle_rt_access> accesses() const;
};

/// OK, or a dtype that does not exist.
heddle_rt_status checkDtype(const CollectiveCall &call);

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

/// A tag for the call over host memory: sends and receives between two ranks
/// keep their order, other calls have two of their own, for two rounds.
/// \p sequence  of the seat: how many were queued so far.
int tagOf(const CollectiveCall &call, int64_t &sequence);

/// The call over host memory, as rounds of exchanges.
std::unique_ptr<Collective> makeCollective(const CollectiveCall &call,
                                           const Place &place);

//===----------------------------------------------------------------------===//
// What a backend says of its handles and does with a checked call.
//===----------------------------------------------------------------------===//

const CommSeat &seatOf(const heddle_rt_comm *comm);
RankContext &contextOf(const heddle_rt_comm *comm);
RankContext &contextOf(const heddle_rt_stream *stream);
const std::string &nameOf(const heddle_rt_stream *stream);
/// Queues a call that has elements, or adds it to the open group.
heddle_rt_status queueCall(heddle_rt_comm *comm, heddle_rt_stream *stream,
                           const CollectiveCall &call);

} // namespace heddle::ranks

#endif
