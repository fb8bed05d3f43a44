//===- StepTime.h - How long a step of a plan takes -------------*- C++ -*-===//
//
// From kernels and collectives (Kernels.h, Collective.h) to a step: layers as
// tasks on streams, a stream for computation and one for each axis; slots of a
// schedule with these times; and a bound below all of it, in closed form.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_STEPTIME_H
#define HEDDLE_COST_STEPTIME_H

#include "heddle/Cost/Collective.h"
#include "heddle/Cost/Kernels.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/PlanPoint.h"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Products and what is bound by memory in a step over the sum of these
/// kernels: gaps between them, and small ones that no formula has (scales of
/// losses and formats, random numbers, zeros, copies of units of parameters).
/// Fused attention is one kernel, whose launch its formula has. The one number
/// that is chosen by step times: without it the twelve of
/// perf_calibration_12.csv come out 10 % too short in the median.
inline constexpr double kernelGaps = 1.13;

/// What of a layer's forward can run again in backward, as bits.
enum RecomputedPart : unsigned {
  AgainNorms = 1,
  AgainProjections = 2, ///< queries, keys, values
  AgainCore = 4,        ///< scores, softmax, their product with values
  AgainOutput = 8,      ///< attention's output projection
  AgainUp = 16,         ///< up and gate
  AgainActivation = 32,
  AgainDown = 64,
  AgainScores = 128, ///< scores and softmax, where they are not one kernel
};

/// What of the collectives along tp runs beside products.
enum class TensorOverlap {
  None,
  /// In backward: inputs that are gathered again, and sums of input gradients,
  /// beside the products of weight gradients (Megatron-LM).
  Backward,
  /// Those, and in forward pieces of a product beside pieces of its collective
  /// (Transformer Engine's "user buffers").
  Pieces,
};

/// How software runs a plan, where a plan does not say. Defaults: the programs
/// that heddle makes.
struct Practice {
  AttentionKernel attention = AttentionKernel::Best;
  TensorOverlap tensorOverlap = TensorOverlap::None;
  /// Parameters that were updated in shards are gathered beside forward of the
  /// next step; else behind the optimizer.
  bool gathersInNextStep = false;
  /// What `selective` and `full` compute again.
  unsigned selective = AgainNorms | AgainActivation;
  unsigned full = AgainNorms | AgainProjections | AgainCore | AgainOutput |
                  AgainUp | AgainActivation;
  /// Dropout's masks are written and read. Heddle draws them again.
  bool storesMasks = false;
  /// Between nodes a token goes once to each node that has experts for it, and
  /// on from there (DeepEP); at most to \p nodesPerToken, where routing is
  /// limited. Else once for each expert.
  bool sendsOncePerNode = false;
  std::int64_t nodesPerToken = 0; ///< 0: to any number
  /// Of a number on its way to experts or back, in the mean; 0: as elsewhere.
  double exchangeBytes = 0;
  /// Product::quantizedBytes.
  double quantizedBytes = 0;
  /// Chains of elementwise operations are one kernel. Without a compiler each
  /// operation of a norm, a rotation and a gate reads and writes memory.
  bool fusesKernels = true;
  /// Moved per parameter of a unit of ZeRO-3 between the collective's buffer
  /// and the parameters, by each gather, and between gradients and buffer, by
  /// each sum. Heddle's collectives read and write in place.
  double gatherCopyBytes = 0, sumCopyBytes = 0;
  /// In backward a unit of ZeRO-3 is gathered when the one behind it has been
  /// computed, before that one's gradients are summed (FSDP's BACKWARD_POST).
  bool gathersBetweenUnits = false;
  /// A layer's parameters are gathered, and its gradients summed, in so many
  /// equal collectives.
  double collectivesPerLayer = 1;
  /// Read and written per logit by the loss, forward and backward: logits
  /// twice, and once where they become their gradient.
  double lossBytes = 8;
};

/// Seconds of kernels by what binds them.
struct ComputeSeconds {
  double products = 0, attention = 0, memory = 0;

  double total() const { return products + attention + memory; }
  ComputeSeconds &operator+=(const ComputeSeconds &other);
  ComputeSeconds operator*(double times) const;
};

enum class TimeAxis : std::uint8_t { Tp, Cp, Ep, Dp, Pp };
inline constexpr int timeAxes = 5;
std::string_view timeAxisName(TimeAxis axis); ///< "tp"

/// Communication along one axis: of a rank of the busiest place over pp, in one
/// step. Along dp: states; expert parameters' too.
struct AxisTime {
  double bytesPerRank = 0;
  double seconds = 0; ///< of all calls, one after the other
  double exposed = 0; ///< of these, in which nothing is computed
  /// Of the slowest link that the group crosses: for `idealSeconds`.
  double slowestBytesPerSecond = 0;
  std::size_t level = 0; ///< of Cluster::links
};

/// Saved values to the host and back, of the busiest place, in one step.
struct HostTime {
  double bytesEachWay = 0;
  double seconds = 0; ///< of all copies, one after the other
  double exposed = 0; ///< of these, in which nothing is computed
};

struct StepTime {
  double seconds = 0;
  /// Of the slots' time, what ranks of pp idle.
  double bubbleFraction = 0;
  std::array<AxisTime, timeAxes> axes;
  HostTime host;
  ComputeSeconds compute; ///< of the busiest place, without the optimizer
  double optimizer = 0;
  std::int64_t busiest = 0; ///< place over pp
  double modelFlops = 0;    ///< of all ranks (modelFlopsPerStep)
  double hardwareFlops = 0; ///< those, and what runs again, counted alike
  double peakFlops = 0;     ///< of one device, in the format of products
  std::int64_t ranks = 1;
  double tokens = 0; ///< of all ranks

  const AxisTime &of(TimeAxis axis) const {
    return axes[static_cast<std::size_t>(axis)];
  }
  /// Of the peak of all ranks.
  double mfu() const;
  double hfu() const;
  double tokensPerSecondPerDevice() const;
};

struct StepTimeline; // StepTimeline.h

/// Steps of one model and its settings on one cluster. Keeps what was computed
/// for other points; not for several threads at once.
class StepTimes {
public:
  struct State; ///< of lib/Cost
  /// An error: a device without a figure that is needed.
  static Result<StepTimes> of(const ModelConfig &model,
                              const TrainSettings &train,
                              const Cluster &cluster,
                              const Practice &practice = {});
  StepTimes(StepTimes &&) noexcept;
  ~StepTimes();

  /// The same, with nothing kept yet.
  StepTimes another() const;
  /// The same for another thread, which keeps what it computed for as long as
  /// these are there: made when a number is asked for first.
  const StepTimes &ofThread(std::size_t number) const;

  /// The schedule's slots, run in time. An error names why there is no such
  /// schedule. Infinite where the device does not have the format.
  Result<StepTime> simulate(const PlanPoint &point) const;
  /// The same, part by part. An error too where the device does not have the
  /// format.
  Result<StepTimeline> timeline(const PlanPoint &point) const;

  /// Of that, the seconds: the same number in half the time.
  Result<double> seconds(const PlanPoint &point) const;
  /// The same; infinite where there is no such schedule, none where
  /// `boundOfSlots` is above \p limit.
  std::optional<double> secondsWithin(const PlanPoint &point,
                                      double limit) const;

  /// Never more than `simulate`: the slots of the busiest place with all that
  /// runs beside them, what the first micro-batch needs to reach it and the
  /// last to leave it, and what comes behind. Only the schedule's bubbles are
  /// not in.
  double boundOfSlots(const PlanPoint &point) const;
  /// Never more than that, in closed form (ScheduleBound::of).
  double bound(const PlanPoint &point) const;
  /// The same for every ZeRO and offload, and for as many layers that are
  /// computed again or more (ScheduleBound::ofAnyStorage).
  double boundOfSchedule(const PlanPoint &point) const;
  /// The same also for every recompute, schedule, number of chunks, cut,
  /// sequence parallelism and context parallelism's kind.
  double boundOfMesh(const PlanPoint &point) const;

private:
  friend class ScheduleBound;
  explicit StepTimes(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

/// Bounds below the times of plans that share all but the order of axes,
/// storage and recompute: a few sums over places for each plan, and nothing
/// allocated.
class ScheduleBound {
public:
  /// \p times must outlive it.
  ScheduleBound(const StepTimes &times, const PlanPoint &schedule);
  ~ScheduleBound();

  /// Never more than `simulate`, but for rounding: the longest place with all
  /// that stands in line with its computation, or all that it sends along dp;
  /// what the first micro-batch needs to reach it and the last to leave it; and
  /// what comes behind.
  double of(const PlanPoint &plan);
  /// The same for every ZeRO and offload of the optimizer, and for as many
  /// layers that are computed again, and values on the host, or more. The order
  /// of axes is the plan's.
  double ofAnyStorage(const PlanPoint &plan) const;

  /// The order and storage of \p plan, in a format that the device has:
  /// `again` is `of` it with so many layers of each place computed again in
  /// that way; of no place where there are none.
  /// Of what layers save, \p offloaded is on the host.
  void take(const PlanPoint &plan);
  double again(PointRecompute kind, std::span<const std::int64_t> layers,
               std::uint32_t offloaded = 0) const;

  /// Layers without and with experts, and ends.
  struct Layers {
    double plain = 0, sparse = 0;
    bool hasEmbedding = false, hasHead = false;

    void add(const Layers &other) {
      plain += other.plain;
      sparse += other.sparse;
      hasEmbedding |= other.hasEmbedding;
      hasHead |= other.hasHead;
    }
    bool operator==(const Layers &) const = default;
  };

private:
  struct Place {
    Layers all;
    Layers first;  ///< of chunk 0
    Layers lowest; ///< of the first of its stages
    Layers last;   ///< of the last of its chunks
    Layers before; ///< of all stages before the first of its stages
    std::int64_t lowestStage = 0;
    double hops = 0; ///< from rank to rank on the way there
    /// Layers of a chunk, and how many chunks have so many.
    std::vector<std::pair<double, double>> chunks;

    void add(const Layers &chunk, bool isFirst);
    bool isLedBy(const Place &other) const;
  };
  struct OfOrder;
  OfOrder &orderOf(const PlanPoint &plan) const;
  /// Of saved values to the host and back, of one layer of the kind that has
  /// least: seconds of a micro-batch.
  struct Copies {
    double forward = 0, backward = 0;
  };
  const Copies &copiesOf(std::uint32_t offloaded) const;
  Copies makeCopies(std::uint32_t offloaded) const;
  double ofPlace(std::size_t rank, PointRecompute kind, std::int64_t again,
                 const Copies &copies) const;
  double roundSeconds(const OfOrder &order, double work) const;
  void placeStages(const PlanPoint &schedule);

  const StepTimes &times;
  const PlanPoint schedule;
  const bool splits; ///< W slots run apart
  const bool joins;  ///< pairs of slots hide exchanges of experts
  const double microBatches, chunks;
  std::vector<Place> places;
  /// Places that are not led by another: with nothing computed again, none of
  /// the others takes longer than all of these.
  std::vector<std::size_t> leading;
  /// Where micro-batches go in equal groups through all chunks of all places
  /// (interleaved 1F1B), how many a group has; else 0.
  double group = 0;
  /// By the order of axes, made when asked for.
  mutable std::vector<std::unique_ptr<OfOrder>> orders;
  const OfOrder *taken = nullptr;
  /// By what is on the host, made when asked for.
  mutable std::vector<std::pair<std::uint32_t, Copies>> copies;
};

} // namespace heddle

#endif // HEDDLE_COST_STEPTIME_H
