//===- LaunchOrder.h - Do ranks' collectives wait for each other? -*- C++
//-*-===//
//
// The check of `lowering-verify-launches`, on plain sequences: no IR in it.
//
// A launch on a communicator is over when all its members have launched it, and
// a rank's next launch begins when the one before is over, whatever
// communicator that was on: kernels of NCCL block each other. So members of a
// communicator have to launch the same, and no rank may launch before another
// one what waits, through whatever chain of ranks, for that one.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_LOWERING_LAUNCHORDER_H
#define HEDDLE_PASSES_LOWERING_LAUNCHORDER_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::lowering {

struct LaunchCommunicator {
  std::string name;
  std::vector<int64_t> members; ///< ranks
};

/// What members have to agree on.
struct LaunchOperation {
  std::string kind; ///< "all_reduce sum"; "send" and "receive" pair up
  int64_t elements = 0;
  std::string dtype;

  bool operator==(const LaunchOperation &) const = default;
};

struct Launch {
  size_t communicator = 0, operation = 0; ///< in `LaunchProgram`
  int64_t step = 0;  ///< never falls; launches of one group have the same
  int64_t peer = -1; ///< the rank a "send" goes to, a "receive" comes from
};

struct RankLaunches {
  int64_t rank = 0;
  std::vector<Launch> launches;
};

/// Members that have no sequence here are taken to launch as the others do.
struct LaunchProgram {
  std::vector<LaunchCommunicator> communicators;
  std::vector<LaunchOperation> operations;
  std::vector<RankLaunches> ranks;
};

/// A launch as a rank and a number among its launches; none where that rank has
/// no more on the communicator.
struct LaunchPlace {
  int64_t rank = 0;
  std::optional<size_t> launch;
};

/// Launch `position` of a communicator is not the same on two members. Sends
/// are numbered by where they go.
struct LaunchMismatch {
  size_t communicator = 0, position = 0;
  LaunchPlace expected, found;
};

/// `rank` launches `before` ahead of `after`, numbers among its launches.
struct LaunchLink {
  int64_t rank = 0;
  size_t before = 0, after = 0;
};

struct LaunchVerdict {
  std::optional<LaunchMismatch> mismatch;
  /// A smallest cycle: what is `after` in one link is `before` in the next.
  std::vector<LaunchLink> cycle;

  bool isRight() const { return !mismatch && cycle.empty(); }
};

/// Linear in the number of launches, but for finding what to say of a fault.
LaunchVerdict checkLaunchOrder(const LaunchProgram &program);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_LAUNCHORDER_H
