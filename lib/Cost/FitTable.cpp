#include "PlaceEstimate.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

struct FitTable::Place {
  const RankStages *stage = nullptr;
  HeldByPlace held;
  std::int64_t layers = 0;
  // Whatever is stored how: bytes of the rest by kind of recompute and number
  // of layers where others of the model are not computed again, and where all
  // are; -1 where nobody asked; and frames, without recompute and by kind.
  std::array<std::vector<std::int64_t>, 3> rest;
  std::array<std::int64_t, 3> restOfAll = {-1, -1, -1};
  std::int64_t headFrame = 0;
  std::array<std::int64_t, 3> blockFrame = {}, forwardFrame = {};
  // Of the storage that was taken.
  std::int64_t states = 0, besideHead = 0, besideBlock = 0, besideForward = 0,
               ofEmbedding = 0, ofEnds = 0;
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
      place.forwardFrame[kind] = estimateOf(place).forwardFrame();
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
    place.besideForward = estimate.besideForward().bytes();
    place.ofEmbedding = shape.edge + estimate.besideEmbedding().bytes();
    place.ofEnds = estimate.besideEnds() +
                   shape.inputsPerMicroBatch * point.microBatches +
                   tables.libraries();
  }
}

void FitTable::takeOnlyStates(const PlanPoint &storage) {
  take(storage);
  for (Place &place : places)
    place.besideHead = place.besideBlock = place.besideForward =
        place.ofEmbedding = place.ofEnds = 0;
}

/// Of the storage that was taken, with so many layers computed again: all of
/// the model's, or not.
std::int64_t FitTable::bytesOf(std::size_t index, PointRecompute kind,
                               std::int64_t count, bool isAll) {
  Place &place = places[index];
  const auto at = static_cast<std::size_t>(kind);
  std::int64_t &rest = isAll ? place.restOfAll[at]
                             : place.rest[at][static_cast<std::size_t>(count)];
  if (rest < 0) {
    point.recompute = kind;
    tables.setRecomputed(place.held, point, static_cast<std::int64_t>(index),
                         count);
    place.held.choices = choice(kind) | (isAll ? 0 : kWithout);
    rest = estimateOf(place).rest();
  }
  auto frame = [&](const std::array<std::int64_t, 3> &frames) {
    return std::max(count < place.layers ? frames[0] : 0,
                    count > 0 ? frames[at] : 0);
  };
  const std::int64_t most =
      std::max({place.headFrame + place.besideHead, place.ofEmbedding,
                frame(place.blockFrame) + place.besideBlock,
                frame(place.forwardFrame) + place.besideForward});
  return place.states + std::max(rest + most, place.ofEnds);
}

bool FitTable::fewest(PointRecompute kind, std::int64_t capacity,
                      std::vector<std::int64_t> &layers) {
  if (places.empty())
    return false;
  layers.assign(places.size(), 0);
  std::size_t first = 0;
  while (first < places.size() &&
         bytesOf(first, PointRecompute::None, 0) <= capacity)
    ++first;
  if (first == places.size() || kind == PointRecompute::None)
    return first == places.size();
  // Where some layers are computed again, the others may save more.
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (bytesOf(i, kind, 0) <= capacity)
      continue;
    std::int64_t low = 0, high = places[i].layers;
    if (high == 0 || bytesOf(i, kind, high) > capacity)
      return false;
    // Too few at low, enough at high. One layer that is computed again needs
    // room to do so: more layers always need less, but for the first.
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (bytesOf(i, kind, middle) <= capacity ? high : low) = middle;
    }
    layers[i] = high;
  }
  if (std::any_of(layers.begin(), layers.end(), [](auto n) { return n > 0; }))
    return true;
  // Each place fits if any layer of the model is computed again, as then not
  // all save what flows on; with none it is the plan that does not fit.
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i].layers > 0 && bytesOf(i, kind, 1) <= capacity) {
      layers[i] = 1;
      return true;
    }
  return false;
}

bool FitTable::fitsWithAll(PointRecompute kind, std::int64_t capacity,
                           std::vector<std::int64_t> &layers) {
  layers.clear();
  for (std::size_t i = 0; i < places.size(); ++i) {
    layers.push_back(places[i].layers);
    if (bytesOf(i, kind, places[i].layers, true) > capacity)
      return false;
  }
  return !places.empty();
}

std::optional<std::int64_t> FitTable::leastBytes(PointRecompute kind) {
  std::optional<std::int64_t> most;
  for (std::size_t i = 0; i < places.size(); ++i)
    most = std::max(most.value_or(0),
                    bytesOf(i, kind,
                            kind == PointRecompute::None ? 0 : places[i].layers,
                            true));
  return most;
}
