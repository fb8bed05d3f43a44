#include "heddle/Schedule/SavedSets.h"

#include "FreeIndices.h"

#include <algorithm>

namespace heddle {

namespace {

/// One rank's row, from first to last.
class RowOfSets {
public:
  RowOfSets(const ScheduleTable &table, std::int64_t rank)
      : row(table.rows[static_cast<std::size_t>(rank)]),
        microBatches(table.microBatches),
        free(static_cast<std::size_t>(table.chunks())),
        held(static_cast<std::size_t>(table.chunks() * microBatches)) {}

  void run();

  std::vector<SavedIndices> slots;
  std::int32_t inFlight = 0;
  std::vector<SavedCounts> counts() const;

private:
  struct Free {
    detail::FreeIndices untilWeightGrad, untilInputGrad, fromInputGrad;
  };

  void take(Slot slot);
  void release(Slot slot);
  SavedIndices &heldBy(Slot slot) {
    return held[static_cast<std::size_t>(slot.chunk() * microBatches +
                                         slot.microBatch())];
  }
  Free &freeOf(Slot slot) {
    return free[static_cast<std::size_t>(slot.chunk())];
  }

  const std::vector<Slot> &row;
  const std::int64_t microBatches;
  std::vector<Free> free;         ///< [chunk]
  std::vector<SavedIndices> held; ///< [chunk][micro-batch]
  std::int32_t now = 0;           ///< in flight
};

void RowOfSets::take(Slot slot) {
  SavedIndices &indices = heldBy(slot);
  if (slot.kind() == SlotKind::Forward) {
    indices.untilWeightGrad = freeOf(slot).untilWeightGrad.take();
    indices.untilInputGrad = freeOf(slot).untilInputGrad.take();
    inFlight = std::max(inFlight, ++now);
  } else if (slot.kind() == SlotKind::InputGrad) {
    indices.fromInputGrad = freeOf(slot).fromInputGrad.take();
  }
}

void RowOfSets::release(Slot slot) {
  const auto give = [](detail::FreeIndices &free, std::int32_t &index) {
    free.give(index);
    index = -1;
  };
  SavedIndices &indices = heldBy(slot);
  if (slot.givesInputGrad())
    give(freeOf(slot).untilInputGrad, indices.untilInputGrad);
  if (slot.kind() == SlotKind::WeightGrad)
    give(freeOf(slot).fromInputGrad, indices.fromInputGrad);
  if (slot.endsMicroBatch()) {
    give(freeOf(slot).untilWeightGrad, indices.untilWeightGrad);
    --now;
  }
}

void RowOfSets::run() {
  for (std::size_t i = 0; i < row.size();) {
    const std::size_t end = i + (row[i].joined() ? 2 : 1);
    for (std::size_t k = i; k < end; ++k)
      take(row[k]);
    for (std::size_t k = i; k < end; ++k)
      slots.push_back(row[k].kind() == SlotKind::Optimizer ? SavedIndices{}
                                                           : heldBy(row[k]));
    for (; i < end; ++i)
      release(row[i]);
  }
}

std::vector<SavedCounts> RowOfSets::counts() const {
  std::vector<SavedCounts> result;
  for (const Free &of : free)
    result.push_back({of.untilWeightGrad.count(), of.untilInputGrad.count(),
                      of.fromInputGrad.count()});
  return result;
}

} // namespace

SavedSets assignSavedSets(const ScheduleTable &table) {
  SavedSets sets;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank) {
    RowOfSets row(table, rank);
    row.run();
    sets.counts.push_back(row.counts());
    sets.inFlight.push_back(row.inFlight);
    sets.slots.push_back(std::move(row.slots));
  }
  return sets;
}

} // namespace heddle
