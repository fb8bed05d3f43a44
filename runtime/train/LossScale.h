//===- LossScale.h - The loss scale of fp16, from step to step --*- C++ -*-===//

#ifndef RUNTIME_TRAIN_LOSSSCALE_H
#define RUNTIME_TRAIN_LOSSSCALE_H

#include "heddle/Runtime/Tables.h"

#include "runtime/checkpoint/Manifest.h"

#include <algorithm>

namespace heddle::train {

/// Doubles and halves as LossScaling in Tables.h says. With a hysteresis of 1
/// these are PyTorch's rules (torch.amp.GradScaler), with more than that those
/// of Megatron-LM's DynamicGradScaler: a finite step does not forgive one that
/// was not, growing does. All ranks see the same norms, so all scale alike.
class LossScale {
public:
  explicit LossScale(const runtime::LossScaling &rules)
      : rules(rules), scale(rules.initial), patience(rules.hysteresis) {}

  double value() const { return scale; }
  /// Steps in a row that were not finite with the least scale there may be.
  int64_t skippedAtLeast() const { return skippedInRow; }

  /// How far its rules have come, and on from there. Under other rules the
  /// scale stays within them.
  checkpoint::Scaling state() const {
    return {scale, finiteSteps, patience, skippedInRow};
  }
  void restore(const checkpoint::Scaling &from) {
    scale = std::max(from.scale, rules.minimum);
    // Where these rules would have let it grow before, it does next.
    finiteSteps = rules.growthInterval > 0
                      ? std::min(from.finiteSteps, rules.growthInterval - 1)
                      : from.finiteSteps;
    patience = std::min(from.patience, rules.hysteresis);
    skippedInRow = from.skippedInRow;
  }

  /// Behind a step, whose gradients were all finite or not.
  void update(bool finite) {
    skippedInRow = !finite && scale <= rules.minimum ? skippedInRow + 1 : 0;
    if (!finite) {
      finiteSteps = 0;
      if (--patience <= 0)
        scale = std::max(scale / 2, rules.minimum);
      return;
    }
    if (++finiteSteps != rules.growthInterval)
      return;
    finiteSteps = 0;
    patience = rules.hysteresis;
    scale = std::min(scale * 2, kMost);
  }

private:
  /// Far below where the number itself or its reciprocal is no normal float.
  static constexpr double kMost = 0x1p+64;

  runtime::LossScaling rules;
  double scale;
  int64_t finiteSteps = 0, patience, skippedInRow = 0;
};

} // namespace heddle::train

#endif
