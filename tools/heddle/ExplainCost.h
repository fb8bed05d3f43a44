//===- ExplainCost.h - lib/Cost's figures, for explain ----------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_EXPLAINCOST_H
#define HEDDLE_TOOLS_EXPLAINCOST_H

#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// What the closed formulas say of a plan: operations, collectives by cause,
/// live bytes, what each layer saves, item by item, and what it would save with
/// whole sequences between blocks. `computed` is false, with a `reason`, where
/// the formulas do not know the plan.
nlohmann::ordered_json costJson(const ModelConfig &model,
                                const TrainSettings &train, const Plan &plan);

/// The same for people.
void printCost(const nlohmann::ordered_json &cost);

} // namespace heddle::tool

#endif
