// NCCL among ranks that are threads of this process.
//
// A communicator is what its ranks share, and a handle of each. Management
// calls (init, split, register, finalize) meet: each rank's k-th one is the
// same call of all. Collectives meet so when they run, messages when both ends
// do. In non-blocking communicators a call is in progress until a few polls
// later, and as long as peers are missing; until then no other call is taken
// [NCCL, Thread Safety; ncclCommGetAsyncError].

#include "NcclReduce.h"

#include "Device.h"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

using namespace heddle::gpu;

namespace {

/// Where the ranks' k-th calls meet.
struct Meeting {
  std::vector<std::shared_ptr<Op>> ops; ///< by rank
  int arrived = 0;
  bool done = false;
};
struct Message {
  std::shared_ptr<Op> send, receive;
  bool done = false;
};

struct Shared {
  explicit Shared(int ranks) : ranks(ranks), devices(size_t(ranks), -1) {}
  int ranks;
  std::mutex mutex;
  std::vector<int> devices;
  std::map<int64_t, Meeting> meetings;
  /// Of a pair (from, to), by number.
  std::map<std::tuple<int, int, int64_t>, Message> messages;
  std::string error; ///< ends the communicator for all
  ncclResult_t state = ncclSuccess;
  bool broken = false; ///< a rank has aborted: nothing completes any more

  void fail(ncclResult_t result, std::string why) {
    if (state == ncclSuccess) {
      state = result;
      error = std::move(why);
    }
  }
  /// Management calls: what each rank brought to its k-th.
  struct Call {
    std::string what;
    int arrived = 0;
    std::vector<int64_t> first, second;
    std::map<int64_t, std::shared_ptr<Shared>> byColor;
  };
  std::map<int64_t, Call> calls;
};

std::mutex registryMutex;
std::map<std::string, std::shared_ptr<Shared>> registry;
uint64_t ids = 0;

} // namespace

struct ncclWindow_vidmem {
  void *memory;
};

static std::atomic<int64_t> openComms = 0;
int64_t heddle::gpu::openCommunicators() { return openComms; }

struct ncclComm {
  ncclComm(std::shared_ptr<Shared> shared, int rank, int device)
      : shared(std::move(shared)), rank(rank), device(device) {
    ++openComms;
  }
  ~ncclComm() { --openComms; }

  std::shared_ptr<Shared> shared;
  int rank, device;
  int64_t managed = 0, collectives = 0;
  std::map<int, int64_t> sent = {}, received = {}; ///< by peer
  /// Operations that were captured; by peer and whether they receive.
  std::map<std::pair<int, bool>, int64_t> captured = {};
  /// Graphs hold it too.
  std::shared_ptr<bool> held = std::make_shared<bool>(true);
  int polls = 0;         ///< before the last call is taken
  int64_t waitsFor = -1; ///< a management call that is under way
  std::function<ncclResult_t()> settled = {}; ///< its end
  ncclResult_t state = ncclSuccess;
  bool finalized = false;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

namespace {

thread_local int depth = 0;
struct Queued {
  ncclComm_t comm;
  cudaStream_t stream;
  std::shared_ptr<Op> op;
  std::shared_ptr<bool> held = nullptr; ///< its communicator's, in a graph
};
thread_local std::vector<Queued> queued;
thread_local uint64_t polls = 88172645463325252ull;

int somePolls() {
  polls ^= polls << 13;
  polls ^= polls >> 7;
  polls ^= polls << 17;
  return int(polls % 4);
}

bool was(const char *function, ncclResult_t &result) {
  int code = 0;
  if (!injected(function, code))
    return false;
  result = ncclResult_t(code);
  return true;
}

/// Whether a communicator can take a call now.
ncclResult_t usable(const char *function, ncclComm_t comm) {
  ncclResult_t result;
  if (was(function, result))
    return result;
  if (!comm)
    return refuse(ncclInvalidArgument,
                  std::string(function) + ": no communicator");
  if (comm->waitsFor >= 0 || comm->polls > 0)
    return refuse(ncclInvalidUsage, std::string(function) +
                                        ": the communicator's last call is in "
                                        "progress [NCCL, "
                                        "ncclCommGetAsyncError]");
  if (comm->finalized)
    return refuse(ncclInvalidUsage,
                  std::string(function) + ": the communicator is finalized");
  return ncclSuccess;
}

/// Enters a rank's next management call.
Shared::Call &enter(ncclComm_t comm, const std::string &what, int64_t first,
                    int64_t second) {
  Shared &shared = *comm->shared;
  const int64_t number = comm->managed++;
  Shared::Call &call = shared.calls[number];
  if (call.arrived == 0) {
    call.what = what;
    call.first.resize(size_t(shared.ranks));
    call.second.resize(size_t(shared.ranks));
  }
  if (call.what != what)
    shared.fail(ncclInvalidUsage,
                "one rank calls " + what + ", another " + call.what);
  ++call.arrived;
  call.first[size_t(comm->rank)] = first;
  call.second[size_t(comm->rank)] = second;
  comm->waitsFor = number;
  comm->polls = somePolls();
  return call;
}

/// The calls of one group on one stream.
class GroupLaunch : public Launch {
public:
  void add(const Queued &one) {
    Member member{one.comm->shared, one.op, one.comm->rank, 0,
                  one.comm->aborted};
    if (one.op->peer < 0)
      member.number = one.comm->collectives++;
    else if (one.op->output)
      member.number = one.comm->received[one.op->peer]++;
    else
      member.number = one.comm->sent[one.op->peer]++;
    members.push_back(member);
  }
  void begin() override {
    for (Member &member : members) {
      Shared &shared = *member.shared;
      const std::scoped_lock lock(shared.mutex);
      if (member.op->peer < 0)
        meet(shared, member);
      else
        pass(shared, member);
    }
  }
  bool finished() override {
    return std::all_of(members.begin(), members.end(), [](Member &member) {
      Shared &shared = *member.shared;
      const std::scoped_lock lock(shared.mutex);
      // "Aborts any operations that might still be running" [NCCL,
      // ncclCommAbort]: this rank's alone.
      if (*member.aborted)
        return true;
      return member.op->peer < 0 ? shared.meetings[member.number].done
                                 : shared.messages[keyOf(member)].done;
    });
  }

private:
  struct Member {
    std::shared_ptr<Shared> shared;
    std::shared_ptr<Op> op;
    int rank;
    int64_t number;
    std::shared_ptr<bool> aborted;
  };
  static std::tuple<int, int, int64_t> keyOf(const Member &member) {
    return member.op->output
               ? std::tuple(member.op->peer, member.rank, member.number)
               : std::tuple(member.rank, member.op->peer, member.number);
  }
  /// NCCL does not see ranks that call different things, and hangs or returns
  /// garbage [NCCL, Collective Operations]; the double says so.
  static void meet(Shared &shared, const Member &member) {
    Meeting &meeting = shared.meetings[member.number];
    meeting.ops.resize(size_t(shared.ranks));
    for (const auto &other : meeting.ops)
      if (other &&
          (std::string(other->what) != member.op->what ||
           other->count != member.op->count || other->type != member.op->type ||
           other->reduction != member.op->reduction))
        return shared.fail(ncclRemoteError,
                           std::string(member.op->what) + " of " +
                               std::to_string(member.op->count) + " meets " +
                               other->what + " of " +
                               std::to_string(other->count) +
                               ": the ranks made different calls");
    for (const auto &other : meeting.ops)
      if (other && other->captured != member.op->captured)
        return shared.fail(ncclInvalidUsage,
                           unlikeCaptures(*other, *member.op));
    meeting.ops[size_t(member.rank)] = member.op;
    if (++meeting.arrived < shared.ranks || shared.broken)
      return;
    carryOut(meeting.ops);
    meeting.done = true;
  }
  static void pass(Shared &shared, const Member &member) {
    Message &message = shared.messages[keyOf(member)];
    (member.op->output ? message.receive : message.send) = member.op;
    if (!message.send || !message.receive || shared.broken)
      return;
    if (message.send->captured != message.receive->captured)
      return shared.fail(ncclInvalidUsage,
                         unlikeCaptures(*message.send, *message.receive));
    const size_t sent = message.send->count * bytesOf(message.send->type);
    const size_t expected =
        message.receive->count * bytesOf(message.receive->type);
    if (sent != expected)
      return shared.fail(ncclRemoteError,
                         "a message of " + std::to_string(sent) +
                             " bytes meets a receive of " +
                             std::to_string(expected) +
                             ": the ranks made different calls");
    std::memmove(message.receive->output, message.send->input, sent);
    message.done = true;
  }

  std::vector<Member> members;
};

ncclResult_t closeGroup() {
  std::vector<Queued> all = std::move(queued);
  queued.clear();
  std::vector<std::pair<cudaStream_t, std::vector<Queued>>> launches;
  for (const Queued &one : all) {
    auto at = std::find_if(launches.begin(), launches.end(), [&](auto &launch) {
      return launch.first == one.stream;
    });
    if (at == launches.end())
      at = launches.insert(at, {one.stream, {}});
    at->second.push_back(one);
    if (one.stream->capture) {
      one.op->captured =
          ++one.comm->captured[{one.op->peer, one.op->output != nullptr}];
      at->second.back().held = one.comm->held;
    }
    one.comm->polls = somePolls() + 1;
  }
  for (const auto &[stream, members] : launches)
    current().pushLaunch(stream, [members] {
      const auto launch = std::make_shared<GroupLaunch>();
      for (const Queued &one : members)
        launch->add(one);
      return launch;
    });
  return all.empty() ? ncclSuccess : ncclInProgress;
}

/// Checks a call's buffers and adds it to the open group, or to one of its own.
ncclResult_t add(const char *function, ncclComm_t comm, cudaStream_t stream,
                 Op op, size_t inputBytes, size_t outputBytes) {
  const bool waits =
      comm && std::any_of(queued.begin(), queued.end(),
                          [&](const Queued &one) { return one.comm == comm; });
  if (!waits)
    if (const ncclResult_t result = usable(function, comm))
      return result;
  if (checkStream(function, stream) != cudaSuccess)
    return ncclUnhandledCudaError;
  if (comm->device != current().number)
    return refuse(ncclInvalidUsage, std::string(function) +
                                        ": the communicator is of another "
                                        "device");
  if (op.peer >= comm->shared->ranks)
    return refuse(ncclInvalidArgument,
                  std::string(function) + ": peer " + std::to_string(op.peer));
  for (const auto &[at, bytes] :
       {std::pair<const void *, size_t>{op.input, inputBytes},
        {op.output, outputBytes}})
    if (const std::string why = memory().check(at, bytes, comm->device);
        !why.empty())
      return refuse(ncclInvalidArgument, std::string(function) + ": " + why);
  queued.push_back({comm, stream, std::make_shared<Op>(op)});
  return depth > 0 ? ncclInProgress : closeGroup();
}

} // namespace

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInternalError:
    return "internal error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  default:
    return "NCCL operation in progress";
  }
}
const char *ncclGetLastError(ncclComm_t) { return lastRefusal().c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ncclResult_t result;
  if (was("ncclGetUniqueId", result))
    return result;
  const std::scoped_lock lock(registryMutex);
  *id = {};
  const std::string text = "double-" + std::to_string(++ids);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ncclResult_t result;
  if (was("ncclCommInitRankConfig", result))
    return result;
  if (config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t))
    return refuse(ncclInvalidArgument,
                  "a configuration that NCCL_CONFIG_INITIALIZER did not make");
  std::shared_ptr<Shared> shared;
  {
    const std::scoped_lock lock(registryMutex);
    auto &known = registry[id.internal];
    if (!known)
      known = std::make_shared<Shared>(ranks);
    shared = known;
  }
  const std::scoped_lock lock(shared->mutex);
  const int device = current().number;
  *comm = new ncclComm(shared, rank, device);
  // [NCCL, "Duplicate GPU detected"]
  if (std::count(shared->devices.begin(), shared->devices.end(), device))
    shared->fail(ncclInvalidUsage, "two ranks of a communicator on device " +
                                       std::to_string(device));
  shared->devices[size_t(rank)] = device;
  enter(*comm, "ncclCommInitRankConfig", 0, 0);
  return config->blocking == 0
             ? ncclInProgress
             : refuse(ncclInvalidUsage,
                      "the double has non-blocking communicators only");
}

/// Makes the communicator of a color once all ranks of the parent have asked.
static ncclResult_t makeChild(ncclComm_t parent, Shared::Call &asked,
                              ncclComm_t *child) {
  const int64_t color = asked.first[size_t(parent->rank)];
  if (color < 0) {
    *child = nullptr;
    return ncclSuccess;
  }
  std::vector<std::pair<int64_t, int>> order; // key, then parent's rank
  for (int rank = 0; rank < parent->shared->ranks; ++rank)
    if (asked.first[size_t(rank)] == color)
      order.push_back({asked.second[size_t(rank)], rank});
  std::sort(order.begin(), order.end());
  auto &shared = asked.byColor[color];
  if (!shared)
    shared = std::make_shared<Shared>(int(order.size()));
  const auto at =
      std::find(order.begin(), order.end(),
                std::pair{asked.second[size_t(parent->rank)], parent->rank});
  *child = new ncclComm(shared, int(at - order.begin()), parent->device);
  (*child)->polls = somePolls();
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *child, ncclConfig_t *) {
  if (const ncclResult_t result = usable("ncclCommSplit", comm))
    return result;
  const std::scoped_lock lock(comm->shared->mutex);
  enter(comm, "ncclCommSplit", color, key);
  const int64_t number = comm->waitsFor;
  comm->settled = [=] {
    return makeChild(comm, comm->shared->calls[number], child);
  };
  return ncclInProgress;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes,
                                    ncclWindow_t *window, int flags) {
  if (const ncclResult_t result = usable("ncclCommWindowRegister", comm))
    return result;
  uintptr_t begin = 0;
  {
    const std::scoped_lock lock(memory().mutex);
    Allocation *found = memory().find(at, begin);
    const auto address = reinterpret_cast<uintptr_t>(at);
    // "buff must be allocated by ncclMemAlloc or cuMem, aligned to 4096"
    // [NCCL, ncclCommWindowRegister].
    if (!found || !found->byNccl || address % 4096 != 0 ||
        address + bytes > begin + found->bytes ||
        flags != NCCL_WIN_COLL_SYMMETRIC)
      return refuse(ncclInvalidArgument,
                    "ncclCommWindowRegister: not of ncclMemAlloc, not aligned "
                    "to 4096 bytes, or too long");
    ++found->windows;
  }
  const std::scoped_lock lock(comm->shared->mutex);
  enter(comm, "ncclCommWindowRegister", int64_t(bytes),
        int64_t(reinterpret_cast<uintptr_t>(at) - begin));
  const int64_t number = comm->waitsFor;
  comm->settled = [=]() -> ncclResult_t {
    const Shared::Call &call = comm->shared->calls[number];
    for (int rank = 0; rank < comm->shared->ranks; ++rank)
      if (call.first[size_t(rank)] != call.first[0] ||
          call.second[size_t(rank)] != call.second[0])
        return refuse(ncclInvalidUsage,
                      "ncclCommWindowRegister: other sizes or offsets on other "
                      "ranks [NCCL, Symmetric Memory]");
    *window = new ncclWindow_vidmem{at};
    return ncclSuccess;
  };
  return ncclInProgress;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (const ncclResult_t result = usable("ncclCommWindowDeregister", comm))
    return result;
  const std::scoped_lock lock(memory().mutex);
  uintptr_t begin = 0;
  if (Allocation *found = memory().find(window->memory, begin))
    --found->windows;
  delete window;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **to, size_t bytes) {
  ncclResult_t result;
  if (was("ncclMemAlloc", result))
    return result;
  *to = memory().allocate(current().number, bytes, true);
  return *to ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void *at) {
  const std::string why = memory().release(at, false, true);
  return why.empty() ? ncclSuccess
                     : refuse(ncclInvalidUsage, "ncclMemFree: " + why);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  ncclResult_t result;
  if (was("ncclCommGetAsyncError", result)) {
    *state = result;
    return ncclSuccess;
  }
  *state = ncclInProgress;
  if (comm->polls > 0) {
    --comm->polls;
    return ncclSuccess;
  }
  const std::scoped_lock lock(comm->shared->mutex);
  if (comm->shared->state != ncclSuccess) {
    setRefusal(comm->shared->error);
    *state = comm->shared->state;
    return ncclSuccess;
  }
  if (comm->waitsFor >= 0) {
    if (comm->shared->calls[comm->waitsFor].arrived < comm->shared->ranks)
      return ncclSuccess;
    comm->waitsFor = -1;
    if (const auto settled = std::exchange(comm->settled, nullptr))
      comm->state = settled();
  }
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t result = usable("ncclCommFinalize", comm))
    return result;
  const std::scoped_lock lock(comm->shared->mutex);
  enter(comm, "ncclCommFinalize", 0, 0);
  comm->finalized = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->finalized || comm->waitsFor >= 0)
    return refuse(ncclInvalidUsage,
                  "ncclCommDestroy of a non-blocking communicator that is not "
                  "finalized would block [NCCL, ncclCommDestroy]");
  // It would wait for them [NCCL, src/init.cc: commReclaim].
  if (comm->held.use_count() > 1)
    return refuse(ncclInvalidUsage, "ncclCommDestroy: a graph still has "
                                    "operations of the communicator [NCCL]");
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::scoped_lock lock(comm->shared->mutex);
    comm->shared->broken = true;
    *comm->aborted = true;
  }
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *input, void *output, size_t count,
                           ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytesOf(type);
  return add("ncclAllReduce", comm, stream,
             {"ncclAllReduce", input, output, count, type, operation, -1},
             bytes, bytes);
}
ncclResult_t ncclReduceScatter(const void *input, void *output, size_t count,
                               ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytesOf(type);
  return add("ncclReduceScatter", comm, stream,
             {"ncclReduceScatter", input, output, count, type, operation, -1},
             comm ? bytes * size_t(comm->shared->ranks) : 0, bytes);
}
ncclResult_t ncclAllGather(const void *input, void *output, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * bytesOf(type);
  return add("ncclAllGather", comm, stream,
             {"ncclAllGather", input, output, count, type, ncclSum, -1}, bytes,
             comm ? bytes * size_t(comm->shared->ranks) : 0);
}
ncclResult_t ncclSend(const void *input, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclSend", comm, stream,
             {"ncclSend", input, nullptr, count, type, ncclSum, peer},
             count * bytesOf(type), 0);
}
ncclResult_t ncclRecv(void *output, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add("ncclRecv", comm, stream,
             {"ncclRecv", nullptr, output, count, type, ncclSum, peer}, 0,
             count * bytesOf(type));
}
ncclResult_t ncclGroupStart(void) {
  ncclResult_t result;
  if (was("ncclGroupStart", result))
    return result;
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  if (depth == 0)
    return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  --depth;
  ncclResult_t result;
  if (was("ncclGroupEnd", result)) {
    queued.clear();
    return result;
  }
  return depth > 0 ? ncclSuccess : closeGroup();
}
