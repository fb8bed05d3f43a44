//===- Trainer.h - The steps of one rank ----------------------------------===//

#ifndef RUNTIME_TRAIN_TRAINER_H
#define RUNTIME_TRAIN_TRAINER_H

#include "runtime/checkpoint/FileSystem.h"
#include "runtime/train/Data.h"
#include "runtime/train/Options.h"
#include "runtime/train/States.h"

#include <cstdio>
#include <string>

namespace heddle::train {

/// What all ranks of a process share, read only.
struct Job {
  Options options;
  runtime::Tables tables;
  std::string numbers;              ///< numbers.bin
  const Data *data = nullptr;       ///< null while recording
  const Weights *weights = nullptr; ///< null: initial values
  /// Where checkpoints go.
  checkpoint::FileSystem *files = &checkpoint::realFileSystem();
  int64_t steps = 1;
};

/// Trains one rank from start to end. The first rank logs and reports.
/// HEDDLE_RT_INVALID_ARGUMENT: bad input; HEDDLE_RT_CHECK_FAILED: the loss is
/// no number, or replicas differ; `common` then says that every rank fails so.
heddle_rt_status trainRank(heddle_rt_context *context, const Job &job,
                           bool &common);

/// Records one step of the rank and writes its trace.
heddle_rt_status recordRank(heddle_rt_context *context, const Job &job);

/// What a step left.
struct StepResult {
  int64_t step = 0, counted = 0;
  double loss = 0, gradientNorm = 0, rate = 0, seconds = 0, tokensPerSecond = 0;
  double mfu = 0;       ///< 0: not known
  double lossScale = 0; ///< 0: the loss is not scaled
  /// Without a counted label nothing is run; where gradients overflow nothing
  /// is updated.
  bool hasNorm = false, skipped = false;
};
/// The line of log.jsonl (FORMATS.md), without its end. What is no number, or
/// not known, is null.
std::string logLine(const StepResult &result);

} // namespace heddle::train

#endif
