// Attention's core, in whatever kernels a plan has it.

#include "LayerTimes.h"

#include "heddle/Cost/Flops.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

static double real(std::int64_t value) { return static_cast<double>(value); }

/// A ring runs attention in cp kernels, over as many keys each (zigzag: a rank
/// has one part from the beginning and one from the end of a sequence, so that
/// a causal mask leaves all ranks equal work in each step). What a step gives
/// is added to what is there: read and written in fp32, and read in the format
/// of the step; backward's for queries, keys and values.
void LayerTimer::addRingSteps(LayerTimes &times,
                              const Attention &attention) const {
  const double more = real(point.cp) - 1;
  Attention step = attention;
  step.pairs /= real(point.cp);
  const double added = (8 + elementBytes) * tokens;
  times.coreForward = (more + 1) * kernels.attentionForward(step) +
                      more * kernels.memory(added * queries);
  times.coreBackward = (more + 1) * kernels.attentionBackward(step) +
                       more * kernels.memory(added * (queries + 2 * keys));
}

/// Softmax and dropout of Heddle's programs are one kernel each way, which
/// reads scores and writes probabilities, and those that are left; backward
/// reads probabilities and a gradient, and writes one.
void LayerTimer::unfuse(Attention &attention) const {
  attention.kernel = AttentionKernel::Whole;
  attention.format =
      point.recipe == "fp32" ? ProductFormat::Fp32 : ProductFormat::Bf16;
  const bool drops = model.dropout.attention > 0;
  const double mask = drops && point.dropoutMasks == PlanMasks::Saved ? 1 : 0;
  attention.scoreBytes = (drops ? 3 : 2) * elementBytes + mask;
  attention.scoreGradBytes = 3 * elementBytes + mask;
}

/// Of the whole square, as modelFlopsPerStep counts it.
void LayerTimer::coreAgain(LayerTimes &times,
                           const Attention &attention) const {
  PartTimes &part = times.attention;
  const double seen = real(std::min(
      static_cast<std::int64_t>(length),
      model.slidingWindow.value_or(static_cast<std::int64_t>(length))));
  const double scores = 2 * queryHeads * real(point.microBatch) * length *
                        seen / real(point.cp) * attention.headSize;
  if (again(AgainCore)) {
    part.again.attention += times.coreForward;
    part.againFlops += 2 * scores;
  } else if (again(AgainScores)) {
    part.again.attention += kernels.attentionScores(attention);
    part.againFlops += scores;
  }
}

Attention LayerTimer::attentionOf() const {
  Attention attention;
  const double perHead = real(
      attentionPairs(static_cast<std::int64_t>(length), model.slidingWindow));
  attention.heads = queryHeads * real(point.microBatch);
  attention.queries = length / real(point.cp);
  attention.pairs = perHead / real(point.cp);
  // Of scores and of values; equal but in latent attention.
  attention.headSize = real(model.headSize + model.valueSize()) / 2;
  attention.kernel = practice.attention;
  if (point.context == PlanContext::Ulysses) {
    // Whole sequences of fewer heads.
    attention.heads /= real(point.cp);
    attention.queries *= real(point.cp);
    attention.pairs *= real(point.cp);
  }
  if (point.attention == PlanAttention::Unfused)
    unfuse(attention);
  return attention;
}

void LayerTimer::core(LayerTimes &times) const {
  const Attention attention = attentionOf();
  times.coreForward = kernels.attentionForward(attention);
  times.coreBackward = kernels.attentionBackward(attention);
  if (point.context == PlanContext::Ring)
    addRingSteps(times, attention);
  PartTimes &part = times.attention;
  part.forward.attention += times.coreForward;
  part.inputGrad.attention += times.coreBackward;
  coreAgain(times, attention);
}
