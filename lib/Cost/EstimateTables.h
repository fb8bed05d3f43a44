//===- EstimateTables.h - What estimates of memory keep ---------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_ESTIMATETABLES_H
#define HEDDLE_LIB_COST_ESTIMATETABLES_H

#include "NumbersHash.h"

#include "heddle/Cost/MemoryEstimate.h"
#include "heddle/Cost/RankSizes.h"

#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

namespace heddle::detail {

/// The most that functions of a layer have of their own at once, and what comes
/// in and goes out.
struct LayerFrames {
  std::int64_t forward = 0;
  std::int64_t backward = 0; ///< in one function
  std::int64_t halves = 0;   ///< in two, either of them
};

/// Choices of what is computed again, one bit each.
using Choices = unsigned;
constexpr Choices choice(PointRecompute kind) {
  return 1u << static_cast<unsigned>(kind);
}
inline constexpr Choices kWithout = choice(PointRecompute::None),
                         kSelective = choice(PointRecompute::Selective),
                         kFull = choice(PointRecompute::Full),
                         kEvery = kWithout | kSelective | kFull;

/// A value of one layer and micro-batch, under the choices that have it.
struct LayerValue {
  std::int64_t bytes = 0;
  Choices saved = 0;      ///< by forward
  Choices forWeights = 0; ///< of these: weight gradients apart read it
  Choices forInputs = 0;  ///< the same of input gradients
  Choices kept = 0;       ///< by input gradients, for such
  bool goesOn = false;    ///< as it is, to the next block
  std::uint32_t bit = 0;  ///< of what is saved, of `savedNames`
};

/// One kind of layer.
struct LayerShape {
  std::vector<LayerValue> values;
  std::array<LayerFrames, 3> frames; ///< by `PointRecompute`
  LayerSaved saved;                  ///< sums of the values

  void sum();
  /// What may be on the host, as bits: what is saved under all of \p choices
  /// and does not go on.
  std::uint32_t mayGoToHost(Choices choices) const;
};

/// What depends on the split of one micro-batch alone: bytes.
struct PointShape {
  std::string fault; ///< why no plan has it, or ""
  LayerShape plain, sparse;
  std::int64_t headFrame = 0;
  std::int64_t edge = 0; ///< of what flows between blocks
  std::int64_t inputsPerMicroBatch = 0;

  /// The same of all its layers.
  std::uint32_t mayGoToHost(Choices choices) const;
};

/// One dense layer and one sequence. All of it grows with the number of tokens,
/// so that one serves for every micro-batch and length.
struct StandIn {
  RankSizes sizes;
  LayerShape dense, withoutMlp; ///< bytes as they are, not aligned
};

/// Layers of one chunk.
struct PlaceLayers {
  std::int64_t first = 0; ///< of the model's; 0 where all are alike
  std::int64_t plain = 0, sparse = 0;
  std::int64_t sparseAgain = 0; ///< of those that are computed again

  std::int64_t all() const { return plain + sparse; }
};

/// What a place over pp holds.
struct HeldByPlace {
  std::vector<PlaceLayers> chunks;
  std::vector<std::int64_t> recomputed; ///< of each chunk
  std::int64_t allRecomputed = 0;
  std::int64_t plain = 0, sparse = 0;
  Choices choices = kWithout; ///< of all layers of the model
  bool hasEmbedding = true, hasHead = true;
};

/// Bytes of parameters in the forms that a plan stores them in.
struct StateBytes {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  /// Whole copies of sharded ones: all, those that backward reads.
  std::int64_t copies = 0, copiesForBackward = 0;
  std::int64_t made = 0;    ///< gradients of one call
  std::int64_t largest = 0; ///< gradient, in the format that it is reduced in

  void add(const StateBytes &other, std::int64_t times);
};

/// Bytes of the optimizer's numbers on the device where they are on the host: a
/// parameter's rows are there until the next one's have come. Of families that
/// follow each other, one row of each.
struct OptimizerRows {
  std::int64_t first = 0, last = 0, pair = 0;

  void add(std::int64_t bytes) {
    first = pair == 0 ? bytes : first;
    pair = std::max(pair, last + bytes);
    last = bytes;
  }
};

/// Of one layer of each kind, and of the ends.
struct SegmentStates {
  StateBytes plain, sparse, embedding, head;
  StateBytes tiedTable; ///< that the head reads too
  /// While its gradients of the two ends of a chain are added.
  std::int64_t ofBothEnds = 0;
  std::int64_t bucket = 0; ///< as large as gradients are put together
  OptimizerRows rowsOfEmbedding, rowsOfTable, rowsOfBlock, rowsOfHead;
};

class EstimateTables {
public:
  EstimateTables(const ModelConfig &model, const TrainSettings &train,
                 bool isHost);
  /// Without what \p other keeps.
  EstimateTables(const EstimateTables &other)
      : EstimateTables(other.model, other.train, other.isHost) {}

  const PointShape &shapeOf(const PlanPoint &point);
  /// Of each place; sets and buffers of the schedule.
  Result<const std::vector<RankStages> *> stagesOf(const PlanPoint &point);
  HeldByPlace heldBy(const PlanPoint &point, std::int64_t place) const;
  /// Of the place's layers, so many are computed again.
  void setRecomputed(HeldByPlace &held, const PlanPoint &point,
                     std::int64_t place, std::int64_t count) const;
  const SegmentStates &segmentsOf(const PlanPoint &point);
  static StateBytes statesOf(const SegmentStates &segments,
                             const HeldByPlace &held);
  /// cublasLt: a workspace of 32 MiB for each of two streams (RUNTIME_NOTES
  /// §10). NCCL's buffers, the context and graphs are in the cluster's reserve.
  std::int64_t libraries() const;

private:
  /// Of `count` layers from `first` on.
  std::int64_t sparseLayers(std::int64_t first, std::int64_t count) const {
    return sparseBefore[static_cast<std::size_t>(first + count)] -
           sparseBefore[static_cast<std::size_t>(first)];
  }

  using Elements = std::vector<std::int64_t>;
  PointShape makeShape(const PlanPoint &point);
  /// As long as a part of a sequence; of one sequence.
  const Result<StandIn> &standInOf(const PlanPoint &point);
  void addExperts(PointShape &shape, const PlanPoint &point,
                  const RankSizes &sizes) const;
  void addLatent(LayerShape &layer, const RankSizes &sizes) const;
  void addContext(PointShape &shape, const PlanPoint &point,
                  const RankSizes &sizes) const;
  SegmentStates makeSegments(const PlanPoint &point);
  /// Of each of `families`, what a rank computes with.
  const Elements &elementsOf(const PlanPoint &point);

  const ModelConfig model;
  const TrainSettings train;
  const bool isHost;
  const std::vector<ParameterFamily> families;
  std::vector<bool> isSparse;             ///< of each layer
  std::vector<std::int64_t> sparseBefore; ///< of the first i layers
  std::vector<bool> isReadByBackward;     ///< of each family
  using ShapeKey = std::array<std::int64_t, 8>;
  using SegmentKey = std::array<std::int64_t, 9>;
  std::unordered_map<ShapeKey, PointShape, NumbersHash> shapes;
  std::map<std::array<std::int64_t, 4>, Result<StandIn>> standIns;
  std::map<std::pair<std::int64_t, std::int64_t>, Elements> elements;
  std::unordered_map<SegmentKey, SegmentStates, NumbersHash> segments;
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t>,
           Result<std::vector<RankStages>>>
      schedules;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_ESTIMATETABLES_H
