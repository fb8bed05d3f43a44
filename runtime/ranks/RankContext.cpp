#include "runtime/ranks/RankContext.h"

#include "runtime/common/Launch.h"
#include "runtime/ranks/Collective.h"
#include "runtime/ranks/Meeting.h"
#include "runtime/ranks/ThreadTransport.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace heddle::ranks {

using runtime::fail;
using runtime::failWith;
using runtime::invalid;

RankContext::RankContext() = default;
RankContext::~RankContext() = default;

heddle_rt_status RankContext::die(heddle_rt_status status) {
  if (status == HEDDLE_RT_OK || status == HEDDLE_RT_INVALID_ARGUMENT ||
      status == HEDDLE_RT_OUT_OF_MEMORY || dead != HEDDLE_RT_OK)
    return status;
  dead = status;
  why = runtime::lastError();
  return status;
}

heddle_rt_status RankContext::alive() {
  if (dead != HEDDLE_RT_OK)
    return failWith(dead, why);
  return transport ? die(transport->alive()) : HEDDLE_RT_OK;
}

heddle_rt_status readNumber(const char *variable, uint64_t otherwise,
                            uint64_t largest, uint64_t &value) {
  value = otherwise;
  const char *text = std::getenv(variable);
  if (!text || !*text)
    return HEDDLE_RT_OK;
  const char *end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end || value > largest)
    return invalid("environment variable {}={}: expected a number from 0 to {}",
                   variable, text, largest);
  return HEDDLE_RT_OK;
}

heddle_rt_status RankContext::configure(const heddle_rt_options &options) {
  uint64_t races = 0, timeout = 600;
  HEDDLE_RT_TRY(readNumber("HEDDLE_RACES", 0, 1, races));
  HEDDLE_RT_TRY(readNumber("HEDDLE_TIMEOUT", 600, 1u << 30, timeout));
  if (options.checking < HEDDLE_RT_CHOICE_DEFAULT ||
      options.checking > HEDDLE_RT_CHOICE_OFF || options.compute_threads < 0 ||
      options.timeout_seconds < 0)
    return invalid("options: checking {}, compute_threads {}, timeout_seconds "
                   "{}: one of them has no meaning",
                   int(options.checking), options.compute_threads,
                   options.timeout_seconds);
  checking = options.checking == HEDDLE_RT_CHOICE_DEFAULT
                 ? races != 0
                 : options.checking == HEDDLE_RT_CHOICE_ON;
  timeoutSeconds = options.timeout_seconds ? double(options.timeout_seconds)
                                           : double(timeout);
  return HEDDLE_RT_OK;
}

/// That MPI and the launcher's variables mean the same place.
static heddle_rt_status checkPlace(const runtime::Launch &launch,
                                   const Transport &transport) {
  const int64_t at = transport.rank(), of = transport.size();
  if (at == launch.rank && of == launch.size.value_or(of))
    return HEDDLE_RT_OK;
  return invalid("MPI says that this process is rank {} of {}, {} that it is "
                 "rank {} of {} ({}); is the program linked with another MPI "
                 "than the launcher's?",
                 at, of, launch.launcher, launch.rank, launch.size.value_or(of),
                 launch.variables);
}

heddle_rt_status RankContext::join(const heddle_rt_options &options,
                                   bool rendezvous) {
  if (options.threads) {
    HEDDLE_RT_TRY(joinThreads(options.threads, options.rank, transport));
  } else {
    // What does not fit together is told before anybody waits for anybody.
    const auto launch = runtime::detectLaunch(runtime::environmentVariable);
    if (!launch)
      return invalid("{}", launch.message());
    if (*launch && (*launch)->hasMpi && isBuiltWithMpi()) {
      HEDDLE_RT_TRY(joinMpi(transport, rendezvous));
      HEDDLE_RT_TRY(checkPlace(**launch, *transport));
    } else if (*launch) {
      Meeting meeting;
      HEDDLE_RT_TRY(findMeeting(**launch, meeting));
      if (meeting.size > 1)
        HEDDLE_RT_TRY(joinTcp(meeting, timeoutSeconds, transport));
    }
  }
  if (!transport) {
    alone = std::make_unique<heddle_rt_threads>(1);
    HEDDLE_RT_TRY(joinThreads(alone.get(), 0, transport));
  }
  rank = trace.rank = transport->rank();
  size = trace.size = transport->size();
  return flight.open(rank, size);
}

heddle_rt_status RankContext::takeSeat(int32_t color, int32_t place, int32_t of,
                                       const std::string &axis,
                                       CommSeat &seat) {
  if (color >= 0 && (of < 1 || of > size || place < 0 || place >= of))
    return invalid("communicator {}: place {} of {} in a group of {} ranks",
                   axis, place, of, size);
  if (transport)
    HEDDLE_RT_TRY(die(transport->split(color, place, of, intern(axis),
                                       timeoutSeconds, seat.seat)));
  const int32_t split = splits++;
  if (color < 0)
    return HEDDLE_RT_OK;
  seat.inFlight = flight.addComm(axis.c_str(), split, color, place, of);
  seat.axis = axis;
  seat.color = color;
  seat.rank = place;
  seat.size = of;
  seat.number = int(trace.comms.size());
  trace.comms.push_back({axis, color, place, of, {}, {}, 0});
  return HEDDLE_RT_OK;
}

Progress testAll(const Members &members) {
  Progress all = Progress::Done;
  for (const auto &member : members) {
    if (member->finished)
      continue;
    const Progress progress = member->test();
    if (progress == Progress::Failed)
      return progress;
    member->finished = progress == Progress::Done;
    if (!member->finished)
      all = Progress::Pending;
  }
  return all;
}

heddle_rt_status beginAll(const Members &members) {
  for (const auto &member : members)
    HEDDLE_RT_TRY(member->begin());
  return HEDDLE_RT_OK;
}

/// Places that those which are not finished wait for.
static std::vector<int> placesWaitedFor(const Members &members) {
  std::set<int> places;
  for (const auto &member : members)
    if (!member->finished)
      for (int place : member->pending())
        places.insert(place);
  return {places.begin(), places.end()};
}

heddle_rt_status RankContext::awaitMembers(Members &members, const char *name) {
  struct Waiting {
    Members &members;
    runtime::Flight &flight;
  } waiting{members, flight};
  const auto test = [](void *given) {
    const auto &[members, flight] = *static_cast<Waiting *>(given);
    const Progress progress = testAll(members);
    if (progress == Progress::Pending && flight.waitsLong())
      flight.tellPending(placesWaitedFor(members));
    return progress;
  };
  const runtime::Flight::Wait wait(flight);
  return die(await(*transport, test, &waiting, name, timeoutSeconds));
}

heddle_rt_status RankContext::runNow(Members members, const char *name) {
  HEDDLE_RT_TRY(die(beginAll(members)));
  std::erase_if(sent,
                [](const auto &one) { return one->test() == Progress::Done; });
  for (const auto &member : members)
    if (member->detached)
      sent.push_back(member);
  std::erase_if(members, [](const auto &member) { return member->detached; });
  return awaitMembers(members, name);
}

heddle_rt_status RankContext::awaitSent() {
  if (sent.empty())
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(awaitMembers(sent, "a message"));
  sent.clear();
  return HEDDLE_RT_OK;
}

heddle_rt_status RankContext::gather(const CommSeat &comm, const void *own,
                                     void *all, int64_t bytes,
                                     const char *what) {
  constexpr int kTag = 2; // no collective of the host backend has it
  const Place place{comm.seat.get(), comm.rank, comm.size, kTag, what};
  auto gather = allGather(place, own, all, 1, bytes);
  HEDDLE_RT_TRY(gather->begin());
  const runtime::Flight::Wait wait(flight);
  const auto test = [](void *collective) {
    return static_cast<Collective *>(collective)->test();
  };
  return await(*transport, test, gather.get(), what, timeoutSeconds);
}

heddle_rt_status RankContext::broadcast(const CommSeat &comm, void *data,
                                        int64_t bytes, const char *what) {
  constexpr int kTag = 4; // no collective of the host backend has it
  const Place place{comm.seat.get(), comm.rank, comm.size, kTag, what};
  const std::vector<int32_t> from(size_t(comm.size), 0);
  const std::string own(static_cast<const char *>(data), size_t(bytes));
  auto move = permute(place, own.data(), data, bytes, from.data());
  HEDDLE_RT_TRY(move->begin());
  const auto test = [](void *collective) {
    return static_cast<Collective *>(collective)->test();
  };
  return await(*transport, test, move.get(), what, timeoutSeconds);
}

std::vector<int64_t> RankContext::askAll(const CommSeat &comm, int64_t own,
                                         double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kTag = 3; // no collective of the host backend has it
  const auto size = size_t(comm.size);
  asked.push_back(std::make_unique<std::vector<int64_t>>(2 * size, -1));
  std::vector<int64_t> &numbers = *asked.back();
  const auto piece = [&](size_t peer, int64_t &number) -> Piece {
    auto *bytes = reinterpret_cast<std::byte *>(&number);
    return {int(peer), {bytes, 1, sizeof number, sizeof number}};
  };
  // One by one, so that those who answer are not held up by those who do not.
  std::vector<std::unique_ptr<Request>> requests(size);
  numbers[size_t(comm.rank)] = own;
  for (size_t peer = 0; peer < size; ++peer) {
    numbers[size + peer] = own;
    if (int(peer) != comm.rank)
      requests[peer] =
          comm.seat->exchange(kTag, {piece(peer, numbers[size + peer])},
                              {piece(peer, numbers[peer])}, "progress");
  }
  const Clock::time_point start = Clock::now();
  bool pending = true;
  while (pending &&
         std::chrono::duration<double>(Clock::now() - start).count() <
             seconds) {
    const uint64_t seen = transport->version();
    pending = false;
    for (auto &request : requests)
      if (request && request->test() != Progress::Pending)
        request.reset();
      else
        pending |= request != nullptr;
    if (pending)
      transport->idle(seen);
  }
  requests.clear();
  return {numbers.begin(), numbers.begin() + comm.size};
}

heddle_rt_status RankContext::compareCalls(const CommSeat &comm) {
  struct Calls {
    runtime::CallHash collectives;
    uint64_t messages;
  };
  const Calls own{comm.hash, comm.messages.value};
  std::vector<Calls> all(static_cast<size_t>(comm.size));
  HEDDLE_RT_TRY(gather(comm, &own, all.data(), sizeof(Calls),
                       "the closing check of collectives"));
  for (int peer = 0; peer < comm.size; ++peer)
    if (all[size_t(peer)].collectives.value != comm.hash.value)
      return fail(HEDDLE_RT_CHECK_FAILED,
                  "communicator {}: rank {} made {} collectives and rank {} "
                  "made {}, which differ in number, operation, elements or "
                  "dtype",
                  comm.axis, comm.rank, comm.hash.calls, peer,
                  all[size_t(peer)].collectives.calls);
  uint64_t messages = 0;
  for (const Calls &calls : all)
    messages += calls.messages;
  if (messages != 0)
    return fail(HEDDLE_RT_CHECK_FAILED,
                "communicator {}: its ranks sent other messages than they "
                "received; they differ in number, elements or dtype",
                comm.axis);
  return HEDDLE_RT_OK;
}

void RankContext::allocated(const void *begin, const std::string &name,
                            heddle_rt_memory_class kind, int64_t bytes) {
  const size_t number = trace.allocations.size();
  trace.allocations.push_back({name, kind, bytes, 0, false});
  allocations[reinterpret_cast<uintptr_t>(begin)] = {name, kind, bytes, number};
}

void RankContext::released(uintptr_t begin) {
  const auto it = allocations.find(begin);
  trace.allocations[it->second.number].freed = true;
  allocations.erase(it);
}

heddle_rt_status RankContext::checkFree(const void *memory) {
  const auto it = allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (it == allocations.end())
    return invalid("heddle_rt_free: the pointer is no live allocation's start");
  if (!watching())
    return HEDDLE_RT_OK;
  const heddle_rt_access all{memory, it->second.bytes, 1};
  std::string found =
      races.note(runtime::Races::kHost, "heddle_rt_free", &all, 1);
  if (!found.empty())
    return die(failWith(HEDDLE_RT_CHECK_FAILED, std::move(found)));
  races.forget(memory, it->second.bytes);
  return HEDDLE_RT_OK;
}

heddle_rt_status RankContext::writeRanges(const char *path) {
  if (!watching())
    return invalid("heddle_rt_ranges_write: the context neither checks nor "
                   "records, so that nobody looks at ranges");
  if (ranges.isOpen() && !ranges.close())
    return invalid("cannot write ranges: {}", std::strerror(errno));
  if (path && !ranges.open(path, trace))
    return invalid("cannot write ranges to {}: {}", path, std::strerror(errno));
  return HEDDLE_RT_OK;
}

Allocation *RankContext::find(uintptr_t at, uintptr_t &begin) {
  auto it = allocations.upper_bound(at);
  if (it == allocations.begin())
    return nullptr;
  --it;
  begin = it->first;
  return at < it->first + uintptr_t(it->second.bytes) ? &it->second : nullptr;
}

heddle_rt_status RankContext::checkBounds(const char *name,
                                          const heddle_rt_access &access) {
  const auto at = reinterpret_cast<uintptr_t>(access.begin);
  uintptr_t begin = 0;
  const Allocation *allocation = find(at, begin);
  // What a program declares to be device memory must be; a test or the train
  // main may also hand over memory of its own.
  if (!allocation)
    return recording()
               ? invalid("{} {} {} bytes that are in no allocation", name,
                         access.writes ? "writes" : "reads", access.bytes)
               : HEDDLE_RT_OK;
  const auto offset = int64_t(at - begin);
  if (offset + access.bytes > allocation->bytes)
    return invalid("{} {} {} bytes at offset {} of {}, which has {} bytes",
                   name, access.writes ? "writes" : "reads", access.bytes,
                   offset, allocation->name, allocation->bytes);
  int64_t &highest = trace.allocations[allocation->number].highest;
  highest = std::max(highest, offset + access.bytes);
  return HEDDLE_RT_OK;
}

void RankContext::logRanges(int stream, const char *name,
                            const heddle_rt_access *accesses, size_t count) {
  std::vector<runtime::RangeLog::Range> found;
  for (size_t i = 0; i < count; ++i) {
    const heddle_rt_access &access = accesses[i];
    const auto at = reinterpret_cast<uintptr_t>(access.begin);
    uintptr_t begin = 0;
    const Allocation *allocation = find(at, begin);
    if (allocation && access.bytes > 0)
      found.push_back({allocation->number, int64_t(at - begin), access.bytes,
                       access.writes != 1, access.writes != 0});
  }
  ranges.work(stream, name, found);
}

heddle_rt_status RankContext::watch(int stream, const char *name,
                                    const heddle_rt_access *accesses,
                                    size_t count) {
  flight.operation(stream, name);
  if (!watching())
    return HEDDLE_RT_OK;
  for (size_t i = 0; i < count; ++i)
    if (accesses[i].bytes > 0)
      HEDDLE_RT_TRY(checkBounds(name, accesses[i]));
  if (ranges.isOpen())
    logRanges(stream, name, accesses, count);
  std::string found = races.note(raceOf(stream), name, accesses, count);
  if (found.empty())
    return HEDDLE_RT_OK;
  return die(failWith(HEDDLE_RT_CHECK_FAILED, std::move(found)));
}

} // namespace heddle::ranks
