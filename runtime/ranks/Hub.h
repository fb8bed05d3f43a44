//===- Hub.h - Where ranks that no MPI joins meet -------------------------===//
//
// A thread of rank 0's process. Every rank, rank 0 too, has one connection to
// it: it seats them, passes messages on, answers splits, and tells all of them
// when one fails or is gone. What goes through it is agreement (identifiers,
// hashes, questions), not tensors: those are the devices' own network's.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_HUB_H
#define RUNTIME_RANKS_HUB_H

#include "runtime/ranks/Frames.h"
#include "runtime/ranks/Meeting.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace heddle::ranks {

class Hub {
public:
  /// Listens on the launch's first free port, whose number is `port` then.
  Hub(const Meeting &meeting, double timeoutSeconds);
  /// Waits until all ranks have gone, or a failure has been told to all.
  ~Hub();

  /// "" or why there is no hub.
  const std::string &why() const { return problem; }
  int port() const { return chosen; }
  void start();

private:
  using Clock = std::chrono::steady_clock;
  /// One connection: what has come of a frame, and what is not yet sent.
  struct Line {
    Socket socket;
    std::string in;
    std::deque<std::string> out;
    size_t sent = 0; ///< of out's first
    int rank = -1;   ///< -1: it has not said who it is
    Clock::time_point since = Clock::now();
  };
  struct Entry {
    int color, place, size;
  };
  struct Split {
    Clock::time_point since = Clock::now();
    std::string axis;
    std::map<int, Entry> entries; ///< by rank
  };

  void run();
  bool done() const;
  void accept();
  bool readFrom(Line &line);
  bool writeTo(Line &line);
  bool takeFrames(Line &line);
  bool handle(Line &line, const FrameHead &head, std::string payload);
  bool greet(Line &line, const FrameHead &head, const std::string &job);
  void push(Line &line, FrameHead head, const std::string &payload);
  void pushTo(int rank, const FrameHead &head, const std::string &payload);
  void pushAll(const FrameHead &head, const std::string &payload, int except);
  void addSplit(int rank, const FrameHead &head, const std::string &axis);
  void answer(int number, const Split &split);
  /// Tells all that the group has failed; the first sentence stands.
  void fail(int rank, const std::string &sentence);
  void lost(int rank);
  /// Ranks that have not come, or splits that some do not make.
  void checkTime();
  void drop(size_t line);

  const Meeting meeting;
  const double timeoutSeconds;
  std::string problem;
  int chosen = 0;
  Socket listener;
  std::thread thread;
  std::vector<std::unique_ptr<Line>> lines;
  std::vector<Line *> seats; ///< by rank; NULL: not there
  std::vector<bool> left;
  int seated = 0, gone = 0;
  std::map<int, Split> splits; ///< that not all have asked for yet
  bool failed = false;
  Clock::time_point begun, failedAt;
};

/// "ranks 2, 5 and 7", at most some of them by name.
std::string nameRanks(const std::vector<int> &ranks);

} // namespace heddle::ranks

#endif
