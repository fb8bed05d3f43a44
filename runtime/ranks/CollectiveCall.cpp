// Checks of collectives that are the same for all backends.

#include "runtime/ranks/CollectiveCall.h"

#include "runtime/common/Dtype.h"

#include <cstddef>
#include <initializer_list>

namespace heddle::ranks {

using runtime::bytesOf;
using runtime::invalid;
using runtime::isCode;

std::vector<heddle_rt_access> CollectiveCall::accesses() const {
  std::vector<heddle_rt_access> all;
  const int64_t size = bytesOf(dtype);
  if (input.elements > 0)
    all.push_back({input.data, input.elements * size, 0});
  if (output.elements > 0)
    all.push_back({output.data, output.elements * size, 1});
  return all;
}

heddle_rt_status checkDtype(const CollectiveCall &call) {
  if (bytesOf(call.dtype) == 0)
    return invalid("heddle_rt_{}: dtype {} does not exist, or has no whole "
                   "bytes to move",
                   call.operation, int(call.dtype));
  return HEDDLE_RT_OK;
}

void count(const CollectiveCall &call, CommSeat &comm,
           runtime::Flight &flight) {
  flight.isCall(comm.inFlight, call.peer < 0, call.elements, call.dtype,
                call.peer);
  if (call.peer >= 0)
    comm.messages.add(call.what == Operation::Send, comm.rank, call.peer,
                      call.elements, call.dtype);
  else
    comm.hash.add(call.operation, call.elements, call.dtype);
}

namespace {

heddle_rt_status check(const CollectiveCall &call,
                       heddle_rt_reduction reduction) {
  if (reduction != HEDDLE_RT_SUM && reduction != HEDDLE_RT_MAX)
    return invalid("heddle_rt_{}: reduction {} does not exist", call.operation,
                   int(reduction));
  if (isCode(call.dtype) || call.dtype == HEDDLE_RT_F8E8M0)
    return invalid("heddle_rt_{}: codes and their scales ({}) are not reduced",
                   call.operation, runtime::nameOf(call.dtype));
  return HEDDLE_RT_OK;
}

/// Whether a product of sizes is one: not negative, and no overflow in bytes.
heddle_rt_status multiply(const CollectiveCall &call,
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
heddle_rt_status checkBuffers(const CollectiveCall &call, const CommSeat &comm,
                              int64_t mayStartAt) {
  const Buffer &input = call.input, &output = call.output;
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
                   comm.axis);
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status checkAllReduce(CollectiveCall &call, const CommSeat &comm,
                                const void *input, void *output,
                                int64_t elements,
                                heddle_rt_reduction reduction) {
  HEDDLE_RT_TRY(check(call, reduction));
  call.reduction = reduction;
  int64_t all;
  HEDDLE_RT_TRY(multiply(call, {elements}, all));
  call.input = {input, all};
  call.output = {output, all};
  HEDDLE_RT_TRY(checkBuffers(call, comm, 0));
  call.elements = all;
  call.bytes =
      runtime::allReduceBytes(double(all * bytesOf(call.dtype)), comm.size);
  return HEDDLE_RT_OK;
}

/// Between [outer, slice] and [outer, n, slice].
static heddle_rt_status checkSlices(CollectiveCall &call, const CommSeat &comm,
                                    const void *input, void *output,
                                    int64_t outer, int64_t slice,
                                    bool gathers) {
  int64_t part, whole;
  call.outer = outer;
  call.slice = slice;
  HEDDLE_RT_TRY(multiply(call, {outer, slice}, part));
  HEDDLE_RT_TRY(multiply(call, {outer, slice, comm.size}, whole));
  call.input = {input, gathers ? part : whole};
  call.output = {output, gathers ? whole : part};
  HEDDLE_RT_TRY(checkBuffers(call, comm, outer == 1 ? comm.rank * slice : -1));
  call.elements = whole;
  call.bytes =
      runtime::slicedBytes(double(whole * bytesOf(call.dtype)), comm.size);
  return HEDDLE_RT_OK;
}

heddle_rt_status checkReduceScatter(CollectiveCall &call, const CommSeat &comm,
                                    const void *input, void *output,
                                    int64_t outer, int64_t slice,
                                    heddle_rt_reduction reduction) {
  HEDDLE_RT_TRY(check(call, reduction));
  call.reduction = reduction;
  return checkSlices(call, comm, input, output, outer, slice, false);
}

heddle_rt_status checkAllGather(CollectiveCall &call, const CommSeat &comm,
                                const void *input, void *output, int64_t outer,
                                int64_t slice) {
  return checkSlices(call, comm, input, output, outer, slice, true);
}

heddle_rt_status checkAllToAll(CollectiveCall &call, const CommSeat &comm,
                               const void *input, void *output,
                               const heddle_rt_all_to_all_shape *shape) {
  if (!shape)
    return invalid("heddle_rt_all_to_all: shape is NULL");
  call.shape = *shape;
  int64_t all;
  HEDDLE_RT_TRY(multiply(call,
                         {shape->outer, shape->split, shape->middle,
                          shape->concat, shape->inner, comm.size},
                         all));
  call.input = {input, all};
  call.output = {output, all};
  HEDDLE_RT_TRY(checkBuffers(call, comm, -1));
  call.elements = all;
  call.bytes =
      runtime::slicedBytes(double(all * bytesOf(call.dtype)), comm.size);
  return HEDDLE_RT_OK;
}

heddle_rt_status checkPermute(CollectiveCall &call, const CommSeat &comm,
                              const void *input, void *output, int64_t elements,
                              const int32_t *from) {
  if (!from)
    return invalid("heddle_rt_permute: from is NULL");
  call.from.assign(from, from + comm.size);
  int sends = 0;
  bool isRead = false;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (from[rank] < -1 || from[rank] >= comm.size)
      return invalid("heddle_rt_permute: from[{}] is {}, in a communicator of "
                     "{} ranks",
                     rank, from[rank], comm.size);
    isRead |= from[rank] == comm.rank;
    sends += from[rank] == comm.rank && rank != comm.rank;
  }
  int64_t all;
  HEDDLE_RT_TRY(multiply(call, {elements}, all));
  call.input = {input, isRead ? all : 0};
  call.output = {output, from[comm.rank] >= 0 ? all : 0};
  HEDDLE_RT_TRY(checkBuffers(call, comm, -1));
  call.elements = all;
  call.bytes = double(all * bytesOf(call.dtype) * sends);
  return HEDDLE_RT_OK;
}

static heddle_rt_status checkPair(CollectiveCall &call, const CommSeat &comm,
                                  const void *data, int64_t elements,
                                  int32_t peer) {
  if (peer < 0 || peer >= comm.size || peer == comm.rank)
    return invalid("heddle_rt_{}({}): peer {} of rank {} among {}",
                   call.operation, comm.axis, peer, comm.rank, comm.size);
  HEDDLE_RT_TRY(multiply(call, {elements}, call.elements));
  if (!data && call.elements > 0)
    return invalid("heddle_rt_{}: the buffer is NULL", call.operation);
  call.peer = peer;
  return HEDDLE_RT_OK;
}

heddle_rt_status checkSend(CollectiveCall &call, const CommSeat &comm,
                           const void *input, int64_t elements, int32_t peer) {
  HEDDLE_RT_TRY(checkPair(call, comm, input, elements, peer));
  call.input = {input, call.elements};
  call.bytes = double(call.elements * bytesOf(call.dtype));
  return HEDDLE_RT_OK;
}

heddle_rt_status checkReceive(CollectiveCall &call, const CommSeat &comm,
                              void *output, int64_t elements, int32_t peer) {
  HEDDLE_RT_TRY(checkPair(call, comm, output, elements, peer));
  call.output = {output, call.elements};
  return HEDDLE_RT_OK;
}

int tagOf(const CollectiveCall &call, int64_t &sequence) {
  constexpr int kPair = 1, kFirst = 16; // the context has those between
  constexpr int kTags = 8000;           // MPI promises tags up to 32767
  return call.peer >= 0 ? kPair : kFirst + 2 * int(sequence++ % kTags);
}

std::unique_ptr<Collective> makeCollective(const CollectiveCall &call,
                                           const Place &place) {
  const void *input = call.input.data;
  void *output = const_cast<void *>(call.output.data);
  const int64_t bytes = call.elements * bytesOf(call.dtype);
  switch (call.what) {
  case Operation::AllReduce:
    return allReduce(place, input, output, call.elements, call.dtype,
                     call.reduction);
  case Operation::ReduceScatter:
    return reduceScatter(place, input, output, call.outer, call.slice,
                         call.dtype, call.reduction);
  case Operation::AllGather:
    return allGather(place, input, output, call.outer,
                     call.slice * bytesOf(call.dtype));
  case Operation::AllToAll:
    return allToAll(place, input, output, call.shape, bytesOf(call.dtype));
  case Operation::Permute:
    return permute(place, input, output, bytes, call.from.data());
  case Operation::Send:
    return sendTo(place, input, bytes, call.peer);
  case Operation::Receive:
    return receiveFrom(place, output, bytes, call.peer);
  }
  return nullptr;
}

} // namespace heddle::ranks
