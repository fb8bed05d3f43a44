// Start and end of a rank; streams, events, communicators. Memory is in
// Memory.cpp, queueing in Queue.cpp.

#include "runtime/host/Context.h"

#include "runtime/ranks/Inspect.h"
#include "runtime/ranks/ThreadTransport.h"

#include <omp.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using heddle::runtime::fail;
using heddle::runtime::failWith;
using heddle::runtime::invalid;
using heddle::runtime::lastError;
using heddle::runtime::orUnnamed;

heddle_rt_context::~heddle_rt_context() {
  while (!allocations.empty())
    heddle::host::release(this, allocations.begin()->first);
}

namespace {

heddle_rt_status chooseMode(heddle_rt_mode wanted, heddle_rt_mode &mode) {
  mode = wanted;
  if (wanted != HEDDLE_RT_MODE_DEFAULT)
    return wanted >= HEDDLE_RT_MODE_EAGER && wanted <= HEDDLE_RT_MODE_RECORD
               ? HEDDLE_RT_OK
               : invalid("mode {} does not exist", int(wanted));
  const char *text = std::getenv("HEDDLE_HOST_MODE");
  const std::string name = text && *text ? text : "eager";
  mode = name == "eager"    ? HEDDLE_RT_MODE_EAGER
         : name == "late"   ? HEDDLE_RT_MODE_LATE
         : name == "record" ? HEDDLE_RT_MODE_RECORD
                            : HEDDLE_RT_MODE_DEFAULT;
  if (mode == HEDDLE_RT_MODE_DEFAULT)
    return invalid("environment variable HEDDLE_HOST_MODE={}: expected eager, "
                   "late or record",
                   name);
  return HEDDLE_RT_OK;
}

heddle_rt_status configure(heddle_rt_context &context,
                           const heddle_rt_options &options, uint64_t &seed) {
  HEDDLE_RT_TRY(chooseMode(options.mode, context.mode));
  context.recordsOnly = context.mode == HEDDLE_RT_MODE_RECORD;
  HEDDLE_RT_TRY(context.configure(options));
  uint64_t threads = 1;
  HEDDLE_RT_TRY(heddle::ranks::readNumber("OMP_NUM_THREADS", 1, 4096, threads));
  HEDDLE_RT_TRY(heddle::ranks::readNumber("HEDDLE_SEED", 1, UINT64_MAX, seed));
  if (options.seed)
    seed = options.seed;
  context.computeThreads = options.compute_threads ? options.compute_threads
                                                   : std::max(1, int(threads));
  return HEDDLE_RT_OK;
}

heddle_rt_status claim(heddle_rt_context &context,
                       const heddle_rt_options &options) {
  context.rank = options.rank;
  context.size = options.size ? options.size : 1;
  if (context.rank < 0 || context.rank >= context.size)
    return invalid("options: rank {} of {} ranks", options.rank, context.size);
  context.trace.rank = context.rank;
  context.trace.size = context.size;
  return HEDDLE_RT_OK;
}

heddle_rt_status checkCanaries(heddle_rt_context *context) {
  heddle_rt_status status = HEDDLE_RT_OK;
  while (!context->allocations.empty()) {
    const heddle_rt_status one =
        heddle::host::release(context, context->allocations.begin()->first);
    if (status == HEDDLE_RT_OK)
      status = one;
  }
  return status;
}

heddle_rt_status close(heddle_rt_context *context) {
  HEDDLE_RT_TRY(context->alive());
  if (context->group)
    return invalid("heddle_rt_finalize between group_begin and group_end");
  if (context->late)
    HEDDLE_RT_TRY(context->late->drain(-1, context->timeoutSeconds));
  HEDDLE_RT_TRY(context->awaitSent());
  if (context->checking && context->transport)
    for (heddle_rt_comm &comm : context->comms)
      HEDDLE_RT_TRY(context->compareCalls(comm));
  HEDDLE_RT_TRY(context->times.close());
  return checkCanaries(context);
}

} // namespace

heddle_rt_status heddle_rt_init(const heddle_rt_options *options,
                                heddle_rt_context **context) {
  if (!context)
    return invalid("heddle_rt_init: context is NULL");
  *context = nullptr;
  const heddle_rt_options given = options ? *options : heddle_rt_options{};
  auto made = std::make_unique<heddle_rt_context>();
  uint64_t seed = 1;
  HEDDLE_RT_TRY(configure(*made, given, seed));
  if (made->recording())
    HEDDLE_RT_TRY(claim(*made, given));
  else
    HEDDLE_RT_TRY(made->join(given, made->mode == HEDDLE_RT_MODE_LATE));
  if (made->mode == HEDDLE_RT_MODE_EAGER)
    HEDDLE_RT_TRY(made->times.open(made->rank, made->size));
  if (made->mode == HEDDLE_RT_MODE_LATE) // ranks must not agree by accident
    made->late = std::make_unique<heddle::runtime::Late>(
        seed + 0x9e3779b97f4a7c15u * uint64_t(made->rank), *made->transport);
  omp_set_num_threads(made->computeThreads);
  *context = made.release();
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_rank(const heddle_rt_context *context, int32_t *rank,
                                int32_t *size) {
  if (!context || !rank || !size)
    return invalid("heddle_rt_rank: an argument is NULL");
  *rank = context->rank;
  *size = context->size;
  return HEDDLE_RT_OK;
}

heddle_rt_mode heddle_rt_context_mode(const heddle_rt_context *context) {
  return context->mode;
}

heddle_rt_status heddle_rt_finalize(heddle_rt_context *context) {
  if (!context)
    return invalid("heddle_rt_finalize: context is NULL");
  const std::unique_ptr<heddle_rt_context> owner(context);
  const heddle_rt_status status = close(context);
  const std::string sentence = lastError();
  if (context->transport && status != HEDDLE_RT_OK)
    context->transport->abort(context->exitCode, sentence);
  context->group.reset();
  context->late.reset();
  context->sent.clear();
  context->comms.clear();
  if (context->transport)
    context->transport->leave();
  return status == HEDDLE_RT_OK ? status : failWith(status, sentence);
}

heddle_rt_status heddle_rt_abort(heddle_rt_context *context, int32_t exitCode,
                                 const char *why) {
  if (!context)
    return invalid("heddle_rt_abort: context is NULL");
  const std::string sentence = orUnnamed(why, "no reason given");
  context->exitCode = exitCode;
  context->die(failWith(HEDDLE_RT_PEER_FAILED, sentence));
  if (context->transport)
    context->transport->abort(exitCode, sentence);
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_comm_split(heddle_rt_context *context, int32_t color,
                                      int32_t rank, int32_t size,
                                      const char *axis, heddle_rt_comm **comm) {
  if (!context || !comm)
    return invalid("heddle_rt_comm_split: an argument is NULL");
  *comm = nullptr;
  HEDDLE_RT_TRY(context->alive());
  heddle::ranks::CommSeat seat;
  HEDDLE_RT_TRY(
      context->takeSeat(color, rank, size, orUnnamed(axis, "unnamed"), seat));
  if (color < 0)
    return HEDDLE_RT_OK;
  heddle_rt_comm &made = context->comms.emplace_back();
  static_cast<heddle::ranks::CommSeat &>(made) = std::move(seat);
  made.context = context;
  *comm = &made;
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_comm_rank(const heddle_rt_comm *comm, int32_t *rank,
                                     int32_t *size) {
  if (!comm || !rank || !size)
    return invalid("heddle_rt_comm_rank: an argument is NULL");
  *rank = comm->rank;
  *size = comm->size;
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_stream_create(heddle_rt_context *context,
                                         const char *name, int32_t,
                                         heddle_rt_stream **stream) {
  if (!context || !stream)
    return invalid("heddle_rt_stream_create: an argument is NULL");
  HEDDLE_RT_TRY(context->alive());
  const std::string given = orUnnamed(name, "unnamed");
  const int number = int(context->streams.size());
  if (context->late)
    context->late->addStream();
  context->trace.streams.push_back(given);
  context->races.addStream(given);
  *stream =
      &context->streams.emplace_back(heddle_rt_stream{context, given, number});
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_stream_synchronize(heddle_rt_stream *stream) {
  if (!stream)
    return invalid("heddle_rt_stream_synchronize: stream is NULL");
  heddle_rt_context *context = stream->context;
  HEDDLE_RT_TRY(heddle::host::openFor(stream, "heddle_rt_stream_synchronize"));
  context->races.synchronize(heddle::ranks::raceOf(stream->late));
  if (context->late)
    return context->die(
        context->late->drain(stream->late, context->timeoutSeconds));
  return context->awaitSent();
}

heddle_rt_status heddle_rt_event_create(heddle_rt_context *context,
                                        const char *name,
                                        heddle_rt_event **event) {
  if (!context || !event)
    return invalid("heddle_rt_event_create: an argument is NULL");
  HEDDLE_RT_TRY(context->alive());
  heddle_rt_event &made = context->events.emplace_back();
  made.context = context;
  made.number = int(context->events.size()) - 1;
  made.name = orUnnamed(name, "unnamed");
  *event = &made;
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_event_record(heddle_rt_event *event,
                                        heddle_rt_stream *stream) {
  if (!event || !stream)
    return invalid("heddle_rt_event_record: an argument is NULL");
  HEDDLE_RT_TRY(heddle::host::openFor(stream, event->name.c_str()));
  event->recorded = true;
  event->clock =
      stream->context->races.record(heddle::ranks::raceOf(stream->late));
  if (stream->context->ranges.isOpen())
    stream->context->ranges.record(stream->late, event->number);
  if (stream->context->late)
    stream->context->late->record(stream->late, &event->late);
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_stream_wait(heddle_rt_stream *stream,
                                       heddle_rt_event *event) {
  if (!event || !stream)
    return invalid("heddle_rt_stream_wait: an argument is NULL");
  HEDDLE_RT_TRY(heddle::host::openFor(stream, event->name.c_str()));
  if (!event->recorded)
    return invalid("stream {} waits for event {}, which was never recorded",
                   stream->name, event->name);
  stream->context->races.wait(heddle::ranks::raceOf(stream->late),
                              event->clock);
  if (stream->context->ranges.isOpen())
    stream->context->ranges.wait(stream->late, event->number);
  if (stream->context->late)
    stream->context->late->wait(stream->late, &event->late);
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_trace_write(heddle_rt_context *context,
                                       const char *path) {
  if (!context || !path)
    return invalid("heddle_rt_trace_write: an argument is NULL");
  if (!context->recording())
    return invalid("heddle_rt_trace_write: the context does not record");
  const std::string text = context->trace.json();
  std::FILE *file = std::fopen(path, "w");
  const bool written =
      file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!file || std::fclose(file) != 0 || !written)
    return invalid("cannot write the trace to {}: {}", path,
                   std::strerror(errno));
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_ranges_write(heddle_rt_context *context,
                                        const char *path) {
  if (!context)
    return invalid("heddle_rt_ranges_write: context is NULL");
  return context->writeRanges(path);
}

void *heddle_rt_native_stream(heddle_rt_stream *) { return nullptr; }

const heddle::runtime::Trace &
heddle::ranks::traceOf(const heddle_rt_context *context) {
  return context->trace;
}

std::string heddle::ranks::graphsOf(const heddle_rt_context *) { return ""; }

heddle::runtime::Flight &heddle::ranks::flightOf(heddle_rt_context *context) {
  return context->flight;
}

heddle::ranks::Integrity &
heddle::ranks::integrityOf(heddle_rt_context *context) {
  return context->integrity;
}
