#include "heddle/Schedule/Simulate.h"

#include "SlotIndex.h"

#include "heddle/Support/Check.h"

#include <algorithm>
#include <map>

namespace heddle {

PreparedSchedule::PreparedSchedule(const ScheduleTable &table)
    : rows(table.rows), numChunks(table.chunks()) {
  const detail::SlotIndex index(table);
  HEDDLE_CHECK(!index.shapeFault(), "{}", index.shapeFault()->message);
  std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> links;
  const std::vector<std::int64_t> heads =
      detail::walk(table, index, [&](SlotPlace first) {
        Step step;
        step.rank = static_cast<std::int32_t>(first.rank);
        step.index = static_cast<std::int32_t>(first.index);
        step.length = static_cast<std::int32_t>(index.lengthOfStep(first));
        hasJoined |= step.length > 1;
        for (std::int32_t i = 0; i < step.length; ++i) {
          const SlotPlace from{first.rank, first.index + i};
          hasWeightSlots |= index.slot(from).kind() == SlotKind::WeightGrad;
          const std::optional<SlotPlace> to = index.consumerOf(from);
          if (!to)
            continue;
          step.isSent[i] = true;
          step.consumers[i] = *to;
          if (to->rank != from.rank)
            step.links[i] =
                links.try_emplace({from.rank, to->rank}, std::ssize(links))
                    .first->second;
        }
        steps.push_back(step);
      });
  numLinks = static_cast<std::int32_t>(links.size());
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    HEDDLE_CHECK(heads[static_cast<std::size_t>(rank)] ==
                     index.lengthOfRow(rank),
                 "rank {} is stuck", rank);
  findLasts();
  if (!hasJoined)
    addLines();
}

void PreparedSchedule::findLasts() {
  for (const std::vector<Slot> &row : rows) {
    std::vector<std::size_t> &ofRank = lasts.emplace_back();
    std::vector<char> seen(static_cast<std::size_t>(numChunks));
    for (std::size_t i = row.size(); i-- > 0;) {
      char &isSeen = seen[static_cast<std::size_t>(row[i].chunk())];
      if (!row[i].endsMicroBatch() || isSeen)
        continue;
      isSeen = 1;
      ofRank.push_back(i);
    }
    std::ranges::reverse(ofRank);
  }
}

//===----------------------------------------------------------------------===//
// Ends alone
//===----------------------------------------------------------------------===//

/// Durations of a chunk of a rank: of kinds of slots, and of the first F and
/// the last W or D.
static constexpr std::int64_t kFirst = 4, kLastW = 5, kLastD = 6,
                              kDurations = 7;

void PreparedSchedule::addLines() {
  std::vector<std::int32_t> begins = {0};
  for (const std::vector<Slot> &row : rows)
    begins.push_back(begins.back() + static_cast<std::int32_t>(row.size()));
  std::vector<char> hasFirst(rows.size() * static_cast<std::size_t>(numChunks));
  for (const Step &step : steps) {
    const auto rank = static_cast<std::size_t>(step.rank);
    const auto index = static_cast<std::size_t>(step.index);
    const Slot slot = rows[rank][index];
    if (slot.kind() == SlotKind::Optimizer)
      continue;
    const std::int64_t place = step.rank * numChunks + slot.chunk();
    char &isAfterFirst = hasFirst[static_cast<std::size_t>(place)];
    Line line;
    line.rank = step.rank;
    line.slot = begins[rank] + step.index;
    line.endsChunk = std::ranges::find(lasts[rank], index) != lasts[rank].end();
    const bool isFirst = slot.kind() == SlotKind::Forward && !isAfterFirst;
    isAfterFirst |= isFirst;
    auto duration = static_cast<std::int64_t>(slot.kind());
    if (line.endsChunk)
      duration = slot.kind() == SlotKind::WeightGrad ? kLastW : kLastD;
    else if (isFirst)
      duration = kFirst;
    line.duration = static_cast<std::int32_t>(place * kDurations + duration);
    if (step.isSent[0]) {
      const SlotPlace to = step.consumers[0];
      line.consumer = begins[static_cast<std::size_t>(to.rank)] +
                      static_cast<std::int32_t>(to.index);
      line.link = step.links[0];
    }
    lines.push_back(line);
  }
}

std::vector<double>
PreparedSchedule::durationsOf(const ScheduleTimes &times) const {
  std::vector<double> durations;
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    for (std::size_t chunk = 0; chunk < times.chunks[rank].size(); ++chunk) {
      const ChunkTimes &of = times.chunks[rank][chunk];
      const ChunkEdges edges =
          times.edges.empty() ? ChunkEdges() : times.edges[rank][chunk];
      for (SlotKind kind : {SlotKind::Forward, SlotKind::InputGrad,
                            SlotKind::WeightGrad, SlotKind::Backward})
        durations.push_back(of.of(kind));
      durations.push_back(of.forward + edges.firstForward);
      durations.push_back(of.of(SlotKind::WeightGrad) + edges.lastBackward);
      durations.push_back(of.of(SlotKind::Backward) + edges.lastBackward);
    }
  return durations;
}

std::vector<RankEnds>
PreparedSchedule::endsOf(const ScheduleTiming &timing) const {
  std::vector<RankEnds> ends(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    ends[rank].end = timing.ranks[rank].span.end;
    for (std::size_t index : lasts[rank])
      ends[rank].lasts.push_back(
          {rows[rank][index].chunk(), timing.slots[rank][index]});
  }
  return ends;
}

std::vector<RankEnds> PreparedSchedule::ends(const ScheduleTimes &times) const {
  if (hasJoined)
    return endsOf(run(times, false));
  const std::vector<double> durations = durationsOf(times);
  std::size_t slots = 0;
  for (const std::vector<Slot> &row : rows)
    slots += row.size();
  std::vector<double> arrivals(slots, 0.0), ended(rows.size(), 0.0),
      linkFree(static_cast<std::size_t>(numLinks), 0.0);
  std::vector<RankEnds> ends(rows.size());
  for (const Line &line : lines) {
    double &end = ended[static_cast<std::size_t>(line.rank)];
    const double start =
        std::max(end, arrivals[static_cast<std::size_t>(line.slot)]);
    end = start + durations[static_cast<std::size_t>(line.duration)];
    if (line.endsChunk)
      ends[static_cast<std::size_t>(line.rank)].lasts.push_back(
          {line.duration / kDurations % numChunks, {start, end}});
    if (line.consumer < 0)
      continue;
    double &arrival = arrivals[static_cast<std::size_t>(line.consumer)];
    if (line.link < 0) {
      arrival = end;
      continue;
    }
    double &free = linkFree[static_cast<std::size_t>(line.link)];
    free = arrival = std::max(end, free) + times.transfer;
  }
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    ends[rank].end = ended[rank];
  return ends;
}

//===----------------------------------------------------------------------===//
// All slots
//===----------------------------------------------------------------------===//

/// The first F of each chunk, and the last slot that ends a micro-batch.
void PreparedSchedule::addEdges(const ScheduleTimes &times,
                                std::vector<std::vector<double>> &takes) const {
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const std::vector<Slot> &row = rows[rank];
    const std::vector<ChunkEdges> &edges = times.edges[rank];
    std::vector<char> hasFirst(edges.size()), hasLast(edges.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto chunk = static_cast<std::size_t>(row[i].chunk());
      if (row[i].kind() == SlotKind::Forward && !hasFirst[chunk]) {
        hasFirst[chunk] = 1;
        takes[rank][i] += edges[chunk].firstForward;
      }
    }
    for (std::size_t i = row.size(); i-- > 0;) {
      const auto chunk = static_cast<std::size_t>(row[i].chunk());
      if (row[i].endsMicroBatch() && !hasLast[chunk]) {
        hasLast[chunk] = 1;
        takes[rank][i] += edges[chunk].lastBackward;
      }
    }
  }
}

/// How long each slot runs.
std::vector<std::vector<double>>
PreparedSchedule::takesOf(const ScheduleTimes &times) const {
  std::vector<std::vector<double>> takes(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    takes[rank].reserve(rows[rank].size());
    for (const Slot slot : rows[rank])
      takes[rank].push_back(
          slot.kind() == SlotKind::Optimizer
              ? times.optimizer
              : times.chunks[rank][static_cast<std::size_t>(slot.chunk())].of(
                    slot.kind()));
  }
  if (!times.edges.empty())
    addEdges(times, takes);
  return takes;
}

void PreparedSchedule::countRanks(const std::vector<std::vector<double>> &takes,
                                  ScheduleTiming &timing) const {
  timing.ranks.resize(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    RankTiming &of = timing.ranks[rank];
    const std::vector<TimeSpan> &spans = timing.slots[rank];
    const std::size_t optimizer = spans.size() - 1;
    of.optimizer = spans[optimizer].length();
    timing.makespan = std::max(timing.makespan, spans[optimizer].end);
    if (optimizer == 0)
      continue;
    of.span = {spans[0].start, spans[optimizer - 1].end};
    for (std::size_t i = 0; i < optimizer; ++i)
      of.busy += takes[rank][i];
  }
}

/// Of a joined pair, what each slot waits while the other computes.
double PreparedSchedule::hiddenIn(const Step &step, const ScheduleTimes &times,
                                  const std::vector<double> &takes) const {
  if (step.length != 2 || times.joinedInTurn)
    return 0;
  double waits[2], runs[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const auto at = static_cast<std::size_t>(step.index) + i;
    const auto rank = static_cast<std::size_t>(step.rank);
    const Slot slot = rows[rank][at];
    waits[i] =
        times.chunks[rank][static_cast<std::size_t>(slot.chunk())].waitsOf(
            slot.kind());
    runs[i] = takes[at] - waits[i];
  }
  return std::min(waits[0], runs[1]) + std::min(waits[1], runs[0]);
}

ScheduleTiming PreparedSchedule::run(const ScheduleTimes &times,
                                     bool withTransfers) const {
  const std::vector<std::vector<double>> takes = takesOf(times);
  ScheduleTiming timing;
  std::vector<std::vector<double>> arrivals; // of what a slot needs
  for (const std::vector<Slot> &row : rows) {
    timing.slots.emplace_back(row.size());
    arrivals.emplace_back(row.size(), 0.0);
  }
  std::vector<double> linkFree(static_cast<std::size_t>(numLinks), 0.0);
  std::vector<double> hidden(rows.size(), 0.0);
  for (const Step &step : steps) {
    const auto rank = static_cast<std::size_t>(step.rank);
    const auto first = static_cast<std::size_t>(step.index);
    const auto length = static_cast<std::size_t>(step.length);
    std::vector<TimeSpan> &spans = timing.slots[rank];
    double start = first ? spans[first - 1].end : 0,
           together = -hiddenIn(step, times, takes[rank]);
    hidden[rank] -= together;
    for (std::size_t i = first; i < first + length; ++i) {
      start = std::max(start, arrivals[rank][i]);
      together += takes[rank][i];
      if (times.joinedInTurn) {
        spans[i] = {start, start + takes[rank][i]};
        start = spans[i].end;
      }
    }
    for (std::size_t i = first; i < first + length && !times.joinedInTurn; ++i)
      spans[i] = {start, start + together};
    for (std::size_t i = 0; i < length; ++i) {
      if (!step.isSent[i])
        continue;
      const SlotPlace to = step.consumers[i];
      double &arrival = arrivals[static_cast<std::size_t>(to.rank)]
                                [static_cast<std::size_t>(to.index)];
      const double made = spans[first + i].end;
      if (step.links[i] < 0) {
        arrival = made;
        continue;
      }
      double &free = linkFree[static_cast<std::size_t>(step.links[i])];
      const double leaves = std::max(made, free);
      free = arrival = leaves + times.transfer;
      if (withTransfers)
        timing.transfers.push_back(
            {{step.rank, step.index + static_cast<std::int64_t>(i)},
             to,
             {leaves, free}});
    }
  }
  std::ranges::stable_sort(timing.transfers, {}, [&](const auto &transfer) {
    return timing
        .slots[static_cast<std::size_t>(transfer.from.rank)]
              [static_cast<std::size_t>(transfer.from.index)]
        .end;
  });
  countRanks(takes, timing);
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    timing.ranks[rank].busy -= hidden[rank];
  return timing;
}

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

double ChunkTimes::waitsOf(SlotKind kind) const {
  return kind == SlotKind::Forward ? forwardWaits
         : kind == SlotKind::InputGrad || kind == SlotKind::Backward
             ? backwardWaits
             : 0;
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
  return PreparedSchedule(table).run(times);
}

} // namespace heddle
