#include "heddle/Schedule/Timeline.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

namespace heddle {

namespace {

/// A slot or a joined pair, as it is shown.
struct Step {
  std::string text;
  Slot first;
  TimeSpan time;
};

std::vector<Step> stepsOf(const ScheduleTable &table,
                          const ScheduleTiming &timing, std::size_t rank) {
  std::vector<Step> steps;
  const std::vector<Slot> &row = table.rows[rank];
  for (std::size_t i = 0; i < row.size(); ++i) {
    const TimeSpan time = timing.slots[rank][i];
    if (row[i].joined()) {
      steps.push_back(
          {slotText(row[i]) + "+" + slotText(row[i + 1]), row[i], time});
      ++i;
    } else {
      steps.push_back({slotText(row[i]), row[i], time});
    }
  }
  return steps;
}

class Drawing {
public:
  Drawing(const ScheduleTable &table, const ScheduleTiming &timing,
          std::int64_t maxColumns)
      : timing(timing), head(fmt::format("rank {} ", table.ranks() - 1).size()),
        room(std::max<std::int64_t>(
            maxColumns - static_cast<std::int64_t>(head), 1)) {
    for (std::size_t rank = 0; rank < table.rows.size(); ++rank)
      steps.push_back(stepsOf(table, timing, rank));
  }

  std::string draw() const;

private:
  double columnsPerSecond() const;
  std::string drawSlots(std::size_t rank, double scale) const;
  std::string drawLetters(std::size_t rank) const;

  const ScheduleTiming &timing;
  const std::size_t head; ///< columns of "rank 12 "
  const std::int64_t room;
  std::vector<std::vector<Step>> steps; ///< [rank]
};

/// As few as let each slot hold its text and a blank.
double Drawing::columnsPerSecond() const {
  double scale = 0;
  for (const std::vector<Step> &row : steps)
    for (const Step &step : row)
      if (step.time.length() > 0)
        scale = std::max(scale, static_cast<double>(step.text.size() + 1) /
                                    step.time.length());
  return scale;
}

std::string Drawing::drawSlots(std::size_t rank, double scale) const {
  const auto column = [&](double time) {
    return static_cast<std::size_t>(std::lround(time * scale));
  };
  std::string line(column(timing.makespan), '.');
  for (const Step &step : steps[rank]) {
    const std::size_t begin = column(step.time.start),
                      end = column(step.time.end);
    if (begin == end)
      continue;
    std::string text = step.text;
    text.resize(end - begin - 1, '-');
    line.replace(begin, end - begin, text + " ");
  }
  return line;
}

std::string Drawing::drawLetters(std::size_t rank) const {
  const std::size_t columns = static_cast<std::size_t>(room);
  const double width = timing.makespan / static_cast<double>(columns);
  // Per column, how long each letter runs in it; the last is idle.
  constexpr std::string_view letters = "FBWDOfbwd";
  std::vector<std::array<double, letters.size()>> shares(columns);
  for (const Step &step : steps[rank]) {
    char letter = letterOf(step.first.kind());
    if (step.first.chunk())
      letter = static_cast<char>(std::tolower(letter));
    const std::size_t which = letters.find(letter);
    for (std::size_t i = static_cast<std::size_t>(step.time.start / width);
         i < columns && static_cast<double>(i) * width < step.time.end; ++i)
      shares[i][which] +=
          std::min(step.time.end, static_cast<double>(i + 1) * width) -
          std::max(step.time.start, static_cast<double>(i) * width);
  }
  std::string line;
  for (const auto &share : shares) {
    double idle = width;
    for (double of : share)
      idle -= of;
    const auto most = std::ranges::max_element(share);
    line += idle > *most
                ? '.'
                : letters[static_cast<std::size_t>(most - share.begin())];
  }
  return line;
}

std::string Drawing::draw() const {
  std::string text;
  const double scale = columnsPerSecond();
  const bool hasRoom =
      timing.makespan * scale <= static_cast<double>(room) + 0.5;
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    std::string line =
        fmt::format("{:<{}}", fmt::format("rank {}", rank), head);
    if (hasRoom)
      line += drawSlots(rank, scale);
    else if (timing.makespan > 0)
      line += drawLetters(rank);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text + fmt::format("{:g} s, bubble {:.1f} % of the work\n",
                            timing.makespan, 100 * timing.bubble());
}

/// Collects events; pids are ranks, track 0 is slots, track n + 1 is rank n.
class Trace {
public:
  void name(std::int64_t rank, std::int64_t track, std::string_view name) {
    add(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
        rank, track, name);
  }
  void nameRank(std::int64_t rank) {
    add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {} of pp"}}}})",
        rank, rank);
  }
  void span(std::int64_t rank, std::int64_t track, std::string_view name,
            TimeSpan time, std::int64_t stage, std::int64_t microBatch) {
    add(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
        R"("args":{{"stage":{},"micro_batch":{}}}}})",
        name, rank, track, time.start * microseconds,
        time.length() * microseconds, stage, microBatch);
  }
  std::string print() const {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text + "\n]}\n";
  }

  void span(std::int64_t rank, std::int64_t track, std::string_view name,
            TimeSpan time) {
    add(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
        name, rank, track, time.start * microseconds,
        time.length() * microseconds);
  }

private:
  static constexpr double microseconds = 1e6;
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
    text += text.empty() ? "" : ",\n";
    text += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  std::string text;
};

} // namespace

std::string drawSchedule(const ScheduleTable &table,
                         const ScheduleTiming &timing,
                         std::int64_t maxColumns) {
  return Drawing(table, timing, maxColumns).draw();
}

std::string writeTimeline(const ScheduleTable &table,
                          const ScheduleTiming &timing,
                          const std::vector<TrackSpan> &more) {
  Trace trace;
  for (std::int64_t rank = 0; rank < table.ranks(); ++rank) {
    trace.nameRank(rank);
    trace.name(rank, 0, "compute");
    for (const Step &step :
         stepsOf(table, timing, static_cast<std::size_t>(rank)))
      trace.span(rank, 0, step.text, step.time,
                 table.placement.at(rank, step.first.chunk()).stage,
                 step.first.microBatch());
  }
  std::set<std::pair<std::int64_t, std::int64_t>> links;
  for (const TimedTransfer &transfer : timing.transfers) {
    const auto [from, to, time] = transfer;
    if (links.insert({from.rank, to.rank}).second)
      trace.name(from.rank, to.rank + 1, fmt::format("to rank {}", to.rank));
    const Slot slot = table.rows[static_cast<std::size_t>(from.rank)]
                                [static_cast<std::size_t>(from.index)];
    trace.span(from.rank, to.rank + 1, slotText(slot.withJoined(false)), time,
               table.placement.at(from.rank, slot.chunk()).stage,
               slot.microBatch());
  }
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> tracks;
  for (const TrackSpan &span : more) {
    const auto [found, isNew] = tracks.try_emplace(
        {span.rank, span.track},
        span.track == "compute" ? 0 : table.ranks() + 1 + std::ssize(tracks));
    if (isNew && found->second != 0)
      trace.name(span.rank, found->second, span.track);
    trace.span(span.rank, found->second, span.name, span.time);
  }
  return trace.print();
}

} // namespace heddle
