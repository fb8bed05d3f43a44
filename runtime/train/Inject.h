//===- Inject.h - Faults that are put into a run --------------------------===//

#ifndef RUNTIME_TRAIN_INJECT_H
#define RUNTIME_TRAIN_INJECT_H

#include "heddle/Support/Result.h"

#include "runtime/train/Rank.h"

#include <functional>
#include <string>

namespace heddle::train {

/// FAULT@STEP[#DRAW] of --inject: what happens, in which step, and the seed of
/// what is drawn (a place in the step, a tensor, a bit).
struct InjectedFault {
  std::string kind; ///< "": none
  int64_t step = 0;
  uint64_t draw = 1;
};

/// The kinds and what they do, a line each, for --help.
extern const char *const kFaultHelp;

Result<InjectedFault> parseFault(const std::string &text);

/// Runs a step of the rank that the fault hits.
heddle_rt_status stepWithFault(Rank &rank, const InjectedFault &fault,
                               int64_t step,
                               const std::function<heddle_rt_status()> &run);

} // namespace heddle::train

#endif
