//===- Transport.h - How ranks reach each other ---------------------------===//
//
// One interface over ranks that are threads of one process and ranks that are
// MPI processes. It moves bytes between pairs and never blocks; all arithmetic
// is in Collective.cpp, so that both kinds of ranks give the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_TRANSPORT_H
#define RUNTIME_RANKS_TRANSPORT_H

#include "runtime/common/Late.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace heddle::ranks {

using runtime::Progress;

/// `blocks` runs of `blockBytes`, `stride` bytes from one to the next.
struct Strided {
  std::byte *data = nullptr;
  int64_t blocks = 0, blockBytes = 0, stride = 0;
  int64_t bytes() const { return blocks * blockBytes; }
};

/// Copies in order; the two may be cut into different blocks of equal sum.
void copyStrided(const Strided &to, const Strided &from);

/// What goes to or comes from one rank.
struct Piece {
  int peer = 0;
  Strided memory;
};

/// Messages under way. Destroying one that is not done withdraws its messages.
class Request {
public:
  virtual ~Request() = default;
  /// Failed: this thread's last error says why.
  virtual Progress test() = 0;
  /// Peers from which a message is missing, or to which one has not got.
  virtual std::vector<int> pending() const = 0;
};

/// One rank's seat in a communicator.
class Seat {
public:
  virtual ~Seat() = default;
  /// Begins to send and to receive. Messages between two ranks that have the
  /// same tag keep their order. Peers are not this rank. NULL: failed.
  virtual std::unique_ptr<Request> exchange(int tag,
                                            const std::vector<Piece> &sends,
                                            const std::vector<Piece> &receives,
                                            const char *what) = 0;
};

/// One rank's place among all ranks.
class Transport : public runtime::Waiter {
public:
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Collective over all ranks; heddle_rt_comm_split. Negative color: NULL.
  virtual heddle_rt_status split(int color, int rank, int size,
                                 const char *axis, double timeoutSeconds,
                                 std::unique_ptr<Seat> &seat) = 0;
  /// Ends the group. The first caller's sentence is what the user sees.
  virtual void abort(int exitCode, const std::string &why) = 0;
  /// HEDDLE_RT_PEER_FAILED with its sentence once another rank called abort.
  virtual heddle_rt_status alive() const = 0;
  /// This rank queues nothing more; it may still wait for others.
  virtual void closing() = 0;
  /// Ranks that are closing or have left, as far as this one knows.
  virtual std::vector<int> gone() const = 0;
  /// This rank goes in peace. No call may follow.
  virtual void leave() = 0;
};

/// Takes seat `rank` of a group of threads.
heddle_rt_status joinThreads(heddle_rt_threads *threads, int rank,
                             std::unique_ptr<Transport> &transport);

/// Without MPI, ranks that a launcher of MPI's has started meet as others do.
bool isBuiltWithMpi();
/// \param rendezvous  whether a send is done only once its receive has begun,
/// as
///                    between threads; else MPI may keep small messages.
heddle_rt_status joinMpi(std::unique_ptr<Transport> &transport,
                         bool rendezvous);

struct Meeting;
/// Meets the other ranks of a launch without MPI, within a time; then waits of
/// splits have that limit too.
heddle_rt_status joinTcp(const Meeting &meeting, double timeoutSeconds,
                         std::unique_ptr<Transport> &transport);

/// PEER_FAILED, with what is known of those who did not come.
heddle_rt_status waitedTooLong(const char *what, double seconds);

/// Calls `request.test` until it is no longer pending, or for a time.
heddle_rt_status await(Transport &transport, Progress (*test)(void *),
                       void *argument, const char *what, double timeoutSeconds);

} // namespace heddle::ranks

#endif
