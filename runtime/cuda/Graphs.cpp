#include "runtime/cuda/Graphs.h"

#include "runtime/cuda/Context.h"

#include <cstdlib>
#include <set>

using heddle::runtime::invalid;
using heddle::runtime::orUnnamed;

namespace heddle::cuda {

heddle_rt_status Graphs::configure() {
  const char *text = std::getenv("HEDDLE_GRAPHS");
  const std::string name = text && *text ? text : "slots";
  if (name == "slots" || name == "1")
    use = Use::Slots;
  else if (name == "step")
    use = Use::Step;
  else if (name == "off" || name == "0")
    use = Use::Never;
  else
    return invalid(
        "environment variable HEDDLE_GRAPHS={}: expected slots (each "
        "function that a step calls is a CUDA graph), step (the "
        "whole step) or off",
        name);
  return HEDDLE_RT_OK;
}

/// Not where each piece of work is looked at, or goes through host memory.
bool Graphs::isKept(heddle_rt_graph_part part) const {
  if (within || context->staged || context->watching())
    return false;
  return part == HEDDLE_RT_GRAPH_STEP ? use == Use::Step : use == Use::Slots;
}

heddle_rt_status Graphs::run(const char *name, heddle_rt_graph_part part,
                             heddle_rt_graph_body body, void *given,
                             std::vector<int64_t> numbers) {
  if (!isKept(part))
    return body(given);
  const auto known = all.try_emplace({body, std::move(numbers)}).first;
  const int64_t calls = known->second.calls++;
  if (calls > 1) {
    for (const Step &step : known->second.steps)
      HEDDLE_RT_TRY(step());
    return HEDDLE_RT_OK;
  }
  within = true;
  queued = 0;
  const heddle_rt_status status =
      calls == 0 ? body(given) : capture(known->second, name, body, given);
  within = false;
  if (status != HEDDLE_RT_OK)
    all.erase(known);
  else if (part == HEDDLE_RT_GRAPH_STEP && queued > kMostNodesOfStep)
    return invalid("{}: a step of {} pieces of work is too long for graphs of "
                   "the whole step, at most {}: HEDDLE_GRAPHS=slots keeps each "
                   "function once",
                   name, queued, kMostNodesOfStep);
  return status;
}

heddle_rt_status Graphs::capture(Kept &into, const char *name,
                                 heddle_rt_graph_body body, void *given) {
  kept = &into;
  openName = name;
  heddle_rt_status status = body(given);
  if (status == HEDDLE_RT_OK)
    status = close();
  kept = nullptr;
  if (open) { // a capture is ended before anything else is said
    const std::string sentence = runtime::lastError();
    cudaGraph_t dropped = nullptr;
    if (cudaStreamEndCapture(open->stream->native, &dropped) == cudaSuccess)
      cudaGraphDestroy(dropped);
    cudaGetLastError();
    open.reset();
    return runtime::failWith(status, sentence);
  }
  return status;
}

heddle_rt_status Graphs::enter(heddle_rt_stream *stream) {
  ++queued;
  if (!isCapturing() || (open && open->stream == stream))
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(close());
  // Of this thread alone: other ranks may be threads of the process, and look
  // at their events.
  HEDDLE_RT_TRY(checked(
      cudaStreamBeginCapture(stream->native, cudaStreamCaptureModeThreadLocal),
      "{}: a graph of stream {}", openName, stream->name));
  open = std::make_unique<Piece>(Piece{stream, openName});
  return HEDDLE_RT_OK;
}

heddle_rt_status Graphs::between(Step step) {
  HEDDLE_RT_TRY(close());
  kept->steps.push_back(step);
  outside = true;
  const heddle_rt_status status = step();
  outside = false;
  return status;
}

void Graphs::add(const std::vector<NamedCall> &calls) {
  open->collectives.insert(open->collectives.end(), calls.begin(), calls.end());
}

heddle_rt_status Graphs::close() {
  if (!open)
    return HEDDLE_RT_OK;
  std::unique_ptr<Piece> piece = std::move(open);
  cudaGraph_t graph = nullptr;
  HEDDLE_RT_TRY(checked(cudaStreamEndCapture(piece->stream->native, &graph),
                        "{}: a graph of stream {}", openName,
                        piece->stream->name));
  const heddle_rt_status status = instantiate(graph, *piece);
  cudaGraphDestroy(graph);
  HEDDLE_RT_TRY(status);
  if (!piece->graph)
    return HEDDLE_RT_OK;
  const Piece &made = *pieces.emplace_back(std::move(piece));
  kept->steps.push_back([this, &made] { return launch(made); });
  return launch(made);
}

/// Leaves the piece without a graph where nothing was queued.
heddle_rt_status Graphs::instantiate(cudaGraph_t graph, Piece &piece) {
  size_t count = 0, before = 0, after = 0, whole = 0;
  HEDDLE_RT_TRY(checked(cudaGraphGetNodes(graph, nullptr, &count),
                        "{}: a graph's nodes", openName));
  if (count == 0)
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(checked(cudaMemGetInfo(&before, &whole),
                        "{}: memory before a graph", openName));
  HEDDLE_RT_TRY(checked(cudaGraphInstantiate(&piece.graph, graph, 0),
                        "{}: a graph of {} nodes of stream {}", openName, count,
                        piece.stream->name));
  HEDDLE_RT_TRY(checked(cudaGraphUpload(piece.graph, piece.stream->native),
                        "{}: a graph of {} nodes of stream {}", openName, count,
                        piece.stream->name));
  HEDDLE_RT_TRY(checked(cudaMemGetInfo(&after, &whole),
                        "{}: memory behind a graph", openName));
  nodes += int64_t(count);
  // Others may have given memory back meanwhile.
  bytes += before > after ? int64_t(before - after) : 0;
  return HEDDLE_RT_OK;
}

heddle_rt_status Graphs::launch(const Piece &piece) {
  HEDDLE_RT_TRY(context->alive());
  for (const NamedCall &one : piece.collectives) {
    context->flight.operation(piece.stream->number, one.name);
    ranks::count(one.call, *one.comm, context->flight);
    ++one.comm->begun;
  }
  HEDDLE_RT_TRY(context->die(
      checked(cudaGraphLaunch(piece.graph, piece.stream->native),
              "{}: a graph on stream {}", piece.name, piece.stream->name)));
  std::set<heddle_rt_comm *> marked;
  for (const NamedCall &one : piece.collectives)
    if (marked.insert(one.comm).second)
      HEDDLE_RT_TRY(context->die(mark(piece.stream, one.comm, one.name)));
  return HEDDLE_RT_OK;
}

void Graphs::clear() {
  all.clear();
  for (const auto &piece : pieces)
    if (piece->graph)
      cudaGraphExecDestroy(piece->graph);
  pieces.clear();
}

std::string Graphs::words() const {
  return pieces.empty()
             ? ""
             : fmt::format("{} CUDA graphs of {} nodes, {:.1f} MB of the GPU's "
                           "memory",
                           pieces.size(), nodes, double(bytes) / 1e6);
}

} // namespace heddle::cuda

heddle_rt_status heddle_rt_graph(heddle_rt_stream *stream, const char *name,
                                 heddle_rt_graph_part part,
                                 heddle_rt_graph_body body, void *given,
                                 const int64_t *numbers, int32_t count) {
  if (!stream || !body || count < 0 || (!numbers && count > 0))
    return invalid("heddle_rt_graph: a NULL argument, or {} numbers", count);
  heddle_rt_context *context = stream->context;
  HEDDLE_RT_TRY(context->alive());
  if (context->group)
    return invalid("{}: heddle_rt_graph between group_begin and group_end",
                   orUnnamed(name, "unnamed"));
  HEDDLE_RT_TRY(context->die(
      heddle::cuda::checked(cudaSetDevice(context->device), "{}: its GPU",
                            orUnnamed(name, "unnamed"))));
  return context->graphs->run(orUnnamed(name, "unnamed"), part, body, given,
                              {numbers, numbers + count});
}
