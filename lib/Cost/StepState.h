//===- StepState.h - What StepTimes keeps -----------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_STEPSTATE_H
#define HEDDLE_LIB_COST_STEPSTATE_H

#include "PointLines.h"

#include "heddle/Schedule/Simulate.h"

#include <map>
#include <tuple>

namespace heddle {

struct StepTimes::State {
  State(const ModelConfig &model, const TrainSettings &train,
        const Cluster &cluster, const Practice &practice, KernelTimes kernels);
  /// Without what \p other keeps of points.
  State(const State &other)
      : model(other.model), train(other.train), device(other.device),
        practice(other.practice), kernels(other.kernels),
        collectives(other.collectives),
        hostBytesPerSecond(other.hostBytesPerSecond),
        sparseBefore(other.sparseBefore),
        tables(other.model, other.train, other.device.isHost) {}

  const ModelConfig model;
  const TrainSettings train;
  const Device device;
  const Practice practice;
  const KernelTimes kernels;
  const CollectiveTimes collectives;
  const double hostBytesPerSecond;
  /// Of the first i layers, those with experts.
  std::vector<std::int64_t> sparseBefore;
  /// Of bytes that layers save.
  mutable detail::EstimateTables tables;

  mutable std::vector<std::unique_ptr<StepTimes>> ofOtherThreads;

  /// Whose peak the point's products have; "" for a recipe that has none.
  std::string_view peakName(const PlanPoint &point) const;
  bool hasFormat(const PlanPoint &point) const {
    return device.peak(peakName(point)) > 0;
  }
  std::int64_t sparseLayers() const { return sparseBefore.back(); }
  /// The schedule of a point, made once.
  Result<const PreparedSchedule *> schedule(const PlanPoint &point) const;
  /// What bounds need of a point, made once.
  /// \p joins: slots that hide exchanges of experts.
  const detail::PointLines &lines(const PlanPoint &point, bool joins) const;
  const detail::StateLines &states(const PlanPoint &point) const;
  double leastWork(const PlanPoint &point) const; ///< of boundOfMesh
  /// What a chunk's slots take: \p make, once.
  template <class Make>
  const detail::SlotTimes &slots(const PlanPoint &point,
                                 const detail::ChunkContent &chunk,
                                 Make make) const {
    return knownSlots.get(detail::slotKey(point, chunk), make);
  }

private:
  using Key =
      std::tuple<PlanScheduleKind, std::int64_t, std::int64_t, std::int64_t>;
  mutable std::map<Key, PreparedSchedule> schedules;
  mutable detail::PointCache<detail::PointLines> knownLines, knownLayers;
  mutable detail::PointCache<detail::StateLines> knownStates;
  mutable detail::PointCache<double> knownWork;
  mutable detail::PointCache<detail::SlotTimes, detail::SlotKey> knownSlots;
};

namespace detail {

/// Bounds add the same numbers in another order than the simulation.
inline constexpr double kRounding = 1 - 1e-11;

LayerTimer timerOf(const StepTimes::State &state, const PlanPoint &point);
SlotParts partsOf(const StepTimes::State &state, const PlanPoint &point,
                  const LayerTimer &timer);
/// Whether W slots run apart from B.
bool splitsBackward(PlanScheduleKind schedule);
/// Whether a forward and a backward of it run interleaved.
bool joinsSlots(PlanScheduleKind schedule);
/// Slots beside which exchanges along ep run for nothing.
SlotParts withoutExchange(SlotParts parts);
/// Whether the point has the model's layers, one number for each stage.
Result<void> checkLayers(const StepTimes::State &state, const PlanPoint &point);
/// A timeline with its table, where the point has one.
Result<StepTimeline> beginTimeline(const StepTimes::State &state,
                                   const PlanPoint &point);
/// Fills `slots` of a timeline whose table is there.
void addSlotTasks(const StepTimes::State &state, const PlanPoint &point,
                  StepTimeline &timeline);
/// Of one chunk of one place.
ChunkContent contentOf(const StepTimes::State &state, const PlanPoint &point,
                       std::int64_t rank, std::int64_t chunk);

} // namespace detail
} // namespace heddle

#endif // HEDDLE_LIB_COST_STEPSTATE_H
