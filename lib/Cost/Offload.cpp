//===- Offload.cpp - What saved values on the host take -------------------===//

#include "heddle/Cost/Offload.h"

#include "StepState.h"

#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/RankSizes.h"
#include "heddle/Plan/PlanPoint.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

/// One layer's, of one micro-batch.
static double bytesOfLayer(const RankSizes &sizes) {
  double most = 0;
  for (const LayersUnder &each : sizes.recompute) {
    double bytes = 0;
    for (const SavedValue &value : each.saved)
      bytes +=
          sizes.isOffloaded(value.name) ? static_cast<double>(value.bytes) : 0;
    most = std::max(most, each.layers > 0 ? bytes : 0);
  }
  return most;
}

static double backwardOf(const PartTimes &part) {
  return part.inputGrad.total() + part.weightGrad.total() + part.again.total();
}

Result<OffloadTime> heddle::offloadTime(const ModelConfig &model,
                                        const TrainSettings &train,
                                        const Cluster &cluster,
                                        const Plan &plan) {
  Plan onDevice = plan;
  onDevice.offload.saved.clear();
  Result<PlanPoint> point = pointOf(onDevice, model);
  if (!point)
    return point.error();
  Result<KernelTimes> kernels = KernelTimes::of(cluster.device);
  if (!kernels)
    return kernels.error();
  const StepTimes::State state(model, train, cluster, Practice{},
                               std::move(*kernels));
  Result<std::vector<RankSizes>> places = placeSizes(model, train, plan);
  if (!places)
    return places.error();
  const LayerTimer timer = timerOf(state, *point);
  const LayerTimes layer = timer.layer(false);
  const double collectives = 2 * (layer.gather.seconds + layer.reduce.seconds);
  OffloadTime time;
  time.bytesPerSecond = state.hostBytesPerSecond;
  time.forwardSeconds = layer.forwardSeconds() + collectives;
  time.backwardSeconds =
      backwardOf(layer.attention) + backwardOf(layer.mlp) + collectives;
  for (const RankSizes &sizes : *places) {
    const double layerBytes = bytesOfLayer(sizes),
                 copy = layerBytes / time.bytesPerSecond,
                 batches = static_cast<double>(sizes.microBatches),
                 layers = static_cast<double>(sizes.layers);
    if (layers * layerBytes * batches <= time.bytesEachWay)
      continue;
    time.layerBytes = layerBytes;
    time.copySeconds = copy;
    time.bytesEachWay = layers * layerBytes * batches;
    const double runs = static_cast<double>(sizes.choicesOfChunks.size());
    time.exposedSeconds =
        batches *
        (runs * copy + layers * std::max(0.0, copy - time.forwardSeconds) +
         (layers - runs) * std::max(0.0, copy - time.backwardSeconds));
  }
  return time;
}
