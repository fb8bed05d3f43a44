//===- RunRanks.h - Ranks as threads of this process ----------------------===//

#ifndef RUNTIME_RANKS_RUNRANKS_H
#define RUNTIME_RANKS_RUNRANKS_H

#include "heddle/Runtime/heddle_rt.h"

#include <functional>
#include <string>

namespace heddle::ranks {

struct RunResult {
  heddle_rt_status status = HEDDLE_RT_OK;
  int rank = -1;       ///< the rank that failed first, -1: none
  std::string message; ///< its sentence
  explicit operator bool() const { return status == HEDDLE_RT_OK; }
};

/// Runs `body` on `size` ranks, each a thread with a context of its own made
/// from `options` (whose `threads`, `rank` and `size` are set here), and
/// finalizes the contexts. When a rank's body fails, the others get
/// HEDDLE_RT_PEER_FAILED from their next or current call. In recording mode the
/// ranks know nothing of each other.
RunResult
runRanks(int size, const heddle_rt_options &options,
         const std::function<heddle_rt_status(heddle_rt_context *)> &body);

} // namespace heddle::ranks

#endif
