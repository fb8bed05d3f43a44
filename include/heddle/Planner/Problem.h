//===- Problem.h - What a plan is searched for ------------------*- C++ -*-===//
//
// Problem, solver, verified answer: fill a PlanProblem, check() it, let a
// solver find a PlanAnswer (Search.h), and verify() that (Verify.h) with code
// that is not the solver's.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PLANNER_PROBLEM_H
#define HEDDLE_PLANNER_PROBLEM_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/PlanPoint.h"

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A choice that a plan makes, under a name that a user can fix it by.
enum class PlanKey : std::uint8_t {
  Pp,
  Dp,
  Cp,
  Tp,
  Ep,
  MicroBatch,
  MicroBatches,
  Schedule,
  Chunks,
  SequenceParallel,
  Context,
  Zero,
  ShardGroup,
  Reduce,
  Gather,
  Prefetch,
  Recompute,
  Offload,        ///< of the optimizer's numbers
  OffloadedSaved, ///< of what layers save, by name
  Attention,
  DropoutMasks,
  Save,
  Precision,
  Gradients,    ///< the format of their sums
  ReduceFormat, ///< of them on their way
  Order,
};
inline constexpr int planKeys = 26;
std::string_view
planKeyName(PlanKey key); ///< "micro_batch", as on the command line

/// What a point chooses, as it is written: "8", "one_f_one_b", "full",
/// "dp.pp.cp.tp" (outermost first).
std::string choiceOf(const PlanPoint &point, PlanKey key);

/// What a user demands of one choice.
struct PlanDemand {
  PlanKey key = PlanKey::Tp;
  bool isForbidden = false; ///< none of the values, else one of them
  std::vector<std::string> values;
  /// What a user asked for, where it was not this: "lm_head.weight=replicated".
  /// Demands of one wish go together.
  std::string wish = {};

  bool allows(std::string_view value) const;
  std::string text() const; ///< "tp=8", "zero!=3"; with its wish, if any
};

/// "tp=8", "tp=4,8", "zero!=3". An error names an unknown choice, a value that
/// it cannot have, or that there is none.
Result<PlanDemand> parseDemand(std::string_view text);

/// "lm_head=replicated", of one parameter as its checkpoint names it (".weight"
/// may be left out): what plans must be like so that each rank computes with
/// all of it and stores all of it. None where all plans are. An error names an
/// unknown parameter, or another placement.
Result<std::vector<PlanDemand>> parsePin(std::string_view text,
                                         const ModelConfig &model);

struct PlanProblem {
  ModelConfig model;
  TrainSettings train;
  Cluster cluster;
  std::vector<PlanDemand> demands;

  bool allows(PlanKey key, std::string_view value) const;
  bool allows(PlanKey key, std::int64_t value) const {
    return allows(key, std::to_string(value));
  }
  /// Whether all demands on choices take the point.
  bool allows(const PlanPoint &point) const;

  /// What no plan can mend: sequences longer than learned positions, formats
  /// that the device has not, no memory beside the reserve.
  Result<std::vector<std::string>> check() const;
};

} // namespace heddle

#endif // HEDDLE_PLANNER_PROBLEM_H
