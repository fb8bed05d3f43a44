#include "heddle/Cost/Checkpoint.h"

namespace heddle {

double checkpointBytesPerParameter(const OptimizerSettings &optimizer,
                                   std::string_view recipe) {
  const double numbers = optimizer.kind == OptimizerKind::AdamW ? 3 : 1;
  return 4 * numbers + (recipe == "fp32" ? 0 : 2);
}

double expectedWaste(double pause, double interval, double mtbf) {
  return pause / interval + interval / (2 * mtbf);
}

static std::optional<double> pauseOf(const Cluster &cluster, double bytes,
                                     double ranks) {
  if (cluster.checkpointPauseSeconds)
    return cluster.checkpointPauseSeconds;
  if (cluster.checkpoint == CheckpointMode::Sync)
    return cluster.storageBytesPerSecond
               ? std::optional(bytes / *cluster.storageBytesPerSecond)
               : std::nullopt;
  return cluster.hostLinkBytesPerSecond
             ? std::optional(bytes / ranks / *cluster.hostLinkBytesPerSecond)
             : std::nullopt;
}

CheckpointCost checkpointCost(double parameters, std::int64_t ranks,
                              const OptimizerSettings &optimizer,
                              std::string_view recipe, const Cluster &cluster) {
  CheckpointCost cost;
  const double all = static_cast<double>(ranks);
  cost.bytes = parameters * checkpointBytesPerParameter(optimizer, recipe);
  cost.pauseSeconds = pauseOf(cluster, cost.bytes, all);
  if (cluster.mtbfHoursPerDevice)
    cost.mtbfSeconds = *cluster.mtbfHoursPerDevice * 3600 / all;
  if (!cost.pauseSeconds || !cost.mtbfSeconds)
    return cost;
  cost.intervalSeconds = bestInterval(*cost.pauseSeconds, *cost.mtbfSeconds);
  cost.waste = expectedWaste(*cost.pauseSeconds, *cost.intervalSeconds,
                             *cost.mtbfSeconds);
  return cost;
}

} // namespace heddle
