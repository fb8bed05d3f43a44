// The collectives of heddle_rt.h: checks, tags, and what the trace counts.

#include "runtime/common/Dtype.h"
#include "runtime/host/Context.h"

#include <initializer_list>

using heddle::host::Place;
using heddle::host::QueuedCollective;
using heddle::runtime::bytesOf;
using heddle::runtime::invalid;

namespace {

/// One call, as far as all collectives are alike.
struct Call {
  const char *operation;
  heddle_rt_comm *comm;
  heddle_rt_stream *stream;
  heddle_rt_dtype dtype;
};

/// A buffer of a call.
struct Buffer {
  const void *data;
  int64_t elements;
};

constexpr int kPairTag = 1;   ///< sends and receives keep their order
constexpr int kFirstTag = 16; ///< of collectives; two each, for two rounds
constexpr int kTags = 8000;   ///< MPI promises tags up to 32767

heddle_rt_status check(const Call &call) {
  if (!call.comm || !call.stream)
    return invalid("heddle_rt_{}: {} is NULL", call.operation,
                   call.comm ? "stream" : "comm");
  if (call.comm->context != call.stream->context)
    return invalid("heddle_rt_{}: communicator {} and stream {} are of "
                   "different contexts",
                   call.operation, call.comm->axis, call.stream->name);
  if (bytesOf(call.dtype) == 0)
    return invalid("heddle_rt_{}: dtype {} does not exist", call.operation,
                   int(call.dtype));
  return call.comm->context->alive();
}

heddle_rt_status check(const Call &call, heddle_rt_reduction reduction) {
  if (reduction != HEDDLE_RT_SUM && reduction != HEDDLE_RT_MAX)
    return invalid("heddle_rt_{}: reduction {} does not exist", call.operation,
                   int(reduction));
  return HEDDLE_RT_OK;
}

/// Whether a product of sizes is one: not negative, and no overflow in bytes.
heddle_rt_status multiply(const Call &call,
                          std::initializer_list<int64_t> sizes,
                          int64_t &product) {
  product = 1;
  for (const int64_t size : sizes) {
    if (size < 0)
      return invalid("heddle_rt_{}: size {} is negative", call.operation, size);
    if (__builtin_mul_overflow(product, size, &product) ||
        product > INT64_MAX / 16)
      return invalid("heddle_rt_{}: the sizes are too large", call.operation);
  }
  return HEDDLE_RT_OK;
}

/// Buffers are there, and do not overlap except as `mayStartAt` (elements of
/// the larger one at which the smaller one may lie; -1: nowhere).
heddle_rt_status checkBuffers(const Call &call, Buffer input, Buffer output,
                              int64_t mayStartAt) {
  if ((!input.data && input.elements > 0) ||
      (!output.data && output.elements > 0))
    return invalid("heddle_rt_{}: {} is NULL", call.operation,
                   input.data ? "output" : "input");
  const int64_t size = bytesOf(call.dtype);
  const auto *in = static_cast<const std::byte *>(input.data);
  const auto *out = static_cast<const std::byte *>(output.data);
  const bool overlap =
      in < out + output.elements * size && out < in + input.elements * size;
  const auto *whole = input.elements >= output.elements ? in : out;
  const auto *part = whole == in ? out : in;
  if (overlap && (mayStartAt < 0 || part != whole + mayStartAt * size))
    return invalid("heddle_rt_{}({}): input and output overlap", call.operation,
                   call.comm->axis);
  return HEDDLE_RT_OK;
}

Place placeOf(const Call &call, bool pair) {
  heddle_rt_comm *comm = call.comm;
  const int tag =
      pair ? kPairTag : kFirstTag + 2 * int(comm->sequence++ % kTags);
  const char *name =
      comm->context->intern(fmt::format("{}({})", call.operation, comm->axis));
  return {comm->seat.get(), comm->rank, comm->size, tag, name};
}

/// Queues a call; `make` builds the collective where there is one to run.
template <class Make>
heddle_rt_status queue(const Call &call, int64_t elements, double bytes,
                       Buffer input, Buffer output, Make make,
                       int32_t peer = -1) {
  QueuedCollective queued{call.comm, call.operation, elements, call.dtype,
                          bytes,     peer,           {},       nullptr};
  const int64_t size = bytesOf(call.dtype);
  if (input.elements > 0)
    queued.accesses.push_back({input.data, input.elements * size, 0});
  if (output.elements > 0)
    queued.accesses.push_back({output.data, output.elements * size, 1});
  if (!call.comm->context->recording())
    queued.collective = make(placeOf(call, peer >= 0));
  return heddle::host::queueCollective(call.stream, std::move(queued));
}

} // namespace

heddle_rt_status heddle_rt_all_reduce(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t elements, heddle_rt_dtype dtype,
                                      heddle_rt_reduction reduction) {
  const Call call{"all_reduce", comm, stream, dtype};
  HEDDLE_RT_TRY(check(call));
  HEDDLE_RT_TRY(check(call, reduction));
  int64_t all;
  HEDDLE_RT_TRY(multiply(call, {elements}, all));
  const Buffer in{input, all}, out{output, all};
  HEDDLE_RT_TRY(checkBuffers(call, in, out, 0));
  if (all == 0)
    return HEDDLE_RT_OK;
  const double bytes =
      heddle::runtime::allReduceBytes(double(all * bytesOf(dtype)), comm->size);
  return queue(call, all, bytes, in, out, [&](const Place &place) {
    return heddle::host::allReduce(place, input, output, all, dtype, reduction);
  });
}

heddle_rt_status heddle_rt_reduce_scatter(heddle_rt_comm *comm,
                                          heddle_rt_stream *stream,
                                          const void *input, void *output,
                                          int64_t outer, int64_t slice,
                                          heddle_rt_dtype dtype,
                                          heddle_rt_reduction reduction) {
  const Call call{"reduce_scatter", comm, stream, dtype};
  HEDDLE_RT_TRY(check(call));
  HEDDLE_RT_TRY(check(call, reduction));
  int64_t part, whole;
  HEDDLE_RT_TRY(multiply(call, {outer, slice}, part));
  HEDDLE_RT_TRY(multiply(call, {outer, slice, comm->size}, whole));
  const Buffer in{input, whole}, out{output, part};
  HEDDLE_RT_TRY(
      checkBuffers(call, in, out, outer == 1 ? comm->rank * slice : -1));
  if (whole == 0)
    return HEDDLE_RT_OK;
  const double bytes =
      heddle::runtime::slicedBytes(double(whole * bytesOf(dtype)), comm->size);
  return queue(call, whole, bytes, in, out, [&](const Place &place) {
    return heddle::host::reduceScatter(place, input, output, outer, slice,
                                       dtype, reduction);
  });
}

heddle_rt_status heddle_rt_all_gather(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t outer, int64_t slice,
                                      heddle_rt_dtype dtype) {
  const Call call{"all_gather", comm, stream, dtype};
  HEDDLE_RT_TRY(check(call));
  int64_t part, whole;
  HEDDLE_RT_TRY(multiply(call, {outer, slice}, part));
  HEDDLE_RT_TRY(multiply(call, {outer, slice, comm->size}, whole));
  const Buffer in{input, part}, out{output, whole};
  HEDDLE_RT_TRY(
      checkBuffers(call, in, out, outer == 1 ? comm->rank * slice : -1));
  if (whole == 0)
    return HEDDLE_RT_OK;
  const int64_t size = bytesOf(dtype);
  const double bytes =
      heddle::runtime::slicedBytes(double(whole * size), comm->size);
  return queue(call, whole, bytes, in, out, [&](const Place &place) {
    return heddle::host::allGather(place, input, output, outer, slice * size);
  });
}

heddle_rt_status heddle_rt_all_to_all(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      const heddle_rt_all_to_all_shape *shape,
                                      heddle_rt_dtype dtype) {
  const Call call{"all_to_all", comm, stream, dtype};
  HEDDLE_RT_TRY(check(call));
  if (!shape)
    return invalid("heddle_rt_all_to_all: shape is NULL");
  int64_t all;
  HEDDLE_RT_TRY(multiply(call,
                         {shape->outer, shape->split, shape->middle,
                          shape->concat, shape->inner, comm->size},
                         all));
  const Buffer in{input, all}, out{output, all};
  HEDDLE_RT_TRY(checkBuffers(call, in, out, -1));
  if (all == 0)
    return HEDDLE_RT_OK;
  const int64_t size = bytesOf(dtype);
  const double bytes =
      heddle::runtime::slicedBytes(double(all * size), comm->size);
  return queue(call, all, bytes, in, out, [&](const Place &place) {
    return heddle::host::allToAll(place, input, output, *shape, size);
  });
}

heddle_rt_status heddle_rt_permute(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, const void *input,
                                   void *output, int64_t elements,
                                   heddle_rt_dtype dtype, const int32_t *from) {
  const Call call{"permute", comm, stream, dtype};
  HEDDLE_RT_TRY(check(call));
  if (!from)
    return invalid("heddle_rt_permute: from is NULL");
  int sends = 0;
  bool isRead = false;
  for (int rank = 0; rank < comm->size; ++rank) {
    if (from[rank] < -1 || from[rank] >= comm->size)
      return invalid("heddle_rt_permute: from[{}] is {}, in a communicator of "
                     "{} ranks",
                     rank, from[rank], comm->size);
    isRead |= from[rank] == comm->rank;
    sends += from[rank] == comm->rank && rank != comm->rank;
  }
  int64_t all;
  HEDDLE_RT_TRY(multiply(call, {elements}, all));
  const Buffer in{input, isRead ? all : 0};
  const Buffer out{output, from[comm->rank] >= 0 ? all : 0};
  HEDDLE_RT_TRY(checkBuffers(call, in, out, -1));
  if (all == 0)
    return HEDDLE_RT_OK;
  const int64_t bytes = all * bytesOf(dtype);
  return queue(
      call, all, double(bytes * sends), in, out, [&](const Place &place) {
        return heddle::host::permute(place, input, output, bytes, from);
      });
}

static heddle_rt_status checkPair(const Call &call, const void *data,
                                  int64_t elements, int32_t peer,
                                  int64_t &all) {
  HEDDLE_RT_TRY(check(call));
  if (peer < 0 || peer >= call.comm->size || peer == call.comm->rank)
    return invalid("heddle_rt_{}({}): peer {} of rank {} among {}",
                   call.operation, call.comm->axis, peer, call.comm->rank,
                   call.comm->size);
  HEDDLE_RT_TRY(multiply(call, {elements}, all));
  if (!data && all > 0)
    return invalid("heddle_rt_{}: the buffer is NULL", call.operation);
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_send(heddle_rt_comm *comm, heddle_rt_stream *stream,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, int32_t peer) {
  const Call call{"send", comm, stream, dtype};
  int64_t all;
  HEDDLE_RT_TRY(checkPair(call, input, elements, peer, all));
  if (all == 0)
    return HEDDLE_RT_OK;
  const int64_t bytes = all * bytesOf(dtype);
  return queue(
      call, all, double(bytes), {input, all}, {nullptr, 0},
      [&](const Place &place) {
        return heddle::host::sendTo(place, input, bytes, peer);
      },
      peer);
}

heddle_rt_status heddle_rt_receive(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, void *output,
                                   int64_t elements, heddle_rt_dtype dtype,
                                   int32_t peer) {
  const Call call{"receive", comm, stream, dtype};
  int64_t all;
  HEDDLE_RT_TRY(checkPair(call, output, elements, peer, all));
  if (all == 0)
    return HEDDLE_RT_OK;
  const int64_t bytes = all * bytesOf(dtype);
  return queue(
      call, all, /*bytes=*/0, {nullptr, 0}, {output, all},
      [&](const Place &place) {
        return heddle::host::receiveFrom(place, output, bytes, peer);
      },
      peer);
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
