//===- ExplainEstimate.h - Times and sizes of a plan, for explain -*- C++
//-*-===//

#ifndef HEDDLE_TOOLS_EXPLAINESTIMATE_H
#define HEDDLE_TOOLS_EXPLAINESTIMATE_H

#include "tools/heddle/Inputs.h"

#include "heddle/Plan/PlanPoint.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// What lib/Cost's models of times and memory say of a plan on the cluster, as
/// keys of `explain --json`: step_seconds, bubble_fraction, mfu, hfu,
/// tokens_per_second_per_device, peak_tflops, communication (per axis),
/// compute, memory, checkpoint, precision, fits. Cluster, settings and plan
/// must be there. Bytes, seconds, fractions. An error: what the models need and
/// the device or the plan does not have.
Result<nlohmann::ordered_json> estimateJson(const Inputs &inputs,
                                            const PlanPoint &point);

/// The same for people.
void printEstimate(const nlohmann::ordered_json &estimate);

} // namespace heddle::tool

#endif
