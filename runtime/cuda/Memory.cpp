// Allocations, their canaries, and registration for collectives.

#include "runtime/cuda/Context.h"

#include <algorithm>
#include <cstring>
#include <utility>

using heddle::cuda::checked;
using heddle::runtime::fail;
using heddle::runtime::invalid;
using heddle::runtime::orUnnamed;

namespace heddle::cuda {

namespace {

constexpr int64_t kPage = 4096; ///< what heddle_rt_alloc aligns to
constexpr int64_t kCanary = 64; ///< bytes on each side, within a page
constexpr unsigned char kCanaryByte = 0xc5;
constexpr int kPoisonByte = 0xff; ///< makes every float format NaN

/// With a page on each side, for alignment and canaries.
size_t rawBytes(int64_t bytes) {
  return size_t((bytes + kPage - 1) / kPage * kPage + 2 * kPage);
}

/// Who has the memory of a class: without NCCL, comm's is like compute's.
heddle_rt_memory_class homeOf(const heddle_rt_context *context,
                              heddle_rt_memory_class kind) {
  return kind == HEDDLE_RT_COMM && context->staged ? HEDDLE_RT_COMPUTE : kind;
}

cudaError_t freeRaw(const Block &block) {
  switch (block.kind) {
  case HEDDLE_RT_HOST:
    return cudaFreeHost(block.raw);
  case HEDDLE_RT_COMM:
    return ncclMemFree(block.raw) == ncclSuccess ? cudaSuccess
                                                 : cudaErrorUnknown;
  default:
    return cudaFree(block.raw);
  }
}

heddle_rt_status allocateRaw(const std::string &name,
                             heddle_rt_memory_class kind, int64_t bytes,
                             void **raw) {
  const size_t whole = rawBytes(bytes);
  switch (kind) {
  case HEDDLE_RT_HOST:
    return checked(cudaHostAlloc(raw, whole, cudaHostAllocDefault),
                   "allocation {}: {} bytes of pinned host memory", name,
                   bytes);
  case HEDDLE_RT_COMM: {
    const ncclResult_t result = ncclMemAlloc(raw, whole);
    if (result == ncclSuccess)
      return HEDDLE_RT_OK;
    failed(result, fmt::format("allocation {}: {} bytes", name, bytes));
    // NCCL says no more than that CUDA refused; almost always for want of room.
    const std::string sentence = runtime::lastError();
    return runtime::failWith(result == ncclUnhandledCudaError
                                 ? HEDDLE_RT_OUT_OF_MEMORY
                                 : HEDDLE_RT_DEVICE_ERROR,
                             sentence);
  }
  default:
    return checked(cudaMalloc(raw, whole), "allocation {}: {} bytes", name,
                   bytes);
  }
}

std::byte *aligned(void *raw) {
  const auto at = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t up = (at + kPage - 1) / kPage * kPage;
  // A whole page before it, where the first one begins at once.
  return reinterpret_cast<std::byte *>(up == at ? at + kPage : up);
}

/// Canaries around memory full of NaN.
heddle_rt_status fill(heddle_rt_context *context, std::byte *start,
                      int64_t bytes) {
  for (std::byte *canary : {start - kCanary, start + bytes})
    HEDDLE_RT_TRY(
        checked(cudaMemsetAsync(canary, kCanaryByte, kCanary, context->setup),
                "cannot fill a canary"));
  if (bytes > 0)
    HEDDLE_RT_TRY(checked(
        cudaMemsetAsync(start, kPoisonByte, size_t(bytes), context->setup),
        "cannot fill {} bytes", bytes));
  return await(context, context->setup);
}

heddle_rt_status untouched(heddle_rt_context *context, const std::byte *canary,
                           bool &is) {
  unsigned char bytes[kCanary];
  HEDDLE_RT_TRY(checked(cudaMemcpyAsync(bytes, canary, kCanary,
                                        cudaMemcpyDefault, context->setup),
                        "cannot read a canary"));
  HEDDLE_RT_TRY(await(context, context->setup));
  is = true;
  for (const unsigned char byte : bytes)
    is &= byte == kCanaryByte;
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status release(heddle_rt_context *context, uintptr_t begin) {
  const ranks::Allocation allocation = context->allocations.at(begin);
  Block block = std::move(context->blocks.at(begin));
  const auto *memory = reinterpret_cast<const std::byte *>(begin);
  bool before = true, after = true;
  heddle_rt_status status = HEDDLE_RT_OK;
  if (context->checking && context->dead == HEDDLE_RT_OK) {
    status = untouched(context, memory - kCanary, before);
    if (status == HEDDLE_RT_OK)
      status = untouched(context, memory + allocation.bytes, after);
  }
  for (const Window &window : block.windows)
    if (window.comm->nccl && window.native && status == HEDDLE_RT_OK)
      status =
          settle(context, window.comm->nccl,
                 ncclCommWindowDeregister(window.comm->nccl, window.native),
                 "ncclCommWindowDeregister");
  context->released(begin);
  context->blocks.erase(begin);
  std::erase(context->commBlocks, begin);
  const heddle_rt_status freed =
      checked(freeRaw(block), "cannot free allocation {}", allocation.name);
  HEDDLE_RT_TRY(status);
  HEDDLE_RT_TRY(freed);
  if (!before || !after)
    return fail(HEDDLE_RT_CHECK_FAILED, "something wrote {} allocation {}",
                before ? "beyond the end of" : "before the start of",
                allocation.name);
  return HEDDLE_RT_OK;
}

heddle_rt_status registerWindow(heddle_rt_comm *comm, uintptr_t begin) {
  heddle_rt_context *context = comm->context;
  const ranks::Allocation &allocation = context->allocations.at(begin);
  // NCCL wants the same of every rank. Those of other stages may have more.
  std::vector<int64_t> all(static_cast<size_t>(comm->size));
  HEDDLE_RT_TRY(context->gather(*comm, &allocation.bytes, all.data(),
                                sizeof(int64_t), allocation.name.c_str()));
  for (const int64_t bytes : all)
    if (bytes != allocation.bytes || bytes == 0)
      return HEDDLE_RT_OK;
  const size_t pages = rawBytes(allocation.bytes) - 2 * size_t(kPage);
  const std::string what = fmt::format("ncclCommWindowRegister of {} with {}",
                                       allocation.name, comm->axis);
  Window window{comm, nullptr};
  HEDDLE_RT_TRY(settle(
      context, comm->nccl,
      ncclCommWindowRegister(comm->nccl, reinterpret_cast<void *>(begin), pages,
                             &window.native, NCCL_WIN_COLL_SYMMETRIC),
      what.c_str()));
  context->blocks.at(begin).windows.push_back(window);
  return HEDDLE_RT_OK;
}

// Not cudaMallocAsync: graphs keep the addresses, and NCCL registers them.
heddle_rt_status takeScratch(heddle_rt_stream *stream, int64_t bytes,
                             void **memory) {
  constexpr int64_t kUnit = 512; // as much as cudaMalloc aligns to
  const int64_t whole = (bytes + kUnit - 1) / kUnit * kUnit;
  if (stream->scratchUsed + whole > stream->scratchBytes) {
    constexpr int64_t kLeast = int64_t(1) << 16;
    const int64_t next = std::max({kLeast, 2 * stream->scratchBytes, whole});
    void *more = nullptr;
    HEDDLE_RT_TRY(checked(cudaMalloc(&more, size_t(next)),
                          "{} bytes of scratch memory for stream {}", next,
                          stream->name));
    stream->scratch.push_back(more);
    stream->scratchBytes = next;
    stream->scratchUsed = 0;
  }
  *memory = static_cast<std::byte *>(stream->scratch.back()) +
            std::exchange(stream->scratchUsed, stream->scratchUsed + whole);
  return HEDDLE_RT_OK;
}

void giveBackScratch(heddle_rt_stream *stream) { stream->scratchUsed = 0; }

} // namespace heddle::cuda

heddle_rt_status heddle_rt_alloc(heddle_rt_context *context,
                                 heddle_rt_memory_class kind, int64_t bytes,
                                 const char *name, void **memory) {
  using namespace heddle::cuda;
  if (!context || !memory)
    return invalid("heddle_rt_alloc: an argument is NULL");
  *memory = nullptr;
  HEDDLE_RT_TRY(context->alive());
  const std::string given = orUnnamed(name, "unnamed");
  if (bytes < 0 || bytes > INT64_MAX / 2 || kind < HEDDLE_RT_COMPUTE ||
      kind > HEDDLE_RT_HOST)
    return invalid("allocation {}: {} bytes of memory class {}", given, bytes,
                   int(kind));
  HEDDLE_RT_TRY(
      checked(cudaSetDevice(context->device), "allocation {}", given));
  Block block{nullptr, homeOf(context, kind), {}};
  HEDDLE_RT_TRY(allocateRaw(given, block.kind, bytes, &block.raw));
  std::byte *start = aligned(block.raw);
  const auto begin = reinterpret_cast<uintptr_t>(start);
  context->blocks[begin] = block;
  context->allocated(start, given, kind, bytes);
  if (context->checking)
    HEDDLE_RT_TRY(context->die(fill(context, start, bytes)));
  if (block.kind == HEDDLE_RT_COMM) {
    context->commBlocks.push_back(begin);
    for (heddle_rt_comm &comm : context->comms)
      HEDDLE_RT_TRY(context->die(registerWindow(&comm, begin)));
  }
  *memory = start;
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_free(heddle_rt_context *context, void *memory) {
  if (!context)
    return invalid("heddle_rt_free: context is NULL");
  if (!memory)
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(context->alive());
  HEDDLE_RT_TRY(context->checkFree(memory));
  return context->die(
      heddle::cuda::release(context, reinterpret_cast<uintptr_t>(memory)));
}

heddle_rt_status heddle_rt_poison(heddle_rt_stream *stream, void *memory,
                                  int64_t bytes) {
  using namespace heddle::cuda;
  if (!stream || bytes < 0 || (!memory && bytes > 0))
    return invalid("heddle_rt_poison: a NULL argument, or {} bytes", bytes);
  if (!stream->context->watching() || bytes == 0)
    return openFor(stream, "poison");
  HEDDLE_RT_TRY(watch(stream, "poison", {{memory, bytes, 1}}));
  return stream->context->die(checked(
      cudaMemsetAsync(memory, kPoisonByte, size_t(bytes), stream->native),
      "poison of {} bytes on stream {}", bytes, stream->name));
}

heddle_rt_status heddle_rt_copy(heddle_rt_stream *stream, void *to,
                                const void *from, int64_t bytes) {
  using namespace heddle::cuda;
  if (!stream || bytes < 0 || ((!to || !from) && bytes > 0))
    return invalid("heddle_rt_copy: a NULL argument, or {} bytes", bytes);
  const auto *source = static_cast<const std::byte *>(from);
  const auto *target = static_cast<std::byte *>(to);
  if (bytes > 0 && source < target + bytes && target < source + bytes)
    return invalid("heddle_rt_copy: source and target of {} bytes overlap",
                   bytes);
  if (bytes == 0)
    return openFor(stream, "copy");
  HEDDLE_RT_TRY(watch(stream, "copy", {{from, bytes, 0}, {to, bytes, 1}}));
  return stream->context->die(
      checked(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault,
                              stream->native),
              "copy of {} bytes on stream {}", bytes, stream->name));
}

heddle_rt_status heddle_rt_zero(heddle_rt_stream *stream, void *to,
                                int64_t bytes) {
  using namespace heddle::cuda;
  if (!stream || bytes < 0 || (!to && bytes > 0))
    return invalid("heddle_rt_zero: a NULL argument, or {} bytes", bytes);
  if (bytes == 0)
    return openFor(stream, "zero");
  HEDDLE_RT_TRY(watch(stream, "zero", {{to, bytes, 1}}));
  return stream->context->die(
      checked(cudaMemsetAsync(to, 0, size_t(bytes), stream->native),
              "zeros of {} bytes on stream {}", bytes, stream->name));
}

heddle_rt_status heddle_rt_note(heddle_rt_stream *stream, const char *name,
                                const heddle_rt_access *accesses,
                                int32_t count) {
  const char *given = orUnnamed(name, "unnamed kernel");
  if (!stream || count < 0 || (!accesses && count > 0))
    return invalid("{}: a NULL argument or {} accesses", given, count);
  HEDDLE_RT_TRY(heddle::cuda::openFor(stream, given));
  return stream->context->watch(stream->number, given, accesses, size_t(count));
}

heddle_rt_status heddle_rt_host_launch(heddle_rt_stream *, const char *name,
                                       heddle_rt_body, const void *, size_t,
                                       int64_t, int64_t,
                                       const heddle_rt_access *, int32_t) {
  return invalid("{}: a kernel of the host on a GPU's stream; compile it with "
                 "nvcc",
                 orUnnamed(name, "unnamed kernel"));
}
