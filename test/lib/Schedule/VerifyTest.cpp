#include "heddle/Schedule/Events.h"

#include "Tables.h"

#include <algorithm>
#include <chrono>

#include <gmock/gmock.h>

namespace heddle {
namespace {

using ::testing::HasSubstr;

// The tables of IR_TOUR, the mirror of what a user writes by hand.
TEST(Verify, AcceptsTablesByHand) {
  EXPECT_EQ(
      faultOf(tableOf(
          {"F0 F1 D0 F2 D1 F3 D2 D3 O", "F0 D0 F1 D1 F2 D2 F3 D3 O"}, 1, 4)),
      "");
  EXPECT_EQ(faultOf(tableOf({"F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3 O",
                             "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3 O"},
                            1, 4)),
            "");
  EXPECT_EQ(faultOf(tableOf({"F0 F1 F0/1 F1/1 D0/1 D1/1 D0 D1 O",
                             "F0 F1 F0/1 D0/1 F1/1 D1/1 D0 D1 O"},
                            2, 2)),
            "");
  EXPECT_EQ(faultOf(tableOf(
                {"@0,1' F0 F1/1 D1/1 D0 O", "@1,0' F1/1 F0 D0 D1/1 O"}, 2, 2)),
            "");
}

TEST(Verify, ShowsTheCircleOfADeadlock) {
  const ScheduleTable table = tableOf({"F0 D0 F1 D1 O", "F1 F0 D0 D1 O"}, 1, 2);
  const std::optional<ScheduleFault> fault = findScheduleFault(table);
  ASSERT_TRUE(fault);
  EXPECT_EQ(
      fault->message,
      "schedule: stuck in a circle of 2 waits: rank 0 slot 1 (D0) waits for "
      "rank 1 slot 2 (D0), which comes after rank 1 slot 0 (F1); rank 1 slot 0 "
      "(F1) waits for rank 0 slot 2 (F1), which comes after rank 0 slot 1 "
      "(D0); move what is waited for before what it waits behind");
  ASSERT_EQ(fault->cycle.size(), 2u);
  EXPECT_EQ(fault->cycle[0].waiting, (SlotPlace{0, 1}));
  EXPECT_EQ(fault->cycle[1].needed, (SlotPlace{0, 2}));
}

TEST(Verify, ShowsASlotThatWaitsForOneAfterIt) {
  EXPECT_EQ(faultOf(tableOf({"W0 F0 B0 O"}, 1, 1)),
            "schedule: stuck: rank 0 slot 0 (W0) waits for rank 0 slot 2 (B0), "
            "which comes after it; move what is waited for before what it "
            "waits behind");
}

// Ranks wait in a ring of four; behind that, unreached, two wait for each
// other. Not the first but the smallest is told.
TEST(Verify, ShowsTheShortestOfTwoCircles) {
  // Four ranks whose D of micro-batch 0 comes before what they must hand on.
  const ScheduleTable ring = tableOf(
      {"F0 D0 F1 D1 O", "F0 F1 D1 D0 O", "F0 F1 D1 D0 O", "F1 F0 D0 D1 O"}, 1,
      2);
  const std::optional<ScheduleFault> one = findScheduleFault(ring);
  ASSERT_TRUE(one);
  for (std::size_t i = 0; i < one->cycle.size(); ++i) {
    const ScheduleWait &wait = one->cycle[i];
    const ScheduleWait &next = one->cycle[(i + 1) % one->cycle.size()];
    EXPECT_EQ(wait.needed.rank, next.waiting.rank);
    EXPECT_GE(wait.needed.index, next.waiting.index);
  }
  ScheduleTable both = ring;
  std::swap(both.rows[2][2], both.rows[2][1]); // D1 before F1
  const std::optional<ScheduleFault> two = findScheduleFault(both);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->cycle.size(), 1u);
  EXPECT_THAT(two->message, HasSubstr("rank 2 slot 1 (D1) waits for rank 2 "
                                      "slot 2 (F1), which comes after it"));
}

TEST(Verify, NamesWhatIsMissingOrTwice) {
  EXPECT_EQ(faultOf(tableOf({"F0 D0 O"}, 1, 2)),
            "schedule: rank 0: the forward (F) of micro-batch 1 on chunk 0 is "
            "missing");
  EXPECT_THAT(faultOf(tableOf({"F0 B0 O"}, 1, 1)),
              HasSubstr("the weight gradient (W or D) of micro-batch 0"));
  EXPECT_EQ(faultOf(tableOf({"F0 D0 D0 O"}, 1, 1)),
            "schedule: rank 0 slot 2 (D0) repeats slot 1 (D0): F once, and "
            "either D or B and W, per micro-batch and chunk");
  EXPECT_THAT(faultOf(tableOf({"F0 B0 D0 O"}, 1, 1)),
              HasSubstr("slot 2 (D0) repeats slot 1 (B0)"));
  EXPECT_THAT(faultOf(tableOf({"F0 D0 W0 O"}, 1, 1)),
              HasSubstr("slot 2 (W0) repeats slot 1 (D0)"));
  EXPECT_THAT(faultOf(tableOf({"F0 F0 D0 O"}, 1, 1)), HasSubstr("repeats"));
  EXPECT_THAT(faultOf(tableOf({"F0 D0"}, 1, 1)),
              HasSubstr("does not end with O"));
  EXPECT_THAT(faultOf(tableOf({"F0 O D0"}, 1, 1)),
              HasSubstr("slot 1 (O) is not the last"));
  EXPECT_THAT(faultOf(tableOf({"F0 D0 O O"}, 1, 1)),
              HasSubstr("slot 2 (O) is not the last"));
  EXPECT_THAT(faultOf(tableOf(
                  {"@0,1' F0 F0/1 D0 D0/1 O", "@1,0' F0 F1 D0 D1 O"}, 2, 2)),
              HasSubstr("micro-batch 0 does not run through chunk 1"));
}

TEST(Verify, RefusesWhatCannotBeJoined) {
  const auto fault = [](const char *row, std::int64_t m = 2) {
    return faultOf(tableOf({row}, 1, m));
  };
  EXPECT_EQ(fault("F0 F1+D0 D1 O"), "");
  EXPECT_EQ(fault("F0 D0+F1 B1 W1 O"), "");
  EXPECT_THAT(fault("F0+F1 D0 D1 O"), HasSubstr("F0 and F1 cannot be joined"));
  EXPECT_THAT(fault("F0 F1 B0 B1+W0 W1 O"), HasSubstr("cannot be joined"));
  EXPECT_THAT(fault("F0+D0 F1 D1 O"), HasSubstr("as one needs the other"));
  EXPECT_THAT(fault("F0 F1 D0 D1+O"), HasSubstr("D1 and O cannot be joined"));
  // Three of a row cannot be written as text.
  ScheduleTable three = tableOf({"F0 F1 D0+F2 D1 D2 O"}, 1, 3);
  three.rows[0][1] = three.rows[0][1].withJoined(true);
  EXPECT_THAT(faultOf(three), HasSubstr("three slots joined"));
  three.rows[0].back() = three.rows[0].back().withJoined(true);
  EXPECT_THAT(faultOf(three), HasSubstr("(O) names a chunk"));
}

TEST(Verify, RefusesBitsThatMeanNothing) {
  ScheduleTable table = tableOf({"F0 D0 O"}, 1, 1);
  const ScheduleTable good = table;
  table.rows[0][0] = Slot::fromBits(7);
  EXPECT_EQ(faultOf(table), "schedule: rank 0 slot 0: kind 7, expected 0 to 4 "
                            "(F, B, W, D, O)");
  table.rows[0][0] = Slot(SlotKind::Forward, 200, 0);
  EXPECT_THAT(faultOf(table), HasSubstr("chunk 200, expected 0 to 0"));
  table.rows[0][0] = Slot(SlotKind::Forward, 0, 77);
  EXPECT_THAT(faultOf(table), HasSubstr("micro-batch 77, expected 0 to 0"));
  table = good;
  table.rows[0].clear();
  EXPECT_THAT(faultOf(table), HasSubstr("forward (F) of micro-batch 0"));
  table.rows.clear();
  EXPECT_THAT(faultOf(table), HasSubstr("0 rows, expected one per rank: 1"));
  table = good;
  table.microBatches = std::int64_t{1} << 62;
  EXPECT_THAT(faultOf(table), HasSubstr("micro-batches, expected 1 to"));
  table.microBatches = 1 << 20;
  table.placement = *Placement::cyclic(1, 256);
  EXPECT_THAT(faultOf(table), HasSubstr("need more than 16777216 slots"));
}

// 131,072 slots of F and D. What the verifier takes on one idle core is about
// 10 ms, events 0.2 s; limits leave room for a busy machine.
TEST(Verify, IsLinear) {
  const auto seconds = [](auto work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  };
  ScheduleTable table =
      generated(PlanScheduleKind::Interleaved1F1B, 16, 8, 512);
  EXPECT_LT(seconds([&] { EXPECT_EQ(faultOf(table), ""); }), 1.0);
  EXPECT_LT(seconds([&] {
              const Result<void> done =
                  verifyEvents(table, deriveEvents(table));
              EXPECT_TRUE(done) << done.message();
            }),
            10.0);
  // A circle through half of the ranks, in the midst of all the others' slots.
  for (std::int64_t rank : {3, 11}) {
    std::vector<Slot> &row = table.rows[static_cast<std::size_t>(rank)];
    std::rotate(row.begin() + 100, row.begin() + 900, row.begin() + 1000);
  }
  EXPECT_LT(seconds([&] { EXPECT_THAT(faultOf(table), HasSubstr("stuck")); }),
            10.0);
}

} // namespace
} // namespace heddle
