//===- Step.h - One step of a point in time ---------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_STEP_H
#define HEDDLE_LIB_COST_STEP_H

#include "Slots.h"
#include "StepState.h"

#include "heddle/Cost/StepTimeline.h"
#include "heddle/Schedule/Simulate.h"

#include <vector>

namespace heddle::detail {

/// Times of all slots of a point, then a step of them.
class Step {
public:
  Step(const StepTimes::State &state, const PlanPoint &point)
      : state(state), point(point), timer(timerOf(state, point)),
        parts(partsOf(state, point, timer)), builder(parts) {}

  /// \p to: filled where given.
  Result<StepTime> run(StepTimeline *to = nullptr);
  Result<double> seconds();
  double bound();

private:
  /// What a chunk's slots take, and how long in them nothing is computed.
  struct Timed {
    ChunkContent content;
    ChunkTimes times;
    ChunkEdges edges;
    std::array<double, numStreams> exposed = {}; ///< of one micro-batch
  };
  struct Place {
    std::vector<std::size_t> chunks; ///< of `timed`
    double work = 0;                 ///< of all its slots
    double sums = 0, gathers = 0;    ///< along dp, once in a step
    double optimizer = 0;
    double tail = 0; ///< behind the last slot
  };

  double slot(SlotKind kind, const ChunkContent &chunk,
              std::array<double, numStreams> &exposed);
  std::size_t timeChunk(const ChunkContent &chunk);
  SlotTimes timeSlots(const ChunkContent &chunk);
  void timeWaits(const ChunkContent &chunk, ChunkTimes &times) const;
  void timeEdges(Timed &timed);
  void timePlace(std::int64_t rank);
  double leastTail(std::int64_t rank) const;
  const ChunkTimes &timesOf(std::int64_t rank, std::int64_t chunk) const {
    const Place &place = places[static_cast<std::size_t>(rank)];
    return timed[place.chunks[static_cast<std::size_t>(chunk)]].times;
  }
  double tailOf(std::int64_t rank, const RankEnds &ends) const;
  Result<void> runSlots(StepTime &step);
  Result<void> runSchedule(StepTime &step);
  void runAlone(StepTime &step);
  void finish(StepTime &step);
  void tell(const StepTime &step);
  /// Behind the optimizer, the parameters that it updated in shards.
  bool gathersLast() const {
    return point.zeroStage > 0 && point.zeroStage < 3 &&
           !state.practice.gathersInNextStep;
  }
  void count(StepTime &step) const;
  void countAxes(StepTime &step) const;
  void countLinks(StepTime &step) const;
  bool sumsOnce() const { return !parts.sums; }
  /// Parameters that are gathered before the first micro-batch.
  bool gathersFirst() const;
  ScheduleTimes scheduleTimes(double transfer) const;

  const StepTimes::State &state;
  const PlanPoint &point;
  const LayerTimer timer;
  const SlotParts parts;
  SlotBuilder builder;
  bool splits = false; ///< the schedule has W slots
  std::vector<Timed> timed;
  std::vector<Place> places;
  double makespan = 0; ///< of slots and tails
  bool onlySeconds = false;
  StepTimeline *timeline = nullptr;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_STEP_H
