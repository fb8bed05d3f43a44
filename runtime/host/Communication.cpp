// The collectives of heddle_rt.h on the host. Checks are in
// ranks/CollectiveCall.cpp, the arithmetic in ranks/Collective.cpp.

#include "runtime/common/Dtype.h"
#include "runtime/host/Context.h"

using heddle::ranks::checkHandles;
using heddle::ranks::Collective;
using heddle::ranks::CollectiveCall;
using heddle::ranks::Place;
using heddle::runtime::bytesOf;
using heddle::runtime::invalid;

namespace {

constexpr int kPairTag = 1;   ///< sends and receives keep their order
constexpr int kFirstTag = 16; ///< of collectives; two each, for two rounds
constexpr int kTags = 8000;   ///< MPI promises tags up to 32767

Place placeOf(const CollectiveCall &call, heddle_rt_comm *comm) {
  const int tag =
      call.peer >= 0 ? kPairTag : kFirstTag + 2 * int(comm->sequence++ % kTags);
  const char *name =
      comm->context->intern(fmt::format("{}({})", call.operation, comm->axis));
  heddle::ranks::Integrity &integrity = comm->context->integrity;
  return {comm->seat.get(),
          comm->rank,
          comm->size,
          tag,
          name,
          integrity.looksAtAnything() ? &integrity : nullptr};
}

/// Queues a call; `make` builds the collective where there is one to run.
template <class Make>
heddle_rt_status queue(heddle_rt_comm *comm, heddle_rt_stream *stream,
                       const CollectiveCall &call, Make make) {
  if (call.elements == 0)
    return HEDDLE_RT_OK;
  std::shared_ptr<Collective> collective;
  if (!comm->context->recording())
    collective = make(placeOf(call, comm));
  return heddle::host::queueCollective(comm, stream, call,
                                       std::move(collective));
}

} // namespace

heddle_rt_status heddle_rt_all_reduce(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t elements, heddle_rt_dtype dtype,
                                      heddle_rt_reduction reduction) {
  CollectiveCall call{"all_reduce", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(heddle::ranks::checkAllReduce(call, *comm, input, output,
                                              elements, reduction));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::allReduce(place, input, output, elements, dtype,
                                    reduction);
  });
}

heddle_rt_status heddle_rt_reduce_scatter(heddle_rt_comm *comm,
                                          heddle_rt_stream *stream,
                                          const void *input, void *output,
                                          int64_t outer, int64_t slice,
                                          heddle_rt_dtype dtype,
                                          heddle_rt_reduction reduction) {
  CollectiveCall call{"reduce_scatter", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(heddle::ranks::checkReduceScatter(call, *comm, input, output,
                                                  outer, slice, reduction));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::reduceScatter(place, input, output, outer, slice,
                                        dtype, reduction);
  });
}

heddle_rt_status heddle_rt_all_gather(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t outer, int64_t slice,
                                      heddle_rt_dtype dtype) {
  CollectiveCall call{"all_gather", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(
      heddle::ranks::checkAllGather(call, *comm, input, output, outer, slice));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::allGather(place, input, output, outer,
                                    slice * bytesOf(dtype));
  });
}

heddle_rt_status heddle_rt_all_to_all(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      const heddle_rt_all_to_all_shape *shape,
                                      heddle_rt_dtype dtype) {
  CollectiveCall call{"all_to_all", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(
      heddle::ranks::checkAllToAll(call, *comm, input, output, shape));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::allToAll(place, input, output, *shape,
                                   bytesOf(dtype));
  });
}

heddle_rt_status heddle_rt_permute(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, const void *input,
                                   void *output, int64_t elements,
                                   heddle_rt_dtype dtype, const int32_t *from) {
  CollectiveCall call{"permute", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(
      heddle::ranks::checkPermute(call, *comm, input, output, elements, from));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::permute(place, input, output,
                                  elements * bytesOf(dtype), from);
  });
}

heddle_rt_status heddle_rt_send(heddle_rt_comm *comm, heddle_rt_stream *stream,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, int32_t peer) {
  CollectiveCall call{"send", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(heddle::ranks::checkSend(call, *comm, input, elements, peer));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::sendTo(place, input, elements * bytesOf(dtype), peer);
  });
}

heddle_rt_status heddle_rt_receive(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, void *output,
                                   int64_t elements, heddle_rt_dtype dtype,
                                   int32_t peer) {
  CollectiveCall call{"receive", dtype};
  HEDDLE_RT_TRY(checkHandles(call, comm, stream));
  HEDDLE_RT_TRY(
      heddle::ranks::checkReceive(call, *comm, output, elements, peer));
  return queue(comm, stream, call, [&](const Place &place) {
    return heddle::ranks::receiveFrom(place, output, elements * bytesOf(dtype),
                                      peer);
  });
}

heddle_rt_status heddle_rt_group_begin(heddle_rt_context *context) {
  if (!context)
    return invalid("heddle_rt_group_begin: context is NULL");
  HEDDLE_RT_TRY(context->alive());
  if (context->group)
    return invalid("heddle_rt_group_begin within a group");
  context->group = std::make_unique<heddle::host::OpenGroup>();
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_group_end(heddle_rt_context *context) {
  if (!context)
    return invalid("heddle_rt_group_end: context is NULL");
  HEDDLE_RT_TRY(context->alive());
  if (!context->group)
    return invalid("heddle_rt_group_end without a group_begin");
  return heddle::host::closeGroup(context);
}
