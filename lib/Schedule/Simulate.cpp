#include "heddle/Schedule/Simulate.h"

#include "SlotIndex.h"

#include "heddle/Support/Check.h"

#include <algorithm>
#include <map>

namespace heddle {

namespace {

/// Visits steps in an order that dependences allow, so that when a step comes
/// all that decides its start is known: no queue of events is needed.
class Simulation {
public:
  Simulation(const ScheduleTable &table, const ScheduleTimes &times);

  ScheduleTiming run();

private:
  void runStep(SlotPlace first);
  void send(SlotPlace from);
  void countRanks();
  void addEdges();
  double timeOf(SlotPlace place) const;

  TimeSpan &timeAt(SlotPlace place) {
    return timing.slots[static_cast<std::size_t>(place.rank)]
                       [static_cast<std::size_t>(place.index)];
  }
  double &arrivalAt(SlotPlace place) {
    return arrivals[static_cast<std::size_t>(place.rank)]
                   [static_cast<std::size_t>(place.index)];
  }

  const ScheduleTable &table;
  const ScheduleTimes &times;
  const detail::SlotIndex index;
  ScheduleTiming timing;
  std::vector<std::vector<double>> arrivals; ///< of what a slot needs
  std::vector<std::vector<double>> more; ///< of a slot's time; empty: nothing
  std::map<std::pair<std::int64_t, std::int64_t>, double> linkFree;
};

Simulation::Simulation(const ScheduleTable &table, const ScheduleTimes &times)
    : table(table), times(times), index(table) {
  HEDDLE_CHECK(!index.shapeFault(), "{}", index.shapeFault()->message);
  for (const std::vector<Slot> &row : table.rows) {
    timing.slots.emplace_back(row.size());
    arrivals.emplace_back(row.size(), 0.0);
  }
  timing.ranks.resize(table.rows.size());
  if (!times.edges.empty())
    addEdges();
}

/// The first F of each chunk, and the last slot that ends a micro-batch.
void Simulation::addEdges() {
  for (std::size_t rank = 0; rank < table.rows.size(); ++rank) {
    const std::vector<Slot> &row = table.rows[rank];
    const std::vector<ChunkEdges> &edges = times.edges[rank];
    std::vector<double> &extra = more.emplace_back(row.size(), 0.0);
    std::vector<char> hasFirst(edges.size()), hasLast(edges.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(row[i].chunk());
      if (row[i].kind() == SlotKind::Forward && !hasFirst[chunk]) {
        hasFirst[chunk] = 1;
        extra[i] += edges[chunk].firstForward;
      }
    }
    for (std::size_t i = row.size(); i-- > 0;) {
      const auto chunk = static_cast<std::size_t>(row[i].chunk());
      if (row[i].endsMicroBatch() && !hasLast[chunk]) {
        hasLast[chunk] = 1;
        extra[i] += edges[chunk].lastBackward;
      }
    }
  }
}

double Simulation::timeOf(SlotPlace place) const {
  const Slot slot = index.slot(place);
  if (slot.kind() == SlotKind::Optimizer)
    return times.optimizer;
  const auto rank = static_cast<std::size_t>(place.rank);
  const double extra =
      more.empty() ? 0 : more[rank][static_cast<std::size_t>(place.index)];
  return times.chunks[rank][static_cast<std::size_t>(slot.chunk())].of(
             slot.kind()) +
         extra;
}

void Simulation::runStep(SlotPlace first) {
  const std::int64_t length = index.lengthOfStep(first);
  double start = first.index ? timeAt({first.rank, first.index - 1}).end : 0;
  double takes = 0;
  for (std::int64_t i = first.index; i < first.index + length; ++i) {
    start = std::max(start, arrivalAt({first.rank, i}));
    takes += timeOf({first.rank, i});
  }
  for (std::int64_t i = first.index; i < first.index + length; ++i)
    timeAt({first.rank, i}) = {start, start + takes};
  for (std::int64_t i = first.index; i < first.index + length; ++i)
    send({first.rank, i});
}

void Simulation::send(SlotPlace from) {
  const std::optional<SlotPlace> to = index.consumerOf(from);
  if (!to)
    return;
  const double made = timeAt(from).end;
  if (to->rank == from.rank) {
    arrivalAt(*to) = made;
    return;
  }
  double &free = linkFree[{from.rank, to->rank}];
  const double start = std::max(made, free);
  free = arrivalAt(*to) = start + times.transfer;
  timing.transfers.push_back({from, *to, {start, free}});
}

void Simulation::countRanks() {
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank) {
    RankTiming &of = timing.ranks[static_cast<std::size_t>(rank)];
    const std::int64_t optimizer = index.lengthOfRow(rank) - 1;
    of.optimizer = timeAt({rank, optimizer}).length();
    timing.makespan = std::max(timing.makespan, timeAt({rank, optimizer}).end);
    if (optimizer == 0)
      continue;
    of.span = {timeAt({rank, 0}).start, timeAt({rank, optimizer - 1}).end};
    for (std::int64_t i = 0; i < optimizer; ++i)
      of.busy += timeOf({rank, i});
  }
}

ScheduleTiming Simulation::run() {
  const std::vector<std::int64_t> heads =
      detail::walk(table, index, [this](SlotPlace first) { runStep(first); });
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    HEDDLE_CHECK(heads[static_cast<std::size_t>(rank)] ==
                     index.lengthOfRow(rank),
                 "rank {} is stuck", rank);
  std::ranges::stable_sort(timing.transfers, {}, [this](const auto &transfer) {
    return timeAt(transfer.from).end;
  });
  countRanks();
  return std::move(timing);
}

} // namespace

double ChunkTimes::of(SlotKind kind) const {
  switch (kind) {
  case SlotKind::Forward:
    return forward;
  case SlotKind::InputGrad:
    return inputGrad;
  case SlotKind::WeightGrad:
    return weightGrad;
  case SlotKind::Backward:
    return inputGrad + weightGrad;
  case SlotKind::Optimizer:
    return 0;
  }
  return 0;
}

ScheduleTimes ScheduleTimes::equal(const Placement &placement, ChunkTimes times,
                                   double transfer) {
  ScheduleTimes result;
  result.chunks.assign(
      static_cast<std::size_t>(placement.ranks()),
      std::vector<ChunkTimes>(static_cast<std::size_t>(placement.chunks()),
                              times));
  result.transfer = transfer;
  return result;
}

double ScheduleTiming::bubble() const {
  double busy = 0;
  for (const RankTiming &rank : ranks)
    busy += rank.busy + rank.optimizer;
  return busy > 0 ? makespan * static_cast<double>(ranks.size()) / busy - 1 : 0;
}

double ScheduleTiming::longestIdle() const {
  double longest = 0;
  for (const RankTiming &rank : ranks)
    longest = std::max(longest, rank.idleWithin());
  return longest;
}

ScheduleTiming simulateSchedule(const ScheduleTable &table,
                                const ScheduleTimes &times) {
  return Simulation(table, times).run();
}

} // namespace heddle
