#include "heddle/Schedule/SavedSets.h"

#include "FreeIndices.h"

namespace heddle {

static bool begins(SetSpan span, Slot slot) {
  return span == SetSpan::InputGradToWeightGrad
             ? slot.givesInputGrad()
             : slot.kind() == SlotKind::Forward;
}

static bool ends(SetSpan span, Slot slot) {
  return span == SetSpan::ForwardToInputGrad ? slot.givesInputGrad()
                                             : slot.endsMicroBatch();
}

RankSets assignSets(const ScheduleTable &table, std::int64_t rank, SetSpan span,
                    const std::function<SetUse(std::int64_t chunk)> &useOf) {
  constexpr std::int32_t none = -1;
  const std::vector<Slot> &row = table.rows[static_cast<std::size_t>(rank)];
  detail::FreeIndices free;
  std::vector<std::int32_t> held( // [chunk][micro-batch]
      static_cast<std::size_t>(table.chunks() * table.microBatches), none);
  const auto heldBy = [&](Slot slot) -> std::int32_t & {
    return held[static_cast<std::size_t>(slot.chunk() * table.microBatches +
                                         slot.microBatch())];
  };
  RankSets sets;
  for (std::size_t i = 0; i < row.size();) {
    const std::size_t end = i + (row[i].joined() ? 2 : 1);
    for (std::size_t k = i; k < end; ++k)
      if (begins(span, row[k]) && useOf(row[k].chunk()) != SetUse::None)
        heldBy(row[k]) = free.take();
    for (std::size_t k = i; k < end; ++k)
      sets.slots.push_back(
          row[k].kind() == SlotKind::Optimizer ? none : heldBy(row[k]));
    for (; i < end; ++i) {
      std::int32_t &set = heldBy(row[i]);
      if (set == none ||
          (!ends(span, row[i]) && useOf(row[i].chunk()) == SetUse::Span))
        continue;
      free.give(set);
      set = none;
    }
  }
  sets.count = free.count();
  return sets;
}

RankSets assignSets(const ScheduleTable &table, std::int64_t rank,
                    SetSpan span) {
  return assignSets(table, rank, span,
                    [](std::int64_t) { return SetUse::Span; });
}

std::vector<std::int32_t> mostInFlight(const ScheduleTable &table) {
  std::vector<std::int32_t> most;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    most.push_back(assignSets(table, rank, SetSpan::ForwardToWeightGrad).count);
  return most;
}

} // namespace heddle
