#include "Tables.h"

#include <gmock/gmock.h>

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const std::vector<std::string> &rows,
                    std::int64_t chunks = 2, std::int64_t microBatches = 4) {
  Result<ScheduleTable> table = readRows(rows, chunks, microBatches);
  return table ? "" : table.message();
}

TEST(Slot, HoldsItsParts) {
  const Slot slot(SlotKind::Optimizer, 255, (1 << 20) - 1, true);
  EXPECT_EQ(slot.kind(), SlotKind::Optimizer);
  EXPECT_EQ(slot.chunk(), 255);
  EXPECT_EQ(slot.microBatch(), (1 << 20) - 1);
  EXPECT_TRUE(slot.joined());
  EXPECT_EQ(Slot::fromBits(slot.bits()), slot);
  EXPECT_FALSE(slot.withJoined(false).joined());
}

TEST(Rows, AreReadAndWrittenAgain) {
  const std::vector<std::string> rows = {
      "F0..3 F0/1 F1/1 D0..2/1 D0 F2/1+D1 D2+F3/1 B3/1 W3/1 D3 O",
      "F0 F1 F2 O"};
  EXPECT_EQ(refusal(rows), "");
  EXPECT_THAT(writeRows(tableOf(rows, 2, 4)), ElementsAre(rows[0], "F0..2 O"));
}

TEST(Rows, PlacesStandBeforeThem) {
  const std::vector<std::string> vShaped = {"@0,3 F0 F0/1 D0/1 D0 O",
                                            "@1,2 F0 F0/1 D0/1 D0 O"};
  const ScheduleTable table = tableOf(vShaped, 2, 1);
  EXPECT_EQ(table.placement, *Placement::backAndForth(2, 2));
  EXPECT_EQ(writeRows(table), vShaped);
  const std::vector<std::string> twoWays = {"@0,1' F0 F1/1 D1/1 D0 O",
                                            "@1,0' F1/1 F0 D0 D1/1 O"};
  EXPECT_EQ(tableOf(twoWays, 2, 2).placement, *Placement::twoWays(2));
  EXPECT_EQ(writeRows(tableOf(twoWays, 2, 2)), twoWays);
}

TEST(Rows, OfEveryGeneratorAreReadAgain) {
  for (PlanScheduleKind kind : generatedKinds)
    for (std::int64_t chunks : {1, 2, 3})
      for (std::int64_t ranks : {1, 2, 4})
        if (Result<ScheduleTable> table =
                generateSchedule(kind, ranks, chunks, 2 * ranks)) {
          EXPECT_EQ(tableOf(writeRows(*table), chunks, 2 * ranks), *table)
              << scheduleWord(kind);
        }
}

TEST(Rows, AreRefusedByRowAndToken) {
  EXPECT_EQ(refusal({"F0", "F1 X2"}),
            "schedule: row 1, token 1 \"X2\": expected F, B, W, D or O, then a "
            "micro-batch, as F3, F0..7 or D1/1");
  EXPECT_THAT(refusal({"F"}), HasSubstr("expected F and a micro-batch, as F3"));
  EXPECT_THAT(refusal({"F-1"}), HasSubstr("token 0 \"F-1\""));
  EXPECT_THAT(refusal({"F1/"}), HasSubstr("expected F and"));
  EXPECT_THAT(refusal({"F1x"}), HasSubstr("expected F and"));
  EXPECT_THAT(refusal({"F0..1+D0"}), HasSubstr("expected F and"));
  EXPECT_THAT(refusal({"F0+"}), HasSubstr("token 0 \"F0+\""));
  EXPECT_THAT(refusal({"F0+D1+D2"}), HasSubstr("joined by +, found more"));
  EXPECT_THAT(refusal({"F4"}), HasSubstr("micro-batch 4, expected 0 to 3"));
  EXPECT_THAT(refusal({"F0/2"}), HasSubstr("chunk 2, expected 0 to 1"));
  EXPECT_THAT(refusal({"F3..1"}), HasSubstr("expected one that ascends"));
  EXPECT_THAT(refusal({"O1"}), HasSubstr("expected O alone"));
  EXPECT_THAT(refusal({"F99999999999999999999"}), HasSubstr("expected F and"));
  EXPECT_THAT(refusal({"@0 F0"}), HasSubstr("the stages of 2 chunks"));
  EXPECT_THAT(refusal({"@0,2 F0", "F0"}), HasSubstr("expected all or none"));
  EXPECT_THAT(refusal({"@0,1", "@1,2"}),
              HasSubstr("stage 1 is on rank 0 and on rank 1"));
  EXPECT_THAT(refusal({"@0,9", "@1,2"}), HasSubstr("holds stage 9"));
  EXPECT_THAT(refusal({"@0,0'''", "@1,2"}), HasSubstr("holds stage 1"));
  EXPECT_THAT(refusal({"@0,0''''''''", "@1,2"}), HasSubstr("9 paths"));
  EXPECT_THAT(refusal({"@0,1'", "@1,0'"}, 2, 3), HasSubstr("2 paths"));
  EXPECT_THAT(refusal({}), HasSubstr("0 ranks"));
  EXPECT_THAT(refusal({"F0"}, 257), HasSubstr("257 chunks per rank"));
  EXPECT_THAT(refusal({"F0"}, 1, 1 << 21), HasSubstr("2097152 micro-batches"));
  EXPECT_THAT(refusal({std::string(1 << 20, 'F')}), HasSubstr("FFF...\""));
  std::string many;
  for (int i = 0; i < 20; ++i)
    many += "F0..1048575 ";
  EXPECT_THAT(refusal({many}, 1, 1 << 20),
              HasSubstr("more than 16777216 slots"));
}

TEST(Placement, SaysWhereStagesAre) {
  const Placement cyclic = *Placement::cyclic(4, 3);
  EXPECT_TRUE(cyclic.isCyclic());
  EXPECT_EQ(cyclic.stages(), 12);
  EXPECT_EQ(cyclic.at(1, 2), (StageAt{0, 9}));
  const Placement forth = *Placement::backAndForth(4, 3);
  EXPECT_EQ(forth.at(0, 1), (StageAt{0, 7}));
  EXPECT_EQ(forth.placeOf({0, 4}), (PlanPlace{3, 1}));
  EXPECT_EQ(forth.placeOf({0, 8}), (PlanPlace{0, 2}));
  const Placement ways = *Placement::twoWays(4);
  EXPECT_EQ(ways.numPaths(), 2);
  EXPECT_EQ(ways.stages(), 4);
  EXPECT_EQ(ways.placeOf({1, 0}), (PlanPlace{3, 1}));
  EXPECT_TRUE(ways.isMirrored());
  EXPECT_FALSE(Placement::twoWays(3)->isMirrored());
  EXPECT_FALSE(forth.isMirrored());
  EXPECT_FALSE(Placement::cyclic(std::int64_t{1} << 40, 1));
  EXPECT_FALSE(Placement::cyclic(1 << 16, 256));
  EXPECT_FALSE(Placement::twoWays(0));
}

} // namespace
} // namespace heddle
