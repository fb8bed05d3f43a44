//===- ThreadTransport.h - Ranks that are threads of one process ----------===//

#ifndef RUNTIME_RANKS_THREADTRANSPORT_H
#define RUNTIME_RANKS_THREADTRANSPORT_H

#include "runtime/ranks/Transport.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace heddle::ranks {

/// Wakes one rank.
struct Bell {
  std::mutex mutex;
  std::condition_variable rung;
  std::atomic<uint64_t> version = 0;
  void ring();
};

/// A message that its receiver copies straight from the sender's memory.
struct Post {
  Strided memory;
  Bell *sender = nullptr;
  std::atomic<bool> done = false;
};

/// Which communicator (number of the split, color), from which of its ranks,
/// which tag.
using MailKey = std::tuple<int, int, int, int>;

/// Where messages for one rank wait to be copied.
struct Mailbox {
  Bell bell;
  std::mutex mutex;
  std::map<MailKey, std::deque<std::shared_ptr<Post>>> mail;
  std::atomic<bool> left = false; ///< the rank has gone
  enum Rest { Busy, Idle, Holding };
  Rest rest = Busy;       ///< under heddle_rt_threads::rest
  uint64_t restSince = 0; ///< the bell's version that it has seen
};

/// What a rank asked for in a split.
struct SplitEntry {
  int color = -1, rank = 0, size = 0;
};
struct Split {
  int arrived = 0;
  std::vector<SplitEntry> entries; ///< by rank of the whole group
};

} // namespace heddle::ranks

/// A group of `size` thread ranks. Outlives their contexts.
struct heddle_rt_threads {
  explicit heddle_rt_threads(int size);

  /// Only the first caller's sentence is kept.
  void abort(int rank, int exitCode, const std::string &why);
  void ringAll();
  /// Waits for news. True if, with all ranks here and no news for any, one
  /// that is Holding must go on.
  bool await(heddle::ranks::Mailbox &box, heddle::ranks::Mailbox::Rest how,
             uint64_t seen);

  std::vector<std::unique_ptr<heddle::ranks::Mailbox>> boxes;
  std::mutex mutex; ///< of what follows
  std::map<int, heddle::ranks::Split> splits;
  std::atomic<bool> aborted = false;
  int failedRank = -1, exitCode = 0;
  std::string why;

private:
  bool allRest() const;

  std::mutex rest;
  uint64_t quiet = 0; ///< how many times all rested; under `rest`
};

#endif
