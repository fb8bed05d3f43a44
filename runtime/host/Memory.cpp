// Allocations, their canaries, and what a piece of work may touch.

#include "runtime/host/Context.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

using heddle::runtime::fail;
using heddle::runtime::invalid;
using heddle::runtime::orUnnamed;

namespace heddle::host {

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kCanary = 64; ///< bytes on each side
constexpr unsigned char kCanaryByte = 0xc5;
constexpr int kPoisonByte = 0xff; ///< makes every float format NaN

/// With a page on each side, for the canaries.
int64_t mappedBytes(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
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

} // namespace

heddle_rt_status release(heddle_rt_context *context, uintptr_t begin) {
  const ranks::Allocation allocation = context->allocations.at(begin);
  auto *memory = reinterpret_cast<std::byte *>(begin);
  const bool looks = context->checking && !context->recording();
  const bool before = looks && !untouched(memory - kCanary);
  const bool after = looks && !untouched(memory + allocation.bytes);
  context->released(begin);
  munmap(memory - kPage, size_t(mappedBytes(allocation.bytes)));
  if (before || after)
    return fail(HEDDLE_RT_CHECK_FAILED, "something wrote {} allocation {}",
                before ? "before the start of" : "beyond the end of",
                allocation.name);
  return HEDDLE_RT_OK;
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
  const int64_t whole = mappedBytes(bytes);
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
  context->allocated(start, given, kind, bytes);
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
  HEDDLE_RT_TRY(context->checkFree(memory));
  return context->die(release(context, reinterpret_cast<uintptr_t>(memory)));
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
