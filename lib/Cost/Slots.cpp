#include "Slots.h"

#include "heddle/Support/Check.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

static double real(std::int64_t value) { return static_cast<double>(value); }

static int streamOf(TimeAxis axis) { return static_cast<int>(axis); }

/// A task behind the one before it, and behind what was joined.
int SlotBuilder::chain(int stream, double seconds) {
  if (seconds <= 0)
    return last;
  if (stream == computeStream && debt > 0) {
    const double paid = std::min(debt, seconds * (mostSlows - 1));
    debt -= paid;
    seconds += paid;
  }
  StreamTask &task =
      tasks.emplace_back(StreamTask{stream, seconds, {last}, of, atLayer});
  std::fill(task.needs.begin() + 1, task.needs.end(), -1);
  std::copy_n(joined.begin(), joins, task.needs.begin() + 1);
  joins = 0;
  return last = static_cast<int>(tasks.size()) - 1;
}

/// What comes next waits for that too, and for all that was joined before it.
void SlotBuilder::join(int task) {
  if (task < 0)
    return;
  HEDDLE_CHECK(joins < joined.size(), "{} tasks joined at once", joins + 1);
  joined[joins++] = task;
}

/// A task that what follows does not wait for, until it is joined.
int SlotBuilder::beside(int stream, const Call &call, double part) {
  const double seconds = call.seconds * part;
  if (seconds <= 0)
    return -1;
  tasks.push_back({stream, seconds, {last, -1, -1, -1}, of, atLayer});
  debt += seconds * (1 - 1 / call.slows);
  mostSlows = std::max(mostSlows, call.slows);
  return static_cast<int>(tasks.size()) - 1;
}

void SlotBuilder::say(TimeAxis axis, const Call &call, double times) {
  chain(streamOf(axis), call.seconds * times);
}

void SlotBuilder::begin() {
  tasks.clear();
  gathered.clear();
  stored.clear();
  fetched.clear();
  last = -1;
  joins = 0;
  debt = 0;
  mostSlows = 1;
}

/// A part of a layer between its two collectives along tp. In pieces, the first
/// of what is gathered and the last of what is summed stand in line.
static bool goesInPieces(const SlotParts &parts) {
  return parts.tensorOverlap == TensorOverlap::Pieces && parts.tp > 1;
}

/// Attention's core, and what goes along cp for it. A ring's steps are hidden
/// beside it, but for what they take longer.
void SlotBuilder::core(const LayerTimes &layer, double seconds,
                       const Call &context, double ring) {
  if (parts.context == PlanContext::Ring) {
    chain(streamOf(TimeAxis::Cp), ring);
    const double hidden = context.seconds > 0 ? 1 - ring / context.seconds : 0;
    const int keys = beside(streamOf(TimeAxis::Cp), context, hidden);
    chain(computeStream, seconds);
    join(keys);
    return;
  }
  say(TimeAxis::Cp, context);
  chain(computeStream, seconds);
  if (parts.context == PlanContext::Ulysses)
    say(TimeAxis::Cp, context);
}

void SlotBuilder::attentionForward(const LayerTimes &layer) {
  of = SlotPart::Attention;
  const bool pieces = goesInPieces(parts);
  const double first = pieces ? 1 / parts.tp : 1;
  const double others = layer.attention.forward.total() - layer.coreForward;
  say(TimeAxis::Tp, layer.gather, first);
  const int rest = beside(streamOf(TimeAxis::Tp), layer.gather, 1 - first);
  chain(computeStream, others / 2);
  join(rest);
  core(layer, layer.coreForward, layer.contextForward, layer.ringForward);
  chain(computeStream, others / 2 * first);
  const int sums = beside(streamOf(TimeAxis::Tp), layer.reduce, 1 - first);
  chain(computeStream, others / 2 * (1 - first));
  join(sums);
  say(TimeAxis::Tp, layer.reduce, first);
}

void SlotBuilder::mlpForward(const LayerTimes &layer) {
  of = SlotPart::Mlp;
  const double first = goesInPieces(parts) ? 1 / parts.tp : 1;
  const double computed = layer.mlp.forward.total();
  say(TimeAxis::Ep, layer.exchange);
  say(TimeAxis::Tp, layer.gather, first);
  const int rest = beside(streamOf(TimeAxis::Tp), layer.gather, 1 - first);
  chain(computeStream, computed / 2);
  join(rest);
  chain(computeStream, computed / 2 * first);
  const int sums = beside(streamOf(TimeAxis::Tp), layer.reduce, 1 - first);
  chain(computeStream, computed / 2 * (1 - first));
  join(sums);
  say(TimeAxis::Tp, layer.reduce, first);
  say(TimeAxis::Ep, layer.exchange);
}

/// What of forward a layer needs again before its backward.
void SlotBuilder::runAgain(const LayerTimes &layer) {
  of = SlotPart::Again;
  say(TimeAxis::Tp, layer.gather, layer.gathersAgain);
  if (layer.coreAgain) {
    core(layer, layer.coreForward, layer.contextForward, layer.ringForward);
    chain(computeStream, layer.attention.again.total() - layer.coreForward);
  } else {
    compute(layer.attention.again);
  }
  compute(layer.mlp.again);
  say(TimeAxis::Tp, layer.reduce, layer.reducesAgain);
}

/// Backward of a part: the gradient of what it gave is gathered, that of what
/// it read is summed. With overlap the inputs are gathered again beside the
/// first, and sums run beside the products of weight gradients.
void SlotBuilder::part(const PartTimes &part, const LayerTimes &layer,
                       bool isAttention, bool withWeights) {
  of = isAttention ? SlotPart::Attention : SlotPart::Mlp;
  const bool overlaps =
      withWeights && parts.tensorOverlap != TensorOverlap::None;
  const double first = goesInPieces(parts) ? 1 / parts.tp : 1;
  if (!isAttention)
    say(TimeAxis::Ep, layer.exchange);
  say(TimeAxis::Tp, layer.gather, first);
  const int rest = beside(streamOf(TimeAxis::Tp), layer.gather, 1 - first);
  const int inputs =
      overlaps ? beside(streamOf(TimeAxis::Tp), layer.gather) : rest;
  const double coreSeconds = isAttention ? layer.coreBackward : 0;
  const double others = part.inputGrad.total() - coreSeconds;
  chain(computeStream, others / 2);
  join(rest);
  if (isAttention)
    core(layer, coreSeconds, layer.contextBackward, layer.ringBackward);
  chain(computeStream, others / 2);
  join(inputs);
  if (overlaps) {
    const int sums = beside(streamOf(TimeAxis::Tp), layer.reduce);
    compute(part.weightGrad);
    join(sums);
  } else {
    say(TimeAxis::Tp, layer.reduce);
    if (withWeights)
      compute(part.weightGrad);
  }
  if (!isAttention)
    say(TimeAxis::Ep, layer.exchange);
}

/// Parameters of the first layers on the way through a chunk.
void SlotBuilder::gatherUntil(const ChunkContent &chunk, std::int64_t until,
                              bool isBackward) {
  until = std::min(until, chunk.layers());
  for (auto i = std::ssize(gathered); i < until; ++i) {
    const std::int64_t layer = isBackward ? chunk.layers() - 1 - i : i;
    at(SlotPart::Parameters, layer);
    gathered.push_back(
        beside(streamOf(TimeAxis::Dp), parts.layer(chunk, layer).parameters));
  }
}

/// At the beginning of a step through the layers, the parameters of the one
/// that is `prefetch` steps ahead; this one's are waited for.
void SlotBuilder::gatherAhead(const ChunkContent &chunk, std::int64_t step,
                              bool isBackward) {
  const bool isLate = isBackward && parts.gathersBetweenUnits;
  const std::int64_t ahead = parts.overlaps && !isLate ? parts.prefetch : 0;
  gatherUntil(chunk, step + ahead + 1, isBackward);
  join(gathered[static_cast<std::size_t>(step)]);
}

//===----------------------------------------------------------------------===//
// Saved values on the host
//===----------------------------------------------------------------------===//

int SlotBuilder::copyBeside(const Call &copy, std::int64_t layer) {
  at(SlotPart::Saved, layer);
  return beside(hostStream, copy);
}

/// Before a layer of forward writes a row, what was in it has gone.
void SlotBuilder::awaitRow(std::int64_t layer) {
  if (parts.hostRows > 0 && layer >= parts.hostRows)
    join(stored[static_cast<std::size_t>(layer - parts.hostRows)]);
}

/// At the beginning of a step back through the layers, what one reads that is
/// so many steps ahead; this one's is waited for.
void SlotBuilder::fetchAhead(const ChunkContent &chunk, std::int64_t step,
                             Call HostCopies::*fetch) {
  if (parts.hostRows == 0)
    return;
  const std::int64_t until = std::min(step + parts.hostRows, chunk.layers());
  for (auto i = std::ssize(fetched); i < until; ++i) {
    const std::int64_t layer = chunk.layers() - 1 - i;
    fetched.push_back(
        copyBeside(parts.layer(chunk, layer).copies.*fetch, layer));
  }
  join(fetched[static_cast<std::size_t>(step)]);
}

void SlotBuilder::sumGradients(const Call &gradients) {
  if (!parts.sums)
    return;
  of = SlotPart::Gradients;
  if (parts.overlaps)
    beside(streamOf(TimeAxis::Dp), gradients);
  else
    say(TimeAxis::Dp, gradients);
}

void SlotBuilder::forward(const ChunkContent &chunk, bool gathersAll) {
  if (gathersAll)
    for (std::int64_t i = 0; i < chunk.layers(); ++i) {
      at(SlotPart::Parameters, i);
      gathered.push_back(
          beside(streamOf(TimeAxis::Dp), parts.layer(chunk, i).parameters));
    }
  if (chunk.hasEmbedding) {
    at(SlotPart::Embedding);
    // Nothing runs before it that could hide it.
    if (parts.gathersForward)
      say(TimeAxis::Dp, parts.embedding.parameters);
    compute(parts.embedding.forward);
    say(TimeAxis::Tp, parts.embedding.reduce);
  }
  for (std::int64_t i = 0; i < chunk.layers(); ++i) {
    if (gathersAll)
      join(gathered[static_cast<std::size_t>(i)]);
    else if (parts.gathersForward)
      gatherAhead(chunk, i, false);
    awaitRow(i);
    at(SlotPart::Attention, i);
    attentionForward(parts.layer(chunk, i));
    mlpForward(parts.layer(chunk, i));
    if (parts.hostRows > 0)
      stored.push_back(copyBeside(parts.layer(chunk, i).copies.store, i));
  }
}

void SlotBuilder::backward(const ChunkContent &chunk, bool withWeights) {
  if (chunk.hasHead) {
    at(SlotPart::Head);
    // Read once: forward and backward of the head are one.
    if (parts.gathersForward)
      say(TimeAxis::Dp, parts.head.parameters);
    compute(parts.head.forward);
    compute(parts.head.inputGrad);
    say(TimeAxis::Tp, parts.head.reduce);
    if (withWeights) {
      compute(parts.head.weightGrad);
      sumGradients(parts.head.gradients);
    }
  }
  for (std::int64_t step = 0; step < chunk.layers(); ++step) {
    const std::int64_t i = chunk.layers() - 1 - step;
    const LayerTimes &layer = parts.layer(chunk, i);
    if (parts.gathersBackward)
      gatherAhead(chunk, step, true);
    fetchAhead(chunk, step,
               withWeights ? &HostCopies::fetch : &HostCopies::fetchForInputs);
    at(SlotPart::Attention, i);
    if (i < chunk.again)
      runAgain(layer);
    part(layer.mlp, layer, false, withWeights);
    part(layer.attention, layer, true, withWeights);
    if (parts.gathersBackward && parts.gathersBetweenUnits)
      gatherUntil(chunk, step + 2, true);
    at(SlotPart::Attention, i);
    if (withWeights)
      sumGradients(layer.gradients);
  }
  if (chunk.hasEmbedding && withWeights) {
    at(SlotPart::Embedding);
    compute(parts.embedding.weightGrad);
    sumGradients(parts.embedding.gradients);
  }
}

void SlotBuilder::weights(const ChunkContent &chunk) {
  if (chunk.hasHead) {
    at(SlotPart::Head);
    compute(parts.head.weightGrad);
    sumGradients(parts.head.gradients);
  }
  for (std::int64_t i = chunk.layers(); i-- > 0;) {
    const LayerTimes &layer = parts.layer(chunk, i);
    fetchAhead(chunk, chunk.layers() - 1 - i, &HostCopies::fetchForWeights);
    at(SlotPart::Mlp, i);
    compute(layer.mlp.weightGrad);
    at(SlotPart::Attention, i);
    compute(layer.attention.weightGrad);
    sumGradients(layer.gradients);
  }
  if (chunk.hasEmbedding) {
    at(SlotPart::Embedding);
    compute(parts.embedding.weightGrad);
    sumGradients(parts.embedding.gradients);
  }
}

std::span<const StreamTask> SlotBuilder::build(SlotKind kind,
                                               const ChunkContent &chunk) {
  begin();
  if (kind == SlotKind::Forward)
    forward(chunk, false);
  else if (kind == SlotKind::WeightGrad)
    weights(chunk);
  else
    backward(chunk, kind == SlotKind::Backward);
  return tasks;
}

std::span<const StreamTask> SlotBuilder::buildFirst(const ChunkContent &chunk) {
  begin();
  forward(chunk, true);
  return tasks;
}

//===----------------------------------------------------------------------===//
// Bound
//===----------------------------------------------------------------------===//

namespace {

/// What of a layer stands in line with its computation.
double lineForward(const SlotParts &parts, const LayerTimes &layer) {
  const double first = goesInPieces(parts) ? 1 / parts.tp : 1;
  const double context = parts.context == PlanContext::Ring ? layer.ringForward
                         : parts.context == PlanContext::Ulysses
                             ? 2 * layer.contextForward.seconds
                             : layer.contextForward.seconds;
  return layer.forwardSeconds() + context + 2 * layer.exchange.seconds +
         2 * first * (layer.gather.seconds + layer.reduce.seconds);
}

double lineBackward(const SlotParts &parts, const LayerTimes &layer,
                    bool withWeights) {
  const double first = goesInPieces(parts) ? 1 / parts.tp : 1;
  const double context = parts.context == PlanContext::Ring ? layer.ringBackward
                         : parts.context == PlanContext::Ulysses
                             ? 2 * layer.contextBackward.seconds
                             : layer.contextBackward.seconds;
  const bool overlaps =
      withWeights && parts.tensorOverlap != TensorOverlap::None;
  return layer.attention.inputGrad.total() + layer.mlp.inputGrad.total() +
         (withWeights ? layer.attention.weightGrad.total() +
                            layer.mlp.weightGrad.total()
                      : 0) +
         context + 2 * layer.exchange.seconds +
         2 * first * layer.gather.seconds +
         (overlaps ? 0 : 2 * layer.reduce.seconds);
}

double lineAgain(const LayerTimes &layer) {
  return layer.attention.again.total() + layer.mlp.again.total() +
         layer.gather.seconds * layer.gathersAgain +
         layer.reduce.seconds * layer.reducesAgain;
}

} // namespace

/// Without copies to the host and back.
static double boundOnDevice(const SlotParts &parts, SlotKind kind,
                            const ChunkContent &chunk) {
  const double plain = real(chunk.plain), sparse = real(chunk.sparse);
  auto layers = [&](auto of) {
    return (chunk.plain ? plain * of(parts.plain) : 0) +
           (chunk.sparse ? sparse * of(parts.sparse) : 0);
  };
  if (kind == SlotKind::Forward) {
    const double line =
        layers([&](const auto &layer) { return lineForward(parts, layer); }) +
        (chunk.hasEmbedding
             ? parts.embedding.forward.total() + parts.embedding.reduce.seconds
             : 0);
    return parts.gathersForward ? std::max(line, layers([](const auto &layer) {
                                             return layer.parameters.seconds;
                                           }))
                                : line;
  }
  const double ofWeights =
      (chunk.hasHead ? parts.head.weightGrad.total() : 0) +
      (chunk.hasEmbedding ? parts.embedding.weightGrad.total() : 0);
  const double dp = layers([&](const auto &layer) {
    return (parts.gathersBackward ? layer.parameters.seconds : 0) +
           (parts.sums ? layer.gradients.seconds : 0);
  });
  if (kind == SlotKind::WeightGrad) {
    const double line = ofWeights + layers([](const auto &layer) {
                          return layer.attention.weightGrad.total() +
                                 layer.mlp.weightGrad.total();
                        });
    return parts.sums ? std::max(line, layers([](const auto &layer) {
                                   return layer.gradients.seconds;
                                 }))
                      : line;
  }
  const bool withWeights = kind == SlotKind::Backward;
  const double againPlain = real(std::min(chunk.again, chunk.plain)),
               againSparse = real(chunk.again) - againPlain;
  const double line =
      layers([&](const auto &layer) {
        return lineBackward(parts, layer, withWeights);
      }) +
      (againPlain > 0 ? againPlain * lineAgain(parts.plain) : 0) +
      (againSparse > 0 ? againSparse * lineAgain(parts.sparse) : 0) +
      (withWeights ? ofWeights : 0) +
      (chunk.hasHead
           ? parts.head.forward.total() + parts.head.inputGrad.total() +
                 parts.head.reduce.seconds
           : 0);
  return withWeights ? std::max(line, dp) : line;
}

double heddle::detail::slotBound(const SlotParts &parts, SlotKind kind,
                                 const ChunkContent &chunk) {
  Call HostCopies::*copy =
      kind == SlotKind::Forward      ? &HostCopies::store
      : kind == SlotKind::InputGrad  ? &HostCopies::fetchForInputs
      : kind == SlotKind::WeightGrad ? &HostCopies::fetchForWeights
                                     : &HostCopies::fetch;
  return std::max(boundOnDevice(parts, kind, chunk),
                  real(chunk.plain) * (parts.plain.copies.*copy).seconds +
                      real(chunk.sparse) * (parts.sparse.copies.*copy).seconds);
}
