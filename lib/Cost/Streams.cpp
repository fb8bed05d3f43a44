#include "Streams.h"

#include "heddle/Support/Check.h"

#include <algorithm>
#include <vector>

using namespace heddle;
using namespace heddle::detail;

StreamTiming heddle::detail::runStreams(std::span<const StreamTask> tasks,
                                        std::vector<TimeSpan> *spans) {
  StreamTiming timing;
  std::vector<double> ends(tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const StreamTask &task = tasks[i];
    double &stream = timing.ended[static_cast<std::size_t>(task.stream)];
    double start = stream;
    int waitedFor = -1;
    for (int need : task.needs) {
      HEDDLE_CHECK(need < static_cast<int>(i),
                   "a task waits for one behind it");
      if (need < 0 || ends[static_cast<std::size_t>(need)] <= start)
        continue;
      start = ends[static_cast<std::size_t>(need)];
      waitedFor = tasks[static_cast<std::size_t>(need)].stream;
    }
    if (task.stream == computeStream && waitedFor >= 0)
      timing.exposed[static_cast<std::size_t>(waitedFor)] += start - stream;
    stream = ends[i] = start + task.seconds;
    if (spans)
      spans->push_back({start, ends[i]});
    if (i == 0 || ends[i] > timing.seconds) {
      timing.last = task.stream;
      timing.seconds = ends[i];
    }
  }
  if (timing.last != computeStream)
    timing.exposed[static_cast<std::size_t>(timing.last)] +=
        timing.seconds - timing.ended[computeStream];
  return timing;
}
