#include "PlaceEstimate.h"

#include <algorithm>
#include <functional>

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
  /// With so much of all layers on the host, in so many rows.
  std::vector<std::pair<std::array<std::int64_t, 3>, std::int64_t>>
      restOffloaded;
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

std::int64_t &FitTable::restOf(Place &place, PointRecompute kind,
                               std::int64_t count, bool isAll) const {
  const auto at = static_cast<std::size_t>(kind);
  if (point.offloaded) {
    const std::array<std::int64_t, 3> key = {static_cast<std::int64_t>(kind),
                                             point.offloaded, point.prefetch};
    for (auto &[known, bytes] : place.restOffloaded)
      if (known == key)
        return bytes;
    return place.restOffloaded.emplace_back(key, -1).second;
  }
  return isAll ? place.restOfAll[at]
               : place.rest[at][static_cast<std::size_t>(count)];
}

/// Of the storage that was taken, with so many layers computed again: all of
/// the model's, or not.
std::int64_t FitTable::bytesOf(std::size_t index, PointRecompute kind,
                               std::int64_t count, bool isAll) {
  Place &place = places[index];
  const auto at = static_cast<std::size_t>(kind);
  std::int64_t &rest = restOf(place, kind, count, isAll);
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

const std::vector<std::uint32_t> &FitTable::offloads(PointRecompute kind) {
  std::optional<std::vector<std::uint32_t>> &made =
      sets[static_cast<std::size_t>(kind)];
  if (!made)
    made = makeOffloads(kind);
  return *made;
}

std::vector<std::uint32_t> FitTable::makeOffloads(PointRecompute kind) const {
  const LayerShape &layer =
      shape.plain.values.empty() ? shape.sparse : shape.plain;
  const std::uint32_t may = shape.mayGoToHost(choice(kind));
  std::vector<std::pair<std::int64_t, std::uint32_t>> values;
  std::int64_t all = 0;
  for (const LayerValue &value : layer.values)
    if (value.bit & may) {
      values.emplace_back(value.bytes, value.bit);
      all += value.bytes;
    }
  std::ranges::stable_sort(values, std::greater<>(),
                           &std::pair<std::int64_t, std::uint32_t>::first);
  constexpr std::int64_t few = 100; // statistics are not worth a copy
  std::vector<std::uint32_t> list;
  for (const auto &[bytes, bit] : values)
    if (bytes > all / few)
      list.push_back((list.empty() ? 0 : list.back()) | bit);
  return list;
}

bool FitTable::fitsOffloaded(PointRecompute kind, std::uint32_t offloaded,
                             std::int64_t capacity,
                             std::vector<std::int64_t> &layers) {
  if (offloaded & ~shape.mayGoToHost(choice(kind)))
    return false;
  point.offloaded = offloaded;
  layers.clear();
  bool fits = !places.empty();
  for (std::size_t i = 0; fits && i < places.size(); ++i) {
    const std::int64_t count =
        kind == PointRecompute::None ? 0 : places[i].layers;
    layers.push_back(count);
    fits = bytesOf(i, kind, count, true) <= capacity;
  }
  point.offloaded = 0;
  return fits;
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
