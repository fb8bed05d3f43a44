#include "heddle/Cost/MemoryEstimate.h"

#include "PlaceEstimate.h"
#include "Reductions.h"

#include <fmt/format.h>

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

std::int64_t PlaceMemory::bytes() const {
  return states() + inputs + saved + savedForInputs + rows + kept + logits +
         temporaries + gathered + buckets + passing + libraries;
}

std::vector<std::pair<std::string, std::int64_t>>
PlaceMemory::byReason() const {
  std::vector<std::pair<std::string, std::int64_t>> reasons = {
      {"parameters", parameters},
      {"gradients", gradients},
      {"optimizer", optimizer},
      {"inputs", inputs},
      {"saved for backward", saved + savedForInputs},
      {"on the way to the host and back", rows},
      {"kept for weight gradients", kept},
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
    memory.hostBytes = states.optimizer;
    memory.optimizer = 0;
  }
}

/// Layers of the chunk that has most of them: by 0, none; 1, what those save
/// that keep what they computed; 2, that compute it again; 3, both.
std::array<std::int64_t, 4> PlaceEstimate::mostLayers(bool isSparse) const {
  std::array<std::int64_t, 4> most = {};
  for (std::size_t i = 0; i < held.chunks.size(); ++i) {
    const PlaceLayers &layers = held.chunks[i];
    const std::int64_t all = isSparse ? layers.sparse : layers.plain,
                       again = isSparse
                                   ? layers.sparseAgain
                                   : held.recomputed[i] - layers.sparseAgain;
    most[1] = std::max(most[1], all - again);
    most[2] = std::max(most[2], again);
    most[3] = std::max(most[3], all);
  }
  return most;
}

/// One micro-batch's. Each value has room for the chunk that has most of it.
std::int64_t PlaceEstimate::savedOfSet(const LayerSaved &saved,
                                       bool isSparse) const {
  const std::array<std::int64_t, 4> most = mostLayers(isSparse);
  const SavedBytes &again = saved.of(point.recompute);
  return most[1] * (saved.none.all - again.withNone) +
         most[2] * (again.all - again.withNone) + most[3] * again.withNone;
}

/// Where weight gradients have slots of their own: until the last slot that
/// reads a value in any layer.
void PlaceEstimate::addSplit(const LayerShape &layer, bool isSparse) {
  const Choices again = choice(point.recompute) & ~kWithout;
  const std::array<std::int64_t, 4> layers = mostLayers(isSparse);
  auto count = [&](Choices choices) {
    return layers[(choices & kWithout ? 1 : 0) + (choices & again ? 2 : 0)];
  };
  for (const LayerValue &value : layer.values) {
    if (value.bit & point.offloaded)
      continue;
    const std::int64_t bytes =
        value.bytes * (count(value.saved) + (!isSparse && savesAll(value)));
    if (value.forWeights & held.choices)
      memory.saved += bytes * stage.sets;
    else
      memory.savedForInputs += bytes * stage.inputSets;
    memory.kept += value.bytes * count(value.kept) * stage.keptSets;
  }
}

/// What all layers save and the host has: a few rows of it are here.
void PlaceEstimate::moveToHost(const LayerShape &layer, bool isSparse) {
  const std::int64_t layers = mostLayers(isSparse)[3];
  for (const LayerValue &value : layer.values) {
    if (layers == 0 || !(value.bit & point.offloaded))
      continue;
    const std::int64_t sets =
        stage.splitsBackward && !(value.forWeights & held.choices)
            ? stage.inputSets
            : memory.sets;
    memory.hostBytes += value.bytes * layers * sets;
    memory.rows += value.bytes * point.hostRows();
    if (!stage.splitsBackward)
      memory.saved -= value.bytes * layers * memory.sets;
  }
}

bool PlaceEstimate::keepsExperts() const {
  return std::any_of(held.chunks.begin(), held.chunks.end(),
                     [](const PlaceLayers &layers) {
                       return layers.sparse > layers.sparseAgain;
                     });
}

void PlaceEstimate::addSaved() {
  memory.savedPerLayer = std::max(held.sparse ? shape.sparse.saved.none.all : 0,
                                  held.plain ? shape.plain.saved.none.all : 0);
  memory.sets = areCut() ? stage.sets : 1;
  std::int64_t longest = 0;
  for (const PlaceLayers &chunk : held.chunks)
    longest = std::max(longest, chunk.all());
  // A set has room for any chunk of the place, and one value more that goes
  // out.
  if (stage.splitsBackward) {
    memory.inputSets = stage.inputSets;
    memory.keptSets = stage.keptSets;
    addSplit(shape.plain, false);
    addSplit(shape.sparse, true);
  } else {
    std::int64_t set = savedOfSet(shape.plain.saved, false) +
                       savedOfSet(shape.sparse.saved, true);
    for (const LayerValue &value : shape.plain.values)
      set += savesAll(value) ? value.bytes : 0;
    memory.saved = set * memory.sets;
  }
  if (point.offloaded) {
    moveToHost(shape.plain, false);
    moveToHost(shape.sparse, true);
  }
  if (areCut() && held.hasHead)
    memory.saved += 2 * shape.edge * stage.headSets;
  if (keepsExperts())
    memory.worstExperts =
        memory.sets * longest * shape.sparse.saved.ofExperts * (point.ep - 1);
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

/// Of layers that the place holds, whether computed again or not.
std::int64_t PlaceEstimate::mostOf(std::int64_t LayerFrames::*frame) const {
  std::int64_t most = 0;
  auto add = [&](PointRecompute kind) {
    const auto at = static_cast<std::size_t>(kind);
    most = std::max({most, held.plain ? shape.plain.frames[at].*frame : 0,
                     held.sparse ? shape.sparse.frames[at].*frame : 0});
  };
  if (held.allRecomputed < held.plain + held.sparse)
    add(PointRecompute::None);
  if (held.allRecomputed > 0)
    add(point.recompute);
  return most;
}

std::int64_t PlaceEstimate::blockFrame() const {
  return mostOf(stage.splitsBackward ? &LayerFrames::halves
                                     : &LayerFrames::backward);
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

/// Of the optimizer's numbers, where these are on the host.
std::int64_t PlaceEstimate::optimizerRows() const {
  if (!point.offloadsOptimizer)
    return 0;
  OptimizerRows rows;
  auto follow = [&](const OptimizerRows &of, std::int64_t times) {
    rows.pair =
        std::max({rows.pair, rows.last + times * of.first, times * of.pair});
    rows.last = times * of.last;
  };
  if (held.hasEmbedding)
    follow(segments.rowsOfEmbedding, 1);
  else if (held.hasHead)
    follow(segments.rowsOfTable, 1);
  if (held.plain + held.sparse > 0)
    follow(segments.rowsOfBlock, point.hostRows());
  if (held.hasHead)
    follow(segments.rowsOfHead, 1);
  return rows.pair;
}

/// Behind all slots nothing is saved or passed on any more.
std::int64_t PlaceEstimate::tableOfBothEnds() const {
  if (!areCut() || held.hasEmbedding == held.hasHead ||
      point.schedule == PlanScheduleKind::DualPipe)
    return 0;
  return segments.ofBothEnds;
}

/// The head, a block's forward or backward, the embedding or the sum of a
/// table's two gradients: the one that needs most.
void PlaceEstimate::addPeak() {
  memory.temporaries = blockFrame();
  Beside beside = besideBlock();
  const Beside head = besideHead(), embedding = besideEmbedding(),
               forward = besideForward();
  auto most = [&] { return memory.temporaries + beside.bytes(); };
  if (forwardFrame() + forward.bytes() > most()) {
    memory.temporaries = forwardFrame();
    beside = forward;
  }
  if (shape.edge + embedding.bytes() > most()) {
    memory.temporaries = shape.edge;
    beside = embedding;
  }
  if (headFrame() + head.bytes() > most()) {
    memory.logits = headFrame();
    memory.temporaries = 0;
    beside = head;
  }
  const std::int64_t saved = memory.saved + memory.savedForInputs +
                             memory.rows + memory.kept + memory.passing;
  if (besideEnds() > saved + memory.logits + most()) {
    memory.saved = memory.savedForInputs = memory.kept = 0;
    memory.passing = memory.logits = memory.temporaries = 0;
    const bool isTable = tableOfBothEnds() > optimizerRows();
    beside = {0, isTable ? tableOfBothEnds() : 0};
    memory.rows = isTable ? 0 : optimizerRows();
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

MemoryEstimator::MemoryEstimator(const ModelConfig &model,
                                 const TrainSettings &train,
                                 const Cluster &cluster)
    : tables(std::make_unique<Tables>(model, train, cluster.device.isHost)) {}
MemoryEstimator::MemoryEstimator(std::unique_ptr<Tables> tables)
    : tables(std::move(tables)) {}
MemoryEstimator::~MemoryEstimator() = default;

const MemoryEstimator &MemoryEstimator::ofThread(std::size_t number) const {
  if (number == 0)
    return *this;
  while (ofOtherThreads.size() < number)
    ofOtherThreads.push_back(std::unique_ptr<MemoryEstimator>(
        new MemoryEstimator(std::make_unique<Tables>(*tables))));
  return *ofOtherThreads[number - 1];
}

Result<PlaceMemory> MemoryEstimator::at(const PlanPoint &point,
                                        std::int64_t place) const {
  const PointShape &shape = tables->shapeOf(point);
  if (!shape.fault.empty())
    return Error{shape.fault};
  Result<const std::vector<RankStages> *> stages = tables->stagesOf(point);
  if (!stages)
    return stages.error();
  const HeldByPlace held = tables->heldBy(point, place);
  if (const std::uint32_t may = shape.mayGoToHost(held.choices);
      point.offloaded & ~may)
    return Error{fmt::format(
        "offload.saved: found {}, expected values that all layers save for "
        "backward, and that do not flow on to the next layer: {}",
        offloadedText(point.offloaded), offloadedText(may))};
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
  auto fits = [&](std::int64_t place) {
    Result<PlaceMemory> memory = at(point, place);
    return memory && memory->bytes() <= capacity;
  };
  point.recomputed.clear();
  bool allFit = true;
  for (std::int64_t place = 0; allFit && place < point.pp; ++place)
    allFit = fits(place);
  if (allFit || point.recompute == PointRecompute::None) {
    point.recompute = PointRecompute::None;
    return allFit;
  }
  // Where some layers are computed again, the others may save more.
  point.recomputed.assign(static_cast<std::size_t>(point.pp), 0);
  for (std::int64_t place = 0; place < point.pp; ++place) {
    if (fits(place))
      continue;
    std::int64_t &count = point.recomputed[static_cast<std::size_t>(place)];
    std::int64_t low = 0, high = point.layersOf(place);
    count = high;
    if (!fits(place))
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
  if (std::any_of(point.recomputed.begin(), point.recomputed.end(),
                  [](std::int64_t n) { return n > 0; }))
    return true;
  // As FitTable::fewest: without any layer it is the plan that does not fit.
  for (std::int64_t place = 0; place < point.pp; ++place) {
    std::int64_t &count = point.recomputed[static_cast<std::size_t>(place)];
    count = std::min<std::int64_t>(1, point.layersOf(place));
    if (count > 0 && fits(place))
      return true;
    count = 0;
  }
  return false;
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
  LayerShape layer = hasExperts ? shape.sparse : shape.plain;
  const std::int64_t ofExperts = layer.saved.ofExperts;
  std::erase_if(layer.values, [&](const LayerValue &value) {
    return value.bit & point.offloaded;
  });
  layer.sum();
  layer.saved.ofExperts = ofExperts;
  return layer.saved;
}
