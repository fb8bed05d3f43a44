#include "runtime/train/Trainer.h"

#include <fmt/format.h>

#include <cmath>

namespace heddle::train {

static std::string numberOrNull(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

std::string logLine(const StepResult &r) {
  return fmt::format(
      "{{\"step\": {}, \"loss\": {}, \"counted_labels\": {}, "
      "\"gradient_norm\": {}, \"learning_rate\": {}, \"seconds\": {}, "
      "\"tokens_per_second\": {}, \"mfu\": {}, \"skipped\": {}{}}}",
      r.step, r.counted == 0 ? "null" : numberOrNull(r.loss), r.counted,
      r.hasNorm ? numberOrNull(r.gradientNorm) : "null",
      fmt::format("{}", r.rate), // a double, unlike what the program leaves
      numberOrNull(r.seconds), numberOrNull(r.tokensPerSecond),
      r.mfu > 0 ? numberOrNull(r.mfu) : "null", r.skipped,
      r.lossScale > 0 ? fmt::format(", \"loss_scale\": {:.17g}", r.lossScale)
                      : "");
}

} // namespace heddle::train
