//===- Blame.h - Who holds a run up, and where ----------------------------===//

#ifndef HEDDLE_SUPERVISOR_BLAME_H
#define HEDDLE_SUPERVISOR_BLAME_H

#include "heddle/Supervisor/View.h"

#include <string>
#include <vector>

namespace heddle::supervisor {

enum class Cause {
  Died,     ///< a process ended without a word
  Stopped,  ///< a process does not run
  Endless,  ///< it computes, and makes no progress
  Mismatch, ///< ranks of a communicator wait in different calls
  Circle,   ///< ranks wait for each other in different communicators
  Network,  ///< all are in the same call, and bytes do not arrive
  Unexplained,
};
const char *nameOf(Cause cause);

struct Blame {
  Cause cause = Cause::Unexplained;
  std::vector<int> ranks; ///< who is to blame; both sides where that is open
  std::string sentence;   ///< with ranks, communicator, operation, sizes
};

/// Who of ranks that all make no progress holds up the others. `silent[i]`:
/// views[i] has made none for too long.
Blame blameForHang(const std::vector<RankView> &views,
                   const std::vector<bool> &silent);

/// Whose process ended first.
Blame blameForDeath(const std::vector<RankView> &views);

/// "all_reduce(dp), its call 41, of 1024 f32, in step 7".
std::string describe(const RankView &view, const Operation &operation);
/// Where a rank is: its section and last operation.
std::string whereIs(const RankView &view);

} // namespace heddle::supervisor

#endif
