//===- Late.h - Streams whose work runs late, in a random order -----------===//
//
// Nothing runs until someone synchronizes. Then the next piece of work comes
// from a stream chosen at random among those that events and communicator order
// allow. Streams carry random priorities, redrawn at random moments: this
// starves a stream for long stretches and finds missing events that a uniform
// choice does not.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_COMMON_LATE_H
#define RUNTIME_COMMON_LATE_H

#include "runtime/common/Status.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace heddle::runtime {

enum class Progress { Pending, Done, Failed };

/// Where somebody waits for other ranks: how to sleep until news may be there.
class Waiter {
public:
  virtual ~Waiter() = default;
  /// Grows with every piece of news.
  virtual uint64_t version() = 0;
  /// Returns soon; at once if the version is no longer `seen`.
  virtual void idle(uint64_t seen) = 0;
  /// As idle, for a rank that could go on with other work and has waited for
  /// `seconds` already. True: it should go on, as no news will come else: all
  /// ranks are here or in idle. Where that cannot be known, after a time.
  virtual bool hold(uint64_t seen, double seconds) = 0;
};

struct LateEvent {
  /// Whether the record that was queued last has run. Each record has its own:
  /// records on two streams may run in either order.
  std::shared_ptr<bool> recorded;
};

/// Collectives of one communicator begin in the order in which they were
/// queued.
struct LateOrder {
  uint64_t queued = 0, started = 0;
};

class Late {
public:
  Late(uint64_t seed, Waiter &waiter)
      : random(seed), period(uint64_t(2) << random() % 9), waiter(waiter) {}

  int addStream();
  void work(int stream, std::function<heddle_rt_status()> run);
  void record(int stream, LateEvent *event);
  void wait(int stream, LateEvent *event);
  /// `begin` must not block; `test` is called until it is not Pending. Failed:
  /// a peer did, and the sentence is this thread's last error.
  /// `orders` are those of the communicators it uses, each once.
  void collective(int stream, const char *name,
                  const std::vector<LateOrder *> &orders,
                  std::function<heddle_rt_status()> begin,
                  std::function<Progress()> test);

  /// Runs work until `stream` is empty; -1: all. The first failure ends it, and
  /// so does a time without progress.
  heddle_rt_status drain(int stream, double timeoutSeconds);
  bool empty(int stream) const;

private:
  using Clock = std::chrono::steady_clock;
  static double secondsSince(Clock::time_point then);

  struct Item {
    enum Kind { Work, Record, Wait, Collective } kind;
    std::function<heddle_rt_status()> run = {}; ///< Collective: begin
    std::function<Progress()> test = {};
    std::shared_ptr<bool> recorded = {}; ///< Record: sets it; Wait: for it
    const char *name = "";
    struct Turn {
      LateOrder *order;
      uint64_t number;
    };
    std::vector<Turn> turns = {};
    bool begun = false;     ///< Collective
    bool overtaken = false; ///< holds back nothing any more
  };
  /// Held: a stream of higher priority waits for its peers.
  enum class Step { Moved, Held, Stuck, Failed };

  Progress ready(Item &item);
  /// Whether a collective that has begun still keeps streams of lower priority
  /// back. Without that each collective would let them catch up, and hide what
  /// they do not wait for; for good, and two ranks might wait for each other.
  static bool waitsForPeers(const Item &item);
  Step step();
  /// Lets streams of lower priority pass those that wait for peers.
  void overtake();
  Step run(int stream);
  std::string stuckOn() const;

  std::mt19937_64 random;
  /// A priority is redrawn once in so many steps, 2 to 512 by the seed: some
  /// orders are nearly uniform, in some a stream starves for a whole step.
  uint64_t period;
  Waiter &waiter;
  std::deque<std::deque<Item>> queues;
  std::vector<uint64_t> priority;
  heddle_rt_status failure = HEDDLE_RT_OK;
};

} // namespace heddle::runtime

#endif
