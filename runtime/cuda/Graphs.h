//===- Graphs.h - Work that is queued again as CUDA graphs ----------------===//
//
// What a call of heddle_rt_graph queued, kept to be queued again. The first
// call with certain numbers is queued as it is, so that descriptors,
// algorithms, workspaces and NCCL's connections are there. The second one is
// captured: what follows on one stream becomes a graph, a piece, which ends
// where another stream, an event or a message comes. Between pieces events are
// recorded and waited for and messages are sent, as ever; later calls do all of
// that again. So no graph spans streams, no event is part of one, and work is
// ordered exactly as without graphs.
//
// Messages stay outside because NCCL wants an operation captured on all ranks
// that take part or on none, and the ranks that launch a graph to be those that
// captured it together [docs.nvidia.com/deeplearning/nccl/user-guide, Using
// NCCL with CUDA Graphs]: a micro-batch has one set of buffers here and another
// one on its neighbour's stage. The ranks of a communicator for collectives run
// the same slots of the same stage.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_CUDA_GRAPHS_H
#define RUNTIME_CUDA_GRAPHS_H

#include "runtime/cuda/Check.h"
#include "runtime/ranks/CollectiveCall.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle::cuda {

/// A checked collective or message, with its name for messages.
struct NamedCall {
  heddle_rt_comm *comm;
  const char *name;
  ranks::CollectiveCall call;
};

class Graphs {
public:
  explicit Graphs(heddle_rt_context *context) : context(context) {}
  ~Graphs() { clear(); }
  Graphs(const Graphs &) = delete;
  Graphs &operator=(const Graphs &) = delete;

  /// HEDDLE_GRAPHS: which calls are kept.
  heddle_rt_status configure();

  using Step = std::function<heddle_rt_status()>;
  /// heddle_rt_graph, after its checks.
  heddle_rt_status run(const char *name, heddle_rt_graph_part part,
                       heddle_rt_graph_body body, void *given,
                       std::vector<int64_t> numbers);

  /// Whether what is queued now is captured.
  bool isCapturing() const { return kept && !outside; }
  /// Work comes on a stream: it belongs to a piece of that one.
  heddle_rt_status enter(heddle_rt_stream *stream);
  /// While capturing: ends the piece and does something outside of graphs, now
  /// and at every later call.
  heddle_rt_status between(Step step);
  /// While capturing: the piece has these collectives.
  void add(const std::vector<NamedCall> &calls);

  /// Destroys all graphs. NCCL's communicators must outlive them.
  void clear();

  /// "12 CUDA graphs of 340 nodes, 1.2 MB of the GPU's memory"; "": none.
  std::string words() const;

  /// A step may have this many nodes where the whole of it is kept.
  static constexpr int64_t kMostNodesOfStep = 5000;

private:
  enum class Use { Never, Slots, Step };
  struct Piece {
    heddle_rt_stream *stream;
    const char *name;
    cudaGraphExec_t graph = nullptr;
    std::vector<NamedCall> collectives = {};
  };
  struct Kept {
    int64_t calls = 0;
    std::vector<Step> steps = {};
  };

  bool isKept(heddle_rt_graph_part part) const;
  heddle_rt_status runPlainly(const char *name, heddle_rt_graph_body body,
                              void *given);
  heddle_rt_status capture(Kept &into, const char *name,
                           heddle_rt_graph_body body, void *given);
  heddle_rt_status close();
  heddle_rt_status instantiate(cudaGraph_t graph, Piece &piece);
  heddle_rt_status launch(const Piece &piece);

  heddle_rt_context *context;
  Use use = Use::Slots;
  std::map<std::pair<heddle_rt_graph_body, std::vector<int64_t>>, Kept> all;
  std::vector<std::unique_ptr<Piece>> pieces;
  int64_t nodes = 0, bytes = 0;

  // Of the call that is under way.
  bool within = false;            ///< others are calls of their body
  int64_t queued = 0;             ///< pieces of work
  Kept *kept = nullptr;           ///< what is captured goes here
  bool outside = false;           ///< between two pieces
  std::unique_ptr<Piece> open;    ///< the piece that is captured now
  const char *openName = nullptr; ///< of the call
};

} // namespace heddle::cuda

#endif
