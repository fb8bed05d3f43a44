#include "StepState.h"

#include "heddle/Schedule/Generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

using namespace heddle;
using namespace heddle::detail;

/// Where no file says: PCIe 5.0 x16.
static constexpr double kHostBytesPerSecond = 64e9;
/// A planner goes from one number of micro-batches to the next.
static constexpr std::size_t kMostSchedules = 64;

StepTimes::State::State(const ModelConfig &model, const TrainSettings &train,
                        const Cluster &cluster, const Practice &practice,
                        KernelTimes kernels)
    : model(model), train(train), device(cluster.device), practice(practice),
      kernels(std::move(kernels)), collectives(cluster),
      hostBytesPerSecond(
          cluster.hostLinkBytesPerSecond.value_or(kHostBytesPerSecond)),
      tables(model, train, cluster.device.isHost) {
  sparseBefore.push_back(0);
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    sparseBefore.push_back(sparseBefore.back() +
                           (model.experts && model.hasExperts(layer)));
}

std::string_view StepTimes::State::peakName(const PlanPoint &point) const {
  const std::optional<ProductFormat> format = productFormat(point.recipe);
  return format ? heddle::peakName(*format) : "";
}

Result<const PreparedSchedule *>
StepTimes::State::schedule(const PlanPoint &point) const {
  const Key key = {point.schedule, point.pp, point.chunks, point.microBatches};
  auto found = schedules.find(key);
  if (found == schedules.end()) {
    Result<ScheduleTable> made = generateSchedule(
        point.schedule, point.pp, point.chunks, point.microBatches);
    if (!made)
      return made.error();
    if (schedules.size() >= kMostSchedules)
      schedules.clear();
    found = schedules.emplace(key, PreparedSchedule(*made)).first;
  }
  return &found->second;
}

const PointLines &StepTimes::State::lines(const PlanPoint &point,
                                          bool joins) const {
  PointKey key = lineKey(point), ofLayers = layerKey(point);
  key.back() = key.back() << 1 | joins;
  ofLayers.back() = ofLayers.back() << 1 | joins;
  return knownLines.get(key, [&] {
    return pointLines(*this, point, knownLayers.get(ofLayers, [&] {
      return layerLines(*this, point, joins);
    }));
  });
}

const StateLines &StepTimes::State::states(const PlanPoint &point) const {
  return knownStates.get(stateKey(point),
                         [&] { return stateLines(*this, point); });
}

Result<StepTimes> StepTimes::of(const ModelConfig &model,
                                const TrainSettings &train,
                                const Cluster &cluster,
                                const Practice &practice) {
  Result<KernelTimes> kernels = KernelTimes::of(cluster.device);
  if (!kernels)
    return kernels.error();
  return StepTimes(std::make_unique<State>(model, train, cluster, practice,
                                           std::move(*kernels)));
}

StepTimes StepTimes::another() const {
  return StepTimes(std::make_unique<State>(*state));
}

const StepTimes &StepTimes::ofThread(std::size_t number) const {
  if (number == 0)
    return *this;
  std::vector<std::unique_ptr<StepTimes>> &others = state->ofOtherThreads;
  while (others.size() < number)
    others.push_back(std::make_unique<StepTimes>(another()));
  return *others[number - 1];
}

StepTimes::StepTimes(std::unique_ptr<State> state) : state(std::move(state)) {}
StepTimes::StepTimes(StepTimes &&) noexcept = default;
StepTimes::~StepTimes() = default;

Result<void> heddle::detail::checkLayers(const StepTimes::State &state,
                                         const PlanPoint &point) {
  if (std::ssize(point.layers) == point.pp * point.chunks &&
      std::accumulate(point.layers.begin(), point.layers.end(),
                      std::int64_t{0}) == state.model.layers)
    return {};
  return Error{fmt::format("found {} numbers of layers for pp {} x chunks {}, "
                           "expected one each, of {} layers together",
                           point.layers.size(), point.pp, point.chunks,
                           state.model.layers)};
}

LayerTimer heddle::detail::timerOf(const StepTimes::State &state,
                                   const PlanPoint &point) {
  return LayerTimer(state.model, state.train, state.kernels, state.collectives,
                    state.practice, point);
}

SlotParts heddle::detail::partsOf(const StepTimes::State &state,
                                  const PlanPoint &point,
                                  const LayerTimer &timer) {
  SlotParts parts;
  if (state.sparseLayers() < state.model.layers)
    parts.plain = timer.layer(false);
  if (state.sparseLayers() > 0)
    parts.sparse = timer.layer(true);
  parts.embedding = timer.embedding();
  parts.head = timer.head();
  parts.tensorOverlap = state.practice.tensorOverlap;
  parts.context = point.context;
  parts.tp = static_cast<double>(point.tp);
  parts.prefetch = point.prefetch;
  parts.overlaps = point.overlaps;
  parts.gathersBetweenUnits = state.practice.gathersBetweenUnits;
  if (point.zeroStage >= 3) {
    parts.gathersForward = point.gather != PlanGather::OncePerStep;
    parts.gathersBackward = point.gather == PlanGather::EveryPass;
  }
  parts.sums = point.reduce == PlanReduce::EveryMicroBatch;
  if (point.offloaded) {
    const PointShape &shape = state.tables.shapeOf(point);
    parts.hostRows = point.hostRows();
    parts.plain.copies = timer.copies(shape.plain, state.hostBytesPerSecond);
    parts.sparse.copies = timer.copies(shape.sparse, state.hostBytesPerSecond);
  }
  return parts;
}

ChunkContent heddle::detail::contentOf(const StepTimes::State &state,
                                       const PlanPoint &point,
                                       std::int64_t rank, std::int64_t chunk) {
  const std::int64_t stage = point.stageOf(rank, chunk);
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < stage; ++i)
    first += point.layers[static_cast<std::size_t>(i)];
  const std::int64_t layers = point.layers[static_cast<std::size_t>(stage)];
  auto before = [&](std::int64_t layer) {
    return state.sparseBefore[static_cast<std::size_t>(layer)];
  };
  ChunkContent content;
  content.sparse = before(first + layers) - before(first);
  content.plain = layers - content.sparse;
  if (!point.recomputed.empty())
    content.again = std::min(
        layers, point.recomputedOf(rank)[static_cast<std::size_t>(chunk)]);
  content.hasEmbedding = stage == 0;
  content.hasHead = stage + 1 == std::ssize(point.layers);
  return content;
}
