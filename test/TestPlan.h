//===- TestPlan.h - Models and plans from short texts -----------*- C++ -*-===//

#ifndef HEDDLE_TEST_TESTPLAN_H
#define HEDDLE_TEST_TESTPLAN_H

#include "heddle/Model/ModelConfig.h"
#include "heddle/Plan/Plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace heddle::test {

/// What is there, or the end of the test.
template <class T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.message();
    std::abort();
  }
  return std::move(*result);
}

inline Document parseJson(const std::string &text, const char *file) {
  return must(Document::parse(text, file, Document::Syntax::Json));
}

/// From the text of a config.json.
inline ModelConfig modelOf(const std::string &config) {
  return must(readModelConfig(parseJson(config, "config.json")));
}

/// Sizes of a plan's mesh and batch.
struct PlanSizes {
  std::int64_t pp = 1, dp = 1, tp = 1, microBatch = 1, microBatches = 1;
};

/// `members` are more of the plan's members, each behind a comma.
inline Plan planOf(const ModelConfig &model, const PlanSizes &sizes,
                   const std::string &members = "") {
  return must(readPlan(
      parseJson(fmt::format(R"({{"version": 1, "mesh": [["pp", {}], ["dp", {}],
                                ["cp", 1], ["tp", {}]], "micro_batch": {},
                                "micro_batches": {}{}}})",
                            sizes.pp, sizes.dp, sizes.tp, sizes.microBatch,
                            sizes.microBatches, members),
                "plan.json"),
      &model));
}

/// A plan of dp and tp.
inline Plan planOf(const ModelConfig &model, std::int64_t dp, std::int64_t tp,
                   std::int64_t microBatch, std::int64_t microBatches,
                   const std::string &members = "") {
  return planOf(model, {1, dp, tp, microBatch, microBatches}, members);
}

/// The member `stages`, behind a comma: layers of each rank of pp and chunk as
/// JSON, a schedule's word. The head is at the last place unless `more` says.
inline std::string stagesOf(const std::string &layers, const char *schedule,
                            const char *more = "") {
  return fmt::format(R"(, "stages": {{"layers": {}, "schedule": "{}"{}}})",
                     layers, schedule, more);
}

} // namespace heddle::test

#endif // HEDDLE_TEST_TESTPLAN_H
