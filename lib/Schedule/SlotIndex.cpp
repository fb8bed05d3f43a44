#include "SlotIndex.h"

#include <fmt/format.h>

namespace heddle::detail {

namespace {

template <typename... Arguments>
ScheduleFault refuse(fmt::format_string<Arguments...> text,
                     Arguments &&...arguments) {
  return {"schedule: " +
              fmt::format(text, std::forward<Arguments>(arguments)...),
          {}};
}

} // namespace

SlotIndex::SlotIndex(const ScheduleTable &table) : table(table) {
  fault = indexTable();
}

std::optional<ScheduleFault> SlotIndex::checkSizes() const {
  const std::int64_t ranks = table.ranks();
  if (static_cast<std::int64_t>(table.rows.size()) != ranks)
    return refuse("{} rows, expected one per rank: {}", table.rows.size(),
                  ranks);
  if (table.microBatches < 1 || table.microBatches > Slot::maxMicroBatches)
    return refuse("{} micro-batches, expected 1 to {}", table.microBatches,
                  Slot::maxMicroBatches);
  if (table.microBatches % table.placement.numPaths())
    return refuse("{} micro-batches cannot be divided among {} paths",
                  table.microBatches, table.placement.numPaths());
  // Both factors are at most 2^20.
  if (ranks * table.chunks() * table.microBatches > ScheduleTable::maxSlots / 2)
    return refuse("{} ranks x {} chunks x {} micro-batches need more than {} "
                  "slots; take fewer micro-batches or chunks",
                  ranks, table.chunks(), table.microBatches,
                  ScheduleTable::maxSlots);
  return std::nullopt;
}

std::optional<ScheduleFault> SlotIndex::checkSlot(SlotPlace place) const {
  const Slot slot = this->slot(place);
  const auto [rank, i] = place;
  if (slot.kind() > SlotKind::Optimizer)
    return refuse("rank {} slot {}: kind {}, expected 0 to 4 (F, B, W, D, O)",
                  rank, i, static_cast<int>(slot.kind()));
  if (slot.kind() == SlotKind::Optimizer) {
    if (i + 1 != lengthOfRow(rank))
      return refuse("rank {} slot {} (O) is not the last of its row: a rank "
                    "updates once, after all else",
                    rank, i);
    if (slot != Slot(SlotKind::Optimizer, 0, 0))
      return refuse("rank {} slot {} (O) names a chunk or micro-batch or is "
                    "joined, expected none",
                    rank, i);
    return std::nullopt;
  }
  if (slot.chunk() >= table.chunks())
    return refuse("rank {} slot {} ({}): chunk {}, expected 0 to {}", rank, i,
                  slotText(slot), slot.chunk(), table.chunks() - 1);
  if (slot.microBatch() >= table.microBatches)
    return refuse("rank {} slot {} ({}): micro-batch {}, expected 0 to {}",
                  rank, i, slotText(slot), slot.microBatch(),
                  table.microBatches - 1);
  if (!table.runsThrough(rank, slot.chunk(), slot.microBatch()))
    return refuse("rank {} slot {} ({}): micro-batch {} does not run through "
                  "chunk {}, which is of the other direction",
                  rank, i, slotText(slot), slot.microBatch(), slot.chunk());
  return std::nullopt;
}

std::optional<ScheduleFault> SlotIndex::checkPair(SlotPlace place) const {
  const auto [rank, i] = place;
  const Slot first = slot(place);
  if (i + 1 >= lengthOfRow(rank))
    return refuse("rank {} slot {} ({}) is joined to a slot after it, but is "
                  "the last",
                  rank, i, slotText(first));
  const Slot second = slot({rank, i + 1});
  if (second.joined())
    return refuse("rank {} slots {} to {}: three slots joined, expected two",
                  rank, i, i + 2);
  const bool oneOfEach =
      (first.kind() == SlotKind::Forward && second.givesInputGrad()) ||
      (second.kind() == SlotKind::Forward && first.givesInputGrad());
  if (!oneOfEach)
    return refuse("rank {} slots {} and {}: {} and {} cannot be joined, "
                  "expected one F and one B or D",
                  rank, i, i + 1, slotText(first), slotText(second));
  if (first.chunk() == second.chunk() &&
      first.microBatch() == second.microBatch())
    return refuse("rank {} slots {} and {}: {} and {} cannot be joined, as one "
                  "needs the other",
                  rank, i, i + 1, slotText(first), slotText(second));
  return std::nullopt;
}

std::optional<ScheduleFault> SlotIndex::addSlot(SlotPlace place) {
  const Slot slot = this->slot(place);
  if (slot.kind() == SlotKind::Optimizer)
    return std::nullopt;
  const bool parts[numParts] = {slot.kind() == SlotKind::Forward,
                                slot.givesInputGrad(), slot.endsMicroBatch()};
  for (Part part : {ForwardPart, InputPart, WeightPart}) {
    if (!parts[part])
      continue;
    std::int32_t &index =
        indices[cell({place.rank, slot.chunk()}, slot.microBatch(), part)];
    if (index != absent)
      return refuse("rank {} slot {} ({}) repeats slot {} ({}): F once, and "
                    "either D or B and W, per micro-batch and chunk",
                    place.rank, place.index, slotText(slot), index,
                    slotText(this->slot({place.rank, index})));
    index = static_cast<std::int32_t>(place.index);
  }
  return std::nullopt;
}

std::optional<ScheduleFault> SlotIndex::findMissing() const {
  static constexpr const char *names[numParts] = {
      "forward (F)", "input gradient (B or D)", "weight gradient (W or D)"};
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank) {
    for (std::int64_t chunk = 0; chunk < table.chunks(); ++chunk)
      for (std::int64_t j = 0; j < table.microBatches; ++j)
        for (Part part : {ForwardPart, InputPart, WeightPart})
          if (table.runsThrough(rank, chunk, j) &&
              indices[cell({rank, chunk}, j, part)] == absent)
            return refuse("rank {}: the {} of micro-batch {} on chunk {} is "
                          "missing",
                          rank, names[part], j, chunk);
    if (!lengthOfRow(rank) ||
        slot({rank, lengthOfRow(rank) - 1}).kind() != SlotKind::Optimizer)
      return refuse("rank {}: the row does not end with O, the optimizer",
                    rank);
  }
  return std::nullopt;
}

std::optional<ScheduleFault> SlotIndex::indexTable() {
  if (std::optional<ScheduleFault> found = checkSizes())
    return found;
  indices.assign(static_cast<std::size_t>(table.ranks() * table.chunks() *
                                          table.microBatches) *
                     numParts,
                 absent);
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    for (std::int64_t i = 0; i < lengthOfRow(rank); ++i) {
      const SlotPlace place{rank, i};
      if (std::optional<ScheduleFault> found = checkSlot(place))
        return found;
      if (std::optional<ScheduleFault> found = addSlot(place))
        return found;
    }
  // Only now is each second of a pair known to be a slot at all.
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    for (std::int64_t i = 0; i < lengthOfRow(rank); ++i)
      if (slot({rank, i}).joined())
        if (std::optional<ScheduleFault> found = checkPair({rank, i}))
          return found;
  return findMissing();
}

std::optional<SlotPlace> SlotIndex::consumerOf(SlotPlace place) const {
  const Slot slot = this->slot(place);
  if (slot.kind() != SlotKind::Forward && !slot.givesInputGrad())
    return std::nullopt;
  const StageAt stage = table.placement.at(place.rank, slot.chunk());
  const bool isForward = slot.kind() == SlotKind::Forward;
  const std::int64_t next = stage.stage + (isForward ? 1 : -1);
  if (next < 0 || next >= table.placement.stages())
    return std::nullopt;
  return find(table.placement.placeOf({stage.path, next}), slot.microBatch(),
              isForward ? ForwardPart : InputPart);
}

} // namespace heddle::detail
