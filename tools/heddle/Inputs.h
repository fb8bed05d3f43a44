//===- Inputs.h - The files that a user gives -------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_INPUTS_H
#define HEDDLE_TOOLS_INPUTS_H

#include "tools/heddle/Command.h"

#include "heddle/Cluster/Cluster.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"

#include <string>
#include <vector>

namespace heddle::tool {

/// Paths as given; "" where a file was not given.
struct InputPaths {
  std::string model, cluster, train, plan;
};

struct Inputs {
  ModelConfig model;
  std::optional<Cluster> cluster;
  std::optional<TrainSettings> train;
  std::optional<Plan> plan;
};

/// Reads what is given. Rates of dropout in the settings replace the model's.
Result<Inputs> readInputs(const InputPaths &paths);

/// Whether plan, model, settings and cluster fit; the warnings say what a user
/// may not want. Plan and settings must be there.
Result<std::vector<std::string>> checkInputs(const Inputs &inputs);

/// The plan of one device that runs the same global batch in the same order.
Result<Plan> oneDevicePlan(const Plan &plan, const ModelConfig &model);

} // namespace heddle::tool

#endif
