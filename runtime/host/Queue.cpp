// How work gets into a stream: kernels, copies, groups of collectives.

#include "runtime/host/Context.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

using heddle::runtime::invalid;
using heddle::runtime::orUnnamed;

const heddle::ranks::CommSeat &
heddle::ranks::seatOf(const heddle_rt_comm *comm) {
  return *comm;
}
heddle::ranks::RankContext &
heddle::ranks::contextOf(const heddle_rt_comm *comm) {
  return *comm->context;
}
heddle::ranks::RankContext &
heddle::ranks::contextOf(const heddle_rt_stream *stream) {
  return *stream->context;
}
const std::string &heddle::ranks::nameOf(const heddle_rt_stream *stream) {
  return stream->name;
}

namespace heddle::host {

heddle_rt_status openFor(heddle_rt_stream *stream, const char *what) {
  HEDDLE_RT_TRY(stream->context->alive());
  if (stream->context->group)
    return invalid("{} on stream {} between group_begin and group_end", what,
                   stream->name);
  return HEDDLE_RT_OK;
}

namespace {

using ranks::Members;

/// Starts collectives that need not wait for each other.
heddle_rt_status runTogether(heddle_rt_stream *stream, const char *name,
                             Members members,
                             const std::vector<heddle_rt_comm *> &comms) {
  heddle_rt_context *context = stream->context;
  if (context->late) {
    std::vector<runtime::LateOrder *> orders;
    for (heddle_rt_comm *comm : comms)
      if (std::find(orders.begin(), orders.end(), &comm->order) == orders.end())
        orders.push_back(&comm->order);
    context->late->collective(
        stream->late, name, orders, [members] { return beginAll(members); },
        [members] { return testAll(members); });
    return HEDDLE_RT_OK;
  }
  const runtime::TimeLog::Span span(context->times, context->flight,
                                    "collective", name, comms.front()->axis);
  return context->runNow(std::move(members), name);
}

} // namespace

heddle_rt_status queueCollective(heddle_rt_comm *comm, heddle_rt_stream *stream,
                                 const ranks::CollectiveCall &call,
                                 std::shared_ptr<Collective> collective) {
  heddle_rt_context *context = stream->context;
  const char *name =
      context->intern(fmt::format("{}({})", call.operation, comm->axis));
  OpenGroup *group = context->group.get();
  if (group && group->stream && group->stream != stream)
    return invalid("{} on stream {} in a group on stream {}", name,
                   stream->name, group->stream->name);
  const auto accesses = call.accesses();
  HEDDLE_RT_TRY(
      context->watch(stream->late, name, accesses.data(), accesses.size()));
  ranks::count(call, *comm, context->flight);
  if (context->recording())
    context->trace.add({call.operation, name, stream->late, comm->number,
                        call.elements, call.dtype, 0, call.bytes, call.peer});
  // Streams of their own would go on beside it; here all are one thread, which
  // must not wait for what a peer does later.
  if (call.what == ranks::Operation::Send &&
      context->mode == HEDDLE_RT_MODE_EAGER)
    collective->detach();
  if (group) {
    group->stream = stream;
    if (collective)
      group->members.push_back(std::move(collective));
    group->comms.push_back(comm);
    return HEDDLE_RT_OK;
  }
  if (context->recording())
    return HEDDLE_RT_OK;
  return runTogether(stream, name, {std::move(collective)}, {comm});
}

heddle_rt_status closeGroup(heddle_rt_context *context) {
  const std::unique_ptr<OpenGroup> group = std::move(context->group);
  if (group->members.empty())
    return HEDDLE_RT_OK;
  return runTogether(
      group->stream,
      context->intern(fmt::format("a group on {}", group->comms.front()->axis)),
      group->members, group->comms);
}

namespace {

void runBody(heddle_rt_body body, const void *args, int64_t items,
             int64_t grain, int threads) {
  const int64_t runs =
      std::min<int64_t>(threads, items / std::max<int64_t>(grain, 1));
  if (runs <= 1)
    return body(args, 0, items);
  const int64_t run = (items + runs - 1) / runs;
#pragma omp parallel for num_threads(int(runs)) schedule(static)
  for (int64_t i = 0; i < runs; ++i)
    if (i * run < items)
      body(args, i * run, std::min(items, (i + 1) * run));
}

/// A copy of a kernel's arguments, aligned for any type.
std::shared_ptr<void> copyOf(const void *args, size_t bytes) {
  constexpr size_t kUnit = sizeof(std::max_align_t);
  std::shared_ptr<std::max_align_t[]> copy(
      new std::max_align_t[(bytes + kUnit - 1) / kUnit + 1]);
  if (bytes > 0)
    std::memcpy(copy.get(), args, bytes);
  return {copy, copy.get()};
}

} // namespace

} // namespace heddle::host

heddle_rt_status heddle_rt_host_launch(heddle_rt_stream *stream,
                                       const char *name, heddle_rt_body body,
                                       const void *args, size_t bytes,
                                       int64_t items, int64_t grain,
                                       const heddle_rt_access *accesses,
                                       int32_t count) {
  using namespace heddle::host;
  const char *given = orUnnamed(name, "unnamed kernel");
  if (!stream || !body || (!args && bytes > 0) || items < 0 || count < 0 ||
      (!accesses && count > 0))
    return invalid("{}: a NULL argument, {} items or {} accesses", given, items,
                   count);
  HEDDLE_RT_TRY(openFor(stream, given));
  if (items == 0)
    return HEDDLE_RT_OK;
  for (int32_t i = 0; i < count; ++i)
    if (accesses[i].bytes < 0 || (!accesses[i].begin && accesses[i].bytes > 0))
      return invalid("{}: operand {} is NULL or has {} bytes", given, i,
                     accesses[i].bytes);
  heddle_rt_context *context = stream->context;
  HEDDLE_RT_TRY(context->watch(stream->late, given, accesses, size_t(count)));
  const int threads = context->computeThreads;
  if (context->recording())
    context->trace.add(
        {"kernel", given, stream->late, -1, items, HEDDLE_RT_F32, 0, 0});
  else if (context->late)
    context->late->work(stream->late,
                        [=, copy = copyOf(args, bytes)]() -> heddle_rt_status {
                          runBody(body, copy.get(), items, grain, threads);
                          return HEDDLE_RT_OK;
                        });
  else {
    const heddle::runtime::TimeLog::Span span(context->times, context->flight,
                                              "kernel", given, stream->name);
    runBody(body, args, items, grain, threads);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_graph(heddle_rt_stream *stream, const char *name,
                                 heddle_rt_graph_part,
                                 heddle_rt_graph_body body, void *given,
                                 const int64_t *numbers, int32_t count) {
  if (!stream || !body || count < 0 || (!numbers && count > 0))
    return invalid("heddle_rt_graph: a NULL argument, or {} numbers", count);
  HEDDLE_RT_TRY(
      heddle::host::openFor(stream, orUnnamed(name, "heddle_rt_graph")));
  return body(given);
}

heddle_rt_status heddle_rt_note(heddle_rt_stream *stream, const char *name,
                                const heddle_rt_access *accesses,
                                int32_t count) {
  const char *given = orUnnamed(name, "unnamed kernel");
  if (!stream || count < 0 || (!accesses && count > 0))
    return invalid("{}: a NULL argument or {} accesses", given, count);
  HEDDLE_RT_TRY(heddle::host::openFor(stream, given));
  return stream->context->watch(stream->late, given, accesses, size_t(count));
}

heddle_rt_status heddle_rt_copy(heddle_rt_stream *stream, void *to,
                                const void *from, int64_t bytes) {
  if (!stream || bytes < 0 || ((!to || !from) && bytes > 0))
    return invalid("heddle_rt_copy: a NULL argument, or {} bytes", bytes);
  const auto *source = static_cast<const std::byte *>(from);
  const auto *target = static_cast<std::byte *>(to);
  if (bytes > 0 && source < target + bytes && target < source + bytes)
    return invalid("heddle_rt_copy: source and target of {} bytes overlap",
                   bytes);
  if (bytes == 0)
    return heddle::host::openFor(stream, "copy");
  const heddle::runtime::Trace::Call call{
      "copy", "", stream->late, -1, bytes, HEDDLE_RT_U8, 0, 0};
  return heddle::host::queueWork(stream, call,
                                 {{from, bytes, 0}, {to, bytes, 1}}, [=] {
                                   std::memcpy(to, from, size_t(bytes));
                                   return HEDDLE_RT_OK;
                                 });
}

heddle_rt_status heddle_rt_zero(heddle_rt_stream *stream, void *to,
                                int64_t bytes) {
  if (!stream || bytes < 0 || (!to && bytes > 0))
    return invalid("heddle_rt_zero: a NULL argument, or {} bytes", bytes);
  if (bytes == 0)
    return heddle::host::openFor(stream, "zero");
  const heddle::runtime::Trace::Call call{
      "zero", "", stream->late, -1, bytes, HEDDLE_RT_U8, 0, 0};
  return heddle::host::queueWork(stream, call, {{to, bytes, 1}}, [=] {
    std::memset(to, 0, size_t(bytes));
    return HEDDLE_RT_OK;
  });
}
