#include "tools/heddle/Report.h"

#include <cmath>
#include <set>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

double tool::roundedSeconds(double seconds) {
  constexpr double nanoseconds = 1e9;
  return std::round(seconds * nanoseconds) / nanoseconds;
}

static json slotsJson(const StepTimeline &timeline, std::size_t place) {
  json slots = json::array();
  for (std::size_t i = 0; i < timeline.table.rows[place].size(); ++i) {
    const Slot slot = timeline.table.rows[place][i];
    const TimeSpan time = timeline.timing.slots[place][i];
    const StageAt at = timeline.table.placement.at(
        static_cast<std::int64_t>(place), slot.chunk());
    slots.push_back({slotText(slot), std::string(1, letterOf(slot.kind())),
                     slot.chunk(), slot.microBatch(), at.stage,
                     roundedSeconds(time.start), roundedSeconds(time.end)});
  }
  return slots;
}

static json endsJson(const PlaceEnd &end) {
  json ends = json::array();
  const std::string dp(timeAxisName(TimeAxis::Dp));
  const std::string compute(streamName(computeStream));
  for (const auto &[track, name, time] : {std::tuple{dp, "gradients", end.sums},
                                          {compute, "norm", end.norm},
                                          {dp, "parameters", end.gathers}})
    if (time.length() > 0)
      ends.push_back(
          {track, name, roundedSeconds(time.start), roundedSeconds(time.end)});
  return ends;
}

static json tasksJson(const StepTimeline &timeline) {
  json all = json::array();
  for (const SlotTasks &slot : timeline.slots) {
    json tasks = json::array();
    for (const SlotTask &task : slot.tasks)
      tasks.push_back({streamName(task.stream), task.name(),
                       roundedSeconds(task.time.start),
                       roundedSeconds(task.time.end)});
    all.push_back({{"place", slot.place},
                   {"chunk", slot.chunk},
                   {"kind", std::string(1, letterOf(slot.kind))},
                   {"tasks", std::move(tasks)}});
  }
  return all;
}

/// "compute", the streams that are used, "to rank 1".
static json tracksOf(const StepTimeline &timeline, std::int64_t place) {
  std::set<int> streams;
  for (const SlotTasks &slot : timeline.slots)
    if (slot.place == place)
      for (const SlotTask &task : slot.tasks)
        streams.insert(task.stream);
  const PlaceEnd &end = timeline.ends[static_cast<std::size_t>(place)];
  if (end.sums.length() + end.gathers.length() > 0)
    streams.insert(static_cast<int>(TimeAxis::Dp));
  streams.erase(computeStream);
  json tracks = {streamName(computeStream)};
  for (int stream : streams)
    tracks.push_back(streamName(stream));
  std::set<std::int64_t> links;
  for (const TimedTransfer &transfer : timeline.timing.transfers)
    if (transfer.from.rank == place)
      links.insert(transfer.to.rank);
  for (std::int64_t to : links)
    tracks.push_back(fmt::format("to rank {}", to));
  return tracks;
}

json tool::timelineJson(const StepTimeline &timeline) {
  json places = json::array(), slots = json::array(), ends = json::array(),
       transfers = json::array();
  for (std::int64_t place = 0; place < timeline.table.ranks(); ++place) {
    places.push_back({{"name", fmt::format("rank {} of pp", place)},
                      {"tracks", tracksOf(timeline, place)}});
    slots.push_back(slotsJson(timeline, static_cast<std::size_t>(place)));
    ends.push_back(endsJson(timeline.ends[static_cast<std::size_t>(place)]));
  }
  for (const TimedTransfer &transfer : timeline.timing.transfers) {
    const Slot slot =
        timeline.table.rows[static_cast<std::size_t>(transfer.from.rank)]
                           [static_cast<std::size_t>(transfer.from.index)];
    transfers.push_back({transfer.from.rank, transfer.to.rank,
                         slotText(slot.withJoined(false)),
                         roundedSeconds(transfer.time.start),
                         roundedSeconds(transfer.time.end)});
  }
  return {{"seconds", timeline.seconds}, {"places", std::move(places)},
          {"slots", std::move(slots)},   {"transfers", std::move(transfers)},
          {"ends", std::move(ends)},     {"tasks", tasksJson(timeline)}};
}
