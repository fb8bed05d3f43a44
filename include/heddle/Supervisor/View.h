//===- View.h - What a supervisor sees of a run ---------------------------===//
//
// Plain values, read from the pages that ranks write (heddle/Runtime/Flight.h)
// and from the operating system at one moment. Everything that judges a run
// works on them, with the time as a number, so that tests need no process.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPERVISOR_VIEW_H
#define HEDDLE_SUPERVISOR_VIEW_H

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::supervisor {

/// As heddle::runtime::Section.
enum class Section { Start, Load, Step, Save, Finish };
inline constexpr int kSections = 5;
const char *nameOf(Section section);

enum class Process {
  Unknown, ///< has not told of itself yet
  Running,
  Stopped, ///< by a signal or a debugger
  Gone,
};

struct Operation {
  uint64_t sequence = 0; ///< from 1
  int64_t step = 0;
  std::string name;
  int comm = -1;    ///< index into RankView::comms, -1: none
  int64_t call = 0; ///< its number among the communicator's collectives
  int peer = -1;    ///< of a message: a place in the communicator
  int64_t elements = 0;
  std::string dtype;
};

struct CommView {
  std::string axis;
  int split = 0, color = 0; ///< equal on the ranks of one communicator
  int place = 0, size = 1;
  int64_t calls = 0; ///< collectives begun
};

/// A finished step: seconds.
struct StepTime {
  int64_t step = 0;
  double compute = 0; ///< processor time outside of waits for peers
  double wait = 0, wall = 0;
};

struct RankView {
  int rank = 0, role = 0;
  int64_t process = 0; ///< its number; 0: not known
  Process state = Process::Unknown;
  bool ended = false;      ///< it has left word of how it ended
  bool failed = false;     ///< and not well
  bool mayPass = false;    ///< its failure may not come again
  int signal = 0;          ///< that ended it, where that is known
  bool signalSent = false; ///< a launcher ended it so
  double died = 0;         ///< when, where `signal` is known

  uint64_t sequence = 0; ///< operations begun
  int64_t step = 0;
  Section section = Section::Start;
  bool waiting = false;     ///< for peers
  int pendingComm = -1;     ///< where it waits for long
  std::vector<int> pending; ///< places; the first ones of `pendingCount`
  int pendingCount = 0;

  std::vector<CommView> comms;
  std::vector<Operation> operations; ///< the last ones, oldest first
  std::vector<StepTime> steps;       ///< the last finished ones, oldest first

  const Operation *last() const {
    return operations.empty() ? nullptr : &operations.back();
  }
};

} // namespace heddle::supervisor

#endif
