//===- ExplainEstimate.h - Times and sizes of a plan ------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_EXPLAINESTIMATE_H
#define HEDDLE_TOOLS_EXPLAINESTIMATE_H

#include "tools/heddle/Inputs.h"

#include "heddle/Cost/StepTime.h"
#include "heddle/Plan/PlanPoint.h"
#include "heddle/Planner/Problem.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// Whether plan, settings and cluster are of one size, for plans that are not
/// compiled (checkInputs does it for those that are).
Result<void> checkExtent(const Inputs &inputs, const PlanPoint &point);

/// Of the option --tokens, where it is given.
Result<void> checkTokens(double tokens);

/// Saved values to the host and back: bytes_each_way, seconds, exposed_seconds.
nlohmann::ordered_json hostJson(const StepTime &step);

/// Along each axis that anything is sent along: bytes_per_rank, seconds_ideal
/// (no latency), seconds (the calibrated model), exposed_seconds, link.
nlohmann::ordered_json communicationJson(const StepTime &step,
                                         const Cluster &cluster);

/// Whose decisions are compared with runner-ups.
struct DecisionRequest {
  bool wanted = true;
  std::vector<PlanDemand> demands; ///< that runner-ups meet
};

/// What lib/Cost's models of times and memory say of a plan on the cluster, as
/// keys of `explain --json`: step_seconds, bubble_fraction, mfu, hfu,
/// peak_flops_per_second (what both are divided by), tokens_per_second,
/// tokens_per_second_per_device, training (of \p tokens; 0: of the steps of the
/// settings, if they say), communication (per axis), compute, memory,
/// checkpoint, precision, fits, decisions. Cluster, settings and plan must be
/// there. Bytes, seconds, fractions. An error: what the models need and the
/// device or the plan does not have.
Result<nlohmann::ordered_json> estimateJson(const Inputs &inputs,
                                            const PlanPoint &point,
                                            double tokens,
                                            const DecisionRequest &decisions);

/// The same for people.
void printEstimate(const nlohmann::ordered_json &estimate);

} // namespace heddle::tool

#endif
