#include "runtime/common/Races.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::runtime {

static void join(Races::Clock &into, const Races::Clock &other) {
  if (into.size() < other.size())
    into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i)
    into[i] = std::max(into[i], other[i]);
}

int Races::addStream(std::string name) {
  names.push_back(std::move(name));
  clocks.emplace_back();
  return int(names.size()) - 1;
}

Races::Clock &Races::current(int stream) {
  Clock &now = clocks[stream];
  if (stream != kHost)
    join(now, clocks[kHost]);
  if (now.size() < names.size())
    now.resize(names.size());
  return now;
}

Races::Clock Races::record(int stream) { return current(stream); }

void Races::wait(int stream, const Clock &event) {
  join(clocks[stream], event);
}

void Races::synchronize(int stream) { join(clocks[kHost], clocks[stream]); }

bool Races::before(const Party &party, const Clock &now, int stream) const {
  return party.stream < 0 || party.stream == stream ||
         now[party.stream] >= party.time;
}

void Races::report(const Party &me, bool writes, const Party &other,
                   bool otherWrites, std::string &found) const {
  if (found.empty())
    found = fmt::format("{} on stream {} {} what {} on stream {} {}; no event "
                        "orders them",
                        me.what, names[me.stream], writes ? "writes" : "reads",
                        other.what, names[other.stream],
                        otherWrites ? "writes" : "reads");
}

/// Makes `at` a boundary if it is inside an interval.
void Races::cut(uintptr_t at) {
  auto it = past.upper_bound(at);
  if (it == past.begin())
    return;
  --it;
  if (it->first == at || it->second.end <= at)
    return;
  Interval tail = it->second;
  it->second.end = at;
  past.emplace(at, std::move(tail));
}

void Races::read(uintptr_t begin, uintptr_t end, const Party &me,
                 const Clock &now, std::string &found) {
  uintptr_t at = begin;
  for (auto it = past.lower_bound(begin); at < end; ++it) {
    const uintptr_t next = it == past.end() ? end : std::min(it->first, end);
    if (at < next) { // bytes nobody touched before
      it = past.emplace_hint(it, at, Interval{next, {}, {me}});
      at = next;
      continue;
    }
    Interval &interval = it->second;
    if (!before(interval.writer, now, me.stream))
      report(me, false, interval.writer, true, found);
    // A later write that is ordered after me is ordered after these too.
    std::erase_if(interval.readers, [&](const Party &party) {
      return before(party, now, me.stream);
    });
    interval.readers.push_back(me);
    at = interval.end;
  }
}

void Races::write(uintptr_t begin, uintptr_t end, const Party &me,
                  const Clock &now, std::string &found) {
  auto it = past.lower_bound(begin);
  while (it != past.end() && it->first < end) {
    const Interval &interval = it->second;
    if (!before(interval.writer, now, me.stream))
      report(me, true, interval.writer, true, found);
    for (const Party &reader : interval.readers)
      if (!before(reader, now, me.stream))
        report(me, true, reader, false, found);
    it = past.erase(it);
  }
  past.emplace_hint(it, begin, Interval{end, me, {}});
}

std::string Races::note(int stream, const char *what,
                        const heddle_rt_access *accesses, size_t count) {
  Clock &now = current(stream);
  const Party me{stream, ++now[stream], what};
  std::string found;
  // Reads first: a write of the same work to the same bytes must not hide whom
  // it read from.
  for (int writes = 0; writes < 2; ++writes)
    for (size_t i = 0; i < count; ++i) {
      if ((accesses[i].writes != 0) != (writes != 0) || accesses[i].bytes <= 0)
        continue;
      const auto begin = reinterpret_cast<uintptr_t>(accesses[i].begin);
      const uintptr_t end = begin + uintptr_t(accesses[i].bytes);
      cut(begin);
      cut(end);
      writes ? write(begin, end, me, now, found)
             : read(begin, end, me, now, found);
    }
  return found;
}

void Races::forget(const void *begin, int64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t end = first + uintptr_t(bytes);
  cut(first);
  cut(end);
  past.erase(past.lower_bound(first), past.lower_bound(end));
}

} // namespace heddle::runtime
