//===- Report.h - What a report's page is drawn from ------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_REPORT_H
#define HEDDLE_TOOLS_REPORT_H

#include "tools/heddle/PlanSearch.h"

#include "heddle/Cost/StepTimeline.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// To a nanosecond: short as text.
double roundedSeconds(double seconds);

/// `seconds`; `places` with their tracks; `slots` of each place ([text, kind,
/// chunk, micro-batch, stage, start, end]); `transfers` ([from, to, text,
/// start, end]); `ends` of each place ([track, name, start, end]); `tasks`
/// within the slots of a kind and chunk ([track, name, start, end], from the
/// slot's beginning). Names and tracks are those of writeTimeline.
nlohmann::ordered_json timelineJson(const StepTimeline &timeline);

/// `capacity_bytes`, `reasons`, `places`: of each the estimate at the `peak`
/// and `points` ([seconds, bytes by reason]). An error as MemoryEstimator's.
Result<nlohmann::ordered_json> memoryCurvesJson(const StepTimeline &timeline,
                                                const PlanPoint &point,
                                                const PlanSearch &search);

/// `axes` of the mesh; `layers`: where each is and what of it is computed
/// again; `parameters` with shape, cuts, bytes of a rank; `values` that rules
/// pin; `zero`: what is cut into runs, and over which axes.
Result<nlohmann::ordered_json> shardingJson(const PlanPoint &point,
                                            const Plan &plan,
                                            const ModelConfig &model);

/// The page: template, styles and scripts of tools/heddle/report, the plotting
/// library of the package that holds it, and \p data. An error names the
/// package that is missing.
Result<std::string> reportPage(const nlohmann::ordered_json &data);

} // namespace heddle::tool

#endif
