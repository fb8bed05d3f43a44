//===- Watch.h - Finds hangs and deaths -----------------------------------===//

#ifndef HEDDLE_SUPERVISOR_WATCH_H
#define HEDDLE_SUPERVISOR_WATCH_H

#include "heddle/Supervisor/Blame.h"

#include <array>
#include <deque>
#include <optional>
#include <vector>

namespace heddle::supervisor {

struct Limits {
  /// How long a rank may make no progress in a step, at least; 0: for ever.
  double step = 60;
};

/// What ended a run.
struct Verdict {
  Blame blame;
  double silent = 0, limit = 0; ///< seconds, of a hang
  int64_t step = 0;             ///< the farthest that a rank has begun
  std::string text() const;
};

/// Looks at all ranks of a host again and again.
///
/// The limit of a section is `Limits::step`, or five times the 99th percentile
/// of the longest silences of past steps where that is more; ten times
/// `Limits::step` in other sections, before a first step has ended, and at
/// most. A rank that waits for its peers is silent by right, so a hang is a
/// rank that does not wait and is silent for too long, or silence of all.
class Watch {
public:
  explicit Watch(const Limits &limits) : limits(limits) {}

  /// \param now  seconds, of any clock that only grows.
  std::optional<Verdict> look(double now, const std::vector<RankView> &views);

  double limitOf(Section section) const;

private:
  struct Seen {
    bool known = false;
    uint64_t sequence = 0;
    int64_t step = 0;
    Section section = Section::Start;
    bool waiting = false;
    double since = 0;   ///< of this state
    double longest = 0; ///< silence in this step
  };
  void follow(double now, const RankView &view, Seen &seen);

  Limits limits;
  std::vector<Seen> seen;
  std::deque<double> silences; ///< the longest of each rank's last steps
};

} // namespace heddle::supervisor

#endif
