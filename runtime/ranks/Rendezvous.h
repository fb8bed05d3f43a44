//===- Rendezvous.h - What the hub knows and says -------------------------===//
//
// Who is seated, which splits are under way, whether the group has failed:
// bytes of connections come in, frames to them go out. The hub has the sockets
// and the clock; anybody may connect, so that anything may come.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_RENDEZVOUS_H
#define RUNTIME_RANKS_RENDEZVOUS_H

#include "runtime/ranks/Frames.h"
#include "runtime/ranks/Meeting.h"

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::ranks {

class Rendezvous {
public:
  using Clock = std::chrono::steady_clock;

  /// One connection: what has come of a frame, and whole frames to be sent.
  struct Line {
    std::string in;
    std::deque<std::string> out;
    int rank = -1; ///< -1: it has not said who it is
  };

  /// `meeting.port` is the one that is listened on. `tell` takes the sentence
  /// of a failure that no rank has told.
  Rendezvous(const Meeting &meeting, double timeoutSeconds,
             Clock::time_point now,
             std::function<void(const std::string &)> tell);

  /// Bytes that have come; false: the line is to be closed.
  bool take(Line &line, std::string_view bytes);
  /// A line that is closed, by whatever end; it must not be used afterwards.
  void lost(const Line &line);
  /// Time has passed: ranks that have not come, splits that some do not make.
  void advance(Clock::time_point now);
  /// Nobody is left who could say or hear something.
  bool done() const;

private:
  struct Entry {
    int color, place, size;
  };
  struct Split {
    Clock::time_point since;
    std::string axis;
    std::map<int, Entry> entries; ///< by rank
  };

  bool handle(Line &line, const FrameHead &head, std::string payload);
  bool greet(Line &line, const FrameHead &head, const std::string &job);
  void push(Line &line, FrameHead head, const std::string &payload);
  void pushTo(int rank, const FrameHead &head, const std::string &payload);
  void pushAll(const FrameHead &head, const std::string &payload, int except);
  void addSplit(int rank, const FrameHead &head, const std::string &axis);
  void answer(int number, const Split &split);
  /// Tells all that the group has failed; the first sentence stands.
  void fail(int rank, const std::string &sentence);

  const Meeting meeting;
  const double timeoutSeconds;
  const Clock::time_point begun;
  const std::function<void(const std::string &)> tell;
  Clock::time_point now, failedAt;
  std::vector<Line *> seats; ///< by rank; NULL: not there
  std::vector<bool> left;
  int seated = 0, gone = 0;
  std::map<int, Split> splits; ///< that not all have asked for yet
  bool failed = false;
};

} // namespace heddle::ranks

#endif
