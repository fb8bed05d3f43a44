//===- Launch.h - Starts programs -------------------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_LAUNCH_H
#define HEDDLE_TOOLS_LAUNCH_H

#include "heddle/Support/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tool {

struct Outcome {
  int code = 0; ///< exit code; 128 + number where a signal ended it
  std::string output, errors; ///< what was captured of stdout and stderr
};

/// Who gets what the program prints.
enum class Capture {
  Nothing, ///< the user gets all
  Both,    ///< the caller gets all
};

/// Runs a program of the search path or a path, and waits. An error where it
/// cannot be started.
Result<Outcome> execute(const std::vector<std::string> &command,
                        Capture capture);

/// How the ranks of an emitted program are started.
struct Ranks {
  int64_t count = 1;
  bool threads = false; ///< of one process; else MPI processes
};

/// The command that runs train-host `program` with `arguments` on all ranks;
/// the environment is made as they want it: one thread a rank unless cores are
/// left over, and waiting ranks that let others run where there are fewer
/// cores.
Result<std::vector<std::string>>
rankCommand(const std::string &program, const Ranks &ranks,
            const std::vector<std::string> &arguments);

/// Runs it.
Result<Outcome> launch(const std::string &program, const Ranks &ranks,
                       const std::vector<std::string> &arguments,
                       Capture capture);

} // namespace heddle::tool

#endif
