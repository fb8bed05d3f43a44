//===- Replay.h - A step that is run twice --------------------------------===//

#ifndef RUNTIME_TRAIN_REPLAY_H
#define RUNTIME_TRAIN_REPLAY_H

#include "runtime/train/Rank.h"

#include <functional>

namespace heddle::train {

/// Runs `first`, takes all states back, runs `again`, and compares bit by bit
/// what the rank gave to each reduction and what the states became. The host
/// backend's steps are functions of their bits, so a difference is a fault that
/// passes: HEDDLE_RT_CHECK_FAILED names the ranks that differed first.
/// Collective; holds a copy of the rank's states.
heddle_rt_status replayStep(Rank &rank, int64_t step,
                            const std::function<heddle_rt_status()> &first,
                            const std::function<heddle_rt_status()> &again);

} // namespace heddle::train

#endif
