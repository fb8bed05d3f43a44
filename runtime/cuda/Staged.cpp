// Collectives through host memory, for ranks that share a GPU (NCCL refuses two
// on a device) or that are processes on a double of the vendors' libraries.

#include "runtime/common/Dtype.h"
#include "runtime/cuda/Context.h"

#include <memory>

namespace heddle::cuda {

namespace {

/// A call with host memory in the place of the device's.
struct Copied {
  std::unique_ptr<std::byte[]> input, output;
  ranks::CollectiveCall call;
  int64_t inputBytes, outputBytes;

  explicit Copied(const ranks::CollectiveCall &original) : call(original) {
    const int64_t size = runtime::bytesOf(call.dtype);
    inputBytes = call.input.elements * size;
    outputBytes = call.output.elements * size;
    // One byte more: what is NULL has no elements.
    input = std::make_unique<std::byte[]>(size_t(inputBytes) + 1);
    output = std::make_unique<std::byte[]>(size_t(outputBytes) + 1);
    call.input.data = input.get();
    call.output.data = output.get();
  }
};

heddle_rt_status copy(heddle_rt_stream *stream, const char *name, void *to,
                      const void *from, int64_t bytes) {
  return bytes == 0
             ? HEDDLE_RT_OK
             : checked(cudaMemcpyAsync(to, from, size_t(bytes),
                                       cudaMemcpyDefault, stream->native),
                       "{}: {} bytes through host memory", name, bytes);
}

} // namespace

heddle_rt_status runStaged(heddle_rt_stream *stream,
                           std::vector<NamedCall> calls) {
  heddle_rt_context *context = stream->context;
  std::vector<Copied> copied;
  for (const NamedCall &one : calls) {
    copied.emplace_back(one.call);
    HEDDLE_RT_TRY(copy(stream, one.name, copied.back().input.get(),
                       one.call.input.data, copied.back().inputBytes));
  }
  HEDDLE_RT_TRY(await(context, stream->native));
  ranks::Members members;
  for (size_t i = 0; i < calls.size(); ++i) {
    heddle_rt_comm *comm = calls[i].comm;
    const ranks::Place place{comm->seat.get(), comm->rank, comm->size,
                             ranks::tagOf(calls[i].call, comm->sequence),
                             calls[i].name};
    members.push_back(ranks::makeCollective(copied[i].call, place));
    // The thread must not wait for what a peer does later.
    if (calls[i].call.what == ranks::Operation::Send)
      members.back()->detach();
  }
  HEDDLE_RT_TRY(context->runNow(std::move(members), calls.front().name));
  for (size_t i = 0; i < calls.size(); ++i)
    HEDDLE_RT_TRY(copy(stream, calls[i].name,
                       const_cast<void *>(calls[i].call.output.data),
                       copied[i].output.get(), copied[i].outputBytes));
  return await(context, stream->native);
}

} // namespace heddle::cuda
