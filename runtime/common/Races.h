//===- Races.h - Is every conflict ordered? -------------------------------===//
//
// A happens-before check in program order: vector clocks over streams and
// events, and for each byte the last write and the reads since. Finds a missing
// event in one run, whatever order the work was really done in.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_COMMON_RACES_H
#define RUNTIME_COMMON_RACES_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace heddle::runtime {

class Races {
public:
  /// What is known to be done: for each stream, how many pieces of work.
  using Clock = std::vector<uint32_t>;

  /// Stream 0 is the host itself: what it does is ordered after all that it
  /// waited for and before all that it queues afterwards.
  static constexpr int kHost = 0;

  Races() { addStream("the host"); }

  int addStream(std::string name);
  /// An event's clock. It holds what was queued on `stream` so far.
  Clock record(int stream);
  /// Later work of `stream` comes after the event.
  void wait(int stream, const Clock &event);
  /// The host waited for all work of `stream`.
  void synchronize(int stream);

  /// Enters a piece of work. Returns the sentence that names both parties of
  /// the first conflict that nothing orders, or "". `what` must outlive this.
  std::string note(int stream, const char *what,
                   const heddle_rt_access *accesses, size_t count);
  /// Forgets all accesses to a range that is gone.
  void forget(const void *begin, int64_t bytes);

  /// Byte ranges with a history of their own; grows with buffers, not launches.
  size_t intervals() const { return past.size(); }

private:
  struct Party {
    int stream = -1; ///< -1: nobody
    uint32_t time = 0;
    const char *what = "";
  };
  struct Interval {
    uintptr_t end = 0;
    Party writer;
    std::vector<Party>
        readers; ///< since the write, none ordered before another
  };
  using Map = std::map<uintptr_t, Interval>;

  Clock &current(int stream);
  bool before(const Party &party, const Clock &now, int stream) const;
  void cut(uintptr_t at);
  void read(uintptr_t begin, uintptr_t end, const Party &me, const Clock &now,
            std::string &found);
  void write(uintptr_t begin, uintptr_t end, const Party &me, const Clock &now,
             std::string &found);
  void report(const Party &me, bool writes, const Party &other,
              bool otherWrites, std::string &found) const;

  std::vector<std::string> names;
  std::vector<Clock> clocks;
  Map past; ///< disjoint, by first byte
};

} // namespace heddle::runtime

#endif
