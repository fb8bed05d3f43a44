//===- Context.h - What the handles of heddle_rt.h are on CUDA ------------===//

#ifndef RUNTIME_CUDA_CONTEXT_H
#define RUNTIME_CUDA_CONTEXT_H

#include "runtime/cuda/Check.h"
#include "runtime/cuda/Graphs.h"
#include "runtime/ranks/CollectiveCall.h"
#include "runtime/ranks/RankContext.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

struct heddle_rt_stream {
  heddle_rt_context *context;
  std::string name;
  int number; ///< in Trace
  cudaStream_t native = nullptr;
  void *workspace = nullptr; ///< of matrix products; made by the first one
  /// For collectives and scales of products, one call after the other; the last
  /// one is in use, work that is queued may still use those before it.
  std::vector<void *> scratch = {};
  int64_t scratchBytes = 0, scratchUsed = 0; ///< of the last one
};

struct heddle_rt_event {
  heddle_rt_context *context;
  std::string name;
  int number = 0; ///< in RangeLog
  bool recorded = false;
  heddle::runtime::Races::Clock clock;
  cudaEvent_t native = nullptr;
};

struct heddle_rt_comm : heddle::ranks::CommSeat {
  heddle_rt_context *context = nullptr;
  ncclComm_t nccl = nullptr;   ///< NULL after an abort
  std::vector<int> worldRanks; ///< by place
  int64_t begun = 0;           ///< launches so far
};

namespace heddle::cuda {

class Products;

/// A part of a launch of collectives. `before` and `after` queue what makes
/// its input and uses its output: packing, unpacking.
struct Member {
  using Step = std::function<heddle_rt_status()>;
  heddle_rt_comm *comm;
  const char *name;
  std::vector<Step> before;
  Step run;
  std::vector<Step> after;
};

/// Between group_begin and group_end.
struct OpenGroup {
  heddle_rt_stream *stream = nullptr;
  std::vector<NamedCall> calls;
};

/// A launch that the device may not have finished.
struct Pending {
  heddle_rt_comm *comm;
  const char *name;
  int64_t number; ///< among the launches of its communicator, from 1
  cudaEvent_t event;
};

struct Window {
  heddle_rt_comm *comm;
  ncclWindow_t native;
};

/// Device memory as it was allocated: with room for alignment and canaries.
struct Block {
  void *raw;
  heddle_rt_memory_class kind;
  std::vector<Window> windows;
};

} // namespace heddle::cuda

struct heddle_rt_context : heddle::ranks::RankContext {
  int device = 0;
  /// No NCCL: collectives go through host memory, and ranks may share a GPU.
  bool staged = false;
  ncclComm_t world = nullptr;
  cublasLtHandle_t blas = nullptr;
  cudaStream_t setup = nullptr; ///< for fills and copies outside of programs

  std::deque<heddle_rt_stream> streams;
  std::deque<heddle_rt_event> events;
  std::deque<heddle_rt_comm> comms;
  std::map<uintptr_t, heddle::cuda::Block> blocks; ///< by first byte
  /// First bytes of memory for collectives, in the order in which it was
  /// allocated: the same on all ranks.
  std::vector<uintptr_t> commBlocks;
  std::unique_ptr<heddle::cuda::Products> products;
  std::unique_ptr<heddle::cuda::OpenGroup> group;
  std::unique_ptr<heddle::cuda::Graphs> graphs;
  std::deque<heddle::cuda::Pending> pending;
  std::vector<cudaEvent_t> spareEvents;

  heddle_rt_context();
  ~heddle_rt_context();
};

namespace heddle::cuda {

/// OK where something may be done on `stream` now. Makes the context's device
/// the thread's.
heddle_rt_status checkOpen(heddle_rt_stream *stream, const char *what);
/// The same where that is work to be queued.
heddle_rt_status openFor(heddle_rt_stream *stream, const char *what);

/// Checks a piece of work's ranges; to be called before it is queued.
heddle_rt_status watch(heddle_rt_stream *stream, const char *name,
                       const std::vector<heddle_rt_access> &accesses);

/// Waits until the device has done what `stream` holds; fails where a peer, a
/// communicator or the device does, or nothing moves for too long.
heddle_rt_status await(heddle_rt_context *context, cudaStream_t stream);

/// Waits until NCCL has taken a call that it may still be working on.
heddle_rt_status settle(heddle_rt_context *context, ncclComm_t comm,
                        ncclResult_t result, const char *what);

/// Makes the communicator of all ranks, and one of a color.
heddle_rt_status joinWorld(heddle_rt_context *context);
heddle_rt_status splitWorld(heddle_rt_context *context, int32_t color,
                            int32_t rank, ncclComm_t *comm, const char *axis);
/// Frees communicators: in peace, or after a failure at once.
heddle_rt_status closeComms(heddle_rt_context *context);
void abortComms(heddle_rt_context *context);

/// Registers memory for collectives with a communicator, where all its ranks
/// have as much. Collective over `comm`.
heddle_rt_status registerWindow(heddle_rt_comm *comm, uintptr_t begin);

/// Waits for the stream, copies to host memory, exchanges there as the host
/// backend does, in its order of sums, and copies back: when it returns, all is
/// done (but for messages that nobody has taken yet). For tests.
heddle_rt_status runStaged(heddle_rt_stream *stream,
                           std::vector<NamedCall> calls);

/// Remembers a launch behind which `stream` is now, for who waits.
heddle_rt_status mark(heddle_rt_stream *stream, heddle_rt_comm *comm,
                      const char *name);
/// Forgets launches that are done. Returns how many were.
size_t retire(heddle_rt_context *context);

/// Frees one allocation; CHECK_FAILED if somebody wrote beside it.
heddle_rt_status release(heddle_rt_context *context, uintptr_t begin);

/// Memory that the stream alone uses, in its order, until it gives back all.
heddle_rt_status takeScratch(heddle_rt_stream *stream, int64_t bytes,
                             void **memory);
void giveBackScratch(heddle_rt_stream *stream);

} // namespace heddle::cuda

#endif
