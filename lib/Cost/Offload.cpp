//===- Offload.cpp - What saved values on the host take -------------------===//

#include "heddle/Cost/Offload.h"

#include "StepState.h"

#include "heddle/Plan/PlanPoint.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

static double backwardOf(const PartTimes &part) {
  return part.inputGrad.total() + part.weightGrad.total() + part.again.total();
}

/// How much longer a step is than with all on the device.
static Result<double> exposedOf(const StepTimes &times, PlanPoint point) {
  Result<double> with = times.seconds(point);
  if (!with)
    return with.error();
  point.offloaded = 0;
  return *with - *times.seconds(point);
}

Result<OffloadTime> heddle::offloadTime(const ModelConfig &model,
                                        const TrainSettings &train,
                                        const Cluster &cluster,
                                        const Plan &plan) {
  Result<PlanPoint> point = pointOf(plan, model);
  if (!point)
    return point.error();
  Result<StepTimes> times = StepTimes::of(model, train, cluster);
  if (!times)
    return times.error();
  Result<KernelTimes> kernels = KernelTimes::of(cluster.device);
  const StepTimes::State state(model, train, cluster, Practice{},
                               std::move(*kernels));
  const PointShape &shape = state.tables.shapeOf(*point);
  if (!shape.fault.empty())
    return Error{shape.fault};
  const LayerTimer timer = timerOf(state, *point);
  const LayerTimes layer = timer.layer(false);
  const double collectives = 2 * (layer.gather.seconds + layer.reduce.seconds);
  const Call copy = timer.copies(shape.plain, state.hostBytesPerSecond).store;
  OffloadTime time;
  time.bytesPerSecond = state.hostBytesPerSecond;
  time.layerBytes = copy.bytes;
  time.copySeconds = copy.seconds;
  time.forwardSeconds = layer.forwardSeconds() + collectives;
  time.backwardSeconds =
      backwardOf(layer.attention) + backwardOf(layer.mlp) + collectives;
  std::int64_t most = 0;
  for (std::int64_t place = 0; place < point->pp; ++place)
    most = std::max(most, point->layersOf(place));
  time.bytesEachWay =
      static_cast<double>(most * point->microBatches) * time.layerBytes;
  Result<double> exposed = exposedOf(*times, *point);
  if (!exposed)
    return exposed.error();
  time.exposedSeconds = *exposed;
  return time;
}
