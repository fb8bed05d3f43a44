//===- Streams.h - Tasks on streams, run in time ----------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_STREAMS_H
#define HEDDLE_LIB_COST_STREAMS_H

#include "heddle/Cost/StepTimeline.h"

#include <array>
#include <span>
#include <vector>

namespace heddle::detail {

/// A stream runs its tasks one after the other, in the order of the list.
struct StreamTask {
  int stream = computeStream;
  double seconds = 0;
  /// What must have ended before: places in the list, before this one.
  static constexpr std::size_t mostNeeds = 4;
  std::array<int, mostNeeds> needs = {-1, -1, -1, -1};
  /// For people: of which part, and of which of the chunk's layers; -1: none.
  SlotPart part = SlotPart::Attention;
  std::int16_t layer = -1;
};

struct StreamTiming {
  double seconds = 0;                        ///< until the last task has ended
  std::array<double, numStreams> ended = {}; ///< until each stream's last
  /// In which nothing is computed, by the stream of what is waited for; behind
  /// the last computation, of what ends last.
  std::array<double, numStreams> exposed = {};
  int last = computeStream; ///< to end
};

/// Runs all. A task starts when its stream and its needs have ended, so that no
/// task that takes longer lets another end earlier. (Tasks that slow each other
/// while they overlap would not have this property, and more bandwidth could
/// make a plan slower: SlotBuilder counts what they cost beforehand.)
/// \p spans: when each task runs, where asked for.
StreamTiming runStreams(std::span<const StreamTask> tasks,
                        std::vector<TimeSpan> *spans = nullptr);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_STREAMS_H
