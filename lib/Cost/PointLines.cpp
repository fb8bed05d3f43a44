#include "PointLines.h"

#include "StepState.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

static std::int64_t orderBits(const PlanPoint &point) {
  std::int64_t bits = 0;
  for (PlanAxis axis : point.order)
    bits = bits << 2 | static_cast<std::int64_t>(axis);
  return bits;
}

static std::int64_t formatsOf(const PlanPoint &point) {
  const std::int64_t saved =
      std::int64_t{point.attention == PlanAttention::Unfused} << 2 |
      std::int64_t{point.dropoutMasks == PlanMasks::Saved} << 1 |
      std::int64_t{point.save == PlanSave::LinearInputs};
  return point.blockLength << 12 | saved << 9 | formatBits(point.recipe) << 6 |
         formatBits(point.gradients) << 3 | formatBits(point.reduceFormat);
}

PointKey heddle::detail::lineKey(const PlanPoint &point) {
  return {point.pp,
          point.dp,
          point.cp,
          point.tp,
          point.ep,
          point.microBatch,
          formatsOf(point) << 16 | orderBits(point),
          static_cast<std::int64_t>(point.context) << 1 |
              point.sequenceParallel};
}

PointKey heddle::detail::layerKey(const PlanPoint &point) {
  return {point.cp,
          point.tp,
          point.ep,
          point.microBatch,
          formatsOf(point),
          point.stride(PlanAxis::Tp) << 32 | point.stride(PlanAxis::Cp),
          point.ep > 1 ? point.stride(PlanAxis::Dp) : 0,
          static_cast<std::int64_t>(point.context) << 1 |
              point.sequenceParallel};
}

PointKey heddle::detail::stateKey(const PlanPoint &point) {
  // Bucketed below stage 3; no group without shards.
  const std::int64_t kind = point.zeroStage == 0 ? 0 : 1 + point.zeroStage / 3;
  return {point.pp,
          point.dp,
          point.cp,
          point.tp,
          point.ep,
          point.bucketBytes,
          formatsOf(point) << 16 | orderBits(point),
          kind << kShardingShift | (kind ? point.shardGroup : 0)};
}

/// What is gathered and summed counts where slots do it.
SlotKey heddle::detail::slotKey(const PlanPoint &point,
                                const ChunkContent &chunk) {
  const bool gathers = point.zeroStage >= 3 &&
                       point.gather != PlanGather::OncePerStep,
             sums = point.reduce == PlanReduce::EveryMicroBatch;
  const PointKey lines = lineKey(point), states = stateKey(point);
  SlotKey key;
  std::copy(lines.begin(), lines.end(), key.begin());
  key[7] = lines[7] << 8 | static_cast<std::int64_t>(point.recompute) << 6 |
           splitsBackward(point.schedule) << 5 |
           joinsSlots(point.schedule) << 4 | (point.zeroStage >= 3) << 3 |
           sums << 2 | (gathers ? static_cast<std::int64_t>(point.gather) : 3);
  const bool usesDp = gathers || sums;
  key[8] = usesDp ? states[7] : 0;
  key[9] = usesDp ? point.bucketBytes << 16 | point.prefetch << 1 |
                        std::int64_t{point.overlaps}
                  : 0;
  key[11] = point.offloaded
                ? std::int64_t{point.offloaded} << 16 | point.hostRows()
                : 0;
  key[10] = chunk.plain << 40 | chunk.sparse << 24 | chunk.again << 8 |
            chunk.hasEmbedding << 1 | std::int64_t{chunk.hasHead};
  return key;
}

/// As tasks on streams, of a layer alone: what overlaps within it does here
/// too. Behind other layers it never takes less.
static LineTimes linesOf(const SlotParts &parts, const ChunkContent &content) {
  SlotBuilder builder(parts);
  const bool mayWait = parts.tensorOverlap != TensorOverlap::None ||
                       parts.context == PlanContext::Ring;
  LineTimes times;
  for (const auto &[kind, field] :
       {std::pair{SlotKind::Forward, &OfSlots::forward},
        {SlotKind::Backward, &OfSlots::backward},
        {SlotKind::InputGrad, &OfSlots::inputGrad},
        {SlotKind::WeightGrad, &OfSlots::weightGrad}}) {
    const std::span<const StreamTask> tasks = builder.build(kind, content);
    times.*field = runStreams(tasks).seconds;
    for (const StreamTask &task : tasks)
      if (task.stream == computeStream && !mayWait)
        times.computed.*field += task.seconds;
  }
  return times;
}

/// Nothing slows what runs beside it: when it does so depends on what else
/// runs.
static SlotParts unslowedParts(const StepTimes::State &state,
                               const PlanPoint &point, bool joins) {
  SlotParts parts = partsOf(state, point, timerOf(state, point));
  if (joins)
    parts = withoutExchange(std::move(parts));
  for (LayerTimes *layer : {&parts.plain, &parts.sparse})
    for (Call *call : {&layer->gather, &layer->reduce, &layer->contextForward,
                       &layer->contextBackward, &layer->exchange})
      call->slows = 1;
  return parts;
}

PointLines heddle::detail::layerLines(const StepTimes::State &state,
                                      const PlanPoint &given, bool joins) {
  PlanPoint point = given;
  point.zeroStage = 0;
  point.shardGroup = 1;
  point.reduce = PlanReduce::Last;
  point.gather = PlanGather::OncePerStep;
  point.recompute = PointRecompute::None;
  point.offloaded = 0;
  const SlotParts parts = unslowedParts(state, point, joins);
  const bool hasPlain = state.sparseLayers() < state.model.layers,
             hasSparse = state.sparseLayers() > 0;
  PointLines lines;
  if (hasPlain)
    lines.plain = linesOf(parts, {.plain = 1});
  if (hasSparse)
    lines.sparse = linesOf(parts, {.sparse = 1});
  lines.embedding = linesOf(parts, {.hasEmbedding = true});
  lines.head = linesOf(parts, {.hasHead = true});
  for (PointRecompute kind :
       {PointRecompute::Selective, PointRecompute::Full}) {
    point.recompute = kind;
    const SlotParts again = unslowedParts(state, point, joins);
    const auto at = static_cast<std::size_t>(kind);
    if (hasPlain)
      lines.plain.again[at] =
          linesOf(again, {.plain = 1, .again = 1}).inputGrad -
          linesOf(again, {.plain = 1}).inputGrad;
    if (hasSparse)
      lines.sparse.again[at] =
          linesOf(again, {.sparse = 1, .again = 1}).inputGrad -
          linesOf(again, {.sparse = 1}).inputGrad;
  }
  return lines;
}

PointLines heddle::detail::pointLines(const StepTimes::State &state,
                                      const PlanPoint &point,
                                      PointLines layers) {
  const LayerTimer timer = timerOf(state, point);
  layers.transfer = timer.transferSeconds();
  layers.norm = timer.norm().seconds;
  return layers;
}

StateLines heddle::detail::stateLines(const StepTimes::State &state,
                                      const PlanPoint &point) {
  const LayerTimer timer = timerOf(state, point);
  StateLines lines;
  auto ofLayer = [&](bool hasExperts) -> StateLines::Segment {
    const LayerTimes layer = timer.layer(hasExperts);
    return {layer.parameters.seconds,
            layer.gradients.seconds,
            layer.attention.elements + layer.mlp.elements,
            layer.mlp.expertElements,
            layer.parameters.slows,
            layer.gradients.slows};
  };
  auto ofEnd = [](const EndTimes &end) -> StateLines::Segment {
    return {end.parameters.seconds, end.gradients.seconds, end.elements};
  };
  if (state.sparseLayers() < state.model.layers)
    lines.plain = ofLayer(false);
  if (state.sparseLayers() > 0)
    lines.sparse = ofLayer(true);
  lines.embedding = ofEnd(timer.embedding());
  lines.head = ofEnd(timer.head());
  for (bool offloads : {false, true})
    lines.optimizer[offloads] =
        timer.optimizer(offloads, state.hostBytesPerSecond);
  return lines;
}
