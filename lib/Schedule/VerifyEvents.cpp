#include "heddle/Schedule/Events.h"

#include "SlotIndex.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace heddle {

namespace {

/// Shares with deriveEvents what a slot needs (SlotIndex), and nothing else.
class EventsChecker {
public:
  EventsChecker(const ScheduleTable &table, const ScheduleEvents &events)
      : table(table), events(events), index(table) {}

  Result<void> check();

private:
  struct Batch {
    std::int64_t ranks[2] = {-1, -1};
    /// What each of the two sends or receives, as producing slots.
    std::vector<SlotPlace> transfers[2];
    std::size_t last[2] = {0, 0}; ///< index of the latest event of each
  };

  Result<void> checkRow(std::int64_t rank);
  Result<void> checkCompute(std::int64_t rank, std::size_t i);
  Result<void> checkTransfer(std::int64_t rank, std::size_t i);
  Result<void> addToBatch(std::int64_t rank, std::size_t i, SlotPlace maker);
  Result<void> checkComplete();
  Result<void> checkOrder();
  Result<void> checkBatches();
  Result<void> checkRendezvous();
  Error describeCircle(const std::vector<std::size_t> &heads) const;

  const ScheduleEvent &event(std::int64_t rank, std::size_t i) const {
    return events.rows[static_cast<std::size_t>(rank)][i];
  }
  template <typename... Arguments>
  Error refuse(std::int64_t rank, std::size_t i,
               fmt::format_string<Arguments...> text,
               Arguments &&...arguments) const {
    return Error{
        fmt::format("schedule: rank {} event {}: {}", rank, i,
                    fmt::format(text, std::forward<Arguments>(arguments)...))};
  }
  std::string textOf(std::int64_t rank, std::size_t i) const {
    return eventText(table, rank, event(rank, i));
  }
  /// The slot whose result an event moves; none if there is no such transfer.
  std::optional<SlotPlace> makerOf(std::int64_t rank,
                                   const ScheduleEvent &event) const;

  const ScheduleTable &table;
  const ScheduleEvents &events;
  const detail::SlotIndex index;
  std::int64_t slotsRun = 0; ///< of the row being checked
  /// [send or receive]: per ordered pair of ranks, producing slots in order.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<SlotPlace>>
      orders[2];
  std::map<std::int32_t, Batch> batches;
};

std::optional<SlotPlace>
EventsChecker::makerOf(std::int64_t rank, const ScheduleEvent &event) const {
  const SlotPlace own{rank, event.slot};
  if (event.kind == EventKind::Send) {
    const std::optional<SlotPlace> to = index.consumerOf(own);
    return to && to->rank == event.peer && to->rank != rank ? std::optional(own)
                                                            : std::nullopt;
  }
  std::optional<SlotPlace> maker;
  index.visitNeeds(own, [&](SlotPlace need) {
    if (need.rank == event.peer && need.rank != rank &&
        index.consumerOf(need) == own)
      maker = need;
  });
  return maker;
}

Result<void> EventsChecker::checkCompute(std::int64_t rank, std::size_t i) {
  if (event(rank, i).slot != slotsRun)
    return refuse(rank, i, "runs slot {}, expected slot {} of the row",
                  event(rank, i).slot, slotsRun);
  ++slotsRun;
  return {};
}

Result<void> EventsChecker::checkTransfer(std::int64_t rank, std::size_t i) {
  const ScheduleEvent &event = this->event(rank, i);
  const bool isSend = event.kind == EventKind::Send;
  const char *what = isSend ? "send" : "receive";
  if (event.slot < 0 || event.slot >= index.lengthOfRow(rank))
    return refuse(rank, i, "{} of slot {}, expected 0 to {}", what, event.slot,
                  index.lengthOfRow(rank) - 1);
  const std::optional<SlotPlace> maker = makerOf(rank, event);
  if (!maker)
    return refuse(rank, i,
                  "a {} between {} and rank {}, which no slot asks for", what,
                  slotText(index.slot({rank, event.slot})), event.peer);
  const Slot made = index.slot(*maker);
  const StageAt stage = table.placement.at(maker->rank, made.chunk());
  if (event.isGradient != made.givesInputGrad() ||
      event.microBatch != made.microBatch() || event.stage != stage)
    return refuse(
        rank, i, "{} of {} {} of stage {}, expected {} {} of stage {}", what,
        event.isGradient ? "gradient" : "activation", event.microBatch,
        event.stage.stage, made.givesInputGrad() ? "gradient" : "activation",
        made.microBatch(), stage.stage);
  if (isSend && event.slot >= slotsRun)
    return refuse(rank, i, "{} comes before its slot {} has run",
                  textOf(rank, i), event.slot);
  if (!isSend && event.slot < slotsRun)
    return refuse(rank, i, "{} comes after slot {}, which needs it",
                  textOf(rank, i), event.slot);
  orders[isSend ? 0 : 1][isSend ? std::pair(rank, std::int64_t{event.peer})
                                : std::pair(std::int64_t{event.peer}, rank)]
      .push_back(*maker);
  return addToBatch(rank, i, *maker);
}

Result<void> EventsChecker::addToBatch(std::int64_t rank, std::size_t i,
                                       SlotPlace maker) {
  const ScheduleEvent &event = this->event(rank, i);
  Batch &batch = batches[event.batch];
  for (int side : {0, 1}) {
    if (batch.ranks[side] == -1) {
      batch.ranks[side] = rank;
    } else if (batch.ranks[side] != rank) {
      continue;
    } else if (batch.last[side] + 1 != i) {
      return refuse(rank, i, "{} is of batch {}, which ended at event {}",
                    textOf(rank, i), event.batch, batch.last[side]);
    }
    batch.last[side] = i;
    batch.transfers[side].push_back(maker);
    return {};
  }
  return refuse(rank, i, "{} is of batch {}, which is of ranks {} and {}",
                textOf(rank, i), event.batch, batch.ranks[0], batch.ranks[1]);
}

Result<void> EventsChecker::checkRow(std::int64_t rank) {
  slotsRun = 0;
  const std::size_t end = events.rows[static_cast<std::size_t>(rank)].size();
  for (std::size_t i = 0; i < end; ++i)
    if (Result<void> done = event(rank, i).kind == EventKind::Compute
                                ? checkCompute(rank, i)
                                : checkTransfer(rank, i);
        !done)
      return done;
  if (slotsRun != index.lengthOfRow(rank))
    return Error{fmt::format("schedule: rank {}: events run {} of {} slots",
                             rank, slotsRun, index.lengthOfRow(rank))};
  return {};
}

/// What was sent and received is what the slots ask for, each once. That it is
/// asked for at all has been seen.
Result<void> EventsChecker::checkComplete() {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> wanted;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    for (std::int64_t i = 0; i < index.lengthOfRow(rank); ++i)
      if (const auto to = index.consumerOf({rank, i}); to && to->rank != rank)
        ++wanted[{rank, to->rank}];
  for (int side : {0, 1})
    for (const auto &[pair, count] : wanted) {
      std::vector<SlotPlace> makers = orders[side][pair];
      std::ranges::sort(makers, {}, &SlotPlace::index);
      const auto twice = std::ranges::adjacent_find(makers);
      const char *what = side ? "received" : "sent";
      if (twice != makers.end())
        return Error{
            fmt::format("schedule: ranks {} to {}: {} of slot {} is {} "
                        "twice",
                        pair.first, pair.second, slotText(index.slot(*twice)),
                        twice->index, what)};
      if (static_cast<std::int64_t>(makers.size()) != count)
        return Error{fmt::format("schedule: ranks {} to {}: {} of {} transfers "
                                 "are {}",
                                 pair.first, pair.second, makers.size(), count,
                                 what)};
    }
  return {};
}

Result<void> EventsChecker::checkOrder() {
  for (const auto &[pair, sent] : orders[0]) {
    const std::vector<SlotPlace> &received = orders[1][pair];
    const auto [a, b] = std::ranges::mismatch(sent, received);
    if (a != sent.end())
      return Error{fmt::format(
          "schedule: ranks {} to {}: transfer {} is sent as {} (slot {}) and "
          "received as {} (slot {}); sends and receives of a pair meet in "
          "order",
          pair.first, pair.second, a - sent.begin(), slotText(index.slot(*a)),
          a->index, slotText(index.slot(*b)), b->index)};
  }
  return {};
}

Result<void> EventsChecker::checkBatches() {
  for (auto &[number, batch] : batches) {
    for (std::vector<SlotPlace> &transfers : batch.transfers)
      std::ranges::sort(transfers, {}, [](SlotPlace place) {
        return std::pair(place.rank, place.index);
      });
    if (batch.transfers[0] != batch.transfers[1])
      return Error{fmt::format("schedule: batch {}: ranks {} and {} launch "
                               "different transfers ({} and {})",
                               number, batch.ranks[0], batch.ranks[1],
                               batch.transfers[0].size(),
                               batch.transfers[1].size())};
  }
  return {};
}

/// Each rank waits for one other at most, so that following them from any rank
/// ends in a circle; of all, a shortest.
Error EventsChecker::describeCircle(
    const std::vector<std::size_t> &heads) const {
  std::vector<std::int64_t> best;
  const auto isStuck = [&](std::int64_t rank) {
    const std::size_t r = static_cast<std::size_t>(rank);
    return heads[r] < events.rows[r].size();
  };
  const auto peerOf = [&](std::int64_t rank) -> std::int64_t {
    return event(rank, heads[static_cast<std::size_t>(rank)]).peer;
  };
  for (std::int64_t start = 0; start < table.ranks(); ++start) {
    std::vector<std::int64_t> circle;
    for (std::int64_t rank = start;
         isStuck(rank) &&
         static_cast<std::int64_t>(circle.size()) <=
             (best.empty() ? table.ranks()
                           : static_cast<std::int64_t>(best.size()));
         rank = peerOf(rank)) {
      if (rank == start && !circle.empty()) {
        if (best.empty() || circle.size() < best.size())
          best = circle;
        break;
      }
      circle.push_back(rank);
    }
  }
  std::string text = fmt::format(
      "schedule: transfers stuck in a circle of {} ranks: ", best.size());
  // A reader follows a few.
  for (std::size_t i = 0; i < std::min<std::size_t>(best.size(), 8); ++i) {
    const std::size_t head = heads[static_cast<std::size_t>(best[i])];
    text +=
        fmt::format("{}rank {} event {} ({}) waits for rank {}", i ? "; " : "",
                    best[i], head, textOf(best[i], head), peerOf(best[i]));
  }
  return Error{text};
}

Result<void> EventsChecker::checkRendezvous() {
  std::vector<std::size_t> heads(events.rows.size(), 0);
  const auto headOf = [&](std::int64_t rank) -> std::size_t & {
    return heads[static_cast<std::size_t>(rank)];
  };
  // Goes past slots; gives the batch that a rank waits in, if any.
  const auto advance = [&](std::int64_t rank) -> const ScheduleEvent * {
    const auto &row = events.rows[static_cast<std::size_t>(rank)];
    while (headOf(rank) < row.size() &&
           row[headOf(rank)].kind == EventKind::Compute)
      ++headOf(rank);
    return headOf(rank) < row.size() ? &row[headOf(rank)] : nullptr;
  };
  std::vector<std::int64_t> ready;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    ready.push_back(rank);
  while (!ready.empty()) {
    const std::int64_t rank = ready.back();
    ready.pop_back();
    while (const ScheduleEvent *here = advance(rank)) {
      const std::int64_t peer = here->peer;
      const ScheduleEvent *there = advance(peer);
      if (!there || there->batch != here->batch)
        break;
      const std::size_t length = batches[here->batch].transfers[0].size();
      headOf(rank) += length;
      headOf(peer) += length;
      ready.push_back(peer);
    }
  }
  for (std::size_t rank = 0; rank < heads.size(); ++rank)
    if (heads[rank] < events.rows[rank].size())
      return describeCircle(heads);
  return {};
}

Result<void> EventsChecker::check() {
  if (index.shapeFault())
    return Error{index.shapeFault()->message};
  if (events.rows.size() != table.rows.size())
    return Error{fmt::format("schedule: events of {} ranks, expected {}",
                             events.rows.size(), table.rows.size())};
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    if (Result<void> done = checkRow(rank); !done)
      return done;
  for (auto part :
       {&EventsChecker::checkComplete, &EventsChecker::checkOrder,
        &EventsChecker::checkBatches, &EventsChecker::checkRendezvous})
    if (Result<void> done = (this->*part)(); !done)
      return done;
  return {};
}

} // namespace

Result<void> verifyEvents(const ScheduleTable &table,
                          const ScheduleEvents &events) {
  return EventsChecker(table, events).check();
}

} // namespace heddle
