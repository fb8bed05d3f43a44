#include "PlanModels.h"

#include "test/TestPlan.h"

namespace heddle {
namespace {

/// Warnings of a plan over 4 ranks of dp and 2 of tp, one a line.
std::string checkedZero(const std::string &zero, const std::string &more = "",
                        const std::vector<PlanRange> &stages = {{0, 2}}) {
  ModelConfig model = test::llama(3, 32, 4, 4, 8, 96, 256);
  Plan plan =
      test::planOf(model, 4, 2, 1, 1, ", \"zero\": {" + zero + "}" + more);
  if (stages.size() > 1) {
    plan.mesh[0].second = std::int64_t(stages.size());
    plan.stages.layers.clear();
    for (const PlanRange &range : stages)
      plan.stages.layers.push_back({range});
    plan.stages.head.rank = std::int64_t(stages.size()) - 1;
    plan.stages.schedule = PlanScheduleKind::OneFOneB;
  }
  std::string text;
  for (const PlanWarning &warning :
       test::must(checkPlan(plan, model, test::batchOf(4))))
    text += "warning: " + warning.message + "\n";
  return text;
}

// A rank of tp has half of what is split: of a block 4 matrices of 32 x 32 and
// 3 of 32 x 96, and all of two norms; half of two tables of 256 x 32.
constexpr int kBlock = 4 * (4 * 32 * 32 / 2 + 3 * 32 * 96 / 2 + 2 * 64),
              kAll = 3 * kBlock + 4 * (2 * 256 * 32 / 2 + 64);

TEST(PlanCheck, CopiesOfWhatIsStoredInShardsAreNamedInBytes) {
  const std::string pass = R"("gather": "every_pass")",
                    each = R"("reduce": "every_micro_batch")";
  EXPECT_EQ(checkedZero(R"("stage": 3, )" + pass + ", " + each), "");
  EXPECT_EQ(checkedZero(R"("stage": 2, )" + each), "");
  EXPECT_EQ(checkedZero(R"("stage": 1)"), "");
  EXPECT_EQ(checkedZero(R"("stage": 3, "shard_group": 1)"), "");
  EXPECT_EQ(
      checkedZero(R"("stage": 3, )" + each),
      fmt::format("warning: zero.stage 3 with zero.gather once_per_step keeps "
                  "a whole copy of the parameters beside its shard: {} bytes "
                  "per rank beside {}; every_pass keeps one block's\n",
                  kAll, kAll / 4));
  EXPECT_EQ(checkedZero(R"("stage": 2)"),
            fmt::format("warning: zero.stage 2 with zero.reduce last holds "
                        "whole sums of gradients, as stage 1 does: {} bytes "
                        "per rank, with every_micro_batch {}\n",
                        kAll, kAll / 4));
}

// Of two stages the first has the larger share: two blocks and a table.
TEST(PlanCheck, CopiesOfAStageAreThoseOfTheRankWithMost) {
  constexpr int kFirst = 2 * kBlock + 4 * 256 * 32 / 2;
  EXPECT_EQ(checkedZero(R"("stage": 2)", "", {{0, 1}, {2, 2}}),
            fmt::format("warning: zero.stage 2 with zero.reduce last holds "
                        "whole sums of gradients, as stage 1 does: {} bytes "
                        "per rank, with every_micro_batch {}\n",
                        kFirst, kFirst / 4));
  EXPECT_EQ(checkedZero(R"("stage": 3, "reduce": "every_micro_batch",
                           "gather": "every_pass", "prefetch": 1)",
                        R"(, "overlap": {"memory_bytes": 1000000})",
                        {{0, 0}, {1, 1}, {2, 2}}),
            "warning: zero.prefetch 1 gathers nothing ahead: no stage has more "
            "than 1 layer\n");
}

TEST(PlanCheck, PrefetchThatGathersLessAheadIsNamedInBytes) {
  const std::string zero =
      R"("stage": 3, "reduce": "every_micro_batch", "gather": "every_pass",
         "prefetch": )";
  auto memory = [](int bytes) {
    return fmt::format(R"(, "overlap": {{"memory_bytes": {}}})", bytes);
  };
  EXPECT_EQ(checkedZero(zero + "2", memory(2 * kBlock)), "");
  // Of three blocks two are behind the first.
  EXPECT_EQ(checkedZero(zero + "7", memory(2 * kBlock)), "");
  EXPECT_EQ(checkedZero(zero + "2", memory(2 * kBlock - 1)),
            fmt::format("warning: overlap.memory_bytes {} holds 1 of the 2 "
                        "blocks that zero.prefetch 2 gathers ahead: it needs "
                        "{} ({} bytes each)\n",
                        2 * kBlock - 1, 2 * kBlock, kBlock));
  EXPECT_EQ(
      checkedZero(zero + "1"),
      fmt::format("warning: zero.prefetch 1 gathers nothing ahead without "
                  "overlap: give overlap.memory_bytes {0} (1 block of "
                  "{0} bytes)\n",
                  kBlock));
  EXPECT_EQ(checkedZero(R"("stage": 2, "reduce": "every_micro_batch",
                           "prefetch": 1)",
                        memory(kBlock)),
            "warning: zero.prefetch 1 gathers nothing ahead: blocks are "
            "gathered one by one only with zero.stage 3 over several ranks and "
            "zero.gather every_pass, found stage 2 over 4 and once_per_step\n");
}

} // namespace
} // namespace heddle
