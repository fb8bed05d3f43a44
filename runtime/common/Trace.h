//===- Trace.h - What recording mode saw ----------------------------------===//

#ifndef RUNTIME_COMMON_TRACE_H
#define RUNTIME_COMMON_TRACE_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::runtime {

/// Rolls (operation, elements, dtype) of one communicator's collectives into a
/// number. Ranks of a communicator that made the same calls in the same order
/// have the same one. Sends and receives are in MessageHash: they differ by
/// rank.
struct CallHash {
  uint64_t value = 0xcbf29ce484222325u;
  int64_t calls = 0;
  void add(const char *operation, int64_t elements, heddle_rt_dtype dtype);
};

/// Rolls the messages of one rank on one communicator into a number: those it
/// sent less those it received. Over all ranks the numbers add up to 0 where
/// each message was received with its elements and dtype, in its order.
struct MessageHash {
  uint64_t value = 0;
  void add(bool sent, int32_t own, int32_t peer, int64_t elements,
           heddle_rt_dtype dtype);

private:
  std::map<std::pair<bool, int32_t>, int64_t> numbers; ///< to and from a peer
};

struct Trace {
  struct Call {
    const char *operation; ///< "gemm", "kernel", "all_reduce", "copy", ...
    const char *name;      ///< as the caller named it, or ""
    int32_t stream;        ///< index into streams
    int32_t comm;          ///< index into comms, -1: none
    int64_t elements;      ///< moved by a collective, per rank
    heddle_rt_dtype dtype;
    double flops; ///< of a gemm or an attention
    double bytes; ///< that a rank must send; what a receive gets is not counted
    int32_t peer = -1; ///< of a send or receive: its place in the communicator
  };
  struct Comm {
    std::string axis;
    int32_t color = 0, rank = 0, size = 0;
    CallHash hash;
    MessageHash messages;
    double bytes = 0;
  };
  struct Allocation {
    std::string name;
    heddle_rt_memory_class kind = HEDDLE_RT_COMPUTE;
    int64_t bytes = 0;
    int64_t highest = 0; ///< end of the last byte that any call touched
    bool freed = false;
  };
  struct Axis {
    int64_t calls = 0;
    double bytes = 0;
  };

  int32_t rank = 0, size = 1;
  std::vector<std::string> streams;
  std::vector<Comm> comms;
  std::vector<Allocation> allocations;
  std::vector<Call> calls;
  double gemmFlops = 0, attentionFlops = 0;
  std::map<std::string, Axis> axes; ///< by the name given to comm_split

  /// Appends a call and adds it to the totals.
  void add(const Call &call);
  /// Totals, communicators, allocations; without the single calls.
  std::string json() const;
};

/// Bytes that each rank of n must send for an operation on `bytes`, the size of
/// the whole (all_reduce: of the tensor; reduce_scatter: of the input;
/// all_gather: of the output; all_to_all: of the input).
double allReduceBytes(double bytes, int n);
double slicedBytes(double bytes, int n);

/// A text as JSON has it.
std::string quoted(std::string_view text);

} // namespace heddle::runtime

#endif
