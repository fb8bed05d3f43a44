//===- Lives.h - A run that is started again when it fails ------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_LIVES_H
#define HEDDLE_TOOLS_LIVES_H

#include "tools/heddle/Supervise.h"

#include <functional>
#include <string>
#include <vector>

namespace heddle::tool {

struct LivesOptions {
  supervisor::Limits limits;
  std::string record;      ///< as in SuperviseOptions
  std::string checkpoints; ///< folder; "": none are saved
  int64_t restarts = 0;    ///< at most
};

/// What is started in one life.
struct LifeCommand {
  std::vector<std::string> command;
  int64_t ranks = 1;
};
/// Makes it; `resumes` is whether there is a checkpoint to go on from, `life`
/// counts from 0.
using MakeCommand =
    std::function<Result<LifeCommand>(int64_t life, bool resumes)>;

/// Runs life after life until one ends well, or no other would help: a bad
/// input, an answer that is no, a user who ends it. The exit code.
Result<int> runLives(const MakeCommand &make, const LivesOptions &options);

} // namespace heddle::tool

#endif
