//===- RankContext.h - What a context is on every backend -----------------===//
//
// A rank's place among the others, what checking mode knows, and the failure
// that ended it. A backend's heddle_rt_context derives from it and adds how
// work is done.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_RANKCONTEXT_H
#define RUNTIME_RANKS_RANKCONTEXT_H

#include "runtime/common/Flight.h"
#include "runtime/common/Races.h"
#include "runtime/common/RangeLog.h"
#include "runtime/common/Status.h"
#include "runtime/common/TimeLog.h"
#include "runtime/common/Trace.h"
#include "runtime/ranks/Integrity.h"
#include "runtime/ranks/Transport.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

struct heddle_rt_threads;

namespace heddle::ranks {

class Collective;
/// Collectives over host memory that need not wait for each other.
using Members = std::vector<std::shared_ptr<Collective>>;

struct Allocation {
  std::string name;
  heddle_rt_memory_class kind;
  int64_t bytes;
  size_t number; ///< in Trace
};

/// One rank's seat in a communicator, as far as the checks know it.
struct CommSeat {
  std::string axis;
  int32_t color = 0, rank = 0, size = 1;
  int number = 0;        ///< in Trace
  int32_t inFlight = -1; ///< in Flight
  std::unique_ptr<Seat> seat;
  int64_t sequence = 0; ///< collectives over host memory that were queued
  runtime::CallHash hash;
  runtime::MessageHash messages;
};

struct RankContext {
  bool checking = false;
  bool recordsOnly = false; ///< nothing is ever run
  double timeoutSeconds = 600;
  int32_t rank = 0, size = 1;

  std::unique_ptr<heddle_rt_threads> alone;    ///< the group of a single rank
  std::unique_ptr<Transport> transport;        ///< NULL while recording
  std::map<uintptr_t, Allocation> allocations; ///< by first byte
  std::set<std::string> names;                 ///< what messages may point to

  runtime::Races races;
  runtime::Trace trace;
  runtime::RangeLog ranges;
  runtime::Flight flight;
  runtime::TimeLog times;
  Integrity integrity;
  int32_t splits = 0; ///< communicators that were asked for

  /// After the first failure that cannot be taken back.
  heddle_rt_status dead = HEDDLE_RT_OK;
  std::string why;
  int exitCode = 0;

  RankContext();
  ~RankContext();

  bool recording() const { return recordsOnly; }
  /// Whether ranges are looked at. Else nobody needs to collect them.
  bool watching() const { return checking || recording(); }
  const char *intern(const std::string &name) {
    return names.insert(name).first->c_str();
  }
  /// Keeps a failure that ends this context.
  heddle_rt_status die(heddle_rt_status status);
  /// OK, or why nothing can be queued any more.
  heddle_rt_status alive();

  /// Reads what all backends have of the options and the environment.
  heddle_rt_status configure(const heddle_rt_options &options);
  /// Takes the place that the options or a launcher give.
  /// \param rendezvous  see joinMpi.
  heddle_rt_status join(const heddle_rt_options &options, bool rendezvous);
  /// Checks a seat's numbers and takes it. Negative color: `seat` is NULL.
  heddle_rt_status takeSeat(int32_t color, int32_t place, int32_t of,
                            const std::string &axis, CommSeat &seat);
  /// CHECK_FAILED if the ranks of a communicator made different calls.
  /// Collective.
  heddle_rt_status compareCalls(const CommSeat &comm);
  /// Gathers `bytes` of each rank of a communicator. Collective; waits.
  heddle_rt_status gather(const CommSeat &comm, const void *own, void *all,
                          int64_t bytes, const char *what);
  /// Everybody gets the `bytes` that place 0 has. Collective; waits.
  heddle_rt_status broadcast(const CommSeat &comm, void *data, int64_t bytes,
                             const char *what);
  /// Begins collectives together and waits for all that are not detached.
  heddle_rt_status runNow(Members members, const char *name);
  /// Waits until all messages that left from a copy are received.
  heddle_rt_status awaitSent();
  /// Asks the ranks of a communicator for a number, each as far as it asks too
  /// within `seconds`. Answers by place; -1: none.
  std::vector<int64_t> askAll(const CommSeat &comm, int64_t own,
                              double seconds);

  /// Registers memory that starts at `begin`, and forgets it again.
  void allocated(const void *begin, const std::string &name,
                 heddle_rt_memory_class kind, int64_t bytes);
  void released(uintptr_t begin);
  /// Whether memory may be freed now: a live allocation, on which no work can
  /// still run.
  heddle_rt_status checkFree(const void *memory);

  /// heddle_rt_ranges_write.
  heddle_rt_status writeRanges(const char *path);

  /// Tells of a piece of work on a stream (its number in Trace), and looks at
  /// its bounds, lifetimes and order where that is asked for. A failure has
  /// killed the context.
  heddle_rt_status watch(int stream, const char *name,
                         const heddle_rt_access *accesses, size_t count);

  /// Messages that left from a copy and may not have been received yet.
  Members sent;

private:
  heddle_rt_status awaitMembers(Members &members, const char *name);

  /// Of askAll: messages that nobody took may lie here until the end.
  std::vector<std::unique_ptr<std::vector<int64_t>>> asked;

  Allocation *find(uintptr_t at, uintptr_t &begin);
  heddle_rt_status checkBounds(const char *name,
                               const heddle_rt_access &access);
  void logRanges(int stream, const char *name, const heddle_rt_access *accesses,
                 size_t count);
};

/// Races numbers streams from 1: 0 is the host itself.
inline int raceOf(int stream) { return stream + 1; }

/// The number in an environment variable, `otherwise` where it is not set.
heddle_rt_status readNumber(const char *variable, uint64_t otherwise,
                            uint64_t largest, uint64_t &value);

} // namespace heddle::ranks

#endif
