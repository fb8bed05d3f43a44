// CUDA's runtime.

#include "Device.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

using namespace heddle::gpu;

namespace {

thread_local int chosen = 0; ///< as all threads number them

int visible() { return settings().devicePerThread ? 1 : settings().devices; }
/// The device that a number means to this thread.
int meant(int device) {
  static std::atomic<int> threads = 0;
  thread_local const int own = threads++;
  return settings().devicePerThread ? own % settings().devices : device;
}
thread_local cudaError_t last = cudaSuccess;

cudaError_t done(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady)
    last = error;
  return error;
}

/// "" or what is wrong with a range that a stream's work touches. Memory that
/// nobody allocated is the host's own, and allowed where `pageable`.
cudaError_t checkRange(const char *function, const void *at, size_t bytes,
                       bool pageable) {
  if (pageable && memory().homeOf(at) == Home::Pageable)
    return cudaSuccess;
  const std::string why = memory().check(at, bytes, current().number);
  return why.empty() ? cudaSuccess
                     : refuse(cudaErrorInvalidValue,
                              std::string(function) + ": " + why);
}

void pushWork(cudaStream_t stream, std::function<void()> work) {
  Item item;
  item.work = [work = std::move(work)]() -> std::string {
    work();
    return "";
  };
  current().push(stream, std::move(item));
}

struct Copy {
  std::byte *to;
  const std::byte *from;
  size_t toPitch, fromPitch, width, height;
  void run() const {
    for (size_t row = 0; row < height; ++row)
      std::memcpy(to + row * toPitch, from + row * fromPitch, width);
  }
};

/// "Transfers from pageable host memory are staged first; to pageable host
/// memory the function returns only once the copy has completed" [CUDART, API
/// synchronization behavior]. A captured copy looks there when it runs.
cudaError_t copy(const char *function, Copy c, cudaStream_t stream) {
  if (const cudaError_t error = checkStream(function, stream))
    return error;
  if (c.width == 0 || c.height == 0)
    return cudaSuccess;
  if (c.toPitch < c.width || c.fromPitch < c.width)
    return refuse(cudaErrorInvalidValue,
                  std::string(function) +
                      ": a width above the pitch [CUDART, cudaMemcpy2D]");
  const size_t to = (c.height - 1) * c.toPitch + c.width;
  const size_t from = (c.height - 1) * c.fromPitch + c.width;
  if (const cudaError_t error = checkRange(function, c.to, to, true))
    return error;
  if (const cudaError_t error = checkRange(function, c.from, from, true))
    return error;
  if (memory().homeOf(c.from) == Home::Pageable && !stream->capture) {
    const auto staged = std::make_shared<std::vector<std::byte>>(from);
    std::memcpy(staged->data(), c.from, from);
    c.from = staged->data();
    pushWork(stream, [c, staged] { c.run(); });
  } else {
    pushWork(stream, [c] { c.run(); });
  }
  if (memory().homeOf(c.to) == Home::Pageable && !stream->capture)
    while (!current().idle(stream)) {
      if (current().sticky != cudaSuccess)
        return current().sticky;
      current().progress(64);
    }
  return cudaSuccess;
}

cudaError_t fill(const char *function, void *to, size_t pitch, int value,
                 size_t width, size_t height, cudaStream_t stream) {
  if (const cudaError_t error = checkStream(function, stream))
    return error;
  if (width == 0 || height == 0)
    return cudaSuccess;
  if (const cudaError_t error =
          checkRange(function, to, (height - 1) * pitch + width, false))
    return error;
  pushWork(stream, [=] {
    for (size_t row = 0; row < height; ++row)
      std::memset(static_cast<std::byte *>(to) + row * pitch, value, width);
  });
  return cudaSuccess;
}

cudaError_t allocate(const char *function, int device, size_t bytes,
                     void **to) {
  int code = 0;
  if (injected(function, code))
    return cudaError_t(code);
  if (const cudaError_t error = checkUncaptured(function))
    return error;
  *to = nullptr;
  if (bytes == 0)
    return cudaSuccess;
  *to = memory().allocate(device, bytes, false);
  return *to ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t release(const char *function, void *at, bool onHost) {
  int code = 0;
  if (injected(function, code))
    return cudaError_t(code);
  if (!at)
    return cudaSuccess;
  if (const cudaError_t error = checkUncaptured(function))
    return error;
  const std::string why = memory().release(at, onHost, false);
  return why.empty() ? cudaSuccess
                     : refuse(cudaErrorInvalidValue,
                              std::string(function) + ": " + why);
}

} // namespace

Device &heddle::gpu::current() { return deviceAt(chosen); }

/// What a capture allows of a wait. Captures that span streams are legal; the
/// double does not imitate them.
static cudaError_t checkWait(cudaStream_t stream, cudaEvent_t event) {
  if (event->captured == stream->capture)
    return cudaSuccess;
  if (stream->capture)
    stream->capture->invalid = true;
  return event->captured
             ? refuse(cudaErrorStreamCaptureUnsupported,
                      "cudaStreamWaitEvent: the event was recorded in the "
                      "capture of another stream; not imitated")
             : refuse(cudaErrorStreamCaptureIsolation,
                      "cudaStreamWaitEvent: the stream is captured and the "
                      "event was recorded outside [CUDA, Cross-stream "
                      "Dependencies and Events]");
}

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return "cudaSuccess";
  case cudaErrorInvalidValue:
    return "cudaErrorInvalidValue";
  case cudaErrorMemoryAllocation:
    return "cudaErrorMemoryAllocation";
  case cudaErrorInvalidConfiguration:
    return "cudaErrorInvalidConfiguration";
  case cudaErrorNoDevice:
    return "cudaErrorNoDevice";
  case cudaErrorInvalidDevice:
    return "cudaErrorInvalidDevice";
  case cudaErrorInvalidResourceHandle:
    return "cudaErrorInvalidResourceHandle";
  case cudaErrorNotReady:
    return "cudaErrorNotReady";
  case cudaErrorIllegalAddress:
    return "cudaErrorIllegalAddress";
  case cudaErrorLaunchFailure:
    return "cudaErrorLaunchFailure";
  case cudaErrorStreamCaptureUnsupported:
    return "cudaErrorStreamCaptureUnsupported";
  case cudaErrorStreamCaptureInvalidated:
    return "cudaErrorStreamCaptureInvalidated";
  case cudaErrorStreamCaptureIsolation:
    return "cudaErrorStreamCaptureIsolation";
  case cudaErrorCapturedEvent:
    return "cudaErrorCapturedEvent";
  case cudaErrorStreamCaptureWrongThread:
    return "cudaErrorStreamCaptureWrongThread";
  default:
    return "cudaErrorUnknown";
  }
}
const char *cudaGetErrorString(cudaError_t error) {
  const std::string &why = lastRefusal();
  return error == cudaErrorMemoryAllocation ? "out of memory"
         : why.empty()                      ? cudaGetErrorName(error)
                                            : why.c_str();
}
cudaError_t cudaGetLastError(void) { return std::exchange(last, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int *count) {
  int code = 0;
  if (injected("cudaGetDeviceCount", code))
    return done(cudaError_t(code));
  *count = visible();
  return *count > 0 ? cudaSuccess : done(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  int code = 0;
  if (injected("cudaSetDevice", code))
    return done(cudaError_t(code));
  if (device < 0 || device >= visible())
    return done(refuse(cudaErrorInvalidDevice,
                       "cudaSetDevice: there is no such device"));
  chosen = meant(device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = settings().devicePerThread ? 0 : chosen;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device) {
  int code = 0;
  if (injected("cudaDeviceGetPCIBusId", code))
    return done(cudaError_t(code));
  if (device < 0 || device >= visible())
    return done(cudaErrorInvalidDevice);
  std::snprintf(text, size_t(bytes), "0000:%02x:00.0", unsigned(meant(device)));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute,
                                   int device) {
  if (device < 0 || device >= visible())
    return done(cudaErrorInvalidDevice);
  *value = attribute == cudaDevAttrMultiProcessorCount
               ? settings().multiprocessors
               : 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **to, size_t bytes) {
  return done(allocate("cudaMalloc", chosen, bytes, to));
}
cudaError_t cudaFree(void *at) { return done(release("cudaFree", at, false)); }
cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned) {
  return done(allocate("cudaHostAlloc", -1, bytes, to));
}
cudaError_t cudaFreeHost(void *at) {
  return done(release("cudaFreeHost", at, true));
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  int code = 0;
  if (injected("cudaMemGetInfo", code))
    return done(cudaError_t(code));
  *total = size_t(settings().memoryBytes);
  *free = *total - memory().usedOf(chosen);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int) {
  int code = 0;
  if (injected("cudaStreamCreateWithPriority", code))
    return done(cudaError_t(code));
  if (flags != cudaStreamNonBlocking)
    return done(
        refuse(cudaErrorInvalidValue,
               "a stream that is not cudaStreamNonBlocking waits for "
               "the default stream [CUDART, cudaStreamCreateWithFlags]"));
  *stream = current().addStream();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device &device = current();
  if (!stream || !device.owns(stream))
    return done(cudaErrorInvalidResourceHandle);
  device.drain(stream);
  device.removeStream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = checkStream("cudaStreamQuery", stream))
    return done(error);
  if (const cudaError_t error = checkUncaptured("cudaStreamQuery"))
    return done(error);
  Device &device = current();
  device.progress(16);
  if (device.sticky != cudaSuccess)
    return done(device.sticky);
  return device.idle(stream) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  if (const cudaError_t error = checkStream("cudaStreamWaitEvent", stream))
    return done(error);
  if (const cudaError_t error = checkWait(stream, event);
      error || stream->capture)
    return done(error);
  // "If the event was never recorded, the wait does nothing" [CUDART,
  // cudaStreamWaitEvent]; the record that counts is the latest one now.
  if (!event->done)
    return cudaSuccess;
  Item item;
  item.awaits = event->done;
  current().push(stream, std::move(item));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  int code = 0;
  if (injected("cudaEventCreateWithFlags", code))
    return done(cudaError_t(code));
  *event = new CUevent_st{chosen, nullptr, nullptr};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = checkStream("cudaEventRecord", stream))
    return done(error);
  if (event->device != chosen)
    return done(refuse(cudaErrorInvalidResourceHandle,
                       "cudaEventRecord: event and stream are of different "
                       "devices [CUDA, Stream and Event Behavior]"));
  event->captured = stream->capture;
  if (event->captured) // a point of the graph, not of the stream
    return cudaSuccess;
  event->done = std::make_shared<bool>(false);
  Item item;
  item.sets = event->done;
  current().push(stream, std::move(item));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured)
    return done(refuse(cudaErrorCapturedEvent,
                       "cudaEventQuery: the event was last recorded in a "
                       "capture [CUDART, cudaErrorCapturedEvent]"));
  if (const cudaError_t error = checkUncaptured("cudaEventQuery"))
    return done(error);
  return !event->done || *event->done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  return done(
      copy("cudaMemcpyAsync",
           {static_cast<std::byte *>(to), static_cast<const std::byte *>(from),
            bytes, bytes, bytes, 1},
           stream));
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from,
                              size_t fromPitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  return done(
      copy("cudaMemcpy2DAsync",
           {static_cast<std::byte *>(to), static_cast<const std::byte *>(from),
            toPitch, fromPitch, width, height},
           stream));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes,
                            cudaStream_t stream) {
  return done(fill("cudaMemsetAsync", to, bytes, value, bytes, 1, stream));
}
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width,
                              size_t height, cudaStream_t stream) {
  return done(
      fill("cudaMemset2DAsync", to, pitch, value, width, height, stream));
}

namespace heddle::gpu {

cudaError_t launchGrid(const cudaLaunchConfig_t &config, size_t parameterBytes,
                       std::function<void()> thread) {
  if (const cudaError_t error =
          checkStream("cudaLaunchKernelExC", config.stream))
    return done(error);
  const auto [x, y, z] = config.blockDim;
  // [CUDA, Technical Specifications per Compute Capability]
  if (config.gridDim.x == 0 || config.gridDim.x > 0x7fffffffu || x == 0 ||
      uint64_t(x) * y * z > 1024)
    return done(refuse(cudaErrorInvalidConfiguration,
                       "a grid of " + std::to_string(config.gridDim.x) +
                           " blocks of " + std::to_string(x) + " threads"));
  constexpr size_t kMostParameters = 32764;
  if (parameterBytes > kMostParameters)
    return done(refuse(cudaErrorInvalidValue,
                       "a kernel's parameters have " +
                           std::to_string(parameterBytes) + " bytes"));
  static thread_local uint64_t launches = 0;
  const uint64_t seed = settings().seed * 1000003u + ++launches;
  Item item;
  item.work = [grid = config.gridDim, block = config.blockDim, seed,
               thread = std::move(thread)] {
    return runGrid(grid, block, thread, seed);
  };
  current().push(config.stream, std::move(item));
  return cudaSuccess;
}

} // namespace heddle::gpu
