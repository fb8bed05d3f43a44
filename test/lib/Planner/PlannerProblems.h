//===- PlannerProblems.h - Models and clusters to plan for ------*- C++ -*-===//

#ifndef HEDDLE_TEST_LIB_PLANNER_PLANNERPROBLEMS_H
#define HEDDLE_TEST_LIB_PLANNER_PLANNERPROBLEMS_H

#include "test/TestPlan.h"

#include "heddle/Planner/Search.h"

#include <random>

namespace heddle::test {

inline ModelConfig publicModel(const std::string &name) {
  return must(readModelConfig(
      std::filesystem::path(HEDDLE_SOURCE_DIR "/test/cases/hf_configs") /
      (name + ".json")));
}

inline Cluster exampleCluster(const std::string &name) {
  return must(readCluster(
      std::filesystem::path(HEDDLE_SOURCE_DIR "/tools/examples/clusters") /
      (name + ".yaml")));
}

inline TrainSettings adamW(std::int64_t length, std::int64_t batch) {
  TrainSettings train;
  train.sequenceLength = length;
  train.globalBatch = batch;
  train.precision = {"bf16"};
  train.optimizer.lr = 1e-4;
  return train;
}

/// A problem with all that its solution takes.
struct Planned {
  explicit Planned(PlanProblem given)
      : problem(std::move(given)),
        times(
            must(StepTimes::of(problem.model, problem.train, problem.cluster))),
        memory(problem.model, problem.train, problem.cluster) {}

  PlanAnswer find(const SearchOptions &options = {}) const {
    return findPlans(problem, times, nullptr, memory, options);
  }

  PlanProblem problem;
  StepTimes times;
  MemoryEstimator memory;
};

inline void demand(PlanProblem &problem, const std::string &text) {
  problem.demands.push_back(must(parseDemand(text)));
}

/// A small model on a few devices whose memory is from too little to ample.
inline PlanProblem randomProblem(std::mt19937 &random) {
  auto oneOf = [&](std::initializer_list<double> values) {
    return *(values.begin() + random() % values.size());
  };
  PlanProblem problem;
  ModelConfig &model = problem.model;
  model.layers = std::int64_t(oneOf({2, 3, 4, 6}));
  model.kvHeads = std::int64_t(oneOf({2, 4, 8}));
  model.queryHeadsPerKvHead = std::int64_t(oneOf({1, 2}));
  model.headSize = 64;
  model.hidden = std::int64_t(oneOf({512, 1024, 2048}));
  model.ffn = 4 * model.hidden;
  model.vocabulary = std::int64_t(oneOf({1000, 32000}));
  model.maxPositions = 1 << 20;
  problem.train =
      adamW(std::int64_t(oneOf({512, 2048})), std::int64_t(oneOf({4, 8, 12})));
  Cluster &cluster = problem.cluster;
  cluster.device = *deviceByName("h100-sxm-80gb");
  cluster.devicesPerNode = std::int64_t(oneOf({2, 4}));
  cluster.nodes = std::int64_t(oneOf({1, 2}));
  cluster.nicsPerNode = cluster.devicesPerNode;
  cluster.device.memoryBytes =
      std::int64_t(oneOf({0.3, 0.6, 1.5, 8}) * (std::int64_t{1} << 30));
  cluster.links = {{"node", 1, oneOf({100, 450}) * 1e9, {}, 1, false}};
  if (cluster.nodes > 1)
    cluster.links.push_back(
        {"cluster", cluster.nodes, oneOf({5, 50}) * 1e9, 5e-6, 1, false});
  if (random() % 2)
    cluster.hostLinkBytesPerSecond = 64e9;
  return problem;
}

} // namespace heddle::test

#endif // HEDDLE_TEST_LIB_PLANNER_PLANNERPROBLEMS_H
