#include "heddle/Schedule/Events.h"

#include "FreeIndices.h"
#include "SlotIndex.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include <fmt/format.h>

namespace heddle {

namespace {

/// Joined slots as programs run them. A chunk without layers may take no time;
/// its slots still have an order.
ScheduleTimes timesOfEvents(ScheduleTimes times) {
  times.joinedInTurn = true;
  constexpr double least = 1e-12;
  for (std::vector<ChunkTimes> &rank : times.chunks)
    for (ChunkTimes &chunk : rank)
      for (double *time : {&chunk.forward, &chunk.inputGrad, &chunk.weightGrad})
        *time = std::max(*time, least);
  return times;
}

class EventsDeriver {
public:
  EventsDeriver(const ScheduleTable &table, const ScheduleTimes &times)
      : table(table), index(table),
        timing(simulateSchedule(table, timesOfEvents(times))),
        next(table.rows.size(), 0) {}

  ScheduleEvents run();

private:
  /// Time, then the two ranks: an order of meetings that both sides share.
  using Meeting = std::tuple<double, std::int64_t, std::int64_t>;
  Meeting meetingOf(const TimedTransfer &transfer) const {
    const auto [a, b] = std::pair(transfer.from.rank, transfer.to.rank);
    return {madeAt(transfer), std::min(a, b), std::max(a, b)};
  }

  void sortTransfers();
  void addTransfer(const TimedTransfer &transfer, std::int32_t batch);
  void runSlotsBefore(std::int64_t rank, double time);
  void assignLandings(std::int64_t rank);

  double madeAt(const TimedTransfer &transfer) const {
    return timing
        .slots[static_cast<std::size_t>(transfer.from.rank)]
              [static_cast<std::size_t>(transfer.from.index)]
        .end;
  }
  ScheduleEvent eventOf(SlotPlace place) const {
    const Slot slot = index.slot(place);
    ScheduleEvent event;
    event.slot = static_cast<std::int32_t>(place.index);
    event.microBatch = static_cast<std::int32_t>(slot.microBatch());
    event.stage = table.placement.at(place.rank, slot.chunk());
    return event;
  }

  const ScheduleTable &table;
  const detail::SlotIndex index;
  ScheduleTiming timing;
  std::vector<std::size_t> next; ///< slot that each rank has not come to
  ScheduleEvents events;
};

void EventsDeriver::sortTransfers() {
  std::ranges::sort(timing.transfers, {}, [this](const TimedTransfer &of) {
    return std::tuple(meetingOf(of), of.from.rank, of.from.index);
  });
}

/// At one instant a transfer comes after the slots that have begun before and
/// before those that begin then.
void EventsDeriver::runSlotsBefore(std::int64_t rank, double time) {
  const std::vector<TimeSpan> &times =
      timing.slots[static_cast<std::size_t>(rank)];
  for (std::size_t &i = next[static_cast<std::size_t>(rank)];
       i < times.size() && times[i].start < time; ++i)
    events.rows[static_cast<std::size_t>(rank)].push_back(
        eventOf({rank, static_cast<std::int64_t>(i)}));
}

void EventsDeriver::addTransfer(const TimedTransfer &transfer,
                                std::int32_t batch) {
  ScheduleEvent event = eventOf(transfer.from);
  event.isGradient = index.slot(transfer.from).givesInputGrad();
  event.batch = batch;
  event.kind = EventKind::Send;
  event.peer = static_cast<std::int32_t>(transfer.to.rank);
  events.rows[static_cast<std::size_t>(transfer.from.rank)].push_back(event);
  event.kind = EventKind::Receive;
  event.peer = static_cast<std::int32_t>(transfer.from.rank);
  event.slot = static_cast<std::int32_t>(transfer.to.index);
  events.rows[static_cast<std::size_t>(transfer.to.rank)].push_back(event);
}

/// Walks the rank's events: a receive takes a buffer, or the slot that makes a
/// value for its own rank; the slot that needs the value gives it back.
void EventsDeriver::assignLandings(std::int64_t rank) {
  const std::size_t row = static_cast<std::size_t>(rank);
  std::vector<std::int32_t> &landings = events.landings[row];
  std::vector<std::array<detail::FreeIndices, 2>> free(
      static_cast<std::size_t>(table.chunks()));
  const auto freeOf = [&](std::size_t slot) -> detail::FreeIndices & {
    return free[static_cast<std::size_t>(table.rows[row][slot].chunk())]
               [table.rows[row][slot].givesInputGrad()];
  };
  const auto take = [&](std::size_t slot) {
    landings[slot] = freeOf(slot).take();
  };
  for (const ScheduleEvent &event : events.rows[row]) {
    const std::size_t slot = static_cast<std::size_t>(event.slot);
    if (event.kind == EventKind::Receive)
      take(slot);
    if (event.kind != EventKind::Compute)
      continue;
    const std::optional<SlotPlace> consumer =
        index.consumerOf({rank, event.slot});
    if (consumer && consumer->rank == rank)
      take(static_cast<std::size_t>(consumer->index));
    if (landings[slot] >= 0)
      freeOf(slot).give(landings[slot]);
  }
  for (const auto &[activations, gradients] : free)
    events.landingCounts[row].push_back(
        {activations.count(), gradients.count()});
}

ScheduleEvents EventsDeriver::run() {
  const std::size_t ranks = table.rows.size();
  events.rows.resize(ranks);
  events.landingCounts.resize(ranks);
  for (const std::vector<Slot> &row : table.rows)
    events.landings.emplace_back(row.size(), -1);
  sortTransfers();
  std::int32_t batch = -1;
  for (std::size_t i = 0; i < timing.transfers.size(); ++i) {
    const TimedTransfer &transfer = timing.transfers[i];
    if (i == 0 || meetingOf(timing.transfers[i - 1]) != meetingOf(transfer))
      ++batch;
    runSlotsBefore(transfer.from.rank, madeAt(transfer));
    runSlotsBefore(transfer.to.rank, madeAt(transfer));
    addTransfer(transfer, batch);
  }
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank) {
    runSlotsBefore(rank, std::numeric_limits<double>::infinity());
    assignLandings(rank);
  }
  return std::move(events);
}

} // namespace

ScheduleEvents deriveEvents(const ScheduleTable &table,
                            const ScheduleTimes &times) {
  return EventsDeriver(table, times).run();
}

ScheduleEvents deriveEvents(const ScheduleTable &table) {
  return deriveEvents(table, ScheduleTimes::equal(table.placement));
}

std::string eventText(const ScheduleTable &table, std::int64_t rank,
                      const ScheduleEvent &event) {
  if (event.kind == EventKind::Compute)
    return slotText(table.rows[static_cast<std::size_t>(rank)]
                              [static_cast<std::size_t>(event.slot)]);
  const PlanPlace from = table.placement.placeOf(event.stage);
  // Whether B or D made it does not matter to who receives it.
  const bool isSend = event.kind == EventKind::Send;
  return fmt::format("{}:{}{}{}{}{}", isSend ? 's' : 'r',
                     event.isGradient ? 'D' : 'F', event.microBatch,
                     from.chunk ? fmt::format("/{}", from.chunk) : "",
                     isSend ? '>' : '<', event.peer);
}

} // namespace heddle
