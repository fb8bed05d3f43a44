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

#include "runtime/ranks/Rendezvous.h"

#include <memory>
#include <optional>
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
  int port() const { return meeting.port; }
  void start();

private:
  using Clock = Rendezvous::Clock;
  struct Line : Rendezvous::Line {
    Socket socket;
    size_t sent = 0; ///< of out's first
    Clock::time_point since = Clock::now();
  };

  void run();
  void turn();
  void accept();
  bool readFrom(Line &line);
  bool writeTo(Line &line);
  void dropStrangers();
  void drop(size_t line);

  Meeting meeting;
  const double timeoutSeconds;
  std::string problem;
  Socket listener;
  std::optional<Rendezvous> ranks;
  std::thread thread;
  std::vector<std::unique_ptr<Line>> lines;
};

} // namespace heddle::ranks

#endif
