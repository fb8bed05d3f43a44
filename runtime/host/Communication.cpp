// Collectives on the host, and groups of them. The arithmetic is in
// ranks/Collective.cpp.

#include "runtime/host/Context.h"

using heddle::ranks::CollectiveCall;
using heddle::ranks::Place;
using heddle::runtime::invalid;

static Place placeOf(const CollectiveCall &call, heddle_rt_comm *comm) {
  const char *name =
      comm->context->intern(fmt::format("{}({})", call.operation, comm->axis));
  heddle::ranks::Integrity &integrity = comm->context->integrity;
  return {comm->seat.get(),
          comm->rank,
          comm->size,
          heddle::ranks::tagOf(call, comm->sequence),
          name,
          integrity.looksAtAnything() ? &integrity : nullptr};
}

heddle_rt_status heddle::ranks::queueCall(heddle_rt_comm *comm,
                                          heddle_rt_stream *stream,
                                          const CollectiveCall &call) {
  std::shared_ptr<Collective> collective;
  if (!comm->context->recording())
    collective = makeCollective(call, placeOf(call, comm));
  return heddle::host::queueCollective(comm, stream, call,
                                       std::move(collective));
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
