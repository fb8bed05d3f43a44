//===- Measured.h - A step as it ran, beside its estimate -------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MEASURED_H
#define HEDDLE_TOOLS_MEASURED_H

#include "heddle/Plan/PlanPoint.h"
#include "heddle/Support/Result.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace heddle::tool {

/// A piece of work; seconds from the beginning of the step.
struct MeasuredPiece {
  std::string operation, label, track;
  double start = 0, end = 0;

  /// The name that the estimate has for what takes its time: "products",
  /// "attention", "memory_bound", "optimizer", or an axis.
  std::string_view kind() const;
  /// The name of the timeline's task that it is a part of: "attention", "mlp",
  /// "embedding", "head", "norm", "optimizer"; else its label.
  std::string part() const;
};

/// The last step of a run: what `heddle run --timeline` left.
struct MeasuredStep {
  std::vector<std::vector<MeasuredPiece>> ranks;
  double seconds = 0;
};

Result<MeasuredStep> readMeasured(const std::string &folder);

/// `seconds`; `ranks`; `kinds`: of each its name, `predicted_seconds` (null
/// where the estimate has none), `measured_seconds`, the mean of the ranks of
/// the busiest place, and `error`, by which the estimate is off; `places`: of
/// the first rank of each its name, tracks and `pieces` ([track, part, kind,
/// label, start, end]). An error where the step is not of \p point's ranks.
Result<nlohmann::ordered_json>
measuredJson(const MeasuredStep &step, const PlanPoint &point,
             const nlohmann::ordered_json &estimate);

/// Adds `places` of measuredJson to a trace for Perfetto.
std::string addMeasured(const std::string &trace,
                        const nlohmann::ordered_json &measured);

} // namespace heddle::tool

#endif
