//===- StageTimes.h - How long slots of a schedule take ---------*- C++ -*-===//

#ifndef HEDDLE_COST_STAGETIMES_H
#define HEDDLE_COST_STAGETIMES_H

#include "heddle/Cost/RankSizes.h"
#include "heddle/Schedule/Simulate.h"

namespace heddle {

/// Times of a plan's slots if each were its operations (Flops.h) at one rate:
/// F is a chunk's layers; backward has what it computes again, with the
/// gradient of the input, and of the last stage all of the head. Transfers,
/// collectives and what is bound by memory take nothing, so this says how even
/// the cut is and not how long a step takes.
/// \p places: as `placeSizes` has them.
ScheduleTimes timesOfFlops(const ModelConfig &model, const Plan &plan,
                           const std::vector<RankSizes> &places,
                           const Placement &placement, double flopsPerSecond);

/// What ranks of pp idle, over what they work.
struct StageBubbles {
  /// Where all wait for each other at the end of a step.
  double joined = 0;
  /// Where each goes on with the next step as soon as it has ended its own
  /// slots: a step takes as long as the longest of them takes for its row.
  double running = 0;
};
StageBubbles bubblesOf(const ScheduleTiming &timing);

} // namespace heddle

#endif // HEDDLE_COST_STAGETIMES_H
