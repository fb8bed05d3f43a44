#include "runtime/common/RangeLog.h"

#include <fmt/format.h>

namespace heddle::runtime {

bool RangeLog::open(const std::string &path, const Trace &trace) {
  file.reset(std::fopen(path.c_str(), "w"));
  if (!file)
    return false;
  fmt::print(file.get(), "{{\"version\": 1, \"rank\": {}, \"size\": {}",
             trace.rank, trace.size);
  const char *comma = ", \"streams\": [";
  for (const std::string &stream : trace.streams) {
    fmt::print(file.get(), "{}{}", comma, quoted(stream));
    comma = ", ";
  }
  comma = "], \"allocations\": [";
  for (const Trace::Allocation &allocation : trace.allocations) {
    fmt::print(file.get(), "{}{}", comma, quoted(allocation.name));
    comma = ", ";
  }
  fmt::print(file.get(), "]}}\n");
  return true;
}

bool RangeLog::close() {
  std::FILE *raw = file.release();
  const bool written = std::ferror(raw) == 0;
  return std::fclose(raw) == 0 && written;
}

void RangeLog::work(int stream, const char *label,
                    const std::vector<Range> &ranges) {
  std::string line =
      fmt::format("{{\"work\": {}, \"stream\": {}", quoted(label), stream);
  for (const bool writes : {false, true}) {
    line += writes ? "], \"writes\": [" : ", \"reads\": [";
    const char *comma = "";
    for (const Range &range : ranges)
      if (writes ? range.writes : range.reads) {
        line += fmt::format("{}[{}, {}, {}]", comma, range.allocation,
                            range.begin, range.bytes);
        comma = ", ";
      }
  }
  fmt::print(file.get(), "{}]}}\n", line);
}

void RangeLog::record(int stream, int event) {
  fmt::print(file.get(), "{{\"record\": {}, \"stream\": {}}}\n", event, stream);
}

void RangeLog::wait(int stream, int event) {
  fmt::print(file.get(), "{{\"wait\": {}, \"stream\": {}}}\n", event, stream);
}

} // namespace heddle::runtime
