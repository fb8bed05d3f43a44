// What a step computes and sends, of the busiest place.

#include "Step.h"

#include "heddle/Cost/Flops.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

static double real(std::int64_t value) { return static_cast<double>(value); }

void Step::count(StepTime &step) const {
  const double m = real(point.microBatches);
  const double rest = real(point.ranks() / point.pp) * m;
  auto addEnd = [&](const EndTimes &end) {
    for (const ComputeSeconds &each :
         {end.forward, end.inputGrad, end.weightGrad})
      step.compute += each * m;
  };
  double again = 0;
  for (std::int64_t rank = 0; rank < point.pp; ++rank)
    for (std::size_t index : places[static_cast<std::size_t>(rank)].chunks) {
      const ChunkContent &chunk = timed[index].content;
      for (std::int64_t i = 0; i < chunk.layers(); ++i) {
        const LayerTimes &layer = parts.layer(chunk, i);
        for (const PartTimes *part : {&layer.attention, &layer.mlp}) {
          if (i < chunk.again)
            again += rest * part->againFlops;
          if (rank != step.busiest)
            continue;
          for (const ComputeSeconds &each :
               {part->forward, part->inputGrad, part->weightGrad})
            step.compute += each * m;
          if (i < chunk.again)
            step.compute += part->again * m;
        }
      }
      if (rank == step.busiest && chunk.hasHead)
        addEnd(parts.head);
      if (rank == step.busiest && chunk.hasEmbedding)
        addEnd(parts.embedding);
    }
  const std::int64_t sequences =
      point.dp * point.microBatches * point.microBatch;
  step.modelFlops =
      modelFlopsPerStep(state.model, sequences, state.train.sequenceLength);
  step.hardwareFlops = step.modelFlops + again;
  step.tokens = real(sequences) * real(state.train.sequenceLength);
  step.ranks = point.ranks();
  step.peakFlops = state.device.peak(state.peakName(point));
}

/// The links that groups cross.
void Step::countLinks(StepTime &step) const {
  const PointGroups &groups = timer.groups();
  const GroupOnCluster &states =
      groups.copies.level > groups.shards.level ? groups.copies : groups.shards;
  for (const auto &[axis, group] : {std::pair{TimeAxis::Tp, &groups.tp},
                                    {TimeAxis::Cp, &groups.cp},
                                    {TimeAxis::Ep, &groups.ep},
                                    {TimeAxis::Dp, &states},
                                    {TimeAxis::Pp, &groups.pp}}) {
    AxisTime &of = step.axes[static_cast<std::size_t>(axis)];
    of.level = group->level;
    of.slowestBytesPerSecond = group->slowestBytesPerSecond;
  }
}

/// Calls and bytes of the busiest place.
void Step::countAxes(StepTime &step) const {
  const double m = real(point.microBatches);
  auto add = [&](TimeAxis axis, const Call &call, double times) {
    AxisTime &of = step.axes[static_cast<std::size_t>(axis)];
    of.seconds += call.seconds * times;
    of.bytesPerRank += call.bytes * times;
  };
  const bool isOnce = sumsOnce();
  double gathers = point.zeroStage == 0 ? 0
                   : point.zeroStage < 3
                       ? 1
                       : m * (parts.gathersForward + parts.gathersBackward);
  if (point.zeroStage >= 3 && point.gather == PlanGather::OncePerStep)
    gathers = 1;
  for (std::size_t index :
       places[static_cast<std::size_t>(step.busiest)].chunks) {
    const ChunkContent &chunk = timed[index].content;
    for (std::int64_t i = 0; i < chunk.layers(); ++i) {
      const LayerTimes &layer = parts.layer(chunk, i);
      const bool isAgain = i < chunk.again;
      const bool gathersInputs =
          parts.tensorOverlap != TensorOverlap::None && !splits;
      add(TimeAxis::Tp, layer.gather,
          m * (4 + (gathersInputs ? 2 : 0) +
               (isAgain ? layer.gathersAgain : 0)));
      add(TimeAxis::Tp, layer.reduce,
          m * (4 + (isAgain ? layer.reducesAgain : 0)));
      const double rounds = parts.context == PlanContext::Ulysses ? 2 : 1;
      add(TimeAxis::Cp, layer.contextForward,
          m * rounds * (1 + (isAgain && layer.coreAgain)));
      add(TimeAxis::Cp, layer.contextBackward, m * rounds);
      add(TimeAxis::Ep, layer.exchange, m * 4);
      add(TimeAxis::Dp, layer.gradients, isOnce ? 1 : m);
      add(TimeAxis::Dp, layer.parameters, gathers);
      step.host.bytesEachWay += m * layer.copies.store.bytes;
      step.host.seconds +=
          m * (layer.copies.store.seconds +
               (splits ? layer.copies.fetchForInputs.seconds +
                             layer.copies.fetchForWeights.seconds
                       : layer.copies.fetch.seconds));
    }
    for (const auto &[has, end] : {std::pair{chunk.hasHead, &parts.head},
                                   {chunk.hasEmbedding, &parts.embedding}}) {
      if (!has)
        continue;
      add(TimeAxis::Tp, end->reduce, m);
      add(TimeAxis::Dp, end->gradients, isOnce ? 1 : m);
      // Read once in a micro-batch.
      add(TimeAxis::Dp, end->parameters,
          parts.gathersForward ? m : std::min(gathers, 1.0));
    }
  }
  if (point.pp > 1)
    add(TimeAxis::Pp, {timer.transferSeconds(), timer.transferBytes()},
        2 * m * real(point.chunks));
  countLinks(step);
}
