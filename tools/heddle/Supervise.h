//===- Supervise.h - Watches the ranks of a run -----------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_SUPERVISE_H
#define HEDDLE_TOOLS_SUPERVISE_H

#include "heddle/Supervisor/Slow.h"
#include "heddle/Supervisor/Watch.h"
#include "tools/heddle/Launch.h"

#include <optional>
#include <string>
#include <vector>

namespace heddle::tool {

/// How one life of a run went, from its start to the end of its last process.
struct Life {
  int code = 0;
  std::optional<supervisor::Verdict> verdict; ///< why it was ended
  bool mayPass = false; ///< by the ranks' word it may go well another time
  int64_t step = 0;     ///< the farthest that was begun
  int interrupted = 0;  ///< the signal with which a user ended all
};

struct SuperviseOptions {
  supervisor::Limits limits;
  std::string record;   ///< file of records, a JSON line each; "" for none
  int64_t restarts = 0; ///< how many lives there were before
};

/// Starts `command`, whose `ranks` ranks are an emitted program's, and watches
/// them until none is left. A hang, or a death without a word, is told to
/// people, written to the record, and ends all: SIGTERM, and a second later
/// SIGKILL. No process of the run is left behind.
Result<Life> supervise(const std::vector<std::string> &command, int64_t ranks,
                       const SuperviseOptions &options);

} // namespace heddle::tool

#endif
