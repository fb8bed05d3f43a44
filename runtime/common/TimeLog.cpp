#include "runtime/common/TimeLog.h"

#include "runtime/common/Status.h"
#include "runtime/common/Trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace heddle::runtime {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

static int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

heddle_rt_status TimeLog::open(int32_t ofRank, int32_t ofSize) {
  const char *folder = std::getenv("HEDDLE_TIMELINE");
  if (!folder || !*folder)
    return HEDDLE_RT_OK;
  rank = ofRank, size = ofSize;
  path = fmt::format("{}/times.{}.json", folder, rank);
  if (!File(std::fopen(path.c_str(), "w"), std::fclose)) {
    const int why = errno;
    return invalid("environment variable HEDDLE_TIMELINE: cannot write {}: {}",
                   std::exchange(path, ""), std::strerror(why));
  }
  return HEDDLE_RT_OK;
}

void TimeLog::begin(int64_t ofStep, const char *operation, const char *label,
                    const std::string &track) {
  if (ofStep != step)
    pieces.clear();
  step = ofStep;
  pieces.push_back({operation, label, track, 0, 0});
  pieces.back().begin = now();
}

void TimeLog::end() { pieces.back().end = now(); }

heddle_rt_status TimeLog::close() {
  if (!isOpen())
    return HEDDLE_RT_OK;
  File file(std::fopen(path.c_str(), "w"), std::fclose);
  std::string text =
      fmt::format("{{\"version\": 1, \"rank\": {}, \"size\": {}, \"step\": {}, "
                  "\"pieces\": [",
                  rank, size, step);
  const char *comma = "\n";
  for (const Piece &piece : pieces) {
    text += fmt::format("{}[{}, {}, {}, {}, {}]", comma,
                        quoted(piece.operation), quoted(piece.label),
                        quoted(piece.track), piece.begin, piece.end);
    comma = ",\n";
  }
  text += "\n]}\n";
  if (!file ||
      std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fclose(file.release()) != 0)
    return invalid("cannot write {}: {}", path, std::strerror(errno));
  return HEDDLE_RT_OK;
}

} // namespace heddle::runtime
