//===- NcclReduce.h - What a collective does with its buffers -------------===//

#ifndef HEDDLE_DOUBLE_NCCLREDUCE_H
#define HEDDLE_DOUBLE_NCCLREDUCE_H

#include <nccl.h>

#include <memory>
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
};

size_t bytesOf(ncclDataType_t type);

/// Carries out the collective of all ranks. Sums are in rank order, in fp32
/// where elements are narrower; the vendor promises no order.
void carryOut(const std::vector<std::shared_ptr<Op>> &ops);

} // namespace heddle::gpu

#endif
