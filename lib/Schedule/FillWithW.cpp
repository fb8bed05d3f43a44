#include "FillWithW.h"

#include "heddle/Support/Check.h"

#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace heddle::detail {

namespace {

class Filler {
public:
  Filler(const Placement &placement, std::int64_t microBatches,
         std::vector<SlotRow> orders, std::int64_t mostInFlight)
      : placement(placement), microBatches(microBatches),
        orders(std::move(orders)), mostInFlight(mostInFlight),
        ranks(this->orders.size()),
        ends(static_cast<std::size_t>(placement.ranks() * placement.chunks() *
                                      microBatches * 2),
             never) {}

  std::vector<SlotRow> run();

private:
  static constexpr std::int64_t never =
      std::numeric_limits<std::int64_t>::max();
  struct Rank {
    std::size_t next = 0; ///< in its order
    std::int64_t free = 0;
    std::int64_t inFlight = 0;
    SlotRow row, owed;
    std::size_t paid = 0;
  };

  /// When a slot ends; `never` while that is not known.
  std::int64_t &endOf(PlanPlace place, const Slot &slot) {
    return ends[static_cast<std::size_t>(
        ((place.rank * placement.chunks() + place.chunk) * microBatches +
         slot.microBatch()) *
            2 +
        (slot.kind() == SlotKind::Forward ? 0 : 1))];
  }
  std::int64_t readyAt(std::int64_t rank, const Slot &slot);
  void runAt(std::int64_t rank, std::int64_t time);
  void issue(std::int64_t rank, const Slot &slot, std::int64_t time);

  const Placement &placement;
  const std::int64_t microBatches;
  const std::vector<SlotRow> orders;
  const std::int64_t mostInFlight;
  std::vector<Rank> ranks;
  std::vector<std::int64_t> ends; ///< [place][micro-batch][F or B]
  /// Times at which a rank may have something new to do.
  using Wake = std::pair<std::int64_t, std::int64_t>;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<Wake>> wakes;
};

std::int64_t Filler::readyAt(std::int64_t rank, const Slot &slot) {
  const PlanPlace here{rank, slot.chunk()};
  const StageAt stage = placement.at(rank, slot.chunk());
  const bool isForward = slot.kind() == SlotKind::Forward;
  std::int64_t ready =
      isForward ? 0 : endOf(here, forwardSlot(0, slot.microBatch()));
  const std::int64_t before = stage.stage + (isForward ? -1 : 1);
  if (before >= 0 && before < placement.stages())
    ready =
        std::max(ready, endOf(placement.placeOf({stage.path, before}), slot));
  return ready;
}

void Filler::issue(std::int64_t rank, const Slot &slot, std::int64_t time) {
  Rank &at = ranks[static_cast<std::size_t>(rank)];
  at.row.push_back(slot);
  at.free = time + 1;
  wakes.push({time + 1, rank});
  if (slot.kind() == SlotKind::WeightGrad) {
    --at.inFlight;
    ++at.paid;
    return;
  }
  ++at.next;
  const bool isForward = slot.kind() == SlotKind::Forward;
  if (isForward)
    ++at.inFlight;
  else
    at.owed.push_back(weightGradSlot(slot.chunk(), slot.microBatch()));
  endOf({rank, slot.chunk()}, slot) = time + 1;
  const StageAt stage = placement.at(rank, slot.chunk());
  const std::int64_t after = stage.stage + (isForward ? 1 : -1);
  if (after >= 0 && after < placement.stages())
    wakes.push({time + 1, placement.placeOf({stage.path, after}).rank});
}

void Filler::runAt(std::int64_t rank, std::int64_t time) {
  const Rank &at = ranks[static_cast<std::size_t>(rank)];
  if (at.free > time)
    return;
  const SlotRow &order = orders[static_cast<std::size_t>(rank)];
  if (at.next < order.size()) {
    const Slot slot = order[at.next];
    const bool hasRoom =
        slot.kind() != SlotKind::Forward || at.inFlight < mostInFlight;
    if (hasRoom && readyAt(rank, slot) <= time)
      return issue(rank, slot, time);
  }
  if (at.paid < at.owed.size())
    issue(rank, at.owed[at.paid], time);
}

std::vector<SlotRow> Filler::run() {
  for (std::int64_t rank = 0; rank < placement.ranks(); ++rank)
    wakes.push({0, rank});
  while (!wakes.empty()) {
    const auto [time, rank] = wakes.top();
    wakes.pop();
    runAt(rank, time);
  }
  std::vector<SlotRow> rows;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Rank &at = ranks[rank];
    HEDDLE_CHECK(at.next == orders[rank].size(),
                 "rank {} is stuck at F or B {} of its order", rank, at.next);
    at.row.push_back(optimizerSlot());
    rows.push_back(std::move(at.row));
  }
  return rows;
}

} // namespace

std::vector<SlotRow> fillWithW(const Placement &placement,
                               std::int64_t microBatches,
                               std::vector<SlotRow> orders,
                               std::int64_t mostInFlight) {
  return Filler(placement, microBatches, std::move(orders), mostInFlight).run();
}

} // namespace heddle::detail
