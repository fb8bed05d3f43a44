// When each slot of a table runs, under given times.

#ifndef HEDDLE_SCHEDULE_SIMULATE_H
#define HEDDLE_SCHEDULE_SIMULATE_H

#include "heddle/Schedule/Table.h"
#include "heddle/Schedule/Verify.h"

#include <vector>

namespace heddle {

/// How long one micro-batch takes on one chunk, in seconds. D takes as long as
/// B and W; a joined pair, as long as its two slots, less what one waits while
/// the other runs.
struct ChunkTimes {
  double forward = 1;
  double inputGrad = 1;
  double weightGrad = 1;
  /// Of F, and of B and D, in which a device waits for others: in a joined pair
  /// the other slot runs meanwhile.
  double forwardWaits = 0;
  double backwardWaits = 0;

  double of(SlotKind kind) const;
  double waitsOf(SlotKind kind) const; ///< of F, B and D; W: 0
};

/// What the first F and the last D or W of a chunk take more than others: what
/// is done once in a step.
struct ChunkEdges {
  double firstForward = 0;
  double lastBackward = 0;
};

struct ScheduleTimes {
  std::vector<std::vector<ChunkTimes>> chunks; ///< [rank][chunk]
  std::vector<std::vector<ChunkEdges>> edges;  ///< the same; empty: none
  double transfer = 0;  ///< one activation or gradient between two ranks
  double optimizer = 0; ///< O
  /// Whether the slots of a joined pair run one after the other, as emitted
  /// programs do, each when what it needs is there. Else they run interleaved,
  /// as papers have it: both begin together and end together, and one computes
  /// while the other waits.
  bool joinedInTurn = false;

  /// The same on each rank and chunk.
  static ScheduleTimes equal(const Placement &placement, ChunkTimes times = {},
                             double transfer = 0);
};

struct TimeSpan {
  double start = 0;
  double end = 0;

  double length() const { return end - start; }
};

/// An activation or gradient on its way to another rank.
struct TimedTransfer {
  SlotPlace from; ///< the slot that made it
  SlotPlace to;   ///< the slot that needs it
  TimeSpan time;
};

struct RankTiming {
  /// From the start of the first slot to the end of the last one before O.
  TimeSpan span;
  double busy = 0;      ///< of that, how long slots run
  double optimizer = 0; ///< how long O runs

  double idleWithin() const { return span.length() - busy; }
};

struct ScheduleTiming {
  std::vector<std::vector<TimeSpan>> slots; ///< [rank][index]
  std::vector<TimedTransfer> transfers;     ///< by end of the slot that made it
  std::vector<RankTiming> ranks;
  double makespan = 0; ///< until the last rank's O has ended

  /// Idle time of all ranks over their busy time.
  double bubble() const;
  /// The longest that a rank idles between its first F and its last W or D.
  double longestIdle() const;
};

/// How a rank's slots end, before O.
struct RankEnds {
  struct Last {
    std::int64_t chunk = 0;
    TimeSpan span;
  };
  double end = 0;
  /// Of each chunk the last slot that ends a micro-batch, in the row's order.
  std::vector<Last> lasts;
};

/// A table that findScheduleFault accepts, put into an order in which what
/// decides a slot's start is known when it comes: times of many plans with one
/// schedule are then quick.
class PreparedSchedule {
public:
  explicit PreparedSchedule(const ScheduleTable &table);

  /// A slot starts when the one before it has ended and what it needs is there.
  /// Transfers cost a rank no time; per ordered pair of ranks they go one after
  /// the other, in the order in which they were made. Linear in slots.
  /// Transfers are told where \p withTransfers.
  ScheduleTiming run(const ScheduleTimes &times,
                     bool withTransfers = true) const;

  /// Of that, how each rank ends: the same numbers in a third of the time.
  std::vector<RankEnds> ends(const ScheduleTimes &times) const;
  std::vector<RankEnds> endsOf(const ScheduleTiming &timing) const;

  bool splitsBackward() const { return hasWeightSlots; }

private:
  /// One of a rank's slots, or a joined pair.
  struct Step {
    std::int32_t rank = 0;
    std::int32_t index = 0;
    std::int32_t length = 1;
    /// What needs the results, and by which link; -1: nothing, the same rank.
    SlotPlace consumers[2];
    std::int32_t links[2] = {-1, -1};
    bool isSent[2] = {false, false};
  };
  /// A slot that is not joined, as numbers of lists, in the order of steps.
  struct Line {
    std::int32_t rank = 0;
    std::int32_t slot = 0;      ///< over all rows
    std::int32_t duration = 0;  ///< of durationsOf
    std::int32_t consumer = -1; ///< slot over all rows
    std::int32_t link = -1;
    bool endsChunk = false;
  };
  void findLasts();
  void addLines();
  std::vector<double> durationsOf(const ScheduleTimes &times) const;
  void addEdges(const ScheduleTimes &times,
                std::vector<std::vector<double>> &takes) const;
  std::vector<std::vector<double>> takesOf(const ScheduleTimes &times) const;
  double hiddenIn(const Step &step, const ScheduleTimes &times,
                  const std::vector<double> &takes) const;
  void countRanks(const std::vector<std::vector<double>> &takes,
                  ScheduleTiming &timing) const;

  std::vector<std::vector<Slot>> rows;
  std::vector<Step> steps;
  /// Of each rank, the last slot of each chunk that ends a micro-batch, in
  /// order.
  std::vector<std::vector<std::size_t>> lasts;
  std::vector<Line> lines; ///< none where slots are joined
  std::int64_t numChunks = 1;
  std::int32_t numLinks = 0;
  bool hasWeightSlots = false, hasJoined = false;
};

/// The same, once.
ScheduleTiming simulateSchedule(const ScheduleTable &table,
                                const ScheduleTimes &times);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_SIMULATE_H
