//===- Slow.h - Finds ranks that compute slower than their like -----------===//

#ifndef HEDDLE_SUPERVISOR_SLOW_H
#define HEDDLE_SUPERVISOR_SLOW_H

#include "heddle/Supervisor/View.h"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace heddle::supervisor {

struct SlowLimits {
  double factor = 1.3;         ///< of the median of its role
  double deviations = 3;       ///< of those that are not, above it
  int windows = 5, needed = 3; ///< so often in the last windows
  double seconds = 0.1;        ///< of the median's computation make a window
};

struct SlowRank {
  int rank = 0, role = 0;
  double factor = 1;           ///< mean of the windows in which it was slow
  int windows = 0;             ///< that many, of the last ones
  int of = 0;                  ///< which are so many
  int64_t first = 0, step = 0; ///< their first and last step
  std::string text() const;
};

/// Compares processor time outside of waits, among ranks of one role only: they
/// do the same work. Who waits for a slow one is not slow. A window is as many
/// steps as are needed for its times to mean something, the same on all ranks.
class SlowRanks {
public:
  explicit SlowRanks(const SlowLimits &limits = {}) : limits(limits) {}

  /// Takes what is new in the views. Ranks that are slow now and were not
  /// before, each once.
  std::vector<SlowRank> look(const std::vector<RankView> &views);

  int64_t windows() const { return closed; }

private:
  struct Rank {
    int role = 0;
    int64_t last = 0;               ///< step that was taken last
    std::map<int64_t, double> open; ///< step -> compute
    std::deque<double> factors;     ///< of the last windows; 0: not slow
    bool told = false;
  };
  /// Windows of a role.
  struct Role {
    std::deque<int64_t> firsts; ///< first steps of the last ones
    int64_t step = 0;           ///< last step of the last one
  };
  void take(const RankView &view, Rank &rank);
  bool closeWindow(int role);
  void judge(const std::map<int, double> &times);
  SlowRank describe(int number, const Rank &rank) const;

  SlowLimits limits;
  std::map<int, Rank> ranks;
  std::map<int, Role> roles;
  int64_t closed = 0;
};

} // namespace heddle::supervisor

#endif
