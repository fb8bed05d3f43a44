// Where each slot of a well-formed table is, what it needs, and the walk that
// visits every slot after what it needs.

#ifndef HEDDLE_LIB_SCHEDULE_SLOTINDEX_H
#define HEDDLE_LIB_SCHEDULE_SLOTINDEX_H

#include "heddle/Schedule/Verify.h"

#include <limits>
#include <utility>
#include <vector>

namespace heddle::detail {

/// A slot is what it should be and each is there once (findShapeFault); says
/// nothing of order. Linear.
class SlotIndex {
public:
  explicit SlotIndex(const ScheduleTable &table);

  /// The first thing wrong that can be seen without running the table: slots
  /// that mean nothing, twice, missing, joined where they cannot be. Only
  /// without one may the rest be asked.
  const std::optional<ScheduleFault> &shapeFault() const { return fault; }

  /// Slots of the step that begins at `index`: 2 for a joined pair.
  std::int64_t lengthOfStep(SlotPlace place) const {
    return slot(place).joined() ? 2 : 1;
  }
  /// The place where the step of a slot begins.
  SlotPlace stepOf(SlotPlace place) const {
    const bool isSecond =
        place.index > 0 && slot({place.rank, place.index - 1}).joined();
    return {place.rank, place.index - (isSecond ? 1 : 0)};
  }
  Slot slot(SlotPlace place) const {
    return table.rows[static_cast<std::size_t>(place.rank)]
                     [static_cast<std::size_t>(place.index)];
  }
  std::int64_t lengthOfRow(std::int64_t rank) const {
    return static_cast<std::int64_t>(
        table.rows[static_cast<std::size_t>(rank)].size());
  }

  /// The slot that another rank or the same must have run before this one:
  /// its own F or B, and F or B (D) of the neighbouring stage. Calls
  /// `visit(SlotPlace)` for each, at most two.
  template <typename Visit>
  void visitNeeds(SlotPlace place, Visit visit) const;

  /// What needs the result of a slot on the neighbouring stage: F of the stage
  /// after for F, B or D of the stage before for B and D; none at the ends.
  std::optional<SlotPlace> consumerOf(SlotPlace place) const;

private:
  static constexpr std::int32_t absent = -1;
  enum Part : std::size_t { ForwardPart, InputPart, WeightPart, numParts };

  std::optional<ScheduleFault> indexTable();
  std::optional<ScheduleFault> checkSizes() const;
  std::optional<ScheduleFault> checkSlot(SlotPlace place) const;
  std::optional<ScheduleFault> checkPair(SlotPlace place) const;
  std::optional<ScheduleFault> addSlot(SlotPlace place);
  std::optional<ScheduleFault> findMissing() const;

  std::size_t cell(PlanPlace place, std::int64_t microBatch, Part part) const {
    return static_cast<std::size_t>(
               (place.rank * table.chunks() + place.chunk) *
                   table.microBatches +
               microBatch) *
               numParts +
           part;
  }
  SlotPlace find(PlanPlace place, std::int64_t microBatch, Part part) const {
    return {place.rank, indices[cell(place, microBatch, part)]};
  }

  const ScheduleTable &table;
  std::optional<ScheduleFault> fault;
  std::vector<std::int32_t> indices; ///< [place][micro-batch][part] -> in row
};

template <typename Visit>
void SlotIndex::visitNeeds(SlotPlace place, Visit visit) const {
  const Slot slot = this->slot(place);
  if (slot.kind() == SlotKind::Optimizer)
    return;
  const PlanPlace here{place.rank, slot.chunk()};
  const StageAt stage = table.placement.at(place.rank, slot.chunk());
  const std::int64_t j = slot.microBatch();
  if (slot.kind() == SlotKind::WeightGrad) {
    visit(find(here, j, InputPart));
  } else if (slot.kind() == SlotKind::Forward) {
    if (stage.stage > 0)
      visit(find(table.placement.placeOf({stage.path, stage.stage - 1}), j,
                 ForwardPart));
  } else {
    visit(find(here, j, ForwardPart));
    if (stage.stage + 1 < table.placement.stages())
      visit(find(table.placement.placeOf({stage.path, stage.stage + 1}), j,
                 InputPart));
  }
}

/// Visits the steps of a table, each after what it needs: `visit(SlotPlace)`
/// with the first slot of each. Gives, per rank, where its row stands at the
/// end: at its length, or at the step that cannot run.
template <typename Visit>
std::vector<std::int64_t> walk(const ScheduleTable &table,
                               const SlotIndex &index, Visit visit) {
  const std::size_t ranks = static_cast<std::size_t>(table.ranks());
  std::vector<std::int64_t> heads(ranks, 0);
  // Per rank: who waits for which of its slots.
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> waiters(
      ranks);
  std::vector<std::int64_t> ready;
  for (std::int64_t rank = table.ranks(); rank-- > 0;)
    ready.push_back(rank);
  while (!ready.empty()) {
    const std::int64_t rank = ready.back();
    ready.pop_back();
    std::int64_t &head = heads[static_cast<std::size_t>(rank)];
    for (const std::int64_t end = index.lengthOfRow(rank); head < end;) {
      std::optional<SlotPlace> unmet;
      const std::int64_t length = index.lengthOfStep({rank, head});
      for (std::int64_t i = head; i < head + length; ++i)
        index.visitNeeds({rank, i}, [&](SlotPlace need) {
          if (heads[static_cast<std::size_t>(need.rank)] <= need.index)
            unmet = need;
        });
      if (unmet) {
        waiters[static_cast<std::size_t>(unmet->rank)].push_back(
            {unmet->index, rank});
        break;
      }
      visit(SlotPlace{rank, head});
      head += length;
    }
    std::erase_if(waiters[static_cast<std::size_t>(rank)], [&](auto waiter) {
      const bool isMet = waiter.first < head;
      if (isMet)
        ready.push_back(waiter.second);
      return isMet;
    });
  }
  return heads;
}

} // namespace heddle::detail

#endif // HEDDLE_LIB_SCHEDULE_SLOTINDEX_H
