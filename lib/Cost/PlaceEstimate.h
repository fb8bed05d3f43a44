//===- PlaceEstimate.h - The estimate of one place --------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_PLACEESTIMATE_H
#define HEDDLE_LIB_COST_PLACEESTIMATE_H

#include "EstimateTables.h"

namespace heddle::detail {

/// Whole parameters and gradients that are there for a time.
struct Beside {
  std::int64_t gathered = 0, buckets = 0;

  std::int64_t bytes() const { return gathered + buckets; }
};

/// The bytes of one place, term by term. Those of `rest` and the frames do not
/// depend on how states are stored; the others on nothing that is recomputed.
class PlaceEstimate {
public:
  PlaceEstimate(const EstimateTables &tables, const PlanPoint &point,
                const PointShape &shape, const RankStages &stage,
                const HeldByPlace &held, const SegmentStates &segments)
      : tables(tables), point(point), shape(shape), stage(stage), held(held),
        segments(segments), states(EstimateTables::statesOf(segments, held)) {}

  PlaceMemory estimate();
  /// What is saved, passes or is there all the time, but for states.
  std::int64_t rest();
  std::int64_t ofStates();
  std::int64_t headFrame() const;
  std::int64_t blockFrame() const;
  std::int64_t forwardFrame() const { return mostOf(&LayerFrames::forward); }
  Beside besideHead() const;
  Beside besideBlock() const;
  Beside besideForward() const {
    return {held.plain + held.sparse > 0 ? gathered(false) : 0, 0};
  }
  /// Forward of the embedding gathers tables, backward makes their gradients.
  Beside besideEmbedding() const;
  /// Behind all slots: the sum of a table's two gradients, the optimizer's
  /// rows.
  std::int64_t besideEnds() const {
    return std::max(tableOfBothEnds(), optimizerRows());
  }

private:
  void addStates();
  void addRest();
  void addSaved();
  void addPeak();
  void addPassing();
  std::array<std::int64_t, 4> mostLayers(bool isSparse) const;
  std::int64_t savedOfSet(const LayerSaved &saved, bool isSparse) const;
  void addSplit(const LayerShape &layer, bool isSparse);
  void moveToHost(const LayerShape &layer, bool isSparse);
  std::int64_t tableOfBothEnds() const;
  std::int64_t optimizerRows() const;
  /// Whether it goes on, and out of the last layer, from where it is saved.
  bool savesAll(const LayerValue &value) const {
    return value.goesOn && (held.choices & ~value.saved) == 0;
  }
  bool keepsExperts() const;
  std::int64_t mostOf(std::int64_t LayerFrames::*frame) const;

  bool areCut() const { return point.schedule != PlanScheduleKind::None; }
  /// Gradients of each micro-batch, not of their sum.
  bool reducesEach() const {
    return point.reduce == PlanReduce::EveryMicroBatch &&
           point.dp * point.cp > 1;
  }
  /// The last micro-batch is a loop of its own, in which sums are reduced.
  bool peelsLast() const {
    return point.overlaps && point.microBatches > 1 && !areCut() &&
           !reducesEach() && point.dp * point.cp > 1;
  }
  std::int64_t gathered(bool isHead) const;
  std::int64_t ofBlock(std::int64_t StateBytes::*field) const;
  bool areInRuns() const {
    return point.zeroStage >= 3 && point.shardGroup > 1;
  }

  const EstimateTables &tables;
  const PlanPoint &point;
  const PointShape &shape;
  const RankStages &stage;
  const HeldByPlace &held;
  const SegmentStates &segments;
  const StateBytes states;
  PlaceMemory memory;
};

} // namespace heddle::detail

namespace heddle {
class MemoryEstimator::Tables : public detail::EstimateTables {
public:
  using detail::EstimateTables::EstimateTables;
};
} // namespace heddle

#endif // HEDDLE_LIB_COST_PLACEESTIMATE_H
