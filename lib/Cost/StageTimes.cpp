#include "heddle/Cost/StageTimes.h"

#include "Stages.h"

#include "heddle/Cost/Flops.h"

#include <algorithm>

using namespace heddle;

/// What backward of a chunk's layers computes again for one micro-batch.
static double flopsAgainOf(const RankSizes &place, std::size_t chunk) {
  FlopCount count;
  for (std::size_t i = 0; i < place.recompute.size(); ++i)
    count += flopsAgain(place.recompute[i]) * place.choicesOfChunks[chunk][i];
  return count.total();
}

ScheduleTimes heddle::timesOfFlops(const ModelConfig &model, const Plan &plan,
                                   const std::vector<RankSizes> &places,
                                   const Placement &placement,
                                   double flopsPerSecond) {
  ScheduleTimes times = ScheduleTimes::equal(placement);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const PartFlops layer = layerFlops(model, places[rank]),
                    head = headFlops(places[rank]);
    for (std::int64_t chunk = 0; chunk < placement.chunks(); ++chunk) {
      const auto layers = static_cast<double>(
          detail::numberOf(plan.stages.layers[rank][chunk]));
      const StageAt at = placement.at(static_cast<std::int64_t>(rank), chunk);
      const double ends = at.stage + 1 == placement.stages() ? 1 : 0;
      times.chunks[rank][chunk] = {
          layers * layer.forward.total() / flopsPerSecond,
          (layers * layer.inputGrad.total() +
           flopsAgainOf(places[rank], static_cast<std::size_t>(chunk)) +
           ends * (head.forward.total() + head.inputGrad.total())) /
              flopsPerSecond,
          (layers * layer.weightGrad.total() + ends * head.weightGrad.total()) /
              flopsPerSecond};
    }
  }
  return times;
}

StageBubbles heddle::bubblesOf(const ScheduleTiming &timing) {
  double busy = 0, longest = 0;
  for (const RankTiming &rank : timing.ranks) {
    busy += rank.busy;
    longest = std::max(longest, rank.span.length());
  }
  if (busy == 0)
    return {};
  const double period = longest * static_cast<double>(timing.ranks.size());
  return {timing.bubble(), period / busy - 1};
}
