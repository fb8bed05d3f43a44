#include "heddle/Schedule/Timeline.h"

#include "Tables.h"

#include "heddle/Support/Document.h"

#include <map>

namespace heddle {
namespace {

TEST(Timeline, DrawsSlotsWhereThereIsRoom) {
  const ScheduleTable table = tableOf({"F0 F1 D0 D1 O", "F0 F1+D0 D1 O"}, 1, 2);
  const ScheduleTiming timing =
      simulateSchedule(table, ScheduleTimes::equal(table.placement));
  EXPECT_EQ(drawSchedule(table, timing), "rank 0 F0 F1 .........D0--- D1---\n"
                                         "rank 1 ...F0 F1+D0--- D1--- ......\n"
                                         "9 s, bubble 50.0 % of the work\n");
}

TEST(Timeline, DrawsLettersWhereThereIsNot) {
  const ScheduleTable table =
      generated(PlanScheduleKind::Interleaved1F1B, 2, 2, 4);
  const ScheduleTiming timing =
      simulateSchedule(table, ScheduleTimes::equal(table.placement));
  EXPECT_EQ(timing.makespan, 27);
  EXPECT_EQ(drawSchedule(table, timing, 34),
            "rank 0 FFffF.ddFddfDDfDD.dd.ddDDDD\n"
            "rank 1 .FFfddfddFDDFDDfddfddDDDD..\n"
            "27 s, bubble 12.5 % of the work\n");
}

TEST(Timeline, IsATraceOfTracksPerRankAndLink) {
  const ScheduleTable table = generated(PlanScheduleKind::DualPipe, 2, 2, 4);
  const std::string text = writeTimeline(
      table,
      simulateSchedule(table, ScheduleTimes::equal(table.placement, {}, 0.25)));
  const Result<Document> document =
      Document::parse(text, "timeline.json", Document::Syntax::Json);
  ASSERT_TRUE(document) << document.message();
  std::map<std::string, int> tracks;
  for (const DocumentValue &event : document->root().find("traceEvents")->items)
    if (event.find("ph")->text == "X") {
      ++tracks[event.find("pid")->text + "/" + event.find("tid")->text];
      EXPECT_GE(event.find("dur")->number, 0);
    }
  // Each rank: 4 F, 4 D or B and W, joined or not, O; and to the other rank two
  // activations and two gradients.
  EXPECT_EQ(tracks.size(), 4u);
  EXPECT_EQ(tracks["0/2"], 4);
  EXPECT_EQ(tracks["1/1"], 4);
}

TEST(Timeline, OfNoTimeAndOfNarrowPaper) {
  const ScheduleTable table = generated(PlanScheduleKind::GPipe, 3, 1, 2);
  const ScheduleTiming none =
      simulateSchedule(table, ScheduleTimes::equal(table.placement, {0, 0, 0}));
  EXPECT_EQ(drawSchedule(table, none),
            "rank 0\nrank 1\nrank 2\n0 s, bubble 0.0 % of the work\n");
  const ScheduleTiming timing =
      simulateSchedule(table, ScheduleTimes::equal(table.placement));
  for (std::int64_t columns : {-5, 0, 1, 8, 9})
    EXPECT_NE(drawSchedule(table, timing, columns), "");
}

} // namespace
} // namespace heddle
