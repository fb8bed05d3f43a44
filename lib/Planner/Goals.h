//===- Goals.h - What a search is to find -----------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_PLANNER_GOALS_H
#define HEDDLE_LIB_PLANNER_GOALS_H

#include "heddle/Planner/Problem.h"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace heddle::detail {

/// How much of a plan is decided.
enum class Depth : std::uint8_t {
  Mesh,     ///< axes, micro-batches, formats
  Schedule, ///< also schedule, chunks, layers of stages, what is cut how
  Storage,  ///< also where states are
  Order,    ///< also the order of axes
  Plan,     ///< also what is computed again
};
inline constexpr int depths = 5;

/// The fastest plans; or of these, where there is a key, such as choose
/// otherwise than one plan does.
struct Goal {
  std::optional<PlanKey> key = {};
  PlanPoint otherThan = {};
  /// Whether one plan is asked for, so that no slower one than that is of use.
  bool isOne = true;
  /// What takes longer is of no use.
  double limit = std::numeric_limits<double>::infinity();

  bool isMetBy(const PlanPoint &point) const;
};

/// Goals of one search, as a set of bits.
using GoalSet = std::uint32_t;

class Goals {
public:
  static constexpr std::size_t most = 32;
  explicit Goals(std::vector<Goal> list);

  GoalSet all() const { return everyOne; }
  /// Of \p set, those that the choices which are made at that depth leave open,
  /// or meet.
  GoalSet leftAt(Depth depth, const PlanPoint &point, GoalSet set) const;
  /// Of \p set, those that the plan meets.
  GoalSet metBy(const PlanPoint &plan, GoalSet set) const;
  /// Whether one of them asks for another choice of that.
  bool ask(GoalSet set, PlanKey key) const;
  /// The longest that is of use to one of them.
  double limitOf(GoalSet set) const;

  /// Lowers the limits of all of \p set that ask for one plan.
  void take(GoalSet set, double seconds);
  std::vector<Goal> list;

private:
  GoalSet everyOne = 0;
  std::array<GoalSet, depths> ofDepth = {}; ///< by what their key is decided at
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLANNER_GOALS_H
