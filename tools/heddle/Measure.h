//===- Measure.h - Times of this machine's kernels --------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MEASURE_H
#define HEDDLE_TOOLS_MEASURE_H

#include "heddle/Cluster/MeasuredTimes.h"

namespace heddle::tool {

struct MeasureOptions {
  std::int64_t ranks = 2;       ///< the most that collectives are measured over
  std::int64_t repetitions = 9; ///< of each; the best counts
  /// Each size is smaller by this factor, for tests.
  std::int64_t shrink = 1;
};

/// This machine as a device, with times of the runtime's host backend: ranks
/// are threads of one process. Kernels are measured while as many ranks run
/// them as collectives have at most, since they share cores and memory.
Result<Device> measureHost(const MeasureOptions &options);

} // namespace heddle::tool

#endif // HEDDLE_TOOLS_MEASURE_H
