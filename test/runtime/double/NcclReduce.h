//===- NcclReduce.h - What a collective does with its buffers -------------===//

#ifndef HEDDLE_DOUBLE_NCCLREDUCE_H
#define HEDDLE_DOUBLE_NCCLREDUCE_H

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

namespace heddle::gpu {

/// One rank's call.
struct Op {
  const char *what;
  const void *input;
  void *output;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  int peer;
  /// Which of its communicator's captured operations (of messages, of those to
  /// or from the peer) this is, from 1; 0: it was not captured.
  int64_t captured = 0;
};

/// Why two ranks' calls of unlike `captured` are not one: "whether an operation
/// launch is graph-captured must be uniform over all ranks participating", and
/// they use "the graph derived from that collective capture" [NCCL, Using NCCL
/// with CUDA Graphs].
std::string unlikeCaptures(const Op &a, const Op &b);

size_t bytesOf(ncclDataType_t type);

/// Carries out the collective of all ranks. Sums are in rank order, in fp32
/// where elements are narrower; the vendor promises no order.
void carryOut(const std::vector<std::shared_ptr<Op>> &ops);

} // namespace heddle::gpu

#endif
