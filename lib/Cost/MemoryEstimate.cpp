#include "heddle/Cost/MemoryEstimate.h"

#include "EstimateTables.h"
#include "Reductions.h"

#include <algorithm>
#include <numeric>

using namespace heddle;
using namespace heddle::detail;

std::int64_t PlaceMemory::bytes() const {
  return states() + inputs + saved + logits + temporaries + gathered + buckets +
         passing + libraries;
}

std::vector<std::pair<std::string, std::int64_t>>
PlaceMemory::byReason() const {
  std::vector<std::pair<std::string, std::int64_t>> reasons = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", optimizer},
      {"inputs", inputs},
      {"saved for backward", saved},
      {"logits and the head", logits},
      {"temporaries of a block", temporaries},
      {"gathered parameters", gathered},
      {"gradients on their way", buckets},
      {"passing between stages", passing},
      {"workspaces of libraries", libraries}};
  std::erase_if(reasons, [](const auto &each) { return each.second == 0; });
  std::stable_sort(
      reasons.begin(), reasons.end(),
      [](const auto &a, const auto &b) { return a.second > b.second; });
  return reasons;
}

namespace {

/// The bytes of one place, term by term.
class PlaceEstimate {
public:
  PlaceEstimate(EstimateTables &tables, const PlanPoint &point,
                const PointShape &shape, const std::vector<RankStages> &stages,
                std::int64_t place)
      : tables(tables), point(point), shape(shape),
        stage(stages[static_cast<std::size_t>(place)]),
        held(tables.heldBy(point, place)), segments(tables.segmentsOf(point)),
        states(EstimateTables::statesOf(segments, held)) {}

  PlaceMemory estimate();
  /// Without states and without buffers that depend on how they are stored.
  std::int64_t withoutStorage();

private:
  void addStates();
  void addSaved();
  void addPeak();
  void addPassing();
  std::int64_t savedOfChunk(std::size_t chunk, bool &keepsExperts) const;

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

  EstimateTables &tables;
  const PlanPoint &point;
  const PointShape &shape;
  const RankStages &stage;
  const HeldByPlace held;
  const SegmentStates &segments;
  const StateBytes states;
  PlaceMemory memory;
};

} // namespace

/// Of the kinds of layers that a place holds, the one that has most.
std::int64_t PlaceEstimate::ofBlock(std::int64_t StateBytes::*field) const {
  return std::max(held.plain ? segments.plain.*field : 0,
                  held.sparse ? segments.sparse.*field : 0);
}

void PlaceEstimate::addStates() {
  memory.parameters = states.parameters;
  memory.gradients = states.gradients;
  memory.optimizer = states.optimizer;
  if (point.offloadsOptimizer) {
    // Two blocks' numbers are on their way: one there, one back.
    memory.hostBytes = states.optimizer;
    memory.optimizer =
        std::min(states.optimizer, 2 * ofBlock(&StateBytes::optimizer));
  }
}

/// One micro-batch's, of one chunk.
std::int64_t PlaceEstimate::savedOfChunk(std::size_t chunk,
                                         bool &keepsExperts) const {
  const std::int64_t again = held.recomputed[chunk];
  const PlaceLayers &layers = held.chunks[chunk];
  const std::int64_t sparseAgain = layers.sparseAgain;
  const std::int64_t plainAgain = again - sparseAgain;
  keepsExperts = layers.sparse > sparseAgain;
  return (layers.plain - plainAgain) * shape.plain.none +
         plainAgain * shape.plain.of(point.recompute) +
         (layers.sparse - sparseAgain) * shape.sparse.none +
         sparseAgain * shape.sparse.of(point.recompute);
}

void PlaceEstimate::addSaved() {
  memory.savedPerLayer = std::max(held.sparse ? shape.sparse.none : 0,
                                  held.plain ? shape.plain.none : 0);
  memory.sets = areCut() ? stage.sets : 1;
  std::int64_t most = 0, mostLayers = 0;
  bool keepsExperts = false;
  for (std::size_t chunk = 0; chunk < held.chunks.size(); ++chunk) {
    bool keeps = false;
    most = std::max(most, savedOfChunk(chunk, keeps));
    mostLayers = std::max(mostLayers, held.chunks[chunk].all());
    keepsExperts |= keeps;
  }
  // A set has room for any chunk of any place, and one more x2 that goes out.
  if (areCut())
    most += (tables.mostOfChunk(point) - mostLayers) *
            std::max(shape.plain.none, shape.sparse.none);
  memory.saved = (most + shape.edge) * memory.sets;
  if (areCut() && held.hasHead)
    memory.saved += 2 * shape.edge * stage.headSets;
  if (keepsExperts)
    memory.worstExperts =
        memory.sets * mostLayers * shape.sparse.ofExperts * (point.ep - 1);
}

void PlaceEstimate::addPassing() {
  if (!areCut())
    return;
  auto outs = [](const RankStages::Side &side) -> std::int64_t {
    return side.chunks == 0 ? 0 : side.chunks > side.elsewhere ? 3 : 2;
  };
  const std::int64_t buffers = stage.activationLandings +
                               stage.gradientLandings + outs(stage.next) +
                               outs(stage.previous);
  const bool sendsParts = !point.sequenceParallel && point.tp > 1;
  memory.passing =
      buffers * alignBytes(shape.edge / (sendsParts ? point.tp : 1));
}

/// Whole parameters while the head or a block's backward runs.
std::int64_t PlaceEstimate::gathered(bool isHead) const {
  if (!areInRuns())
    return 0;
  if (point.gather == PlanGather::EveryPass)
    return isHead ? segments.head.copies + segments.tiedTable.copies
                  : ofBlock(&StateBytes::copies) * (point.prefetch + 1);
  // Copies of each micro-batch go when it has read them for the last time.
  if (point.gather == PlanGather::OncePerStep || peelsLast())
    return states.copies;
  return states.copiesForBackward + (isHead ? segments.head.copies : 0);
}

/// The head or a block's backward: the one that needs more.
void PlaceEstimate::addPeak() {
  const bool eachReduces = reducesEach();
  const std::int64_t madeByHead = segments.head.made + segments.tiedTable.made;
  const std::int64_t carried = areCut() ? 2 * shape.edge : shape.edge;
  struct Moment {
    std::int64_t frame, gathered, buckets, again;
    std::int64_t bytes() const { return frame + gathered + buckets + again; }
  };
  Moment head = {0, 0, 0, 0}, block = {0, 0, 0, 0};
  if (held.hasHead)
    head = {shape.headFrame + (areCut() ? carried : 2 * shape.edge),
            gathered(true), eachReduces ? madeByHead : 0, 0};
  if (held.plain + held.sparse > 0) {
    block = {std::max(held.plain ? shape.plainFrame : 0,
                      held.sparse ? shape.sparseFrame : 0) +
                 carried,
             gathered(false), eachReduces ? ofBlock(&StateBytes::made) : 0, 0};
    const bool recomputes =
        std::accumulate(held.recomputed.begin(), held.recomputed.end(), 0L) > 0;
    // What was not saved is there again, of one layer.
    if (recomputes)
      block.again = std::max(
          held.plain ? shape.plain.none - shape.plain.of(point.recompute) : 0,
          held.sparse ? shape.sparse.none - shape.sparse.of(point.recompute)
                      : 0);
    // The head's gradients are waited for behind the first block.
    if (!areCut() && eachReduces && held.hasHead)
      block.buckets += madeByHead;
  }
  if (point.reduceFormat != point.gradients && point.dp * point.cp > 1) {
    if (eachReduces || point.overlaps)
      block.buckets += std::max(states.largest, segments.bucket);
  }
  const bool isInHead = head.bytes() > block.bytes();
  const Moment &peak = isInHead ? head : block;
  (isInHead ? memory.logits : memory.temporaries) = peak.frame + peak.again;
  memory.gathered = peak.gathered;
  memory.buckets = peak.buckets;
}

PlaceMemory PlaceEstimate::estimate() {
  addStates();
  memory.inputs = shape.inputsPerMicroBatch * point.microBatches;
  addSaved();
  addPeak();
  addPassing();
  memory.libraries = tables.libraries();
  return memory;
}

std::int64_t PlaceEstimate::withoutStorage() {
  memory.inputs = shape.inputsPerMicroBatch * point.microBatches;
  addSaved();
  addPeak();
  addPassing();
  memory.libraries = tables.libraries();
  return memory.bytes() - memory.gathered - memory.buckets;
}

class MemoryEstimator::Tables : public EstimateTables {
public:
  using EstimateTables::EstimateTables;
};

MemoryEstimator::MemoryEstimator(const ModelConfig &model,
                                 const TrainSettings &train,
                                 const Cluster &cluster)
    : tables(std::make_unique<Tables>(model, train, cluster)) {}
MemoryEstimator::~MemoryEstimator() = default;

Result<PlaceMemory> MemoryEstimator::at(const PlanPoint &point,
                                        std::int64_t place) const {
  const PointShape &shape = tables->shapeOf(point);
  if (!shape.fault.empty())
    return Error{shape.fault};
  Result<const std::vector<RankStages> *> stages = tables->stagesOf(point);
  if (!stages)
    return stages.error();
  return PlaceEstimate(*tables, point, shape, **stages, place).estimate();
}

Result<std::pair<std::int64_t, std::int64_t>>
MemoryEstimator::peak(const PlanPoint &point) const {
  std::pair<std::int64_t, std::int64_t> fullest = {0, 0};
  for (std::int64_t place = 0; place < point.pp; ++place) {
    Result<PlaceMemory> memory = at(point, place);
    if (!memory)
      return memory.error();
    if (memory->bytes() > fullest.first)
      fullest = {memory->bytes(), place};
  }
  return fullest;
}

bool MemoryEstimator::recomputeToFit(PlanPoint &point,
                                     std::int64_t capacity) const {
  const bool mayRecompute = point.recompute != PointRecompute::None;
  point.recomputed.assign(static_cast<std::size_t>(point.pp), 0);
  auto fits = [&](std::int64_t place) {
    Result<PlaceMemory> memory = at(point, place);
    return memory && memory->bytes() <= capacity;
  };
  for (std::int64_t place = 0; place < point.pp; ++place) {
    if (fits(place))
      continue;
    std::int64_t &count = point.recomputed[static_cast<std::size_t>(place)];
    std::int64_t low = 0, high = point.layersOf(place);
    count = high;
    if (!mayRecompute || !fits(place))
      return false;
    // Too few at low, enough at high. One layer that is computed again needs
    // room to do so: more layers always need less, but for the first.
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      count = middle;
      (fits(place) ? high : low) = middle;
    }
    count = high;
  }
  if (std::all_of(point.recomputed.begin(), point.recomputed.end(),
                  [](std::int64_t count) { return count == 0; })) {
    point.recompute = PointRecompute::None;
    point.recomputed.clear();
  }
  return true;
}

std::int64_t MemoryEstimator::states(const PlanPoint &point) const {
  const SegmentStates &segments = tables->segmentsOf(point);
  std::int64_t most = 0;
  for (std::int64_t place = 0; place < point.pp; ++place) {
    const StateBytes bytes =
        EstimateTables::statesOf(segments, tables->heldBy(point, place));
    most = std::max(most, bytes.parameters + bytes.gradients +
                              (point.offloadsOptimizer ? 0 : bytes.optimizer));
  }
  return most;
}

Result<LayerSaved> MemoryEstimator::layerSaved(const PlanPoint &point,
                                               bool hasExperts) const {
  const PointShape &shape = tables->shapeOf(point);
  if (!shape.fault.empty())
    return Error{shape.fault};
  return hasExperts ? shape.sparse : shape.plain;
}

//===----------------------------------------------------------------------===//
// Floors
//===----------------------------------------------------------------------===//

struct RecomputeFloor::Place {
  HeldByPlace held;
  /// Bytes without states where i layers are computed again; from 1 on never
  /// more with more of them.
  std::vector<std::int64_t> rest;
};

RecomputeFloor::~RecomputeFloor() = default;
RecomputeFloor::RecomputeFloor(RecomputeFloor &&) noexcept = default;

RecomputeFloor::RecomputeFloor(const MemoryEstimator &memory,
                               const PlanPoint &schedule, PointRecompute kind)
    : memory(memory) {
  const PointShape &shape = memory.tables->shapeOf(schedule);
  Result<const std::vector<RankStages> *> stages =
      memory.tables->stagesOf(schedule);
  if (!shape.fault.empty() || !stages)
    return; // no place: nothing fits
  PlanPoint point = schedule;
  point.zeroStage = 0; // nothing is gathered
  point.recompute = kind;
  point.recomputed.assign(static_cast<std::size_t>(point.pp), 0);
  for (std::int64_t i = 0; i < point.pp; ++i) {
    Place &place = places.emplace_back();
    place.held = memory.tables->heldBy(point, i);
    std::int64_t &count = point.recomputed[static_cast<std::size_t>(i)];
    const std::int64_t most =
        kind == PointRecompute::None ? 0 : point.layersOf(i);
    for (count = 0; count <= most; ++count)
      place.rest.push_back(
          PlaceEstimate(*memory.tables, point, shape, **stages, i)
              .withoutStorage());
  }
}

std::optional<std::vector<std::int64_t>>
RecomputeFloor::layersOf(const PlanPoint &storage,
                         std::int64_t capacity) const {
  if (places.empty())
    return std::nullopt;
  const SegmentStates &segments = memory.tables->segmentsOf(storage);
  std::vector<std::int64_t> layers;
  for (const Place &place : places) {
    const StateBytes bytes = EstimateTables::statesOf(segments, place.held);
    const std::int64_t left = capacity - bytes.parameters - bytes.gradients -
                              (storage.offloadsOptimizer ? 0 : bytes.optimizer);
    if (place.rest.front() <= left) {
      layers.push_back(0);
      continue;
    }
    const auto enough =
        std::partition_point(place.rest.begin() + 1, place.rest.end(),
                             [&](std::int64_t bytes) { return bytes > left; });
    if (enough == place.rest.end())
      return std::nullopt;
    layers.push_back(enough - place.rest.begin());
  }
  return layers;
}
