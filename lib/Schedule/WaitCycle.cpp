#include "WaitCycle.h"

#include "heddle/Support/Check.h"

#include <algorithm>
#include <map>

namespace heddle::detail {

namespace {

/// A search in the graph whose nodes are rows: to wait for a slot is to wait
/// for all before it in its row, so that of a row only the furthest slot waited
/// for counts.
class CycleSearch {
public:
  CycleSearch(const ScheduleTable &table, const SlotIndex &index,
              const std::vector<std::int64_t> &heads);

  std::vector<ScheduleWait> run();

private:
  struct Link {
    std::int64_t step;    ///< where the waiting slot's step begins
    std::int64_t reaches; ///< where the needed slot's step begins
    ScheduleWait wait;
  };
  /// How a row was reached, to find the way back.
  struct Reached {
    std::int64_t rank;
    std::int64_t step;
    const Link *by;
    std::int64_t from; ///< index of the Reached before; -1 for the first
  };

  void addLinks(std::int64_t rank);
  void searchFrom(std::int64_t rank, const Link &start);
  bool extend(std::int64_t from, std::int64_t length, std::int64_t home,
              std::int64_t step);

  const ScheduleTable &table;
  const SlotIndex &index;
  const std::vector<std::int64_t> &heads;
  /// [rank]: per rank waited for, links in order of steps that each reach
  /// further than those before. A link that reaches less far than an earlier
  /// one is part of no cycle that the earlier one does not shorten.
  std::vector<std::map<std::int64_t, std::vector<Link>>> links;
  std::vector<Reached> reached;
  std::vector<std::int64_t> furthest; ///< [rank], of the current search
  std::vector<ScheduleWait> best;
};

CycleSearch::CycleSearch(const ScheduleTable &table, const SlotIndex &index,
                         const std::vector<std::int64_t> &heads)
    : table(table), index(index), heads(heads),
      links(static_cast<std::size_t>(table.ranks())),
      furthest(static_cast<std::size_t>(table.ranks()), -1) {
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    addLinks(rank);
}

void CycleSearch::addLinks(std::int64_t rank) {
  auto &ofRank = links[static_cast<std::size_t>(rank)];
  for (std::int64_t i = heads[static_cast<std::size_t>(rank)];
       i < index.lengthOfRow(rank); ++i) {
    const std::int64_t step = index.stepOf({rank, i}).index;
    index.visitNeeds({rank, i}, [&](SlotPlace need) {
      const std::int64_t reaches = index.stepOf(need).index;
      // What ran waits for nothing; what stands before holds up nothing more.
      if (heads[static_cast<std::size_t>(need.rank)] > need.index ||
          (need.rank == rank && reaches < step))
        return;
      std::vector<Link> &list = ofRank[need.rank];
      if (list.empty() || list.back().reaches < reaches)
        list.push_back({step, reaches, {{rank, i}, need}});
    });
  }
}

/// Follows what the row waits for that `from` reached. Whether that closed the
/// cycle.
bool CycleSearch::extend(std::int64_t from, std::int64_t length,
                         std::int64_t home, std::int64_t step) {
  const Reached at = reached[static_cast<std::size_t>(from)];
  for (const auto &[next, list] : links[static_cast<std::size_t>(at.rank)]) {
    const auto after =
        std::upper_bound(list.begin(), list.end(), at.step,
                         [](std::int64_t wanted, const Link &link) {
                           return wanted < link.step;
                         });
    if (after == list.begin())
      continue;
    const Link &link = *std::prev(after);
    std::int64_t &known = furthest[static_cast<std::size_t>(next)];
    if (link.reaches <= known)
      continue;
    known = link.reaches;
    reached.push_back({next, link.reaches, &link, from});
    if (next != home || link.reaches < step)
      continue;
    best.clear();
    for (std::int64_t i = static_cast<std::int64_t>(reached.size()) - 1; i >= 0;
         i = reached[static_cast<std::size_t>(i)].from)
      best.push_back(reached[static_cast<std::size_t>(i)].by->wait);
    std::reverse(best.begin(), best.end());
    HEDDLE_CHECK(static_cast<std::int64_t>(best.size()) == length,
                 "{} links, expected {}", best.size(), length);
    return true;
  }
  return false;
}

void CycleSearch::searchFrom(std::int64_t rank, const Link &start) {
  // Only what is shorter is of interest.
  const std::int64_t limit =
      best.empty() ? table.ranks() : static_cast<std::int64_t>(best.size()) - 1;
  if (limit < 1)
    return;
  const std::int64_t first = start.wait.needed.rank;
  if (first == rank) {
    best = {start.wait};
    return;
  }
  reached.assign(1, {first, start.reaches, &start, -1});
  furthest[static_cast<std::size_t>(first)] = start.reaches;
  std::size_t begin = 0;
  bool closed = false;
  for (std::int64_t length = 2; length <= limit && !closed; ++length) {
    const std::size_t end = reached.size();
    for (std::size_t i = begin; i < end && !closed; ++i)
      closed = extend(static_cast<std::int64_t>(i), length, rank, start.step);
    begin = end;
  }
  for (const Reached &row : reached)
    furthest[static_cast<std::size_t>(row.rank)] = -1;
}

std::vector<ScheduleWait> CycleSearch::run() {
  std::int64_t slots = 0;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    slots += index.lengthOfRow(rank);
  const bool isWhole = slots <= 1 << 18;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    for (const auto &[next, list] : links[static_cast<std::size_t>(rank)])
      for (const Link &link : list)
        if (isWhole || link.step == heads[static_cast<std::size_t>(rank)])
          searchFrom(rank, link);
  return best;
}

} // namespace

std::vector<ScheduleWait>
findShortestCycle(const ScheduleTable &table, const SlotIndex &index,
                  const std::vector<std::int64_t> &heads) {
  return CycleSearch(table, index, heads).run();
}

} // namespace heddle::detail
