//===- Prediction.h - what lib/Cost says of a program -----------*- C++ -*-===//
//
// Two truths, kept apart: closed formulas from model and plan alone (cost.json,
// written by `compile`), and what the emitted program does (recorded by `run
// --dry`).
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TOOLS_PREDICTION_H
#define HEDDLE_TOOLS_PREDICTION_H

#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"
#include "heddle/Support/Result.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// FLOPs, bytes sent per list of axes and live bytes at the peak, of a rank of
/// each place over pp and one step. Where lib/Cost has no formula for the plan
/// `computed` is false, and `reason` says why.
nlohmann::json predictCost(const ModelConfig &model, const TrainSettings &train,
                           const Plan &plan);

/// The first figure in which a recording (`trace`) or memory.json's live peak
/// is not as predicted for its place, with both numbers; "" where all are
/// equal.
std::string findMisprediction(const nlohmann::json &predicted,
                              const nlohmann::json &trace,
                              const nlohmann::json &memory);

} // namespace heddle::tool

#endif
