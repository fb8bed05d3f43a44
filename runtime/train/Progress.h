//===- Progress.h - What people see of training ---------------------------===//

#ifndef RUNTIME_TRAIN_PROGRESS_H
#define RUNTIME_TRAIN_PROGRESS_H

#include "runtime/train/Trainer.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <unistd.h>

namespace heddle::train {

/// Progress on a terminal, nothing when piped; a summary in any case.
class Progress {
public:
  explicit Progress(int64_t steps)
      : steps(steps), terminal(isatty(STDERR_FILENO)) {}

  void step(const StepResult &r) {
    // --guard has told of the step.
    if (r.skipped && r.counted > 0 && r.lossScale == 0)
      return;
    if (r.skipped)
      return note(
          r.counted == 0
              ? fmt::format("step {}: no label is counted; skipped", r.step)
              : fmt::format("step {}: gradients overflow at loss scale "
                            "{:g}; skipped",
                            r.step, r.lossScale));
    if (trained++ == 0)
      first = r.loss;
    last = r.loss;
    seconds += r.seconds;
    rate += r.tokensPerSecond * r.seconds;
    if (!terminal)
      return;
    fmt::print(stderr, "\rstep {}/{}  loss {:.4f}  {:.0f} tokens/s", r.step,
               steps, r.loss, r.tokensPerSecond);
    if (r.mfu > 0)
      fmt::print(stderr, "  MFU {:.1f} %", r.mfu * 100);
    fmt::print(stderr, "\033[K");
    open = true;
  }
  void note(const std::string &text) {
    endLine();
    fmt::print(stderr, "{}\n", text);
  }
  void summary() {
    endLine();
    if (trained > 0)
      fmt::print(stderr, "{} steps, loss {:.4f} -> {:.4f}, {:.0f} tokens/s\n",
                 trained, first, last, seconds > 0 ? rate / seconds : 0);
  }

private:
  void endLine() {
    if (open)
      fmt::print(stderr, "\n");
    open = false;
  }

  int64_t steps, trained = 0;
  double first = 0, last = 0, seconds = 0, rate = 0;
  bool terminal, open = false;
};

} // namespace heddle::train

#endif
