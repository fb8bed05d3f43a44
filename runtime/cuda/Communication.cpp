// The collectives of heddle_rt.h over NCCL. NCCL moves whole buffers; where a
// dimension inside is cut, parts are packed before and unpacked after, by
// copies of the same stream.

#include "runtime/common/Dtype.h"
#include "runtime/cuda/Context.h"
#include "runtime/cuda/Kernels.h"

#include <algorithm>
#include <utility>

using heddle::cuda::checked;
using heddle::cuda::Member;
using heddle::ranks::CollectiveCall;
using heddle::ranks::Operation;
using heddle::runtime::bytesOf;
using heddle::runtime::invalid;

namespace heddle::cuda {

namespace {

/// The type that moves elements; it also sums them.
ncclDataType_t typeOf(heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return ncclFloat32;
  case HEDDLE_RT_BF16:
    return ncclBfloat16;
  case HEDDLE_RT_F16:
    return ncclFloat16;
  case HEDDLE_RT_I32:
    return ncclInt32;
  case HEDDLE_RT_I64:
    return ncclInt64;
  case HEDDLE_RT_F64:
    return ncclFloat64;
  default:
    return ncclUint8;
  }
}

heddle_rt_status runAll(std::vector<Member> &members) {
  HEDDLE_RT_TRY(checked(ncclGroupStart(), "ncclGroupStart"));
  heddle_rt_status status = HEDDLE_RT_OK;
  for (Member &member : members)
    if (status == HEDDLE_RT_OK)
      status = member.run();
  const std::string sentence = runtime::lastError();
  const ncclResult_t end = ncclGroupEnd();
  if (status != HEDDLE_RT_OK)
    return runtime::failWith(status, sentence);
  if (end != ncclSuccess && end != ncclInProgress)
    return failed(end, fmt::format("{}: ncclGroupEnd", members[0].name));
  for (Member &member : members) {
    ncclResult_t state = ncclSuccess;
    HEDDLE_RT_TRY(checked(ncclCommGetAsyncError(member.comm->nccl, &state),
                          "{}", member.name));
    HEDDLE_RT_TRY(
        settle(member.comm->context, member.comm->nccl, state, member.name));
  }
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status mark(heddle_rt_stream *stream, heddle_rt_comm *comm,
                      const char *name) {
  heddle_rt_context *context = stream->context;
  constexpr size_t kMany = 64;
  if (context->pending.size() > kMany)
    retire(context);
  cudaEvent_t event = nullptr;
  if (!context->spareEvents.empty()) {
    event = context->spareEvents.back();
    context->spareEvents.pop_back();
  } else {
    HEDDLE_RT_TRY(
        checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                "{}: an event", name));
  }
  context->pending.push_back({comm, name, comm->begun, event});
  return checked(cudaEventRecord(event, stream->native), "{}: an event", name);
}

/// Queues what was collected in a group, or one member. What is captured is
/// counted and marked when its graph is launched.
static heddle_rt_status launchMembers(heddle_rt_stream *stream,
                                      std::vector<Member> members) {
  const bool runs = !stream->context->graphs->isCapturing();
  for (Member &member : members) {
    member.comm->begun += runs;
    for (const Member::Step &step : member.before)
      HEDDLE_RT_TRY(step());
  }
  HEDDLE_RT_TRY(runAll(members));
  for (Member &member : members) {
    if (runs)
      HEDDLE_RT_TRY(mark(stream, member.comm, member.name));
    for (const Member::Step &step : member.after)
      HEDDLE_RT_TRY(step());
  }
  giveBackScratch(stream);
  return HEDDLE_RT_OK;
}

} // namespace heddle::cuda

namespace {

using heddle::cuda::NamedCall;
using heddle::cuda::typeOf;

/// What a collective is made of.
struct Launch {
  heddle_rt_comm *comm;
  heddle_rt_stream *stream;
  const char *name;
  int64_t size; ///< bytes of an element

  heddle_rt_status nccl(ncclResult_t result, const char *call) const {
    return result == ncclInProgress ? HEDDLE_RT_OK
                                    : checked(result, "{}: {}", name, call);
  }
  heddle_rt_status cuda(cudaError_t error, const char *call) const {
    return checked(error, "{}: {}", name, call);
  }
  /// `runs` runs of `bytes`, each `toPitch` and `fromPitch` from the next.
  heddle_rt_status copy(void *to, int64_t toPitch, const void *from,
                        int64_t fromPitch, int64_t bytes, int64_t runs) const {
    return cuda(cudaMemcpy2DAsync(to, size_t(toPitch), from, size_t(fromPitch),
                                  size_t(bytes), size_t(runs),
                                  cudaMemcpyDefault, stream->native),
                "cudaMemcpy2DAsync");
  }
};

std::byte *at(const void *base, int64_t bytes) {
  return static_cast<std::byte *>(const_cast<void *>(base)) + bytes;
}

/// Where a launch reads and writes: the caller's memory, or what a step before
/// it made of that.
struct Places {
  const void *input;
  void *output;
};

using PlacesPtr = std::shared_ptr<Places>;

/// Memory for the time of a launch. `use` gets it.
template <class Use>
void withScratch(const Launch &launch, Member &member, int64_t bytes, Use use) {
  member.before.push_back([=] {
    void *memory = nullptr;
    HEDDLE_RT_TRY(heddle::cuda::takeScratch(launch.stream, bytes, &memory));
    return use(memory);
  });
}

/// NCCL's maximum lets a number win over NaN. As integers in the order of the
/// floats, with NaN above all, NaN wins.
/// \param offset  of the output among the input's elements.
void reduceKeys(const Launch &launch, const PlacesPtr &places, Member &member,
                const CollectiveCall &call, int64_t offset) {
  const cudaStream_t stream = launch.stream->native;
  const int64_t size = call.dtype == HEDDLE_RT_F64 ? 8 : 4;
  void *output = const_cast<void *>(call.output.data);
  const int64_t count = call.output.elements, all = call.input.elements;
  member.after.push_back([=] {
    return launch.cuda(heddle::cuda::launchFromKeys(
                           stream, call.dtype, places->output, output, count),
                       "from keys of a maximum");
  });
  withScratch(launch, member, all * size, [=](void *keys) {
    const cudaError_t error = heddle::cuda::launchToKeys(
        stream, call.dtype, places->input, keys, all);
    places->input = keys;
    places->output = at(keys, offset * size);
    return launch.cuda(error, "to keys of a maximum");
  });
}

/// How a reduction's elements are reduced.
struct Reduced {
  ncclDataType_t type;
  ncclRedOp_t operation;
  bool keys; ///< as integers
};

Reduced reducedAs(heddle_rt_dtype dtype, heddle_rt_reduction reduction) {
  if (reduction == HEDDLE_RT_SUM)
    return {typeOf(dtype), ncclSum, false};
  switch (dtype) {
  case HEDDLE_RT_F64:
    return {ncclInt64, ncclMax, true};
  case HEDDLE_RT_F32:
  case HEDDLE_RT_BF16:
  case HEDDLE_RT_F16:
    return {ncclInt32, ncclMax, true};
  default:
    return {typeOf(dtype), ncclMax, false};
  }
}

/// Runs of an operand that lie apart, and as NCCL moves them: side by side, by
/// peer.
struct Packing {
  int64_t runs, bytes; ///< of each peer
  int64_t pitch;       ///< from run to run
  int64_t shift;       ///< from peer to peer
  int64_t peerBytes() const { return runs * bytes; }
};

heddle_rt_status pack(const Launch &launch, const Packing &p, const void *from,
                      void *to) {
  for (int64_t peer = 0; peer < launch.comm->size; ++peer)
    HEDDLE_RT_TRY(launch.copy(at(to, peer * p.peerBytes()), p.bytes,
                              at(from, peer * p.shift), p.pitch, p.bytes,
                              p.runs));
  return HEDDLE_RT_OK;
}

heddle_rt_status unpack(const Launch &launch, const Packing &p,
                        const void *from, void *to) {
  for (int64_t peer = 0; peer < launch.comm->size; ++peer)
    HEDDLE_RT_TRY(launch.copy(at(to, peer * p.shift), p.pitch,
                              at(from, peer * p.peerBytes()), p.bytes, p.bytes,
                              p.runs));
  return HEDDLE_RT_OK;
}

/// The input is packed before the launch, where it has more than one run.
void packInput(const Launch &launch, const PlacesPtr &places, Member &member,
               const Packing &p) {
  if (p.runs == 1)
    return;
  withScratch(launch, member, p.peerBytes() * launch.comm->size,
              [=](void *packed) {
                const void *from = std::exchange(places->input, packed);
                return pack(launch, p, from, packed);
              });
}

/// The output is unpacked after it.
void unpackOutput(const Launch &launch, const PlacesPtr &places, Member &member,
                  const Packing &p) {
  if (p.runs == 1)
    return;
  void *to = places->output;
  member.after.push_back([=] { return unpack(launch, p, places->output, to); });
  withScratch(launch, member, p.peerBytes() * launch.comm->size,
              [=](void *packed) {
                places->output = packed;
                return HEDDLE_RT_OK;
              });
}

/// Sends the `peer`-th of equal parts to each peer and receives as many; the
/// own one is copied.
heddle_rt_status exchange(const Launch &launch, const Places &places,
                          int64_t bytes) {
  heddle_rt_comm *comm = launch.comm;
  const cudaStream_t stream = launch.stream->native;
  for (int peer = 0; peer < comm->size; ++peer) {
    const void *from = at(places.input, peer * bytes);
    void *to = at(places.output, peer * bytes);
    HEDDLE_RT_TRY(launch.nccl(
        ncclSend(from, size_t(bytes), ncclUint8, peer, comm->nccl, stream),
        "ncclSend"));
    HEDDLE_RT_TRY(launch.nccl(
        ncclRecv(to, size_t(bytes), ncclUint8, peer, comm->nccl, stream),
        "ncclRecv"));
  }
  return HEDDLE_RT_OK;
}

void makeAllReduce(const Launch &launch, const PlacesPtr &places,
                   Member &member, const CollectiveCall &call) {
  const Reduced as = reducedAs(call.dtype, call.reduction);
  if (as.keys)
    reduceKeys(launch, places, member, call, 0);
  member.run = [=, count = size_t(call.elements)] {
    return launch.nccl(ncclAllReduce(places->input, places->output, count,
                                     as.type, as.operation, launch.comm->nccl,
                                     launch.stream->native),
                       "ncclAllReduce");
  };
}

/// Runs of an operand that has the dimension of all ranks inside.
Packing slicesOf(const Launch &launch, const CollectiveCall &call) {
  const int64_t bytes = call.slice * launch.size;
  return {call.outer, bytes, launch.comm->size * bytes, bytes};
}

void makeReduceScatter(const Launch &launch, const PlacesPtr &places,
                       Member &member, const CollectiveCall &call) {
  const Reduced as = reducedAs(call.dtype, call.reduction);
  const int64_t part = call.outer * call.slice;
  packInput(launch, places, member, slicesOf(launch, call));
  if (as.keys)
    reduceKeys(launch, places, member, call, launch.comm->rank * part);
  member.run = [=] {
    return launch.nccl(ncclReduceScatter(places->input, places->output,
                                         size_t(part), as.type, as.operation,
                                         launch.comm->nccl,
                                         launch.stream->native),
                       "ncclReduceScatter");
  };
}

void makeAllGather(const Launch &launch, const PlacesPtr &places,
                   Member &member, const CollectiveCall &call) {
  unpackOutput(launch, places, member, slicesOf(launch, call));
  member.run = [=, count = size_t(call.outer * call.slice),
                type = typeOf(call.dtype)] {
    return launch.nccl(ncclAllGather(places->input, places->output, count, type,
                                     launch.comm->nccl, launch.stream->native),
                       "ncclAllGather");
  };
}

void makeAllToAll(const Launch &launch, const PlacesPtr &places, Member &member,
                  const CollectiveCall &call) {
  const heddle_rt_all_to_all_shape &s = call.shape;
  const int64_t n = launch.comm->size, inner = s.inner * launch.size;
  // Both orders have one side that is cut outside and one that is inside.
  const int64_t outside = (s.split_first ? s.split : s.concat) * s.middle *
                          (s.split_first ? s.concat : s.split) * inner;
  const int64_t inside = (s.split_first ? s.concat : s.split) * inner;
  const int64_t rows =
      s.outer * s.middle * (s.split_first ? s.split : s.concat);
  const Packing whole{s.outer, outside, n * outside, outside};
  const Packing parts{rows, inside, n * inside, inside};
  packInput(launch, places, member, s.split_first ? whole : parts);
  unpackOutput(launch, places, member, s.split_first ? parts : whole);
  member.run = [=, bytes = whole.peerBytes()] {
    return exchange(launch, *places, bytes);
  };
}

heddle_rt_status sendTo(const Launch &launch, const Places &places,
                        const CollectiveCall &call, int peer) {
  return launch.nccl(ncclSend(places.input, size_t(call.elements),
                              typeOf(call.dtype), peer, launch.comm->nccl,
                              launch.stream->native),
                     "ncclSend");
}
heddle_rt_status receiveFrom(const Launch &launch, const Places &places,
                             const CollectiveCall &call, int peer) {
  return launch.nccl(ncclRecv(places.output, size_t(call.elements),
                              typeOf(call.dtype), peer, launch.comm->nccl,
                              launch.stream->native),
                     "ncclRecv");
}

void makePermute(const Launch &launch, const PlacesPtr &places, Member &member,
                 const CollectiveCall &call) {
  member.run = [=]() -> heddle_rt_status {
    for (int place = 0; place < launch.comm->size; ++place)
      if (call.from[size_t(place)] == launch.comm->rank)
        HEDDLE_RT_TRY(sendTo(launch, *places, call, place));
    const int32_t own = call.from[size_t(launch.comm->rank)];
    return own < 0 ? HEDDLE_RT_OK : receiveFrom(launch, *places, call, own);
  };
}

/// The steps of a call.
Member makeMember(const Launch &launch, const CollectiveCall &call) {
  Member member{launch.comm, launch.name, {}, {}, {}};
  const auto places = std::make_shared<Places>(
      Places{call.input.data, const_cast<void *>(call.output.data)});
  switch (call.what) {
  case Operation::AllReduce:
    makeAllReduce(launch, places, member, call);
    break;
  case Operation::ReduceScatter:
    makeReduceScatter(launch, places, member, call);
    break;
  case Operation::AllGather:
    makeAllGather(launch, places, member, call);
    break;
  case Operation::AllToAll:
    makeAllToAll(launch, places, member, call);
    break;
  case Operation::Permute:
    makePermute(launch, places, member, call);
    break;
  case Operation::Send:
    member.run = [=] { return sendTo(launch, *places, call, call.peer); };
    break;
  case Operation::Receive:
    member.run = [=] { return receiveFrom(launch, *places, call, call.peer); };
    break;
  }
  return member;
}

bool isMessage(const NamedCall &one) { return one.call.peer >= 0; }

/// Queues calls together.
heddle_rt_status launchCalls(heddle_rt_stream *stream,
                             std::vector<NamedCall> calls) {
  heddle_rt_context *context = stream->context;
  if (context->staged)
    return heddle::cuda::runStaged(stream, std::move(calls));
  const bool captures = context->graphs->isCapturing();
  HEDDLE_RT_TRY(context->graphs->enter(stream));
  std::vector<Member> members;
  for (const NamedCall &one : calls)
    members.push_back(makeMember(
        {one.comm, stream, one.name, bytesOf(one.call.dtype)}, one.call));
  HEDDLE_RT_TRY(heddle::cuda::launchMembers(stream, std::move(members)));
  if (captures)
    context->graphs->add(calls);
  return HEDDLE_RT_OK;
}

/// The same where they may have to stay outside of graphs.
heddle_rt_status launchOrKeep(heddle_rt_stream *stream,
                              std::vector<NamedCall> calls) {
  heddle_rt_context *context = stream->context;
  if (!context->graphs->isCapturing() ||
      std::none_of(calls.begin(), calls.end(), isMessage))
    return context->die(launchCalls(stream, std::move(calls)));
  return context->graphs->between([=]() -> heddle_rt_status {
    HEDDLE_RT_TRY(heddle_rt_group_begin(context));
    for (const NamedCall &one : calls)
      HEDDLE_RT_TRY(heddle::ranks::queueCall(one.comm, stream, one.call));
    return heddle_rt_group_end(context);
  });
}

} // namespace

/// Checks order and ranges, then queues the launch or adds it to the group.
heddle_rt_status heddle::ranks::queueCall(heddle_rt_comm *comm,
                                          heddle_rt_stream *stream,
                                          const CollectiveCall &call) {
  heddle_rt_context *context = comm->context;
  const char *name =
      context->intern(fmt::format("{}({})", call.operation, comm->axis));
  heddle::cuda::OpenGroup *group = context->group.get();
  if (group && group->stream && group->stream != stream)
    return invalid("{} on stream {} in a group on stream {}", name,
                   stream->name, group->stream->name);
  const auto accesses = call.accesses();
  HEDDLE_RT_TRY(
      context->watch(stream->number, name, accesses.data(), accesses.size()));
  HEDDLE_RT_TRY(context->die(
      checked(cudaSetDevice(context->device), "{}: its GPU", name)));
  if (!context->graphs->isCapturing())
    heddle::ranks::count(call, *comm, context->flight);
  NamedCall one{comm, name, call};
  if (!group)
    return launchOrKeep(stream, {std::move(one)});
  group->stream = stream;
  group->calls.push_back(std::move(one));
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_group_begin(heddle_rt_context *context) {
  if (!context)
    return invalid("heddle_rt_group_begin: context is NULL");
  HEDDLE_RT_TRY(context->alive());
  if (context->group)
    return invalid("heddle_rt_group_begin within a group");
  context->group = std::make_unique<heddle::cuda::OpenGroup>();
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_group_end(heddle_rt_context *context) {
  if (!context)
    return invalid("heddle_rt_group_end: context is NULL");
  HEDDLE_RT_TRY(context->alive());
  if (!context->group)
    return invalid("heddle_rt_group_end without a group_begin");
  const auto group = std::move(context->group);
  return group->calls.empty()
             ? HEDDLE_RT_OK
             : launchOrKeep(group->stream, std::move(group->calls));
}
