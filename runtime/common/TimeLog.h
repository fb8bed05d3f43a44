//===- TimeLog.h - When the pieces of work of a rank ran --------*- C++ -*-===//
//
// Of the last step that a rank finished: of each piece of work what it was, its
// label, the track that it is drawn on (a stream, or the axis of a collective)
// and when it ran. One JSON file per rank; `heddle report` draws it beside the
// estimate.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_COMMON_TIMELOG_H
#define RUNTIME_COMMON_TIMELOG_H

#include "heddle/Runtime/heddle_rt.h"
#include "runtime/common/Flight.h"

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::runtime {

class TimeLog {
public:
  /// Where the environment names a folder in HEDDLE_TIMELINE. The file is
  /// written by `close`; that it can be is seen here.
  heddle_rt_status open(int32_t rank, int32_t size);
  bool isOpen() const { return !path.empty(); }
  heddle_rt_status close();

  /// A piece of work, from its beginning to its end.
  class Span {
  public:
    Span(TimeLog &log, const Flight &flight, const char *operation,
         const char *label, const std::string &track)
        : log(log.isOpen() && flight.currentStep() >= 0 ? &log : nullptr) {
      if (this->log)
        this->log->begin(flight.currentStep(), operation, label, track);
    }
    ~Span() {
      if (log)
        log->end();
    }
    Span(const Span &) = delete;
    Span &operator=(const Span &) = delete;

  private:
    TimeLog *log;
  };

private:
  struct Piece {
    const char *operation;
    std::string label, track;
    int64_t begin, end; ///< ns of the machine's clock
  };

  void begin(int64_t step, const char *operation, const char *label,
             const std::string &track);
  void end();

  std::string path;
  int32_t rank = 0, size = 1;
  int64_t step = -1;
  std::vector<Piece> pieces; ///< of that step
};

} // namespace heddle::runtime

#endif
