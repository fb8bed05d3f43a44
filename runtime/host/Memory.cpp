// Allocations, their canaries, and what a piece of work may touch.

#include "runtime/host/Context.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

using heddle::host::Allocation;
using heddle::runtime::fail;
using heddle::runtime::invalid;
using heddle::runtime::orUnnamed;

namespace heddle::host {

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kCanary = 64; ///< bytes on each side
constexpr unsigned char kCanaryByte = 0xc5;
constexpr int kPoisonByte = 0xff; ///< makes every float format NaN

uintptr_t address(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

bool untouched(const std::byte *canary) {
  for (int64_t i = 0; i < kCanary; ++i)
    if (canary[i] != std::byte(kCanaryByte))
      return false;
  return true;
}

/// Large memory in large pages, where the system has them: with small ones a
/// third of the time of a kernel that streams goes to looking up addresses.
void useLargePages(void *mapped, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr int64_t kWorthwhile = 8 << 20;
  if (bytes >= kWorthwhile)
    madvise(mapped, size_t(bytes), MADV_HUGEPAGE); // a wish, no more
#endif
}

/// The allocation that `at` is in, or NULL.
Allocation *find(heddle_rt_context *context, uintptr_t at) {
  auto it = context->allocations.upper_bound(at);
  if (it == context->allocations.begin())
    return nullptr;
  --it;
  return at < it->first + uintptr_t(it->second.bytes) ? &it->second : nullptr;
}

heddle_rt_status checkBounds(heddle_rt_context *context, const char *name,
                             const heddle_rt_access &access) {
  const uintptr_t begin = address(access.begin);
  Allocation *allocation = find(context, begin);
  // What a program declares to be device memory must be; a test or the train
  // main may also hand over memory of its own.
  if (!allocation)
    return context->recording()
               ? invalid("{} {} {} bytes that are in no allocation", name,
                         access.writes ? "writes" : "reads", access.bytes)
               : HEDDLE_RT_OK;
  const auto base = address(allocation->mapped) + uintptr_t(kPage);
  const auto offset = int64_t(begin - base);
  if (offset + access.bytes > allocation->bytes)
    return invalid("{} {} {} bytes at offset {} of {}, which has {} bytes",
                   name, access.writes ? "writes" : "reads", access.bytes,
                   offset, allocation->name, allocation->bytes);
  int64_t &highest = context->trace.allocations[allocation->number].highest;
  highest = std::max(highest, offset + access.bytes);
  return HEDDLE_RT_OK;
}

void logRanges(heddle_rt_stream *stream, const char *name,
               const heddle_rt_access *accesses, size_t count) {
  std::vector<heddle::runtime::RangeLog::Range> ranges;
  for (size_t i = 0; i < count; ++i) {
    const heddle_rt_access &access = accesses[i];
    const uintptr_t begin = address(access.begin);
    const Allocation *allocation = find(stream->context, begin);
    if (allocation && access.bytes > 0)
      ranges.push_back({allocation->number,
                        int64_t(begin - address(allocation->mapped)) - kPage,
                        access.bytes, access.writes != 1, access.writes != 0});
  }
  stream->context->ranges.work(stream->late, name, ranges);
}

} // namespace

heddle_rt_status watch(heddle_rt_stream *stream, const char *name,
                       const heddle_rt_access *accesses, size_t count) {
  heddle_rt_context *context = stream->context;
  if (!context->watching())
    return HEDDLE_RT_OK;
  for (size_t i = 0; i < count; ++i)
    if (accesses[i].bytes > 0)
      HEDDLE_RT_TRY(checkBounds(context, name, accesses[i]));
  if (context->ranges.isOpen())
    logRanges(stream, name, accesses, count);
  std::string found = context->races.note(stream->race, name, accesses, count);
  if (found.empty())
    return HEDDLE_RT_OK;
  return context->die(
      runtime::failWith(HEDDLE_RT_CHECK_FAILED, std::move(found)));
}

heddle_rt_status release(heddle_rt_context *context, uintptr_t begin) {
  const auto it = context->allocations.find(begin);
  const Allocation allocation = it->second;
  const auto *memory =
      static_cast<const std::byte *>(allocation.mapped) + kPage;
  const bool before = context->checking && !context->recording() &&
                      !untouched(memory - kCanary);
  const bool after = context->checking && !context->recording() &&
                     !untouched(memory + allocation.bytes);
  context->trace.allocations[allocation.number].freed = true;
  context->allocations.erase(it);
  munmap(allocation.mapped, size_t(allocation.mappedBytes));
  if (before || after)
    return fail(HEDDLE_RT_CHECK_FAILED, "something wrote {} allocation {}",
                before ? "before the start of" : "beyond the end of",
                allocation.name);
  return HEDDLE_RT_OK;
}

void appendRuns(std::vector<heddle_rt_access> &accesses, const void *base,
                int64_t elementBytes, std::vector<Extent> extents,
                int32_t writes) {
  int64_t run = 1;
  while (!extents.empty()) {
    const Extent inner = extents.back();
    if (inner.count == 0)
      return;
    if (inner.count != 1 && inner.stride != run && inner.stride != 0)
      break;
    run *= inner.stride == 0 ? 1 : inner.count;
    extents.pop_back();
  }
  std::erase_if(extents,
                [](const Extent &e) { return e.count == 1 || e.stride == 0; });
  int64_t runs = 1;
  for (const Extent &extent : extents)
    runs *= extent.count;
  for (int64_t i = 0; i < runs; ++i) {
    int64_t rest = i, offset = 0;
    for (size_t e = extents.size(); e-- > 0;) {
      offset += rest % extents[e].count * extents[e].stride;
      rest /= extents[e].count;
    }
    accesses.push_back(
        {static_cast<const std::byte *>(base) + offset * elementBytes,
         run * elementBytes, writes});
  }
}

} // namespace heddle::host

heddle_rt_status heddle_rt_alloc(heddle_rt_context *context,
                                 heddle_rt_memory_class kind, int64_t bytes,
                                 const char *name, void **memory) {
  using namespace heddle::host;
  if (!context || !memory)
    return invalid("heddle_rt_alloc: an argument is NULL");
  *memory = nullptr;
  HEDDLE_RT_TRY(context->alive());
  const std::string given = orUnnamed(name, "unnamed");
  if (bytes < 0 || bytes > INT64_MAX / 2 || kind < HEDDLE_RT_COMPUTE ||
      kind > HEDDLE_RT_HOST)
    return invalid("allocation {}: {} bytes of memory class {}", given, bytes,
                   int(kind));
  const bool record = context->recording();
  const int64_t whole = (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
  void *mapped =
      mmap(nullptr, size_t(whole), record ? PROT_NONE : PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | (record ? MAP_NORESERVE : 0), -1, 0);
  if (mapped == MAP_FAILED)
    return fail(HEDDLE_RT_OUT_OF_MEMORY, "allocation {}: {} bytes: {}", given,
                bytes, std::strerror(errno));
  if (!record)
    useLargePages(mapped, whole);
  auto *start = static_cast<std::byte *>(mapped) + kPage;
  if (context->checking && !record) {
    std::memset(start - kCanary, kCanaryByte, kCanary);
    std::memset(start, kPoisonByte, size_t(bytes));
    std::memset(start + bytes, kCanaryByte, kCanary);
  }
  const size_t number = context->trace.allocations.size();
  context->trace.allocations.push_back({given, kind, bytes, 0, false});
  context->allocations[address(start)] = {given,  kind,  bytes,
                                          mapped, whole, number};
  *memory = start;
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_free(heddle_rt_context *context, void *memory) {
  using namespace heddle::host;
  if (!context)
    return invalid("heddle_rt_free: context is NULL");
  if (!memory)
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(context->alive());
  const auto it = context->allocations.find(address(memory));
  if (it == context->allocations.end())
    return invalid("heddle_rt_free: the pointer is no live allocation's start");
  const heddle_rt_access all{memory, it->second.bytes, 1};
  if (context->watching()) {
    std::string found = context->races.note(heddle::runtime::Races::kHost,
                                            "heddle_rt_free", &all, 1);
    if (!found.empty())
      return context->die(
          heddle::runtime::failWith(HEDDLE_RT_CHECK_FAILED, std::move(found)));
    context->races.forget(memory, it->second.bytes);
  }
  return context->die(release(context, it->first));
}

heddle_rt_status heddle_rt_poison(heddle_rt_stream *stream, void *memory,
                                  int64_t bytes) {
  using namespace heddle::host;
  if (!stream || bytes < 0 || (!memory && bytes > 0))
    return invalid("heddle_rt_poison: a NULL argument, or {} bytes", bytes);
  if (!stream->context->watching() || bytes == 0)
    return openFor(stream, "poison");
  const heddle::runtime::Trace::Call call{
      "poison", "", stream->late, -1, 0, HEDDLE_RT_U8, 0, 0};
  return queueWork(stream, call, {{memory, bytes, 1}}, [=] {
    std::memset(memory, kPoisonByte, size_t(bytes));
    return HEDDLE_RT_OK;
  });
}
