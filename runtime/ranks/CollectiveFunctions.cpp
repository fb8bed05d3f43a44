// The collectives of heddle_rt.h, for every backend.

#include "runtime/ranks/CollectiveCall.h"

using heddle::ranks::CollectiveCall;
using heddle::ranks::Operation;
using heddle::runtime::invalid;

namespace {

/// Handles and dtype.
heddle_rt_status checkHandles(const CollectiveCall &call,
                              const heddle_rt_comm *comm,
                              const heddle_rt_stream *stream) {
  using heddle::ranks::contextOf;
  if (!comm || !stream)
    return invalid("heddle_rt_{}: {} is NULL", call.operation,
                   comm ? "stream" : "comm");
  if (&contextOf(comm) != &contextOf(stream))
    return invalid("heddle_rt_{}: communicator {} and stream {} are of "
                   "different contexts",
                   call.operation, heddle::ranks::seatOf(comm).axis,
                   heddle::ranks::nameOf(stream));
  HEDDLE_RT_TRY(checkDtype(call));
  return contextOf(comm).alive();
}

/// Checks handles, then what `check` looks at, and queues what has elements.
template <class Check>
heddle_rt_status start(CollectiveCall call, heddle_rt_comm *comm,
                       heddle_rt_stream *stream, Check check) {
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(check(call, heddle::ranks::seatOf(comm)));
  return call.elements == 0 ? HEDDLE_RT_OK
                            : heddle::ranks::queueCall(comm, stream, call);
}

} // namespace

heddle_rt_status heddle_rt_all_reduce(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t elements, heddle_rt_dtype dtype,
                                      heddle_rt_reduction reduction) {
  return start({Operation::AllReduce, "all_reduce", dtype}, comm, stream,
               [&](CollectiveCall &call, const auto &seat) {
                 return checkAllReduce(call, seat, input, output, elements,
                                       reduction);
               });
}

heddle_rt_status heddle_rt_reduce_scatter(heddle_rt_comm *comm,
                                          heddle_rt_stream *stream,
                                          const void *input, void *output,
                                          int64_t outer, int64_t slice,
                                          heddle_rt_dtype dtype,
                                          heddle_rt_reduction reduction) {
  return start({Operation::ReduceScatter, "reduce_scatter", dtype}, comm,
               stream, [&](CollectiveCall &call, const auto &seat) {
                 return checkReduceScatter(call, seat, input, output, outer,
                                           slice, reduction);
               });
}

heddle_rt_status heddle_rt_all_gather(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t outer, int64_t slice,
                                      heddle_rt_dtype dtype) {
  return start({Operation::AllGather, "all_gather", dtype}, comm, stream,
               [&](CollectiveCall &call, const auto &seat) {
                 return checkAllGather(call, seat, input, output, outer, slice);
               });
}

heddle_rt_status heddle_rt_all_to_all(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      const heddle_rt_all_to_all_shape *shape,
                                      heddle_rt_dtype dtype) {
  return start({Operation::AllToAll, "all_to_all", dtype}, comm, stream,
               [&](CollectiveCall &call, const auto &seat) {
                 return checkAllToAll(call, seat, input, output, shape);
               });
}

heddle_rt_status heddle_rt_permute(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, const void *input,
                                   void *output, int64_t elements,
                                   heddle_rt_dtype dtype, const int32_t *from) {
  return start({Operation::Permute, "permute", dtype}, comm, stream,
               [&](CollectiveCall &call, const auto &seat) {
                 return checkPermute(call, seat, input, output, elements, from);
               });
}

heddle_rt_status heddle_rt_send(heddle_rt_comm *comm, heddle_rt_stream *stream,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, int32_t peer) {
  return start({Operation::Send, "send", dtype}, comm, stream,
               [&](CollectiveCall &call, const auto &seat) {
                 return checkSend(call, seat, input, elements, peer);
               });
}

heddle_rt_status heddle_rt_receive(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, void *output,
                                   int64_t elements, heddle_rt_dtype dtype,
                                   int32_t peer) {
  return start({Operation::Receive, "receive", dtype}, comm, stream,
               [&](CollectiveCall &call, const auto &seat) {
                 return checkReceive(call, seat, output, elements, peer);
               });
}
