//===- Flight.h - What a rank does, for who watches it ----------*- C++ -*-===//
//
// Who starts ranks makes a folder and names it in an environment variable. Each
// rank maps a file there, of this form, and writes into it by plain stores how
// far it is and its last operations. The file outlives the process however that
// ends. One rank writes, others only read: a reader may see an operation half
// written, whose `sequence` is then not the one that it expects.
//
// All times are nanoseconds. runtime/common/README.md has the form in words.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_FLIGHT_H
#define HEDDLE_RUNTIME_FLIGHT_H

#include <atomic>
#include <cstdint>
#include <string>

namespace heddle::runtime {

inline constexpr const char *kFlightVariable = "HEDDLE_FLIGHT";
/// How many times the run has been started again; faults are injected in its
/// first life only.
inline constexpr const char *kRestartsVariable = "HEDDLE_RESTARTS";

/// The name of a rank's page in the folder.
inline std::string flightName(int64_t rank) {
  return "rank-" + std::to_string(rank) + ".flight";
}
/// The name of the file that says which signal ended a rank's process, in
/// decimal.
inline std::string deathName(int64_t rank) {
  return "rank-" + std::to_string(rank) + ".signal";
}

/// What part of a run a rank is in.
enum class Section : uint32_t {
  Start,  ///< joins the others, takes memory
  Load,   ///< initial values, or a checkpoint
  Step,   ///< a step of training
  Save,   ///< between steps: checkpoints, checks
  Finish, ///< behind the last step
};
inline constexpr uint32_t kSections = uint32_t(Section::Finish) + 1;

/// A plain store and load of a word that another process looks at.
template <class T>
using Shared = std::atomic<T>;

struct FlightOperation {
  static constexpr int kName = 72;
  Shared<uint64_t> sequence; ///< from 1; 0 while it is written
  int64_t step;
  int64_t elements; ///< of a collective, per rank
  int64_t call;     ///< its number in the communicator, from 1; 0: none
  int32_t comm;     ///< index, -1: none
  int32_t peer;     ///< of a send or receive, its place; -1: none
  int32_t stream;
  char dtype[8];    ///< its name; "": moves nothing
  char name[kName]; ///< ends with 0
};

/// Ranks that gave the same `split` and `color` are in one communicator.
struct FlightComm {
  static constexpr int kAxis = 40;
  char axis[kAxis];
  int32_t split; ///< how many splits came before
  int32_t color, place, size;
  Shared<int64_t> calls; ///< collectives queued so far
};

/// A finished step. `compute` is processor time of the rank's own thread
/// outside of waits for peers: what other processes take does not count.
struct FlightStep {
  int64_t step, compute, wait, wall;
};

struct FlightPage {
  static constexpr uint64_t kMagic = 0x31746867696c6665; // "eflight1"
  static constexpr int kComms = 64, kSteps = 64, kOperations = 256;
  static constexpr int kPending = 16;

  Shared<uint64_t> magic; ///< written last of what does not change
  int32_t rank, size, process;
  Shared<int32_t> role; ///< ranks of one role do the same work; a stage

  Shared<uint64_t> sequence; ///< operations begun
  Shared<int64_t> step;
  Shared<uint32_t> section;
  Shared<uint32_t> waiting; ///< 1 while it waits for its peers
  Shared<uint32_t> mayPass; ///< 1: its failure may not come again

  /// Where it waits for long: places of a communicator from which a message, or
  /// its receipt, is missing; how many, and the first ones.
  Shared<int32_t> pendingComm, pendingCount;
  Shared<int32_t> pending[kPending];

  Shared<int32_t> comms;
  FlightComm comm[kComms];
  Shared<int64_t> steps;                   ///< finished
  FlightStep finished[kSteps];             ///< the latest, by number modulo
  FlightOperation operations[kOperations]; ///< by sequence modulo
};

} // namespace heddle::runtime

#endif
