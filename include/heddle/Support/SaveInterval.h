//===- SaveInterval.h - How often a run is saved ----------------*- C++ -*-===//
//
// Shared by estimates and by the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPPORT_SAVEINTERVAL_H
#define HEDDLE_SUPPORT_SAVEINTERVAL_H

#include <cmath>
#include <cstdint>

namespace heddle {

/// Seconds between checkpoints with which a run loses least: sqrt(2 d M) (Young
/// 1974). \p pause: the seconds that the run stands still for one; \p mtbf: the
/// mean seconds from one interruption to the next.
inline double bestInterval(double pause, double mtbf) {
  return std::sqrt(2 * pause * mtbf);
}

/// Device hours from one unplanned interruption to the next before a run has
/// seen any: 54 days of 16,384 GPUs with 419 of them ("The Llama 3 Herd of
/// Models", 3.3.4), rounded.
inline constexpr double kPriorDeviceHours = 50'700;

/// Mean seconds between interruptions of a run, by what it has seen so far and
/// the prior, which counts as one interruption.
inline double expectedMtbf(std::int64_t devices, std::int64_t interruptions,
                           double deviceSeconds) {
  return (kPriorDeviceHours * 3600 + deviceSeconds) /
         (1 + static_cast<double>(interruptions)) /
         static_cast<double>(devices);
}

} // namespace heddle

#endif // HEDDLE_SUPPORT_SAVEINTERVAL_H
