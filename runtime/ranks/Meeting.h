//===- Meeting.h - Where ranks meet without MPI -------------===//
//
// Who they are a launcher's variables say (runtime/common/Launch.h). Where they
// meet is rank 0's machine, at a port (Rendezvous.h).
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_MEETING_H
#define RUNTIME_RANKS_MEETING_H

#include "runtime/common/Launch.h"
#include "runtime/common/Status.h"

#include <string>

namespace heddle::ranks {

struct Meeting {
  int rank = 0, size = 1;
  std::string address; ///< of rank 0's machine: MASTER_ADDR, Slurm's first node
  int port = 0;        ///< the first of kPorts that rank 0 may listen on
  /// What ranks of one start have in common and those of others most likely
  /// have not.
  std::string job;
};

/// Ports that are tried in turn where some are taken.
inline constexpr int kPorts = 16;

/// Where the ranks of a launch meet. MASTER_ADDR wins over what a launcher says
/// of its nodes, and HEDDLE_PORT over MASTER_PORT + 1 (a launcher's own store
/// may hold MASTER_PORT).
///
/// \return HEDDLE_RT_INVALID_ARGUMENT where a port is none, or the launcher has
///         told no size.
heddle_rt_status findMeeting(const runtime::Launch &launch, Meeting &meeting);

} // namespace heddle::ranks

#endif
