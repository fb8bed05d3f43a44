//===- EstimateTables.h - What estimates of memory keep ---------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_ESTIMATETABLES_H
#define HEDDLE_LIB_COST_ESTIMATETABLES_H

#include "heddle/Cost/MemoryEstimate.h"
#include "heddle/Cost/RankSizes.h"

#include <map>
#include <tuple>

namespace heddle::detail {

/// What depends on the split of one micro-batch alone: bytes.
struct PointShape {
  std::string fault; ///< why no plan has it, or ""
  LayerSaved plain, sparse;
  std::int64_t plainFrame = 0, sparseFrame = 0, headFrame = 0;
  std::int64_t edge = 0; ///< of what flows between blocks
  std::int64_t inputsPerMicroBatch = 0;
};

/// Layers of one chunk.
struct PlaceLayers {
  std::int64_t plain = 0, sparse = 0;
  /// Whether each has experts, in order; only where both kinds are there.
  std::vector<bool> kinds = {};

  std::int64_t all() const { return plain + sparse; }
  /// Of the first \p layers.
  std::int64_t sparseAmong(std::int64_t layers) const;
};

/// What a place over pp holds.
struct HeldByPlace {
  std::vector<PlaceLayers> chunks;
  std::vector<std::int64_t> recomputed; ///< of each chunk
  std::int64_t plain = 0, sparse = 0;
  bool hasEmbedding = true, hasHead = true;
};

struct StateBytes {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t optimizerOfBlock = 0;
  /// Whole copies of sharded parameters while a block, or the head, runs.
  std::int64_t gatheredBlock = 0, gatheredHead = 0;
  /// All of them, those that backward reads, and the head's own.
  std::int64_t copies = 0, copiesForBackward = 0, copiesOfHead = 0;
  /// Gradients that one call makes.
  std::int64_t madeByBlock = 0, madeByHead = 0;
  std::int64_t largestBucket = 0; ///< in the format that it is reduced in
};

class EstimateTables {
public:
  EstimateTables(const ModelConfig &model, const TrainSettings &train,
                 const Cluster &cluster);

  const PointShape &shapeOf(const PlanPoint &point);
  /// Of each place; sets and buffers of the schedule.
  Result<const std::vector<RankStages> *> stagesOf(const PlanPoint &point);
  HeldByPlace heldBy(const PlanPoint &point, std::int64_t place) const;
  StateBytes statesOf(const PlanPoint &point, const HeldByPlace &held);
  static std::int64_t mostOfChunk(const PlanPoint &point);
  /// cublasLt: a workspace of 32 MiB for each of two streams (RUNTIME_NOTES
  /// §10). NCCL's buffers, the context and graphs are in the cluster's reserve.
  std::int64_t libraries() const;

private:
  using Elements = std::vector<std::int64_t>;
  PointShape makeShape(const PlanPoint &point) const;
  void addExperts(PointShape &shape, const PlanPoint &point,
                  const RankSizes &sizes) const;
  void addLatent(PointShape &shape, const RankSizes &sizes) const;
  void addContext(PointShape &shape, const PlanPoint &point,
                  const RankSizes &sizes) const;
  bool isInBlock(const ParameterFamily &family, bool sparse) const;
  bool isTied(const ParameterFamily &family) const {
    return model.tiedEmbeddings && family.argument == "embed";
  }
  std::int64_t instancesAt(const ParameterFamily &family,
                           const HeldByPlace &held) const;
  /// Of each of `families`, what a rank computes with.
  const Elements &elementsOf(const PlanPoint &point);

  const ModelConfig model;
  const TrainSettings train;
  const bool isHost;
  const std::vector<ParameterFamily> families;
  std::vector<bool> isSparse;         ///< of each layer
  std::vector<bool> isReadByBackward; ///< of each family
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                      bool, int, std::string>,
           PointShape>
      shapes;
  std::map<std::pair<std::int64_t, std::int64_t>, Elements> elements;
  std::map<std::tuple<int, std::int64_t, std::int64_t, std::int64_t>,
           Result<std::vector<RankStages>>>
      schedules;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_ESTIMATETABLES_H
