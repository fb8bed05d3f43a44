#include "heddle/Cost/MemoryEstimate.h"

#include "EstimateTables.h"
#include "Reductions.h"

#include <algorithm>

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
  Beside besideHead() const;
  Beside besideBlock() const;
  /// Forward of the embedding gathers tables, backward makes their gradients.
  Beside besideEmbedding() const;
  std::int64_t besideEnds() const;

private:
  void addStates();
  void addRest();
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
  // A set has room for any chunk of the place, and one more x2 that goes out.
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
  return states.copiesForBackward +
         (isHead ? segments.head.copies + segments.tiedTable.copies : 0);
}

std::int64_t PlaceEstimate::headFrame() const {
  return held.hasHead ? shape.headFrame + (areCut() ? 1 : 2) * shape.edge : 0;
}

std::int64_t PlaceEstimate::blockFrame() const {
  if (held.plain + held.sparse == 0)
    return 0;
  std::int64_t again = 0;
  // What was not saved is there again, of one layer.
  if (held.allRecomputed > 0)
    again = std::max(
        held.plain ? shape.plain.none - shape.plain.of(point.recompute) : 0,
        held.sparse ? shape.sparse.none - shape.sparse.of(point.recompute) : 0);
  return std::max(held.plain ? shape.plainFrame : 0,
                  held.sparse ? shape.sparseFrame : 0) +
         shape.edge + again;
}

Beside PlaceEstimate::besideHead() const {
  if (!held.hasHead)
    return {};
  return {gathered(true),
          reducesEach() ? segments.head.made + segments.tiedTable.made : 0};
}

Beside PlaceEstimate::besideBlock() const {
  Beside block;
  const bool eachReduces = reducesEach();
  if (held.plain + held.sparse > 0) {
    block = {gathered(false), eachReduces ? ofBlock(&StateBytes::made) : 0};
    // The head's gradients are waited for behind the first block.
    if (!areCut() && eachReduces && held.hasHead)
      block.buckets += segments.head.made + segments.tiedTable.made;
  }
  if (point.dp * point.cp > 1 && (eachReduces || point.overlaps) &&
      formatBits(point.reduceFormat) != formatBits(point.gradients))
    block.buckets += std::max(states.largest, segments.bucket);
  return block;
}

Beside PlaceEstimate::besideEmbedding() const {
  if (!areCut() || !held.hasEmbedding)
    return {};
  const std::int64_t copies = areInRuns() ? segments.embedding.copies : 0,
                     made = reducesEach() ? segments.embedding.made : 0;
  return copies > made ? Beside{copies, 0} : Beside{0, made};
}

/// Behind all slots nothing is saved or passed on any more.
std::int64_t PlaceEstimate::besideEnds() const {
  if (!areCut() || held.hasEmbedding == held.hasHead ||
      point.schedule == PlanScheduleKind::DualPipe)
    return 0;
  return segments.ofBothEnds;
}

/// The head, a block's backward, the embedding or the sum of a table's two
/// gradients: the one that needs most.
void PlaceEstimate::addPeak() {
  memory.temporaries = blockFrame();
  Beside beside = besideBlock();
  const Beside head = besideHead(), embedding = besideEmbedding();
  auto most = [&] { return memory.temporaries + beside.bytes(); };
  if (shape.edge + embedding.bytes() > most()) {
    memory.temporaries = shape.edge;
    beside = embedding;
  }
  if (headFrame() + head.bytes() > most()) {
    memory.logits = headFrame();
    memory.temporaries = 0;
    beside = head;
  }
  const std::int64_t saved = memory.saved + memory.passing;
  if (besideEnds() > saved + memory.logits + most()) {
    memory.saved = memory.passing = memory.logits = memory.temporaries = 0;
    beside = {0, besideEnds()};
  }
  memory.gathered = beside.gathered;
  memory.buckets = beside.buckets;
}

void PlaceEstimate::addRest() {
  memory.inputs = shape.inputsPerMicroBatch * point.microBatches;
  addSaved();
  addPassing();
  memory.libraries = tables.libraries();
}

PlaceMemory PlaceEstimate::estimate() {
  addStates();
  addRest();
  addPeak();
  return memory;
}

std::int64_t PlaceEstimate::rest() {
  addRest();
  return memory.bytes();
}

std::int64_t PlaceEstimate::ofStates() {
  addStates();
  return memory.states();
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
  const HeldByPlace held = tables->heldBy(point, place);
  return PlaceEstimate(*tables, point, shape,
                       (**stages)[static_cast<std::size_t>(place)], held,
                       tables->segmentsOf(point))
      .estimate();
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
// Fits
//===----------------------------------------------------------------------===//

struct FitTable::Place {
  const RankStages *stage = nullptr;
  HeldByPlace held;
  std::int64_t layers = 0;
  // Whatever is stored how: bytes of the rest by kind of recompute and number
  // of layers, -1 where nobody asked; and frames, without recompute and by
  // kind.
  std::array<std::vector<std::int64_t>, 3> rest;
  std::int64_t headFrame = 0;
  std::array<std::int64_t, 3> blockFrame = {};
  // Of the storage that was taken.
  std::int64_t states = 0, besideHead = 0, besideBlock = 0, ofEmbedding = 0,
               ofEnds = 0;
};

FitTable::~FitTable() = default;

FitTable::FitTable(const MemoryEstimator &memory, const PlanPoint &schedule)
    : tables(*memory.tables), shape(tables.shapeOf(schedule)), point(schedule) {
  Result<const std::vector<RankStages> *> stages = tables.stagesOf(schedule);
  if (!shape.fault.empty() || !stages)
    return; // no place: nothing fits
  point.recomputed.clear();
  segments = &tables.segmentsOf(point);
  places.resize(static_cast<std::size_t>(point.pp));
  for (std::size_t i = 0; i < places.size(); ++i) {
    Place &place = places[i];
    place.stage = &(**stages)[i];
    place.held = tables.heldBy(point, static_cast<std::int64_t>(i));
    place.layers = place.held.plain + place.held.sparse;
    for (int kind = 0; kind < 3; ++kind) {
      point.recompute = static_cast<PointRecompute>(kind);
      place.rest[kind].assign(
          kind ? static_cast<std::size_t>(place.layers) + 1 : 1, -1);
      place.held.allRecomputed = kind ? place.layers : 0;
      place.blockFrame[kind] = estimateOf(place).blockFrame();
    }
    place.headFrame = estimateOf(place).headFrame();
  }
}

PlaceEstimate FitTable::estimateOf(const Place &place) const {
  return PlaceEstimate(tables, point, shape, *place.stage, place.held,
                       *segments);
}

void FitTable::take(const PlanPoint &storage) {
  point.zeroStage = storage.zeroStage;
  point.shardGroup = storage.shardGroup;
  point.prefetch = storage.prefetch;
  point.reduce = storage.reduce;
  point.gather = storage.gather;
  point.offloadsOptimizer = storage.offloadsOptimizer;
  if (places.empty())
    return;
  segments = &tables.segmentsOf(point);
  for (Place &place : places) {
    PlaceEstimate estimate = estimateOf(place);
    place.states = estimate.ofStates();
    place.besideHead = estimate.besideHead().bytes();
    place.besideBlock = estimate.besideBlock().bytes();
    place.ofEmbedding = shape.edge + estimate.besideEmbedding().bytes();
    place.ofEnds = estimate.besideEnds() +
                   shape.inputsPerMicroBatch * point.microBatches +
                   tables.libraries();
  }
}

void FitTable::takeOnlyStates(const PlanPoint &storage) {
  take(storage);
  for (Place &place : places)
    place.besideHead = place.besideBlock = place.ofEmbedding = place.ofEnds = 0;
}

/// Of the storage that was taken, with so many layers computed again.
std::int64_t FitTable::bytesOf(std::size_t index, PointRecompute kind,
                               std::int64_t count) {
  Place &place = places[index];
  const auto at = static_cast<std::size_t>(kind);
  std::int64_t &rest = place.rest[at][static_cast<std::size_t>(count)];
  if (rest < 0) {
    point.recompute = kind;
    tables.setRecomputed(place.held, point, static_cast<std::int64_t>(index),
                         count);
    rest = estimateOf(place).rest();
  }
  const std::int64_t most =
      std::max({place.headFrame + place.besideHead, place.ofEmbedding,
                place.blockFrame[count ? at : 0] + place.besideBlock});
  return place.states + std::max(rest + most, place.ofEnds);
}

bool FitTable::fewest(PointRecompute kind, std::int64_t capacity,
                      std::vector<std::int64_t> &layers) {
  if (places.empty())
    return false;
  layers.assign(places.size(), 0);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (bytesOf(i, PointRecompute::None, 0) <= capacity)
      continue;
    std::int64_t low = 0, high = places[i].layers;
    if (kind == PointRecompute::None || high == 0 ||
        bytesOf(i, kind, high) > capacity)
      return false;
    // Too few at low, enough at high. One layer that is computed again needs
    // room to do so: more layers always need less, but for the first.
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (bytesOf(i, kind, middle) <= capacity ? high : low) = middle;
    }
    layers[i] = high;
  }
  return true;
}

bool FitTable::fitsWithAll(PointRecompute kind, std::int64_t capacity,
                           std::vector<std::int64_t> &layers) {
  layers.clear();
  for (std::size_t i = 0; i < places.size(); ++i) {
    layers.push_back(places[i].layers);
    if (bytesOf(i, kind, places[i].layers) > capacity)
      return false;
  }
  return !places.empty();
}

std::optional<std::int64_t> FitTable::leastBytes(PointRecompute kind) {
  std::optional<std::int64_t> most;
  for (std::size_t i = 0; i < places.size(); ++i)
    most = std::max(
        most.value_or(0),
        bytesOf(i, kind, kind == PointRecompute::None ? 0 : places[i].layers));
  return most;
}
