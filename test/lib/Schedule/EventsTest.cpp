#include "heddle/Schedule/Events.h"
#include "heddle/Schedule/SavedSets.h"

#include "Tables.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string rowText(const ScheduleTable &table, const ScheduleEvents &events,
                    std::int64_t rank) {
  std::string text;
  for (const ScheduleEvent &event : events.rows[static_cast<std::size_t>(rank)])
    text += (text.empty() ? "" : " ") + eventText(table, rank, event);
  return text;
}

std::string faultOf(const ScheduleTable &table, const ScheduleEvents &events) {
  const Result<void> done = verifyEvents(table, events);
  return done ? "" : done.message();
}

/// All tables of small numbers that generators make.
template <typename Visit>
void visitTables(Visit visit) {
  for (PlanScheduleKind kind : generatedKinds)
    for (std::int64_t p : {1, 2, 3, 4, 8})
      for (std::int64_t v : {1, 2, 3})
        for (std::int64_t m :
             {std::int64_t{1}, std::int64_t{3}, 2 * p, 4 * p + 1}) {
          SCOPED_TRACE(
              fmt::format("{} p={} v={} m={}", scheduleWord(kind), p, v, m));
          if (Result<ScheduleTable> table = generateSchedule(kind, p, v, m))
            visit(*table);
        }
}

TEST(Events, OfTwoRanksByHand) {
  const ScheduleTable table =
      tableOf({"F0 F1 D0 F2 D1 D2 O", "F0 D0 F1 D1 F2 D2 O"}, 1, 3);
  const ScheduleEvents events = deriveEvents(table);
  // F1 of rank 0 and F0 of rank 1 end at one time, D0 and F2 do not.
  EXPECT_EQ(rowText(table, events, 0),
            "F0 s:F0>1 F1 s:F1>1 r:D0<1 D0 F2 s:F2>1 r:D1<1 D1 r:D2<1 D2 O");
  EXPECT_EQ(rowText(table, events, 1),
            "r:F0<0 F0 r:F1<0 D0 s:D0>0 F1 D1 r:F2<0 s:D1>0 F2 D2 s:D2>0 O");
  EXPECT_EQ(faultOf(table, events), "");
}

TEST(Events, TwoDirectionsAtOneTimeAreOneBatch) {
  // F1 of rank 0 and D0 of rank 1 end together when D takes as long as F.
  const ScheduleTable table =
      tableOf({"F0 F1 F2 D0 D1 D2 O", "F0 D0 F1 D1 F2 D2 O"}, 1, 3);
  const ScheduleEvents events =
      deriveEvents(table, ScheduleTimes::equal(table.placement, {1, 0.5, 0.5}));
  std::set<std::int32_t> sent, received;
  for (const ScheduleEvent &event : events.rows[0])
    if (event.kind != EventKind::Compute)
      (event.kind == EventKind::Send ? sent : received).insert(event.batch);
  std::vector<std::int32_t> both;
  std::ranges::set_intersection(sent, received, std::back_inserter(both));
  EXPECT_EQ(both.size(), 1u);
  EXPECT_EQ(faultOf(table, events), "");
}

TEST(Events, OfEveryScheduleAreLegal) {
  visitTables([](const ScheduleTable &table) {
    ASSERT_EQ(faultOf(table, deriveEvents(table)), "");
    const ScheduleTimes times =
        ScheduleTimes::equal(table.placement, {1, 1.7, 0}, 0.3);
    ASSERT_EQ(faultOf(table, deriveEvents(table, times)), "");
  });
}

// No two values are in one landing buffer at once: told by walking the events
// with a set of what is held, and nothing of how indices were given.
TEST(Events, LandingsDoNotOverlap) {
  visitTables([](const ScheduleTable &table) {
    const ScheduleEvents events = deriveEvents(table);
    for (std::size_t rank = 0; rank < table.rows.size(); ++rank) {
      std::set<std::tuple<std::int64_t, bool, std::int32_t>> held;
      const std::vector<Slot> &row = table.rows[rank];
      const auto landing = [&](std::size_t slot) {
        return std::tuple(row[slot].chunk(), row[slot].givesInputGrad(),
                          events.landings[rank][slot]);
      };
      for (const ScheduleEvent &event : events.rows[rank]) {
        const std::size_t i = static_cast<std::size_t>(event.slot);
        const Slot slot = row[i];
        if (event.kind == EventKind::Receive) {
          ASSERT_TRUE(held.insert(landing(i)).second);
        }
        if (event.kind != EventKind::Compute)
          continue;
        const StageAt stage =
            table.placement.at(static_cast<std::int64_t>(rank), slot.chunk());
        const std::int64_t step = slot.kind() == SlotKind::Forward ? 1 : -1;
        const bool makes =
            slot.kind() == SlotKind::Forward || slot.givesInputGrad();
        const std::int64_t next = stage.stage + step;
        if (makes && next >= 0 && next < table.placement.stages()) {
          const PlanPlace to = table.placement.placeOf({stage.path, next});
          for (std::size_t k = 0; k < row.size(); ++k)
            if (to.rank == static_cast<std::int64_t>(rank) &&
                row[k].chunk() == to.chunk &&
                row[k].microBatch() == slot.microBatch() &&
                (step == 1 ? row[k].kind() == SlotKind::Forward
                           : row[k].givesInputGrad())) {
              ASSERT_TRUE(held.insert(landing(k)).second);
            }
        }
        const std::int64_t before = stage.stage - step;
        const bool needs =
            makes && before >= 0 && before < table.placement.stages();
        ASSERT_EQ(needs, std::get<2>(landing(i)) >= 0);
        if (needs) {
          ASSERT_EQ(held.erase(landing(i)), 1u);
        }
      }
      ASSERT_TRUE(held.empty());
    }
  });
}

TEST(Events, FaultsAreNamed) {
  const ScheduleTable table = tableOf({"F0 F1 D0 D1 O", "F0 D0 F1 D1 O"}, 1, 2);
  const ScheduleEvents good = deriveEvents(table);
  ASSERT_EQ(rowText(table, good, 0),
            "F0 s:F0>1 F1 s:F1>1 r:D0<1 D0 r:D1<1 D1 O");
  ASSERT_EQ(rowText(table, good, 1),
            "r:F0<0 F0 r:F1<0 D0 s:D0>0 F1 D1 s:D1>0 O");
  const auto broken = [&](auto change) {
    ScheduleEvents events = good;
    change(events.rows);
    return faultOf(table, events);
  };
  EXPECT_EQ(broken([](auto &rows) { std::swap(rows[0][3], rows[0][4]); }),
            "schedule: transfers stuck in a circle of 2 ranks: rank 0 event 3 "
            "(r:D0<1) waits for rank 1; rank 1 event 2 (r:F1<0) waits for rank "
            "0");
  EXPECT_EQ(broken([](auto &rows) { std::swap(rows[0][0], rows[0][1]); }),
            "schedule: rank 0 event 0: s:F0>1 comes before its slot 0 has run");
  EXPECT_THAT(broken([](auto &rows) { std::swap(rows[1][2], rows[1][6]); }),
              HasSubstr("runs slot 3, expected slot 1"));
  EXPECT_EQ(broken([](auto &rows) { std::swap(rows[0][4], rows[0][5]); }),
            "schedule: rank 0 event 5: r:D0<1 comes after slot 2, which needs "
            "it");
  EXPECT_THAT(broken([](auto &rows) { rows[0].erase(rows[0].begin() + 1); }),
              HasSubstr("1 of 2 transfers are sent"));
  EXPECT_THAT(broken([](auto &rows) {
                rows[0].insert(rows[0].begin() + 1, rows[0][1]);
              }),
              HasSubstr("is sent twice"));
  EXPECT_THAT(broken([](auto &rows) { rows[0][1].peer = 0; }),
              HasSubstr("a send between F0 and rank 0, which no slot asks"));
  EXPECT_THAT(broken([](auto &rows) { rows[0][1].isGradient = true; }),
              HasSubstr("expected activation 0 of stage 0"));
  EXPECT_THAT(broken([](auto &rows) { rows[0][1].slot = 99; }),
              HasSubstr("send of slot 99, expected 0 to 4"));
  EXPECT_THAT(broken([](auto &rows) { rows[0][3].batch = rows[0][1].batch; }),
              HasSubstr("which ended at event 1"));
  EXPECT_THAT(broken([](auto &rows) { rows[0][3].batch = rows[0][4].batch; }),
              HasSubstr("launch different transfers"));
  EXPECT_THAT(broken([](auto &rows) { rows[0].pop_back(); }),
              HasSubstr("events run 4 of 5 slots"));
  EXPECT_THAT(broken([](auto &rows) { rows.pop_back(); }),
              HasSubstr("events of 1 ranks, expected 2"));
}

// What the first of two joined slots sends goes while the second runs; what the
// second needs comes while the first runs.
TEST(Events, TransfersComeBetweenJoinedSlots) {
  const ScheduleTable table =
      tableOf({"F0 F1 D0+F2 D1 D2 O", "F0 D0+F1 D1+F2 D2 O"}, 1, 3);
  const ScheduleEvents events = deriveEvents(table);
  EXPECT_EQ(faultOf(table, events), "");
  EXPECT_EQ(rowText(table, events, 0),
            "F0 s:F0>1 F1 s:F1>1 r:D0<1 D0 F2 s:F2>1 r:D1<1 D1 r:D2<1 D2 O");
  EXPECT_EQ(rowText(table, events, 1),
            "r:F0<0 F0 r:F1<0 D0 s:D0>0 F1 D1 r:F2<0 s:D1>0 F2 D2 s:D2>0 O");
}

// Two transfers of one pair in another order on one side.
TEST(Events, APairMeetsInOrder) {
  const ScheduleTable table = tableOf({"F0 F1 D0 D1 O", "F1 F0 D0 D1 O"}, 1, 2);
  ScheduleEvents events = deriveEvents(table);
  ASSERT_EQ(rowText(table, events, 1).substr(0, 13), "r:F0<0 r:F1<0");
  std::swap(events.rows[1][0], events.rows[1][1]);
  EXPECT_EQ(faultOf(table, events),
            "schedule: ranks 0 to 1: transfer 0 is sent as F0 (slot 0) and "
            "received as F1 (slot 1); sends and receives of a pair meet in "
            "order");
}

TEST(SavedSets, InFlightIsThePapers) {
  for (std::int64_t p : {1, 2, 4, 8})
    for (std::int64_t m : {std::int64_t{1}, std::int64_t{3}, p, 4 * p + 1}) {
      const auto inFlight = [&](PlanScheduleKind kind) {
        return mostInFlight(generated(kind, p, 1, m));
      };
      const std::vector<std::int32_t> gpipe = inFlight(PlanScheduleKind::GPipe),
                                      oneFOneB =
                                          inFlight(PlanScheduleKind::OneFOneB),
                                      h1 = inFlight(PlanScheduleKind::ZbH1),
                                      h2 = inFlight(PlanScheduleKind::ZbH2);
      for (std::size_t r = 0; r < static_cast<std::size_t>(p); ++r) {
        const std::int64_t i = static_cast<std::int64_t>(r) + 1;
        EXPECT_EQ(gpipe[r], m);
        EXPECT_EQ(oneFOneB[r], std::min(m, p - i + 1));
        EXPECT_EQ(h1[r], std::min(m, p));
        EXPECT_EQ(h2[r], std::min(m, 2 * p - 1));
      }
    }
}

TEST(SavedSets, NumbersByHand) {
  const ScheduleTable table = tableOf({"F0 F1 B0 W0 F2 B1 B2 W2 W1 O"}, 1, 3);
  const auto setsOf = [&](SetSpan span) { return assignSets(table, 0, span); };
  EXPECT_THAT(setsOf(SetSpan::ForwardToWeightGrad).slots,
              ElementsAre(0, 1, 0, 0, 0, 1, 0, 0, 1, -1));
  EXPECT_THAT(setsOf(SetSpan::ForwardToInputGrad).slots,
              ElementsAre(0, 1, 0, -1, 0, 1, 0, -1, -1, -1));
  EXPECT_THAT(setsOf(SetSpan::InputGradToWeightGrad).slots,
              ElementsAre(-1, -1, 0, 0, -1, 0, 1, 1, 0, -1));
  for (SetSpan span :
       {SetSpan::ForwardToWeightGrad, SetSpan::ForwardToInputGrad,
        SetSpan::InputGradToWeightGrad})
    EXPECT_EQ(setsOf(span).count, 2);
  EXPECT_THAT(mostInFlight(table), ElementsAre(2));
}

TEST(SavedSets, AJoinedPairHoldsBoth) {
  const RankSets sets = assignSets(tableOf({"F0 F1+D0 F2+D1 D2 O"}, 1, 3), 0,
                                   SetSpan::ForwardToWeightGrad);
  EXPECT_THAT(sets.slots, ElementsAre(0, 1, 0, 0, 1, 0, -1));
  EXPECT_EQ(sets.count, 2);
}

TEST(SavedSets, ChunksShareAPoolAsFarAsTheyUseOne) {
  const ScheduleTable table =
      tableOf({"F0 F0/1 D0/1 F1 D0 F1/1 D1/1 D1 O"}, 2, 2);
  const auto setsOf = [&](SetUse second) {
    return assignSets(
        table, 0, SetSpan::ForwardToWeightGrad,
        [&](std::int64_t chunk) { return chunk == 0 ? SetUse::Span : second; });
  };
  EXPECT_THAT(setsOf(SetUse::Span).slots,
              ElementsAre(0, 1, 1, 1, 0, 0, 0, 1, -1));
  EXPECT_THAT(setsOf(SetUse::WhileItBegins).slots,
              ElementsAre(0, 1, -1, 1, 0, 0, -1, 1, -1));
  EXPECT_THAT(setsOf(SetUse::None).slots,
              ElementsAre(0, -1, -1, 1, 0, -1, -1, 1, -1));
}

} // namespace
} // namespace heddle
