//===- Restarts.h - Whether and when a run is started again ---------------===//

#ifndef HEDDLE_SUPERVISOR_RESTARTS_H
#define HEDDLE_SUPERVISOR_RESTARTS_H

#include <cstdint>
#include <string>

namespace heddle::supervisor {

/// How a life of a run ended.
struct Failure {
  int64_t step = 0;       ///< the farthest that was begun
  int64_t committed = -1; ///< step of the newest checkpoint; -1: none
};

struct Decision {
  bool again = false;
  double delay = 0;      ///< seconds before it
  bool setAside = false; ///< the newest checkpoint is not trusted any more
  std::string why;       ///< of a stop
};

/// Restarts are of use where a failure passes: they go on from the newest
/// checkpoint, after 1, 2, 4, ... seconds (at most 60) while no new one was
/// committed. They end
/// - when there were as many as are allowed,
/// - when three in a row committed nothing new,
/// - when the run failed in the same step three times in a row; after the
/// second
///   time the newest checkpoint is set aside, for the fault may be in it.
class Restarts {
public:
  /// \param most  allowed in all.
  explicit Restarts(int64_t most) : most(most) {}
  Decision next(const Failure &failure);
  int64_t count() const { return done; }

private:
  int64_t most, done = 0;
  int64_t fruitless = 0; ///< restarts since the last new checkpoint
  int64_t sameStep = 0;  ///< failures in a row in one step
  Failure last = {-1, -1};
};

} // namespace heddle::supervisor

#endif
