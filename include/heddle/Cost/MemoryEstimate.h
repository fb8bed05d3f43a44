//===- MemoryEstimate.h - Bytes of a plan before it is compiled -*- C++ -*-===//
//
// What `liveMemory` says exactly of plans that are compiled today, quickly and
// for all plans: experts, context parallelism, recompute, offload too.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_MEMORYESTIMATE_H
#define HEDDLE_COST_MEMORYESTIMATE_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/PlanPoint.h"

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {
class PlaceEstimate;
struct PointShape;
struct SegmentStates;
} // namespace detail

/// Bytes of one rank at one place over pp at the peak of a step, by reason.
struct PlaceMemory {
  // From step to step: the model's states.
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0; ///< its numbers and masters, on the device
  // For a time.
  std::int64_t inputs = 0;
  std::int64_t saved = 0; ///< for backward, of all that is in flight
  /// The same of what only input gradients read, where weight gradients have
  /// slots of their own.
  std::int64_t savedForInputs = 0;
  /// Of what the host has, saved values and the optimizer's numbers: what one
  /// layer uses, and what is on its way.
  std::int64_t rows = 0;
  std::int64_t kept = 0;        ///< by input gradients for weight gradients
  std::int64_t logits = 0;      ///< where the peak is in the head: its frame
  std::int64_t temporaries = 0; ///< else of a block's backward
  std::int64_t gathered = 0;    ///< whole parameters of sharded ones
  std::int64_t buckets = 0;     ///< gradients on their way
  std::int64_t passing = 0;     ///< what stages send and receive
  std::int64_t libraries = 0;   ///< workspaces

  std::int64_t states() const { return parameters + gradients + optimizer; }
  std::int64_t bytes() const;
  /// Each with its name, largest first; none that is 0.
  std::vector<std::pair<std::string, std::int64_t>> byReason() const;

  std::int64_t hostBytes = 0; ///< offloaded; not in bytes()
  /// Micro-batches in flight, over all chunks: until their weight gradients are
  /// made, until their input gradients are, and between the two.
  std::int64_t sets = 0, inputSets = 0, keptSets = 0;
  std::int64_t savedPerLayer = 0; ///< of one micro-batch, nothing recomputed
  /// Where all tokens choose one rank's experts: what would be saved beyond.
  std::int64_t worstExperts = 0;
};

/// Bytes that one layer saves of one micro-batch.
struct SavedBytes {
  std::int64_t all = 0;      ///< by forward
  std::int64_t withNone = 0; ///< of `all`: also where nothing is computed again
  /// Of `all`, what weight gradients read that have slots of their own.
  std::int64_t forWeights = 0;
  std::int64_t kept = 0; ///< by input gradients, for these

  std::int64_t forInputs() const { return all - forWeights; }
};

/// The same by what is computed again.
struct LayerSaved {
  SavedBytes none, selective, full;
  /// Of `none`, what routed tokens take.
  std::int64_t ofExperts = 0;

  const SavedBytes &of(PointRecompute kind) const {
    return kind == PointRecompute::None        ? none
           : kind == PointRecompute::Selective ? selective
                                               : full;
  }
};

/// Estimates of one model, settings and device. Keeps what depends on few
/// numbers of a point, so that many points are quick; not for several threads
/// at once.
///
/// Where a plan is compiled today, by the formulas of `liveMemory` to within
/// 1 % (test/lib/Cost/MemoryEstimateTest). Else:
///
///  - experts: top-k x tokens rows are dispatched to a rank, as balanced
///  routing
///    has it, whatever ep is; saved are these rows, gate, up and their product,
///    and what comes back (the router's gradient reads it).
///  - latent attention: low-rank vectors, their norms, queries, keys and
///  values.
///  - cp: sequences are s / cp long; keys and values of all of the sequence are
///    there for one layer at a time (ring: of two parts).
class MemoryEstimator {
public:
  MemoryEstimator(const ModelConfig &model, const TrainSettings &train,
                  const Cluster &cluster);
  ~MemoryEstimator();
  MemoryEstimator(const MemoryEstimator &) = delete;
  MemoryEstimator &operator=(const MemoryEstimator &) = delete;

  /// The same for another thread, which keeps what it computed for as long as
  /// these are there: made when a number is asked for first.
  const MemoryEstimator &ofThread(std::size_t number) const;

  /// Of the ranks at \p place over pp. An error: what `checkPlan` or the
  /// formulas do not take of the split over tp.
  Result<PlaceMemory> at(const PlanPoint &point, std::int64_t place) const;

  /// Bytes of the fullest place, and which it is.
  Result<std::pair<std::int64_t, std::int64_t>>
  peak(const PlanPoint &point) const;

  /// Sets `recomputed` of a point whose kind of recompute is set to the fewest
  /// layers of each place with which it fits into \p capacity bytes; false
  /// where it does not with all of them.
  bool recomputeToFit(PlanPoint &point, std::int64_t capacity) const;

  /// Parameters, gradients and optimizer of the place that has most: no plan
  /// with these axes and this ZeRO takes less.
  std::int64_t states(const PlanPoint &point) const;

  /// What a layer saves on the device; with experts where \p hasExperts.
  Result<LayerSaved> layerSaved(const PlanPoint &point, bool hasExperts) const;

private:
  friend class FitTable;
  class Tables;
  explicit MemoryEstimator(std::unique_ptr<Tables> tables);
  std::unique_ptr<Tables> tables;
  mutable std::vector<std::unique_ptr<MemoryEstimator>> ofOtherThreads;
};

/// What fits of the plans that share one schedule: answers `recomputeToFit`
/// gives, quickly for many storages.
class FitTable {
public:
  /// \p schedule: a point; its storage does not matter. \p memory must outlive
  /// the table.
  FitTable(const MemoryEstimator &memory, const PlanPoint &schedule);
  ~FitTable();

  /// The storage (ZeRO and offload) that is asked for from here on.
  void take(const PlanPoint &storage);
  /// The same, without whole parameters and gradients that are there for a
  /// time.
  void takeOnlyStates(const PlanPoint &storage);
  /// The fewest layers of each place that have to be computed again in that
  /// kind; false where a place does not fit with all of its layers.
  bool fewest(PointRecompute kind, std::int64_t capacity,
              std::vector<std::int64_t> &layers);
  /// Whether it fits with all layers, which it gives.
  bool fitsWithAll(PointRecompute kind, std::int64_t capacity,
                   std::vector<std::int64_t> &layers);

  /// What may be on the host where all layers are computed again in that kind:
  /// sets of values, each with the next largest one more.
  const std::vector<std::uint32_t> &offloads(PointRecompute kind);
  /// Whether it fits with that on the host and all layers computed again, which
  /// it gives.
  bool fitsOffloaded(PointRecompute kind, std::uint32_t offloaded,
                     std::int64_t capacity, std::vector<std::int64_t> &layers);

  /// Of the fullest place, with all layers computed again; none where the
  /// schedule is none.
  std::optional<std::int64_t> leastBytes(PointRecompute kind);

private:
  struct Place;
  detail::PlaceEstimate estimateOf(const Place &place) const;
  std::int64_t bytesOf(std::size_t index, PointRecompute kind,
                       std::int64_t count, bool isAll = false);
  std::vector<std::uint32_t> makeOffloads(PointRecompute kind) const;
  std::int64_t &restOf(Place &place, PointRecompute kind, std::int64_t count,
                       bool isAll) const;

  MemoryEstimator::Tables &tables;
  const detail::PointShape &shape;
  PlanPoint point; ///< the storage that was taken
  const detail::SegmentStates *segments = nullptr;
  std::vector<Place> places;
  std::array<std::optional<std::vector<std::uint32_t>>, 3> sets; ///< by kind
};

} // namespace heddle

#endif // HEDDLE_COST_MEMORYESTIMATE_H
