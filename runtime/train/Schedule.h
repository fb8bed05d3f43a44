//===- Schedule.h - The learning rate of a step ---------------------------===//

#ifndef RUNTIME_TRAIN_SCHEDULE_H
#define RUNTIME_TRAIN_SCHEDULE_H

#include "heddle/Runtime/Tables.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heddle::train {

/// The rate of step t, from 1, as `Schedule` in Tables.h defines it.
inline double learningRate(const runtime::Schedule &schedule, double peak,
                           int64_t t) {
  if (t <= schedule.warmupSteps)
    return peak * double(t) / double(schedule.warmupSteps);
  if (schedule.type == "constant")
    return peak;
  const int64_t length = schedule.steps - schedule.warmupSteps;
  if (length <= 0)
    return schedule.finalLr;
  const double done =
      std::min(1.0, double(t - schedule.warmupSteps) / double(length));
  return schedule.finalLr + (peak - schedule.finalLr) * 0.5 *
                                (1 + std::cos(std::numbers::pi * done));
}

} // namespace heddle::train

#endif
