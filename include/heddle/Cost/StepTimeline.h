//===- StepTimeline.h - When the parts of a step run ------------*- C++ -*-===//
//
// What StepTimes::simulate adds up, part by part: for people, and for traces.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_STEPTIMELINE_H
#define HEDDLE_COST_STEPTIMELINE_H

#include "heddle/Cost/MemoryEstimate.h"
#include "heddle/Cost/StepTime.h"
#include "heddle/Schedule/Simulate.h"

#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Of what a task within a slot is.
enum class SlotPart : std::uint8_t {
  Embedding,
  Attention,
  Mlp,
  Again, ///< of forward, before backward
  Head,
  Parameters, ///< gathered
  Gradients,  ///< summed
  Saved,      ///< to the host, or back
};
std::string_view slotPartName(SlotPart part); ///< "attention"

/// A stream for each axis, one for computation, and one for copies to the host
/// and back.
inline constexpr int computeStream = timeAxes;
inline constexpr int hostStream = timeAxes + 1;
inline constexpr int numStreams = timeAxes + 2;
std::string_view streamName(int stream); ///< "compute", "tp"

/// A task on a stream, in seconds from the beginning of its slot.
struct SlotTask {
  int stream = computeStream;
  SlotPart part = SlotPart::Attention;
  std::int64_t layer = -1; ///< of the chunk's; -1: none
  TimeSpan time;

  std::string name() const; ///< "attention 3"
};

/// What runs within the slots of one kind of one chunk. The first forward and
/// the last backward of a step may take longer than these.
struct SlotTasks {
  std::int64_t place = 0, chunk = 0;
  SlotKind kind = SlotKind::Forward;
  std::vector<SlotTask> tasks;
};

/// What a place does behind its slots. A span of no length: nothing.
struct PlaceEnd {
  TimeSpan sums;    ///< of gradients along dp that no slot hides
  TimeSpan norm;    ///< for which all places wait for each other
  TimeSpan gathers; ///< of parameters along dp, behind the optimizer
};

/// Seconds from the beginning of the step.
struct StepTimeline {
  ScheduleTable table;
  ScheduleTiming timing; ///< O is when a place's optimizer runs
  std::vector<PlaceEnd> ends;
  std::vector<SlotTasks> slots;
  double seconds = 0; ///< StepTime::seconds
};

/// The trace as JSON that Perfetto reads: a process for each place over pp, in
/// it a track for its slots, one for each rank that it sends to (as
/// writeTimeline of a schedule has them), and one for each stream that is used.
/// What runs within slots is left out where all tasks together are more than
/// \p mostTasks.
std::string writeTimeline(const StepTimeline &timeline,
                          std::int64_t mostTasks = 200'000);

/// Bytes of a place at one moment; between two they change evenly.
struct MemoryPoint {
  double seconds = 0;
  PlaceMemory memory;
};

/// Memory of a place as its slots run, from its estimate at the peak: a set of
/// saved values is filled in F and emptied in D or W; what backward needs
/// beside them is there in B, D and W. Nowhere more than \p peak, and as much
/// where most sets are held. What forward needs for a time is not in it: less
/// than backward's.
std::vector<MemoryPoint> memoryOverTime(const PlaceMemory &peak,
                                        const std::vector<Slot> &row,
                                        const std::vector<TimeSpan> &slots);

} // namespace heddle

#endif // HEDDLE_COST_STEPTIMELINE_H
