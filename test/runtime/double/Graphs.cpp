// CUDA's graphs, as captures of one stream make them: a row of nodes with the
// parameters that they had when they were captured.

#include "Device.h"

#include <utility>

using namespace heddle::gpu;

struct CUgraph_st {
  std::vector<Capture::Node> nodes;
};
struct CUgraphExec_st {
  std::vector<Capture::Node> nodes;
  int device;
  void *memory; ///< that it takes of the device
};

namespace {

/// The thread's capture; of one stream at a time.
thread_local cudaStream_t capturing = nullptr;

constexpr size_t kBytesOfNode = 512; ///< the vendor tells no number

bool was(const char *function, cudaError_t &error) {
  int code = 0;
  if (!injected(function, code))
    return false;
  error = cudaError_t(code);
  return true;
}

} // namespace

cudaError_t heddle::gpu::checkUncaptured(const char *function) {
  if (!capturing)
    return cudaSuccess;
  capturing->capture->invalid = true;
  return refuse(cudaErrorStreamCaptureUnsupported,
                std::string(function) +
                    ": the thread captures a stream [CUDART, "
                    "cudaThreadExchangeStreamCaptureMode; CUDA, Prohibited and "
                    "Unhandled Operations]");
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  if (const cudaError_t error = checkStream("cudaStreamBeginCapture", stream))
    return error;
  // "A process with threads on different GPUs needs the flag" [NCCL, Using NCCL
  // with CUDA Graphs]: of the other modes one refuses what other threads do,
  // the other one sees nothing.
  if (mode != cudaStreamCaptureModeThreadLocal)
    return refuse(cudaErrorInvalidValue,
                  "cudaStreamBeginCapture: not of this thread alone [NCCL, "
                  "Using NCCL with CUDA Graphs]");
  if (stream->capture || capturing)
    return refuse(cudaErrorInvalidValue,
                  "cudaStreamBeginCapture: a capture is under way [CUDART, "
                  "cudaStreamBeginCapture]");
  stream->capture = std::make_shared<Capture>();
  capturing = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  *graph = nullptr;
  if (const cudaError_t error = checkStream("cudaStreamEndCapture", stream))
    return error;
  if (!stream->capture)
    return refuse(cudaErrorInvalidValue,
                  "cudaStreamEndCapture: the stream is not captured [CUDART, "
                  "cudaStreamEndCapture]");
  if (capturing != stream)
    return refuse(cudaErrorStreamCaptureWrongThread,
                  "cudaStreamEndCapture: another thread began it [CUDART, "
                  "cudaStreamEndCapture]");
  capturing = nullptr;
  const auto capture = std::exchange(stream->capture, nullptr);
  if (capture->invalid)
    return refuse(cudaErrorStreamCaptureInvalidated,
                  lastRefusal() + "; that has ended the capture");
  *graph = new CUgraph_st{capture->nodes};
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *count) {
  if (nodes)
    return refuse(cudaErrorInvalidValue,
                  "cudaGraphGetNodes: the double tells their number alone");
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long) {
  cudaError_t error;
  if (was("cudaGraphInstantiate", error))
    return error;
  void *room = memory().allocate(current().number,
                                 kBytesOfNode * graph->nodes.size(), false);
  if (!room)
    return cudaErrorMemoryAllocation;
  *exec = new CUgraphExec_st{graph->nodes, current().number, room};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  return checkStream("cudaGraphUpload", stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (const cudaError_t error = checkStream("cudaGraphLaunch", stream))
    return error;
  if (exec->device != current().number)
    return refuse(cudaErrorInvalidValue,
                  "cudaGraphLaunch: the graph is another device's");
  if (stream->capture)
    return refuse(cudaErrorStreamCaptureUnsupported,
                  "cudaGraphLaunch: a graph within a graph; not imitated");
  for (const Capture::Node &node : exec->nodes) {
    if (node.launch) {
      current().pushLaunch(stream, node.launch);
      continue;
    }
    Item item;
    item.work = node.work;
    current().push(stream, std::move(item));
  }
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  memory().release(exec->memory, false, false);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
