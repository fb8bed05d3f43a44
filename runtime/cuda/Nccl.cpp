// Communicators: how they are made, waited for and ended. All are non-blocking,
// so that no call of NCCL holds this thread longer than it wants to wait.

#include "runtime/common/Neighbours.h"
#include "runtime/cuda/Context.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <utility>

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

namespace heddle::cuda {

using runtime::fail;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

ncclConfig_t configOf(const char *axis) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = axis;
  return config;
}

/// Waits between two looks at what others do: a moment at first, then so long
/// that ranks do not keep each other from a core.
class Patience {
public:
  void wait() {
    constexpr int kLooks = 64;
    if (++looks < kLooks)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

private:
  int looks = 0;
};

/// An error that NCCL found since it took its calls.
heddle_rt_status checkComms(heddle_rt_context *context) {
  for (const heddle_rt_comm &comm : context->comms) {
    ncclResult_t state = ncclSuccess;
    if (!comm.nccl)
      continue;
    HEDDLE_RT_TRY(checked(ncclCommGetAsyncError(comm.nccl, &state),
                          "communicator {}", comm.axis));
    if (state != ncclSuccess && state != ncclInProgress)
      return failed(state, fmt::format("communicator {}", comm.axis));
  }
  return HEDDLE_RT_OK;
}

/// Which ranks have not begun a launch that this one waits for: they answer
/// neither now nor soon, or have begun fewer. "" where all have.
std::string missingRanks(heddle_rt_context *context, const Pending &launch) {
  const heddle_rt_comm &comm = *launch.comm;
  const std::vector<int64_t> begun =
      context->askAll(comm, comm.begun, std::min(2.0, context->timeoutSeconds));
  std::string missing;
  for (int place = 0; place < comm.size; ++place)
    if (place != comm.rank && begun[size_t(place)] < launch.number)
      missing +=
          fmt::format("{}rank {} ({})", missing.empty() ? "" : ", ",
                      comm.worldRanks[size_t(place)],
                      begun[size_t(place)] < 0
                          ? "does not answer"
                          : fmt::format("has begun {} of {}",
                                        begun[size_t(place)], launch.number));
  return missing;
}

heddle_rt_status timedOut(heddle_rt_context *context) {
  if (context->pending.empty())
    return fail(HEDDLE_RT_DEVICE_ERROR,
                "the GPU's work did not end in {} s, and no collective is "
                "under way",
                context->timeoutSeconds);
  const Pending &launch = context->pending.front();
  // Where one is stopped, others cannot be asked if it is rank 0.
  const std::string missing =
      runtime::stoppedRanks().empty() ? missingRanks(context, launch) : "";
  if (missing.empty())
    return ranks::waitedTooLong(launch.name, context->timeoutSeconds);
  return fail(HEDDLE_RT_PEER_FAILED,
              "{} waited for its peers for {} s; missing: {}", launch.name,
              context->timeoutSeconds, missing);
}

/// A rank that has left will begin nothing more.
heddle_rt_status checkPeers(heddle_rt_context *context) {
  HEDDLE_RT_TRY(context->transport->alive());
  if (context->pending.empty())
    return HEDDLE_RT_OK;
  const Pending &launch = context->pending.front();
  const std::vector<int> &places = launch.comm->worldRanks;
  for (const int rank : context->transport->gone()) {
    const auto at = std::find(places.begin(), places.end(), rank);
    if (at != places.end())
      return fail(HEDDLE_RT_PEER_FAILED,
                  "{} waits for rank {} of its communicator (rank {} of all), "
                  "which has left",
                  launch.name, at - places.begin(), rank);
  }
  return HEDDLE_RT_OK;
}

} // namespace

size_t retire(heddle_rt_context *context) {
  size_t done = 0;
  while (!context->pending.empty() &&
         cudaEventQuery(context->pending.front().event) == cudaSuccess) {
    context->spareEvents.push_back(context->pending.front().event);
    context->pending.pop_front();
    ++done;
  }
  return done;
}

heddle_rt_status await(heddle_rt_context *context, cudaStream_t stream) {
  // Its last launches end a moment after a peer's do, which may leave then.
  constexpr double kGrace = 0.5;
  Clock::time_point moved = Clock::now();
  Patience patience;
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) {
      retire(context);
      return HEDDLE_RT_OK;
    }
    if (state != cudaErrorNotReady)
      return failed(state, "work on the GPU");
    if (retire(context) > 0)
      moved = Clock::now();
    HEDDLE_RT_TRY(checkComms(context));
    HEDDLE_RT_TRY(context->transport->alive());
    const double waited = secondsSince(moved);
    if (waited > kGrace)
      HEDDLE_RT_TRY(checkPeers(context));
    if (waited > context->timeoutSeconds)
      return timedOut(context);
    patience.wait();
  }
}

heddle_rt_status settle(heddle_rt_context *context, ncclComm_t comm,
                        ncclResult_t result, const char *what) {
  const Clock::time_point start = Clock::now();
  Patience patience;
  while (result == ncclInProgress) {
    HEDDLE_RT_TRY(checked(ncclCommGetAsyncError(comm, &result), "{}", what));
    HEDDLE_RT_TRY(context->transport->alive());
    if (secondsSince(start) > context->timeoutSeconds)
      return ranks::waitedTooLong(what, context->timeoutSeconds);
    if (result == ncclInProgress)
      patience.wait();
  }
  return checked(result, "{}", what);
}

/// NCCL hangs or refuses where two ranks have one GPU. Which one a number means
/// differs by process (CUDA_VISIBLE_DEVICES), its place on the bus does not.
static heddle_rt_status checkGpus(heddle_rt_context *context,
                                  const ranks::CommSeat &all) {
  struct Place {
    char machine[80], bus[32];
  } own = {};
  gethostname(own.machine, sizeof own.machine - 1);
  HEDDLE_RT_TRY(checked(
      cudaDeviceGetPCIBusId(own.bus, int(sizeof own.bus), context->device),
      "cannot ask GPU {} for its place on the bus", context->device));
  std::vector<Place> places(static_cast<size_t>(context->size));
  HEDDLE_RT_TRY(context->gather(all, &own, places.data(), sizeof own,
                                "the GPUs of all ranks"));
  std::map<std::pair<std::string, std::string>, int> takers;
  for (int rank = 0; rank < context->size; ++rank) {
    const auto &[machine, bus] = places[size_t(rank)];
    const auto [other, isFirst] = takers.insert({{machine, bus}, rank});
    if (!isFirst)
      return runtime::invalid(
          "ranks {} and {} both have GPU {} of machine {}; start at most one "
          "rank per GPU, and let LOCAL_RANK or CUDA_VISIBLE_DEVICES say which "
          "is whose",
          other->second, rank, bus, machine);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status joinWorld(heddle_rt_context *context) {
  ranks::CommSeat all;
  HEDDLE_RT_TRY(context->takeSeat(0, context->rank, context->size,
                                  "all ranks, to start", all));
  HEDDLE_RT_TRY(checkGpus(context, all));
  ncclUniqueId id = {};
  if (context->rank == 0)
    HEDDLE_RT_TRY(checked(ncclGetUniqueId(&id), "ncclGetUniqueId"));
  HEDDLE_RT_TRY(context->broadcast(all, &id, sizeof id, "NCCL's first id"));
  ncclConfig_t config = configOf("world");
  const ncclResult_t result = ncclCommInitRankConfig(
      &context->world, context->size, id, context->rank, &config);
  return settle(context, context->world, result, "ncclCommInitRankConfig");
}

heddle_rt_status splitWorld(heddle_rt_context *context, int32_t color,
                            int32_t rank, ncclComm_t *comm, const char *axis) {
  ncclConfig_t config = configOf(axis);
  const std::string what = fmt::format("ncclCommSplit for {}", axis);
  const ncclResult_t result =
      ncclCommSplit(context->world, color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                    rank, comm, &config);
  // Until the parent has settled, nobody knows what became of the child.
  HEDDLE_RT_TRY(settle(context, context->world, result, what.c_str()));
  if (!*comm)
    return HEDDLE_RT_OK;
  ncclResult_t state = ncclSuccess;
  HEDDLE_RT_TRY(checked(ncclCommGetAsyncError(*comm, &state), "{}", what));
  return settle(context, *comm, state, what.c_str());
}

heddle_rt_status closeComms(heddle_rt_context *context) {
  if (context->staged)
    return HEDDLE_RT_OK;
  const auto close = [&](ncclComm_t &comm, const std::string &axis) {
    const std::string what = "ncclCommFinalize of " + axis;
    HEDDLE_RT_TRY(settle(context, comm, ncclCommFinalize(comm), what.c_str()));
    const ncclResult_t result = ncclCommDestroy(comm);
    comm = nullptr;
    return checked(result, "ncclCommDestroy of {}", axis);
  };
  for (heddle_rt_comm &comm : context->comms)
    HEDDLE_RT_TRY(close(comm.nccl, comm.axis));
  return close(context->world, "world");
}

void abortComms(heddle_rt_context *context) {
  for (heddle_rt_comm &comm : context->comms)
    if (comm.nccl)
      ncclCommAbort(std::exchange(comm.nccl, nullptr));
  if (context->world)
    ncclCommAbort(std::exchange(context->world, nullptr));
}

} // namespace heddle::cuda
