//===- Runs.h - The bytes that a strided block touches --------------------===//

#ifndef RUNTIME_COMMON_RUNS_H
#define RUNTIME_COMMON_RUNS_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>
#include <vector>

namespace heddle::runtime {

/// One dimension of a block in memory.
struct Extent {
  int64_t count, stride; ///< in elements
};
/// Appends the runs of bytes of a block, outermost dimension first. Dimensions
/// that lie densely in each other become one run. `writes` is theirs.
void appendRuns(std::vector<heddle_rt_access> &accesses, const void *base,
                int64_t elementBytes, std::vector<Extent> extents,
                int32_t writes);

} // namespace heddle::runtime

#endif
