// Planted faults: valid tables and events, each changed at one place by a seed.
// What the verifier lets pass must be right; what it refuses must be wrong.
// Both are asked of a judge that shares no code with it.

#include "heddle/Schedule/Events.h"

#include "Tables.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace heddle {
namespace {

/// Runs a table as slowly and plainly as can be: a set of facts, and rows that
/// advance while the facts allow it.
class Judge {
public:
  explicit Judge(const ScheduleTable &table) : table(table) {}

  /// Whether each micro-batch runs once everywhere and all rows come to an end.
  bool accepts() { return hasEachOnce() && runs(); }

private:
  using Fact = std::tuple<char, std::int64_t, std::int64_t, std::int64_t>;

  bool hasEachOnce() const {
    std::map<Fact, int> times;
    std::map<std::size_t, int> updates;
    for (std::size_t rank = 0; rank < table.rows.size(); ++rank)
      for (const Slot &slot : table.rows[rank]) {
        if (slot.kind() > SlotKind::Optimizer ||
            slot.chunk() >= table.chunks() ||
            slot.microBatch() >= table.microBatches)
          return false;
        if (slot.kind() == SlotKind::Optimizer) {
          ++updates[rank];
          continue;
        }
        const StageAt at =
            table.placement.at(static_cast<std::int64_t>(rank), slot.chunk());
        for (char part : partsOf(slot))
          ++times[{part, at.path, at.stage, slot.microBatch()}];
      }
    for (std::size_t rank = 0; rank < table.rows.size(); ++rank)
      if (updates[rank] != 1 ||
          table.rows[rank].back() != Slot(SlotKind::Optimizer, 0, 0))
        return false;
    std::size_t expected = 0;
    for (std::int64_t j = 0; j < table.microBatches; ++j)
      for (std::int64_t stage = 0; stage < table.placement.stages(); ++stage)
        for (char part : {'F', 'B', 'W'}) {
          const auto found = times.find({part, table.pathOf(j), stage, j});
          if (found == times.end() || found->second != 1)
            return false;
          ++expected;
        }
    return times.size() == expected && joinsAreRight();
  }

  bool joinsAreRight() const {
    for (const std::vector<Slot> &row : table.rows)
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (!row[i].joined())
          continue;
        if (i + 1 == row.size() || row[i + 1].joined())
          return false;
        const std::string pair = partsOf(row[i]) + partsOf(row[i + 1]);
        if (pair != "FB" && pair != "FBW" && pair != "BF" && pair != "BWF")
          return false;
      }
    return true;
  }

  static std::string partsOf(const Slot &slot) {
    switch (slot.kind()) {
    case SlotKind::Forward:
      return "F";
    case SlotKind::InputGrad:
      return "B";
    case SlotKind::WeightGrad:
      return "W";
    case SlotKind::Backward:
      return "BW";
    default:
      return "";
    }
  }

  bool mayRun(std::size_t rank, const Slot &slot) const {
    if (slot.kind() == SlotKind::Optimizer)
      return true;
    const StageAt at =
        table.placement.at(static_cast<std::int64_t>(rank), slot.chunk());
    const auto is = [&](char part, std::int64_t stage) {
      return done.count({part, at.path, stage, slot.microBatch()}) > 0;
    };
    if (slot.kind() == SlotKind::Forward)
      return at.stage == 0 || is('F', at.stage - 1);
    if (slot.kind() == SlotKind::WeightGrad)
      return is('B', at.stage);
    return is('F', at.stage) &&
           (at.stage + 1 == table.placement.stages() || is('B', at.stage + 1));
  }

  bool runs() {
    std::vector<std::size_t> heads(table.rows.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < heads.size(); ++rank) {
        const std::vector<Slot> &row = table.rows[rank];
        if (heads[rank] == row.size())
          continue;
        const std::size_t end = heads[rank] + (row[heads[rank]].joined() + 1);
        bool may = true;
        for (std::size_t i = heads[rank]; i < end; ++i)
          may = may && mayRun(rank, row[i]);
        if (!may)
          continue;
        for (std::size_t i = heads[rank]; i < end; ++i)
          if (row[i].kind() != SlotKind::Optimizer) {
            const StageAt at = table.placement.at(
                static_cast<std::int64_t>(rank), row[i].chunk());
            for (char part : partsOf(row[i]))
              done.insert({part, at.path, at.stage, row[i].microBatch()});
          }
        heads[rank] = end;
        moved = true;
      }
    }
    for (std::size_t rank = 0; rank < heads.size(); ++rank)
      if (heads[rank] != table.rows[rank].size())
        return false;
    return true;
  }

  const ScheduleTable &table;
  std::set<Fact> done;
};

/// Waits in the shortest cycle of a table that has one, by search from every
/// wait: a slot waits for what it needs at a cost of one, and for the slot
/// before it and its partner for nothing.
class CycleByHand {
public:
  explicit CycleByHand(const ScheduleTable &table) {
    std::map<std::tuple<char, std::int64_t, std::int64_t, std::int64_t>, Node>
        where;
    for (std::size_t rank = 0; rank < table.rows.size(); ++rank)
      for (std::size_t i = 0; i < table.rows[rank].size(); ++i) {
        const Slot slot = table.rows[rank][i];
        const StageAt at =
            table.placement.at(static_cast<std::int64_t>(rank), slot.chunk());
        if (slot.kind() == SlotKind::Forward)
          where[{'F', at.path, at.stage, slot.microBatch()}] = {rank, i};
        if (slot.givesInputGrad())
          where[{'B', at.path, at.stage, slot.microBatch()}] = {rank, i};
      }
    for (std::size_t rank = 0; rank < table.rows.size(); ++rank)
      for (std::size_t i = 0; i < table.rows[rank].size(); ++i) {
        const Slot slot = table.rows[rank][i];
        const StageAt at =
            table.placement.at(static_cast<std::int64_t>(rank), slot.chunk());
        const auto needs = [&](char part, std::int64_t stage) {
          const auto found =
              where.find({part, at.path, stage, slot.microBatch()});
          if (found != where.end())
            waits[{rank, i}].push_back(found->second);
        };
        if (slot.kind() == SlotKind::Forward)
          needs('F', at.stage - 1);
        if (slot.kind() == SlotKind::WeightGrad)
          needs('B', at.stage);
        if (slot.givesInputGrad()) {
          needs('F', at.stage);
          needs('B', at.stage + 1);
        }
        if (i)
          free[{rank, i}].push_back({rank, i - 1});
        if (slot.joined() && i + 1 < table.rows[rank].size())
          free[{rank, i}].push_back({rank, i + 1});
      }
  }

  using Node = std::pair<std::size_t, std::size_t>;
  bool isWait(const ScheduleWait &wait) {
    return std::ranges::count(waits[nodeOf(wait.waiting)],
                              nodeOf(wait.needed)) > 0;
  }
  std::size_t shortest() {
    std::size_t best = 0;
    for (const auto &[from, needed] : waits)
      for (const Node &to : needed)
        if (const std::size_t back = distance(to, from);
            back != none && (!best || back + 1 < best))
          best = back + 1;
    return best;
  }

private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static Node nodeOf(SlotPlace place) {
    return {static_cast<std::size_t>(place.rank),
            static_cast<std::size_t>(place.index)};
  }

  std::size_t distance(const Node &from, const Node &to) {
    std::map<Node, std::size_t> known{{from, 0}};
    std::deque<Node> open{from};
    while (!open.empty()) {
      const Node at = open.front();
      open.pop_front();
      const std::size_t cost = known[at];
      for (const Node &next : free[at])
        if (!known.count(next) || known[next] > cost) {
          known[next] = cost;
          open.push_front(next);
        }
      for (const Node &next : waits[at])
        if (!known.count(next) || known[next] > cost + 1) {
          known[next] = cost + 1;
          open.push_back(next);
        }
    }
    return known.count(to) ? known[to] : none;
  }

  std::map<Node, std::vector<Node>> waits, free;
};

class Mutants : public ::testing::Test {
protected:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
  }

  ScheduleTable drawTable() {
    for (;;) {
      const PlanScheduleKind kind =
          generatedKinds[below(std::size(generatedKinds))];
      const std::int64_t p = static_cast<std::int64_t>(1 + below(5));
      const std::int64_t v = static_cast<std::int64_t>(1 + below(3));
      const std::int64_t m = static_cast<std::int64_t>(1 + below(12));
      if (Result<ScheduleTable> table = generateSchedule(kind, p, v, m)) {
        what = fmt::format("{} p={} v={} m={}", scheduleWord(kind), p, v, m);
        return *std::move(table);
      }
    }
  }

  /// One change of one row; false where it would change nothing.
  bool mutate(ScheduleTable &table) {
    std::vector<Slot> &row = table.rows[below(table.rows.size())];
    const std::size_t i = below(row.size()), k = below(row.size());
    const ScheduleTable before = table;
    switch (below(6)) {
    case 0:
      what += " swapped";
      std::swap(row[i], row[k]);
      break;
    case 1:
      what += " swapped with the next";
      std::swap(row[i], row[(i + 1) % row.size()]);
      break;
    case 2:
      what += " dropped";
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    case 3:
      what += " duplicated";
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(k), Slot(row[i]));
      break;
    case 4:
      what += " retargeted";
      row[i] = Slot(row[i].kind(), static_cast<std::int64_t>(below(3)),
                    static_cast<std::int64_t>(below(13)), row[i].joined());
      break;
    default:
      what += " of another kind";
      row[i] = Slot::fromBits((row[i].bits() & ~15u) |
                              static_cast<std::uint32_t>(below(16)));
    }
    return table != before;
  }

  std::mt19937 random{20240501};
  std::string what;
};

// A change that swaps two independent slots leaves a right table: it must be
// accepted, and then it must run as a whole: times, events, landing and all.
TEST_F(Mutants, OfTablesAreCaughtOrRight) {
  int caught = 0, right = 0, circles = 0;
  std::size_t longest = 0;
  for (int drawn = 0; drawn < 2000;) {
    ScheduleTable table = drawTable();
    if (!mutate(table))
      continue;
    ++drawn;
    SCOPED_TRACE(what);
    const std::optional<ScheduleFault> fault = findScheduleFault(table);
    ASSERT_EQ(Judge(table).accepts(), !fault) << (fault ? fault->message : "");
    if (fault) {
      ++caught;
      if (fault->cycle.empty())
        continue;
      ++circles;
      CycleByHand byHand(table);
      for (std::size_t i = 0; i < fault->cycle.size(); ++i) {
        const ScheduleWait &wait = fault->cycle[i];
        const ScheduleWait &next = fault->cycle[(i + 1) % fault->cycle.size()];
        ASSERT_TRUE(byHand.isWait(wait)) << fault->message;
        ASSERT_EQ(wait.needed.rank, next.waiting.rank);
        // A partner is waited for as well.
        ASSERT_GE(wait.needed.index + 1, next.waiting.index);
      }
      ASSERT_EQ(byHand.shortest(), fault->cycle.size()) << fault->message;
      longest = std::max(longest, fault->cycle.size());
      continue;
    }
    ++right;
    const ScheduleTiming timing =
        simulateSchedule(table, ScheduleTimes::equal(table.placement));
    ASSERT_GT(timing.makespan, 0);
    const Result<void> events = verifyEvents(table, deriveEvents(table));
    ASSERT_TRUE(events) << events.message();
  }
  // Both ways out are trodden, and so is the search for circles.
  EXPECT_GT(right, 100);
  EXPECT_GT(caught, 1000);
  EXPECT_GT(circles, 200);
  EXPECT_GT(longest, 2u);
}

/// Whether ranks that block at each event come to the end, by the plainest
/// simulation: a send goes when the peer stands at its receive. Batches are
/// groups: all of one goes at once.
bool runsBlocking(const ScheduleEvents &events) {
  std::vector<std::size_t> heads(events.rows.size(), 0);
  const auto batchAt = [&](std::size_t rank) {
    std::vector<ScheduleEvent> batch;
    for (std::size_t i = heads[rank]; i < events.rows[rank].size(); ++i) {
      const ScheduleEvent &event = events.rows[rank][i];
      if (event.kind == EventKind::Compute ||
          event.batch != events.rows[rank][heads[rank]].batch)
        break;
      batch.push_back(event);
    }
    return batch;
  };
  const auto matches = [](const ScheduleEvent &a, const ScheduleEvent &b) {
    return a.kind != b.kind && a.isGradient == b.isGradient &&
           a.microBatch == b.microBatch && a.stage == b.stage;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < heads.size(); ++rank) {
      if (heads[rank] == events.rows[rank].size())
        continue;
      const ScheduleEvent &head = events.rows[rank][heads[rank]];
      if (head.kind == EventKind::Compute) {
        ++heads[rank];
        moved = true;
        continue;
      }
      const std::size_t peer = static_cast<std::size_t>(head.peer);
      if (peer >= heads.size() || heads[peer] == events.rows[peer].size())
        continue;
      const std::vector<ScheduleEvent> here = batchAt(rank),
                                       there = batchAt(peer);
      // Of each direction the first meets the first.
      const auto only = [](EventKind kind, std::vector<ScheduleEvent> batch) {
        std::erase_if(batch, [&](const auto &of) { return of.kind != kind; });
        return batch;
      };
      const bool all =
          std::ranges::all_of(
              here, [&](const auto &of) { return of.peer == head.peer; }) &&
          std::ranges::all_of(there,
                              [&](const auto &of) {
                                return of.peer ==
                                       static_cast<std::int32_t>(rank);
                              }) &&
          std::ranges::equal(only(EventKind::Send, here),
                             only(EventKind::Receive, there), matches) &&
          std::ranges::equal(only(EventKind::Receive, here),
                             only(EventKind::Send, there), matches);
      if (!all)
        continue;
      heads[rank] += here.size();
      heads[peer] += here.size();
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < heads.size(); ++rank)
    if (heads[rank] != events.rows[rank].size())
      return false;
  return true;
}

/// Whether a rank's slots stand in order, its sends after what makes them, its
/// receives before what needs them, and all transfers of the right table there.
bool keepsOrder(const ScheduleTable &table, const ScheduleEvents &events,
                const ScheduleEvents &right) {
  for (std::size_t rank = 0; rank < events.rows.size(); ++rank) {
    std::int32_t run = 0;
    const auto key = [](const ScheduleEvent &event) {
      return std::tuple(event.kind, event.slot, event.peer, event.isGradient,
                        event.microBatch, event.stage.stage, event.stage.path);
    };
    std::multiset<decltype(key({}))> mine, wanted;
    const std::vector<ScheduleEvent> &row = events.rows[rank];
    for (const ScheduleEvent &event : row) {
      if (event.kind == EventKind::Compute && event.slot != run++)
        return false;
      if (event.kind == EventKind::Send && event.slot >= run)
        return false;
      if (event.kind == EventKind::Receive && event.slot < run)
        return false;
      mine.insert(key(event));
    }
    for (const ScheduleEvent &event : right.rows[rank])
      wanted.insert(key(event));
    if (mine != wanted)
      return false;
  }
  return true;
}

TEST_F(Mutants, OfEventsAreCaughtOrRight) {
  int caught = 0, right = 0;
  for (int drawn = 0; drawn < 1000;) {
    const ScheduleTable table = drawTable();
    const ScheduleEvents good = deriveEvents(table);
    ScheduleEvents events = good;
    std::vector<ScheduleEvent> &row = events.rows[below(events.rows.size())];
    const std::size_t i = below(row.size()), k = (i + 1) % row.size();
    switch (below(6)) {
    case 0:
      what += " swapped with the next";
      std::swap(row[i], row[k]);
      break;
    case 1:
      what += " dropped";
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    case 2:
      what += " duplicated";
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(below(row.size())),
                 ScheduleEvent(row[i]));
      break;
    case 3:
      what += " to another rank";
      row[i].peer = static_cast<std::int32_t>(below(events.rows.size()));
      break;
    case 4:
      what += " the wrong way";
      row[i].isGradient = !row[i].isGradient;
      break;
    default:
      what += " sends received";
      row[i].kind = static_cast<EventKind>(below(3));
    }
    // Peers and directions of slots mean nothing.
    if (events.rows == good.rows ||
        row[std::min(i, row.size() - 1)].kind == EventKind::Compute)
      continue;
    ++drawn;
    SCOPED_TRACE(what);
    const Result<void> done = verifyEvents(table, events);
    ASSERT_EQ(static_cast<bool>(done),
              keepsOrder(table, events, good) && runsBlocking(events))
        << (done ? "" : done.message());
    ++(done ? right : caught);
  }
  EXPECT_GT(right, 50);
  EXPECT_GT(caught, 500);
}

} // namespace
} // namespace heddle
