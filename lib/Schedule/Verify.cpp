#include "heddle/Schedule/Verify.h"

#include "SlotIndex.h"
#include "WaitCycle.h"

#include <fmt/format.h>

namespace heddle {

namespace {

std::string describe(const detail::SlotIndex &index, SlotPlace place) {
  return fmt::format("rank {} slot {} ({})", place.rank, place.index,
                     slotText(index.slot(place)));
}

std::string describeCycle(const detail::SlotIndex &index,
                          const std::vector<ScheduleWait> &cycle) {
  // A reader follows a few links; the whole cycle is in the fault.
  constexpr std::size_t shown = 8;
  std::string text =
      cycle.size() == 1
          ? std::string("schedule: stuck: ")
          : fmt::format("schedule: stuck in a circle of {} waits: ",
                        cycle.size());
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    if (i == shown) {
      text += fmt::format("; and so on, {} more waits", cycle.size() - shown);
      break;
    }
    const ScheduleWait &wait = cycle[i];
    const SlotPlace next = cycle[(i + 1) % cycle.size()].waiting;
    text += fmt::format("{}{} waits for {}", i ? "; " : "",
                        describe(index, wait.waiting),
                        describe(index, wait.needed));
    if (next != wait.needed)
      text += fmt::format(", which comes after {}",
                          cycle.size() == 1 ? std::string("it")
                                            : describe(index, next));
  }
  return text + "; move what is waited for before what it waits behind";
}

} // namespace

std::optional<ScheduleFault> findScheduleFault(const ScheduleTable &table) {
  const detail::SlotIndex index(table);
  if (index.shapeFault())
    return index.shapeFault();
  const std::vector<std::int64_t> heads =
      detail::walk(table, index, [](SlotPlace) {});
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank)
    if (heads[static_cast<std::size_t>(rank)] != index.lengthOfRow(rank)) {
      std::vector<ScheduleWait> cycle =
          detail::findShortestCycle(table, index, heads);
      std::string message = describeCycle(index, cycle);
      return ScheduleFault{std::move(message), std::move(cycle)};
    }
  return std::nullopt;
}

Result<void> verifySchedule(const ScheduleTable &table) {
  if (std::optional<ScheduleFault> fault = findScheduleFault(table))
    return Error{std::move(fault->message)};
  return {};
}

} // namespace heddle
