#include "Device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

namespace heddle::gpu {

namespace {

constexpr size_t kGuard = 512; ///< bytes around an allocation
constexpr unsigned char kGuardByte = 0xa5;

std::string &refusal() {
  thread_local std::string text;
  return text;
}
Settings &mutableSettings() {
  static Settings all;
  return all;
}

struct Injection {
  int64_t number;
  int code;
};
std::mutex injections;
std::map<std::string, std::vector<Injection>> planned;
std::map<std::string, int64_t> calls;

} // namespace

const Settings &settings() { return mutableSettings(); }
void configure(const Settings &wanted) { mutableSettings() = wanted; }
const std::string &lastRefusal() { return refusal(); }
void setRefusal(std::string why) { refusal() = std::move(why); }

void failCall(const std::string &function, int64_t number, int code) {
  const std::scoped_lock lock(injections);
  if (number == 0) {
    planned.clear();
    return;
  }
  calls[function] = 0;
  planned[function].push_back({number, code});
}

bool injected(const char *function, int &code) {
  const std::scoped_lock lock(injections);
  const auto found = planned.find(function);
  if (found == planned.end())
    return false;
  const int64_t call = ++calls[function];
  for (const Injection &one : found->second)
    if (one.number == call) {
      code = one.code;
      return true;
    }
  return false;
}

//===----------------------------------------------------------------------===//
// Memory. What cudaMalloc gives is "suitably aligned for any kind of variable
// and not cleared" [CUDART, cudaMalloc]: aligned to 512 bytes and no further,
// and full of NaN.
//===----------------------------------------------------------------------===//

Memory &memory() {
  static Memory all;
  return all;
}

void *Memory::allocate(int device, size_t bytes, bool byNccl) {
  const std::scoped_lock lock(mutex);
  if (device >= 0 && used[device] + bytes > size_t(settings().memoryBytes))
    return nullptr;
  // NCCL gives whole pages; cudaMalloc's are not to be relied on.
  const size_t page = 4096, shift = byNccl ? page : kGuard;
  const size_t whole = (shift + bytes + kGuard + page - 1) / page * page;
  auto *raw = static_cast<unsigned char *>(std::aligned_alloc(page, whole));
  if (!raw)
    return nullptr;
  std::memset(raw, kGuardByte, whole);
  std::memset(raw + shift, 0xff, bytes);
  all[reinterpret_cast<uintptr_t>(raw + shift)] = {device, bytes, raw, byNccl,
                                                   0};
  used[device] += bytes;
  return raw + shift;
}

std::string Memory::release(void *at, bool onHost, bool byNccl) {
  const std::scoped_lock lock(mutex);
  const auto found = all.find(reinterpret_cast<uintptr_t>(at));
  if (found == all.end())
    return "the pointer is no allocation's start";
  const Allocation one = found->second;
  if ((one.device < 0) != onHost || one.byNccl != byNccl)
    return "freed by another function than its allocator's";
  if (one.windows > 0)
    return "it is still registered with a communicator [NCCL, "
           "ncclCommWindowDeregister]";
  const auto *begin = static_cast<const unsigned char *>(at);
  bool clean = true;
  for (const auto *byte = static_cast<const unsigned char *>(one.raw);
       byte < begin; ++byte)
    clean &= *byte == kGuardByte;
  for (size_t i = 0; i < kGuard; ++i)
    clean &= begin[one.bytes + i] == kGuardByte;
  all.erase(found);
  used[one.device] -= one.bytes;
  std::free(one.raw);
  return clean ? "" : "somebody wrote beside the allocation";
}

size_t Memory::usedOf(int device) {
  const std::scoped_lock lock(mutex);
  return used[device];
}

Allocation *Memory::find(const void *at, uintptr_t &begin) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  auto found = all.upper_bound(address);
  if (found == all.begin())
    return nullptr;
  --found;
  begin = found->first;
  return address < begin + std::max<size_t>(found->second.bytes, 1)
             ? &found->second
             : nullptr;
}

Home Memory::homeOf(const void *at) {
  const std::scoped_lock lock(mutex);
  uintptr_t begin = 0;
  const Allocation *found = find(at, begin);
  return !found              ? Home::Pageable
         : found->device < 0 ? Home::Pinned
                             : Home::Device;
}

std::string Memory::check(const void *at, size_t bytes, int device) {
  const std::scoped_lock lock(mutex);
  uintptr_t begin = 0;
  const Allocation *found = find(at, begin);
  if (bytes == 0)
    return "";
  if (!found)
    return "the address is no memory of a device, nor pinned memory";
  if (found->device >= 0 && found->device != device)
    return "the address is another device's";
  if (reinterpret_cast<uintptr_t>(at) + bytes > begin + found->bytes)
    return "the range ends beyond its allocation";
  return "";
}

//===----------------------------------------------------------------------===//
// Streams: "operations within a stream are executed in order; in different
// streams they may run in any order" [CUDA, 3.2.8 Asynchronous Concurrent
// Execution]. Which runs is chosen by priorities that are redrawn at random
// moments, so that a stream may starve for a long time.
//===----------------------------------------------------------------------===//

Device::Device(int number)
    : number(number),
      random(settings().seed * 0x9e3779b97f4a7c15u + uint64_t(number)),
      period(uint64_t(2) << random() % 9) {}

cudaStream_t Device::addStream() {
  const std::scoped_lock lock(mutex);
  streams.push_back(
      std::make_unique<CUstream_st>(CUstream_st{number, random(), {}}));
  return streams.back().get();
}

void Device::removeStream(cudaStream_t stream) {
  const std::scoped_lock lock(mutex);
  for (const Item &item : stream->items) {
    running -= item.launch && item.begun;
    notBegun.erase(item.launch && !item.begun ? item.turn : UINT64_MAX);
  }
  std::erase_if(streams, [&](const auto &s) { return s.get() == stream; });
}

bool Device::owns(cudaStream_t stream) {
  const std::scoped_lock lock(mutex);
  return std::any_of(streams.begin(), streams.end(),
                     [&](const auto &s) { return s.get() == stream; });
}

void Device::push(cudaStream_t stream, Item item) {
  const std::scoped_lock lock(mutex);
  if (stream->capture)
    stream->capture->nodes.push_back({std::move(item.work), nullptr});
  else
    stream->items.push_back(std::move(item));
}

void Device::pushLaunch(cudaStream_t stream, const MakeLaunch &make) {
  const std::scoped_lock lock(mutex);
  if (stream->capture) {
    stream->capture->nodes.push_back({nullptr, make});
    return;
  }
  Item item;
  item.launch = make();
  item.turn = turns++;
  notBegun.insert(item.turn);
  stream->items.push_back(std::move(item));
}

bool Device::ready(Item &item) {
  if (item.awaits)
    return *item.awaits;
  if (!item.launch)
    return true;
  if (item.begun)
    return item.launch->finished();
  // With several communicators on a device the order of launches must be the
  // same on all ranks, and is the host's [NCCL, NCCL_LAUNCH_ORDER_IMPLICIT].
  return item.turn == *notBegun.begin() &&
         running < settings().concurrentCollectives;
}

bool Device::step() {
  if (random() % period == 0 && !streams.empty())
    streams[random() % streams.size()]->priority = random();
  CUstream_st *best = nullptr;
  for (const auto &stream : streams)
    if (!stream->items.empty() &&
        (!best || stream->priority > best->priority) &&
        ready(stream->items.front()))
      best = stream.get();
  if (!best)
    return false;
  Item &front = best->items.front();
  if (front.launch && !front.begun) {
    front.begun = true;
    notBegun.erase(front.turn);
    ++running;
    front.launch->begin();
    return true;
  }
  Item item = std::move(front);
  best->items.pop_front();
  running -= item.launch != nullptr;
  if (item.sets)
    *item.sets = true;
  if (item.work)
    if (std::string fault = item.work(); !fault.empty()) {
      // "All existing device memory allocations are invalid; the process must
      // be terminated" [CUDART, cudaErrorLaunchFailure].
      sticky = cudaErrorLaunchFailure;
      setRefusal(std::move(fault));
    }
  return true;
}

bool Device::progress(int steps) {
  const std::scoped_lock lock(mutex);
  bool moved = false;
  while (steps-- > 0 && sticky == cudaSuccess && step())
    moved = true;
  return moved;
}

bool Device::idle(cudaStream_t stream) {
  const std::scoped_lock lock(mutex);
  return stream->items.empty();
}

void Device::drain(cudaStream_t stream) {
  const std::scoped_lock lock(mutex);
  while (!stream->items.empty() && sticky == cudaSuccess && step()) {
  }
}

Device &deviceAt(int number) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Device>> all;
  const std::scoped_lock lock(mutex);
  auto &device = all[number];
  if (!device)
    device = std::make_unique<Device>(number);
  return *device;
}

cudaError_t checkStream(const char *function, cudaStream_t stream) {
  int code = 0;
  if (injected(function, code))
    return cudaError_t(code);
  Device &device = current();
  if (device.sticky != cudaSuccess)
    return device.sticky;
  if (!stream)
    return refuse(cudaErrorInvalidResourceHandle,
                  std::string(function) +
                      ": the default stream waits for all others, which no "
                      "program of ours wants [CUDA, Default Stream]");
  if (!device.owns(stream))
    return refuse(cudaErrorInvalidResourceHandle,
                  std::string(function) + ": the stream is not of the current "
                                          "device [CUDA, Stream and Event "
                                          "Behavior]");
  return cudaSuccess;
}

} // namespace heddle::gpu
