//===- LossScale.h - The loss scale of fp16, from step to step --*- C++ -*-===//

#ifndef RUNTIME_TRAIN_LOSSSCALE_H
#define RUNTIME_TRAIN_LOSSSCALE_H

#include "heddle/Runtime/Tables.h"

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

  /// Behind a step, whose gradients were all finite or not.
  void update(bool finite) {
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
  int64_t finiteSteps = 0, patience;
};

} // namespace heddle::train

#endif
