// Start and end of a rank; streams, events, communicators' seats.

#include "runtime/cuda/Context.h"

#include "runtime/common/Launch.h"
#include "runtime/cuda/Products.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/ranks/ThreadTransport.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

using heddle::cuda::checked;
using heddle::runtime::failWith;
using heddle::runtime::invalid;
using heddle::runtime::lastError;
using heddle::runtime::orUnnamed;

heddle_rt_context::heddle_rt_context()
    : graphs(std::make_unique<heddle::cuda::Graphs>(this)) {}

/// What was queued before a failure still uses memory; after the abort of the
/// communicators it ends by itself. Not waited for without end: the device may
/// be what failed.
static void quiesce(cudaStream_t stream) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(5);
  const Clock::time_point start = Clock::now();
  while (cudaStreamQuery(stream) == cudaErrorNotReady &&
         Clock::now() - start < kPatience)
    std::this_thread::yield();
}

heddle_rt_context::~heddle_rt_context() {
  cudaSetDevice(device);
  graphs->clear();
  heddle::cuda::abortComms(this);
  for (heddle_rt_stream &stream : streams)
    quiesce(stream.native);
  if (setup)
    quiesce(setup);
  for (heddle_rt_event &event : events)
    cudaEventDestroy(event.native);
  for (const heddle::cuda::Pending &launch : pending)
    spareEvents.push_back(launch.event);
  pending.clear();
  for (cudaEvent_t event : spareEvents)
    cudaEventDestroy(event);
  products.reset();
  while (!blocks.empty())
    heddle::cuda::release(this, blocks.begin()->first);
  for (heddle_rt_stream &stream : streams) {
    cudaFree(stream.workspace);
    for (void *memory : stream.scratch)
      cudaFree(memory);
    cudaStreamDestroy(stream.native);
  }
  if (setup)
    cudaStreamDestroy(setup);
  if (blas)
    cublasLtDestroy(blas);
}

namespace {

/// This rank's number among those of its machine, as launchers say it, the rank
/// itself where none does; and how many those are, 0 where none does.
heddle_rt_status localRank(const heddle_rt_context &context,
                           const heddle_rt_options &options, int &local,
                           int &of) {
  local = context.rank;
  of = 0;
  if (options.threads)
    return HEDDLE_RT_OK;
  const auto launch =
      heddle::runtime::detectLaunch(heddle::runtime::environmentVariable);
  if (!launch)
    return invalid("{}", launch.message());
  if (*launch && (*launch)->localRank)
    local = int(*(*launch)->localRank);
  if (*launch && (*launch)->localSize)
    of = int(*(*launch)->localSize);
  return HEDDLE_RT_OK;
}

/// HEDDLE_COMM: how collectives are made.
heddle_rt_status chooseComm(heddle_rt_context &context) {
  const char *text = std::getenv("HEDDLE_COMM");
  const std::string name = text && *text ? text : "nccl";
  if (name != "nccl" && name != "staged")
    return invalid("environment variable HEDDLE_COMM={}: expected nccl or "
                   "staged (through host memory, for tests)",
                   name);
  context.staged = name == "staged";
  return HEDDLE_RT_OK;
}

heddle_rt_status takeDevice(heddle_rt_context &context,
                            const heddle_rt_options &options) {
  int local = 0, of = 0, count = 0;
  HEDDLE_RT_TRY(localRank(context, options, local, of));
  HEDDLE_RT_TRY(checked(cudaGetDeviceCount(&count), "cannot see any GPU"));
  if (count < 1)
    return invalid("rank {} sees no GPU (CUDA_VISIBLE_DEVICES)", context.rank);
  if (context.staged)
    local %= count; // ranks share GPUs
  else if (std::max(of, local + 1) > count)
    local = 0; // the launcher has dealt them out; joinWorld sees whether it has
  context.device = local;
  HEDDLE_RT_TRY(checked(cudaSetDevice(local), "cannot use GPU {}", local));
  int major = 0;
  HEDDLE_RT_TRY(checked(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, local),
      "cannot ask GPU {} for its architecture", local));
  if (major != 9)
    return invalid("GPU {} has compute capability {}.x; the kernels are built "
                   "for 9.0 (H100, H200)",
                   local, major);
  HEDDLE_RT_TRY(
      checked(cudaStreamCreateWithFlags(&context.setup, cudaStreamNonBlocking),
              "cannot make a stream on GPU {}", local));
  return checked(cublasLtCreate(&context.blas), "cannot start cuBLASLt");
}

heddle_rt_status closeInPeace(heddle_rt_context *context) {
  HEDDLE_RT_TRY(context->alive());
  if (context->group)
    return invalid("heddle_rt_finalize between group_begin and group_end");
  for (heddle_rt_stream &stream : context->streams)
    HEDDLE_RT_TRY(heddle::cuda::await(context, stream.native));
  HEDDLE_RT_TRY(context->awaitSent());
  if (context->checking)
    for (heddle_rt_comm &comm : context->comms)
      HEDDLE_RT_TRY(context->compareCalls(comm));
  heddle_rt_status status = HEDDLE_RT_OK;
  while (!context->blocks.empty()) {
    const heddle_rt_status one =
        heddle::cuda::release(context, context->blocks.begin()->first);
    if (status == HEDDLE_RT_OK)
      status = one;
  }
  HEDDLE_RT_TRY(status);
  context->graphs->clear();
  // NCCL waits for the others; those that wait for this rank must learn of it.
  context->transport->closing();
  return heddle::cuda::closeComms(context);
}

heddle_rt_status start(heddle_rt_context &context,
                       const heddle_rt_options &options) {
  if (options.mode == HEDDLE_RT_MODE_RECORD)
    return invalid("mode record is the host backend's; there are no calls to "
                   "record without running them here");
  HEDDLE_RT_TRY(context.configure(options));
  HEDDLE_RT_TRY(chooseComm(context));
  HEDDLE_RT_TRY(context.graphs->configure());
  HEDDLE_RT_TRY(context.join(options, false));
  HEDDLE_RT_TRY(takeDevice(context, options));
  context.products = std::make_unique<heddle::cuda::Products>(context.blas);
  return context.staged ? HEDDLE_RT_OK : heddle::cuda::joinWorld(&context);
}

} // namespace

namespace heddle::cuda {

heddle_rt_status checkOpen(heddle_rt_stream *stream, const char *what) {
  heddle_rt_context *context = stream->context;
  HEDDLE_RT_TRY(context->alive());
  if (context->group)
    return invalid("{} on stream {} between group_begin and group_end", what,
                   stream->name);
  return context->die(checked(cudaSetDevice(context->device),
                              "{}: cannot use GPU {}", what, context->device));
}

heddle_rt_status openFor(heddle_rt_stream *stream, const char *what) {
  HEDDLE_RT_TRY(checkOpen(stream, what));
  return stream->context->die(stream->context->graphs->enter(stream));
}

heddle_rt_status watch(heddle_rt_stream *stream, const char *name,
                       const std::vector<heddle_rt_access> &accesses) {
  HEDDLE_RT_TRY(openFor(stream, name));
  return stream->context->watch(stream->number, name, accesses.data(),
                                accesses.size());
}

} // namespace heddle::cuda

heddle_rt_status heddle_rt_init(const heddle_rt_options *options,
                                heddle_rt_context **context) {
  if (!context)
    return invalid("heddle_rt_init: context is NULL");
  *context = nullptr;
  const heddle_rt_options given = options ? *options : heddle_rt_options{};
  auto made = std::make_unique<heddle_rt_context>();
  const heddle_rt_status status = start(*made, given);
  if (status != HEDDLE_RT_OK) {
    const std::string sentence = lastError();
    if (made->transport) {
      made->transport->abort(2, sentence);
      made->transport->leave();
    }
    return failWith(status, sentence);
  }
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

/// A device's streams run when they like; the nearest of the host's words.
heddle_rt_mode heddle_rt_context_mode(const heddle_rt_context *) {
  return HEDDLE_RT_MODE_LATE;
}

heddle_rt_status heddle_rt_finalize(heddle_rt_context *context) {
  if (!context)
    return invalid("heddle_rt_finalize: context is NULL");
  const std::unique_ptr<heddle_rt_context> owner(context);
  const heddle_rt_status status = closeInPeace(context);
  const std::string sentence = lastError();
  if (status != HEDDLE_RT_OK) {
    context->dead = status; // nothing is waited for any more
    context->graphs->clear();
    heddle::cuda::abortComms(context);
    context->transport->abort(context->exitCode, sentence);
  }
  context->sent.clear();
  for (heddle_rt_comm &comm : context->comms)
    comm.seat.reset();
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
  context->graphs->clear();
  heddle::cuda::abortComms(context);
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
  const char *name = context->intern(orUnnamed(axis, "unnamed"));
  heddle::ranks::CommSeat seat;
  HEDDLE_RT_TRY(context->takeSeat(color, rank, size, name, seat));
  ncclComm_t nccl = nullptr;
  if (!context->staged)
    HEDDLE_RT_TRY(context->die(
        heddle::cuda::splitWorld(context, color, rank, &nccl, name)));
  if (color < 0)
    return HEDDLE_RT_OK;
  heddle_rt_comm &made = context->comms.emplace_back();
  static_cast<heddle::ranks::CommSeat &>(made) = std::move(seat);
  made.context = context;
  made.nccl = nccl;
  made.worldRanks.resize(size_t(size));
  const int own = context->rank;
  HEDDLE_RT_TRY(context->die(
      context->gather(made, &own, made.worldRanks.data(), sizeof own, name)));
  for (const uintptr_t begin : context->commBlocks)
    HEDDLE_RT_TRY(context->die(heddle::cuda::registerWindow(&made, begin)));
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
                                         const char *name, int32_t highPriority,
                                         heddle_rt_stream **stream) {
  if (!context || !stream)
    return invalid("heddle_rt_stream_create: an argument is NULL");
  HEDDLE_RT_TRY(context->alive());
  const std::string given = orUnnamed(name, "unnamed");
  HEDDLE_RT_TRY(checked(cudaSetDevice(context->device), "stream {}", given));
  int least = 0, greatest = 0;
  HEDDLE_RT_TRY(checked(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                        "stream {}: cannot ask for priorities", given));
  cudaStream_t native = nullptr;
  HEDDLE_RT_TRY(
      checked(cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking,
                                           highPriority ? greatest : least),
              "cannot make stream {}", given));
  const int number = int(context->streams.size());
  context->trace.streams.push_back(given);
  context->races.addStream(given);
  *stream = &context->streams.emplace_back(
      heddle_rt_stream{context, given, number, native});
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_stream_synchronize(heddle_rt_stream *stream) {
  if (!stream)
    return invalid("heddle_rt_stream_synchronize: stream is NULL");
  HEDDLE_RT_TRY(
      heddle::cuda::checkOpen(stream, "heddle_rt_stream_synchronize"));
  if (stream->context->graphs->isCapturing())
    return invalid("stream {} is waited for within a graph", stream->name);
  stream->context->races.synchronize(heddle::ranks::raceOf(stream->number));
  return stream->context->die(
      heddle::cuda::await(stream->context, stream->native));
}

heddle_rt_status heddle_rt_event_create(heddle_rt_context *context,
                                        const char *name,
                                        heddle_rt_event **event) {
  if (!context || !event)
    return invalid("heddle_rt_event_create: an argument is NULL");
  HEDDLE_RT_TRY(context->alive());
  const std::string given = orUnnamed(name, "unnamed");
  HEDDLE_RT_TRY(checked(cudaSetDevice(context->device), "event {}", given));
  cudaEvent_t native = nullptr;
  HEDDLE_RT_TRY(
      checked(cudaEventCreateWithFlags(&native, cudaEventDisableTiming),
              "cannot make event {}", given));
  heddle_rt_event &made = context->events.emplace_back();
  made.context = context;
  made.number = int(context->events.size()) - 1;
  made.name = given;
  made.native = native;
  *event = &made;
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_event_record(heddle_rt_event *event,
                                        heddle_rt_stream *stream) {
  if (!event || !stream)
    return invalid("heddle_rt_event_record: an argument is NULL");
  HEDDLE_RT_TRY(heddle::cuda::checkOpen(stream, event->name.c_str()));
  heddle_rt_context *context = stream->context;
  if (context->graphs->isCapturing())
    return context->graphs->between(
        [=] { return heddle_rt_event_record(event, stream); });
  event->recorded = true;
  event->clock = context->races.record(heddle::ranks::raceOf(stream->number));
  if (context->ranges.isOpen())
    context->ranges.record(stream->number, event->number);
  return context->die(checked(cudaEventRecord(event->native, stream->native),
                              "event {} on stream {}", event->name,
                              stream->name));
}

heddle_rt_status heddle_rt_stream_wait(heddle_rt_stream *stream,
                                       heddle_rt_event *event) {
  if (!event || !stream)
    return invalid("heddle_rt_stream_wait: an argument is NULL");
  HEDDLE_RT_TRY(heddle::cuda::checkOpen(stream, event->name.c_str()));
  heddle_rt_context *context = stream->context;
  if (context->graphs->isCapturing())
    return context->graphs->between(
        [=] { return heddle_rt_stream_wait(stream, event); });
  if (!event->recorded)
    return invalid("stream {} waits for event {}, which was never recorded",
                   stream->name, event->name);
  context->races.wait(heddle::ranks::raceOf(stream->number), event->clock);
  if (context->ranges.isOpen())
    context->ranges.wait(stream->number, event->number);
  return context->die(
      checked(cudaStreamWaitEvent(stream->native, event->native, 0),
              "stream {} waits for event {}", stream->name, event->name));
}

heddle_rt_status heddle_rt_trace_write(heddle_rt_context *context,
                                       const char *path) {
  if (!context || !path)
    return invalid("heddle_rt_trace_write: an argument is NULL");
  return invalid("heddle_rt_trace_write: the context does not record");
}

heddle_rt_status heddle_rt_ranges_write(heddle_rt_context *context,
                                        const char *path) {
  return context ? context->writeRanges(path)
                 : invalid("heddle_rt_ranges_write: context is NULL");
}

void *heddle_rt_native_stream(heddle_rt_stream *stream) {
  return stream->native;
}

const heddle::runtime::Trace &
heddle::ranks::traceOf(const heddle_rt_context *context) {
  return context->trace;
}

std::string heddle::ranks::graphsOf(const heddle_rt_context *context) {
  return context->graphs->words();
}

heddle::runtime::Flight &heddle::ranks::flightOf(heddle_rt_context *context) {
  return context->flight;
}

heddle::ranks::Integrity &
heddle::ranks::integrityOf(heddle_rt_context *context) {
  return context->integrity;
}
