// What a plan's stages are told before anything is compiled.

#include "heddle/Schedule/CheckStages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::HasSubstr;

/// A plan of `counts` layers per rank of pp and chunk, one after the other in
/// the order of `chain`, whose ends have embedding and head.
Plan planOf(PlanScheduleKind kind, std::vector<std::vector<int>> counts,
            const std::vector<PlanPlace> &chain, std::int64_t microBatches) {
  Plan plan;
  plan.stages.schedule = kind;
  plan.microBatches = microBatches;
  plan.mesh = {{"pp", static_cast<std::int64_t>(counts.size())},
               {"dp", 1},
               {"cp", 1},
               {"tp", 1}};
  for (const std::vector<int> &chunks : counts)
    plan.stages.layers.emplace_back(chunks.size());
  std::int64_t next = 0;
  for (const PlanPlace &at : chain) {
    const auto rank = static_cast<std::size_t>(at.rank);
    const auto chunk = static_cast<std::size_t>(at.chunk);
    PlanRange &range = plan.stages.layers[rank][chunk];
    if (counts[rank][chunk])
      range = {next, next + counts[rank][chunk] - 1};
    next += counts[rank][chunk];
  }
  plan.stages.embedding = chain.front();
  plan.stages.head = chain.back();
  return plan;
}

Plan oneChunkEach(std::vector<int> counts, std::int64_t microBatches) {
  std::vector<std::vector<int>> places;
  std::vector<PlanPlace> chain;
  for (int count : counts) {
    chain.push_back({static_cast<std::int64_t>(places.size()), 0});
    places.push_back({count});
  }
  return planOf(PlanScheduleKind::OneFOneB, places, chain, microBatches);
}

std::string checked(const Plan &plan) {
  if (Result<void> text = checkScheduleText(plan); !text)
    return "no table: " + text.message();
  Result<std::vector<PlanWarning>> result = checkStages(plan);
  if (!result)
    return "error: " + result.message();
  std::string text;
  for (const PlanWarning &warning : *result)
    text += "warning: " + warning.message + "\n";
  return text;
}

TEST(CheckStages, RightPlansAreTold) {
  EXPECT_EQ(checked(oneChunkEach({2, 2, 2, 1}, 32)), "");
  EXPECT_EQ(checked(oneChunkEach({6}, 1)), "");
  const std::vector<PlanPlace> forthAndBack = {{0, 0}, {1, 0}, {1, 1}, {0, 1}};
  for (PlanScheduleKind kind :
       {PlanScheduleKind::ZbV, PlanScheduleKind::DualPipeV})
    EXPECT_EQ(checked(planOf(kind, {{1, 1}, {1, 1}}, forthAndBack, 64)), "")
        << scheduleWord(kind);
}

TEST(CheckStages, StagesNeedASchedule) {
  Plan plan = oneChunkEach({3, 3}, 2);
  plan.stages.schedule = PlanScheduleKind::None;
  EXPECT_THAT(checked(plan),
              HasSubstr("error: plan: schedule none: 2 ranks of pp, expected "
                        "1; choose a schedule of stages: gpipe, one_f_one_b"));
  EXPECT_THAT(checked(planOf(PlanScheduleKind::OneFOneB, {{1, 1}, {1, 1}},
                             {{0, 0}, {1, 0}, {0, 1}, {1, 1}}, 2)),
              HasSubstr("schedule one_f_one_b: 2 chunks per rank, expected 1"));
}

TEST(CheckStages, LayersFollowTheChain) {
  // Cyclic layers under a schedule that goes forth and back.
  Plan plan = planOf(PlanScheduleKind::ZbV, {{1, 2}, {3, 4}},
                     {{0, 0}, {1, 0}, {0, 1}, {1, 1}}, 4);
  EXPECT_EQ(checked(plan),
            "error: plan: stages.layers: [1, 1] is stage 2 of schedule zb_v; "
            "found layers \"6..9\", expected them to begin with 4");
}

TEST(CheckStages, EndsHaveEmbeddingAndHead) {
  Plan plan = oneChunkEach({0, 6, 0}, 4);
  plan.stages.embedding = {1, 0};
  EXPECT_EQ(checked(plan),
            "error: plan: stages.embedding: found [1, 0], expected [0, 0], the "
            "first stage of the schedule");
  plan.stages.embedding = {0, 0};
  plan.stages.head = {0, 0};
  EXPECT_EQ(checked(plan),
            "error: plan: stages.head: found [0, 0], expected [2, 0], the last "
            "stage of the schedule");
}

TEST(CheckStages, TwoCopiesAreMirrored) {
  Plan plan =
      planOf(PlanScheduleKind::DualPipe, {{2, 0}, {1, 0}}, {{0, 0}, {1, 0}}, 4);
  EXPECT_EQ(checked(plan),
            "error: plan: stages.layers: [0, 0] and [1, 1] are stage 0 of both "
            "copies; found layers \"0..1\" and \"\", expected the same");
  plan.stages.layers = {{{0, 1}, {2, 2}}, {{2, 2}, {0, 1}}};
  EXPECT_EQ(checked(plan), "");
  plan.stages.schedule = PlanScheduleKind::Table;
  plan.microBatches = 2;
  plan.stages.table = {"@0,1' F0 F1/1 D0 D1/1 O", "@1,0' F0 F1/1 D0 D1/1 O"};
  EXPECT_THAT(checked(plan), HasSubstr("warning: schedule table"));
  plan.stages.table = {"@0,0' F0 F1/1 D0 D1/1 O", "@1,1' F0 F1/1 D0 D1/1 O"};
  EXPECT_EQ(checked(plan),
            "error: plan: stages.schedule: found 2 copies of the model on 2 "
            "ranks of pp; expected two on an even number of ranks, each stage "
            "of the second as far from the last rank as that of the first is "
            "from rank 0");
}

TEST(CheckStages, UnequalStagesAndIdleRanksAreWarnedOf) {
  EXPECT_EQ(checked(oneChunkEach({4, 1, 1, 1}, 64)),
            "warning: stages are unequal: rank 0 of pp has 4 layers, the mean "
            "is 1.75; the others wait for it\n");
  // (p - 1) / (m + p - 1) of the whole.
  EXPECT_EQ(checked(oneChunkEach({2, 2, 2, 2}, 4)),
            "warning: schedule one_f_one_b of 4 micro-batches on 4 ranks of "
            "pp: they idle 42.9 % of a step, with equal stages and free "
            "transfers; more micro-batches make it less\n");
}

TEST(CheckStages, TablesOfTheirOwn) {
  Plan plan = oneChunkEach({3, 3}, 2);
  plan.stages.schedule = PlanScheduleKind::Table;
  plan.stages.table = {"F0 F1 D0 D1 O", "F0 D0 F1 D1 O"};
  EXPECT_THAT(checked(plan), HasSubstr("warning: schedule table"));
  plan.stages.table[0] = "F0 D0 F1 X1 O";
  EXPECT_THAT(checked(plan), HasSubstr("no table: plan: stages.schedule"));
  EXPECT_THAT(checked(plan), HasSubstr("X1"));
  // Rank 1 wants the second micro-batch first, which rank 0 begins behind the
  // end of the first one.
  plan.stages.table = {"F0 D0 F1 D1 O", "F1 F0 D0 D1 O"};
  EXPECT_THAT(checked(plan),
              HasSubstr("error: plan: schedule: stuck in a circle of 2 waits"));
}

TEST(CheckStages, LayersTellTheStagesOfATable) {
  const std::vector<PlanPlace> back = {{0, 0}, {1, 0}, {1, 1}, {0, 1}};
  Plan plan = planOf(PlanScheduleKind::Table, {{1, 1}, {1, 1}}, back, 1);
  plan.stages.table = {"F0 F0/1 D0/1 D0 O", "F0 F0/1 D0/1 D0 O"};
  EXPECT_THAT(checked(plan), testing::StartsWith("warning: schedule table"));
  // Stages without layers: the ends tell.
  plan = planOf(PlanScheduleKind::Table, {{1, 0}, {1, 0}}, back, 1);
  plan.stages.table = {"F0 F0/1 D0/1 D0 O", "F0 F0/1 D0/1 D0 O"};
  EXPECT_THAT(checked(plan), testing::StartsWith("warning: "));
  // Neither cyclic nor forth and back: only the rows can tell.
  plan = planOf(PlanScheduleKind::Table, {{1, 1}, {1, 1}},
                {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, 1);
  plan.stages.table = {"F0 F0/1 D0/1 D0 O", "F0 F0/1 D0/1 D0 O"};
  EXPECT_THAT(checked(plan),
              HasSubstr("begin each row of the table with the stages"));
  plan.stages.table = {"@0,1 F0 F0/1 D0/1 D0 O", "@2,3 F0 F0/1 D0/1 D0 O"};
  EXPECT_THAT(checked(plan), testing::StartsWith("warning: schedule table"));
}

} // namespace
} // namespace heddle
