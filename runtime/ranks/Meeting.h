//===- Meeting.h - Where ranks meet without MPI -------------===//
//
// Launchers that are not MPI's say it in environment variables. Where ranks
// then meet is rank 0's machine, at a port (Rendezvous.h).
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_MEETING_H
#define RUNTIME_RANKS_MEETING_H

#include "runtime/common/Status.h"

#include <cstdint>
#include <optional>
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

/// What the environment says: RANK and WORLD_SIZE (torchrun), Open MPI's
/// variables, Slurm's; nothing where none are set. MASTER_ADDR wins over what a
/// launcher says of itself, and HEDDLE_PORT over MASTER_PORT + 1 (a launcher's
/// own store may hold MASTER_PORT).
///
/// \return HEDDLE_RT_INVALID_ARGUMENT where a variable is no number, is missing
///         beside its other half, or the two do not fit.
heddle_rt_status findMeeting(std::optional<Meeting> &meeting);

/// The first host of a list as Slurm writes it: "n[03-05,9],x" is "n03".
std::string firstHost(const std::string &list);

} // namespace heddle::ranks

#endif
