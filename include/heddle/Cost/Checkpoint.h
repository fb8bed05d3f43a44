//===- Checkpoint.h - What checkpoints cost a long run ----------*- C++ -*-===//

#ifndef HEDDLE_COST_CHECKPOINT_H
#define HEDDLE_COST_CHECKPOINT_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Support/SaveInterval.h"

#include <optional>
#include <string_view>

namespace heddle {

/// Bytes that a checkpoint has for one parameter: the fp32 number (its master
/// where it is computed with in another format, and then the 2 bytes of that
/// too), and two fp32 numbers of AdamW: 12 or 14.
double checkpointBytesPerParameter(const OptimizerSettings &optimizer,
                                   std::string_view recipe);

/// The share of time that a run loses to pauses and to work done again:
/// d / interval + interval / (2 M). Time to recover is not in it.
double expectedWaste(double pause, double interval, double mtbf);

struct CheckpointCost {
  double bytes = 0; ///< of all ranks
  /// Each where the cluster says what it takes.
  std::optional<double> pauseSeconds, mtbfSeconds, intervalSeconds, waste;
};

/// Pause: the cluster's, or until all is in storage (sync), or until each
/// device's share is in host memory (two-phase).
CheckpointCost checkpointCost(double parameters, std::int64_t ranks,
                              const OptimizerSettings &optimizer,
                              std::string_view recipe, const Cluster &cluster);

} // namespace heddle

#endif // HEDDLE_COST_CHECKPOINT_H
