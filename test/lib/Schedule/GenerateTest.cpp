#include "Tables.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Whether Generate.h says that a schedule is defined.
bool isDefined(PlanScheduleKind kind, std::int64_t p, std::int64_t v,
               std::int64_t m) {
  switch (kind) {
  case PlanScheduleKind::None:
    return p == 1 && v == 1;
  case PlanScheduleKind::GPipe:
  case PlanScheduleKind::OneFOneB:
  case PlanScheduleKind::ZbH1:
  case PlanScheduleKind::ZbH2:
    return v == 1;
  case PlanScheduleKind::Interleaved1F1B:
    return true;
  case PlanScheduleKind::ZbV:
  case PlanScheduleKind::VHalf:
  case PlanScheduleKind::VMin:
    return v == 2;
  case PlanScheduleKind::DualPipe:
    return v == 2 && p % 2 == 0 && m % 2 == 0 && m >= 2 * p;
  case PlanScheduleKind::DualPipeV:
    return v == 2 && m >= 2 * p;
  case PlanScheduleKind::Table:
    return false;
  }
  return false;
}

TEST(Generate, EveryScheduleRunsOrIsRefused) {
  for (PlanScheduleKind kind : generatedKinds)
    for (std::int64_t p = 1; p <= 8; ++p)
      for (std::int64_t v = 1; v <= 4; ++v)
        for (std::int64_t m : {std::int64_t{1}, std::int64_t{2},
                               std::int64_t{3}, p, 4 * p, 4 * p + 1}) {
          SCOPED_TRACE(
              fmt::format("{} p={} v={} m={}", scheduleWord(kind), p, v, m));
          const Result<ScheduleTable> table = generateSchedule(kind, p, v, m);
          ASSERT_EQ(static_cast<bool>(table), isDefined(kind, p, v, m))
              << (table ? "" : table.message());
          if (table)
            ASSERT_EQ(faultOf(*table), "");
          else
            ASSERT_THAT(table.message(), HasSubstr("expected"));
        }
}

TEST(Generate, RowsAreThePapers) {
  EXPECT_THAT(writeRows(generated(PlanScheduleKind::GPipe, 2, 1, 4)),
              ElementsAre("F0..3 D0..3 O", "F0..3 D0..3 O"));
  EXPECT_THAT(writeRows(generated(PlanScheduleKind::OneFOneB, 3, 1, 4)),
              ElementsAre("F0..2 D0 F3 D1..3 O", "F0 F1 D0 F2 D1 F3 D2 D3 O",
                          "F0 D0 F1 D1 F2 D2 F3 D3 O"));
}

TEST(Generate, SaysTheCondition) {
  const auto refusal = [](PlanScheduleKind kind, std::int64_t p, std::int64_t v,
                          std::int64_t m) {
    const Result<ScheduleTable> table = generateSchedule(kind, p, v, m);
    return table ? std::string() : table.message();
  };
  EXPECT_EQ(refusal(PlanScheduleKind::DualPipe, 3, 2, 12),
            "schedule dualpipe: 3 ranks, expected an even number; dualpipe_v "
            "takes any");
  EXPECT_THAT(refusal(PlanScheduleKind::DualPipe, 4, 2, 9),
              HasSubstr("9 micro-batches, expected an even number"));
  EXPECT_THAT(refusal(PlanScheduleKind::DualPipeV, 4, 2, 7),
              HasSubstr("7 micro-batches, expected at least 8"));
  EXPECT_THAT(refusal(PlanScheduleKind::GPipe, 4, 2, 8),
              HasSubstr("2 chunks per rank, expected 1"));
  EXPECT_THAT(refusal(PlanScheduleKind::None, 2, 1, 8),
              HasSubstr("2 ranks of pp, expected 1"));
  EXPECT_THAT(refusal(PlanScheduleKind::Table, 2, 1, 8),
              HasSubstr("has no generator"));
  const std::int64_t huge = std::int64_t{1} << 62;
  for (PlanScheduleKind kind : generatedKinds) {
    EXPECT_NE(refusal(kind, huge, 2, 4), "");
    EXPECT_NE(refusal(kind, 2, huge, 4), "");
    EXPECT_NE(refusal(kind, 2, 2, huge), "");
    EXPECT_NE(refusal(kind, -1, -1, -1), "");
    EXPECT_NE(refusal(kind, 0, 0, 0), "");
    EXPECT_NE(refusal(kind, 1 << 12, 2, 1 << 20), "");
  }
}

TEST(Generate, PlanAsksForATable) {
  Plan plan;
  plan.mesh = {{"pp", 2}, {"dp", 1}, {"cp", 1}, {"tp", 1}};
  plan.microBatches = 2;
  plan.stages.layers = {{{0, 0}}, {{1, 1}}};
  plan.stages.schedule = PlanScheduleKind::GPipe;
  EXPECT_EQ(*scheduleOfPlan(plan), generated(PlanScheduleKind::GPipe, 2, 1, 2));
  plan.stages.schedule = PlanScheduleKind::Table;
  plan.stages.table = {"F0 F1 D0 D1 O", "F0 D0 F1 D1 O"};
  EXPECT_EQ(writeRows(*scheduleOfPlan(plan)), plan.stages.table);
  plan.stages.table[0] = "F0 D0 F1 D1 O";
  plan.stages.table[1] = "F1 D1 F0 D0 O";
  EXPECT_THAT(scheduleOfPlan(plan).message(), HasSubstr("stuck in a circle"));
  plan.stages.table.pop_back();
  EXPECT_THAT(scheduleOfPlan(plan).message(),
              HasSubstr("expected one per rank of pp"));
  plan.stages.layers[1].push_back({});
  EXPECT_THAT(scheduleOfPlan(plan).message(),
              HasSubstr("1 chunks on one rank and 2 on another"));
}

// So copies of a parameter can be summed beside slots. Rows of a user need not
// be mirrored: other kinds, chunks, micro-batches or numbers of slots.
TEST(Generate, RowsOfDualPipeAreMirrored) {
  for (std::int64_t p : {2, 4, 6})
    for (std::int64_t m : {2 * p, 2 * p + 2, 4 * p})
      EXPECT_TRUE(generated(PlanScheduleKind::DualPipe, p, 2, m).isMirrored());
  EXPECT_FALSE(generated(PlanScheduleKind::DualPipeV, 2, 2, 4).isMirrored());
  const auto isMirrored = [](const char *other) {
    return tableOf({"@0,1' F0 F1 F2/1 F3/1 D0 D1 D2/1 D3/1 O",
                    std::string("@1,0' ") + other + " O"},
                   2, 4)
        .isMirrored();
  };
  EXPECT_TRUE(isMirrored("F2/1 F3/1 F0 F1 D2/1 D3/1 D0 D1"));
  EXPECT_FALSE(isMirrored("F0 F1 F2/1 F3/1 D2/1 D3/1 D0 D1"));
  EXPECT_FALSE(isMirrored("F3/1 F2/1 F0 F1 D2/1 D3/1 D0 D1"));
  EXPECT_FALSE(isMirrored("F2/1 F3/1 F0 F1 B2/1 W2/1 D3/1 D0 D1"));
}

} // namespace
} // namespace heddle
