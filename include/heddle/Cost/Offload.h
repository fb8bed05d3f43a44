//===- Offload.h - What saved values on the host take -----------*- C++ -*-===//

#ifndef HEDDLE_COST_OFFLOAD_H
#define HEDDLE_COST_OFFLOAD_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Model/ModelConfig.h"
#include "heddle/Plan/Plan.h"
#include "heddle/Support/Result.h"

namespace heddle {

/// Of a rank of the place over pp that moves most, in one step. A copy goes
/// beside a layer of forward, and comes back beside one of backward; the first
/// that comes back in a run of layers has nothing beside it. A copy that goes
/// alone reaches 0.87 of the link's rate (lib/Cost/LayerTimes.cpp).
struct OffloadTime {
  double layerBytes = 0;     ///< of a layer and micro-batch, one way
  double bytesEachWay = 0;   ///< of the step
  double bytesPerSecond = 0; ///< of the link to the host
  double copySeconds = 0;    ///< of layerBytes
  double forwardSeconds = 0; ///< of a layer and micro-batch: what hides a copy
  double backwardSeconds = 0;
  double exposedSeconds = 0; ///< of the step: more than with all on the device

  /// Whether each copy is shorter than the layer beside it.
  bool isHidden() const {
    return copySeconds <= forwardSeconds && copySeconds <= backwardSeconds;
  }
};

/// An error: a plan that `pointOf` cannot place, or a device without a figure.
Result<OffloadTime> offloadTime(const ModelConfig &model,
                                const TrainSettings &train,
                                const Cluster &cluster, const Plan &plan);

} // namespace heddle

#endif // HEDDLE_COST_OFFLOAD_H
