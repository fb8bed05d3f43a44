#include "LayerTimes.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Plan/PlanLayout.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace heddle;
using namespace heddle::detail;

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

/// While a collective runs, kernels beside it are slower. In a node, and where
/// several ranks of a node drive rails together, NCCL's kernels take processors
/// and memory: 18.9 % in the mean of four A100, H100, MI250 and MI210, up to 40
/// % (arXiv 2507.03114). DeepSeek-V3 gives its exchanges 20 of 132 processors.
/// One rank of a node with one rail takes few: 2 % (calculon-ai,
/// a100_80g.json).
constexpr double kSlowsInNode = 1.189, kSlowsBetweenNodes = 1.02;

/// Bytes that the optimizer moves per parameter, beside its gradient (read for
/// the norm, read for the update, set to zero) and the parameter (written):
/// master and two moments in fp32, read and written.
constexpr double kMomentBytes = 24;

/// Bytes per element of 2 where each operation is a kernel, over those of one
/// kernel for all. RMSNorm: cast, square, mean, scale, cast, weight (36 of 4
/// forward); rotation as a complex product in fp32 (20 of 4); SiLU and a
/// product (10 of 6 forward, 18 of 10 backward). Backward of a norm: as many
/// operations again for x and for what it is scaled by.
constexpr double kPlainNorm = 32 / 2, kPlainRotation = 20.0 / 4,
                 kPlainGateForward = 10.0 / 6, kPlainGateBackward = 18.0 / 10;

/// Per element that is quantized by a kernel that finds scales of blocks on its
/// way: it reads once, as one that knows the tensor's scale (Published.cpp).
constexpr double kBlockBytes = 4;

/// What a host link moves both ways at once, over its rate: 11 + 25 GB/s of 32
/// (PCIe 4.0 x16, eight A100 of a node, nvbandwidth #53). One way alone reaches
/// 0.87 of it (55.6 of 64 GB/s, NVIDIA's blog on nvbandwidth).
constexpr double kHostBothWays = 36.0 / 32, kHostOneWay = 0.87;

Call both(const Call &a, const Call &b) {
  return {a.seconds + b.seconds, a.bytes + b.bytes, std::max(a.slows, b.slows)};
}

double bytesOf(const std::string &format) { return format == "fp32" ? 4 : 2; }

} // namespace

LayerTimer::LayerTimer(const ModelConfig &model, const TrainSettings &train,
                       const KernelTimes &kernels,
                       const CollectiveTimes &collectives,
                       const Practice &practice, const PlanPoint &point)
    : model(model), kernels{kernels}, collectives(collectives),
      practice(practice), point(point),
      format(productFormat(point.recipe).value_or(ProductFormat::Fp32)),
      elementBytes(real(point.computeBytes())),
      gradientBytes(bytesOf(point.gradients)),
      reduceBytes(bytesOf(point.reduceFormat)),
      length(real(train.sequenceLength)),
      tokens(real(point.microBatch) * length / real(point.cp)),
      edgeTokens(point.sequenceParallel ? tokens / real(point.tp) : tokens) {
  const HeadSplit heads =
      splitHeads(model.kvHeads, model.queryHeadsPerKvHead, point.tp);
  const double kvHeads = real(heads.paddedG / heads.kv);
  queryHeads = kvHeads * real(heads.paddedR / heads.copy);
  queries = queryHeads * real(model.headSize);
  keys = kvHeads * real(model.headSize);
  recomputed = point.recompute == PointRecompute::None ? 0
               : point.recompute == PointRecompute::Selective
                   ? practice.selective
                   : practice.full;
  if (point.recompute == PointRecompute::Selective) {
    if (point.save == PlanSave::LinearInputs)
      recomputed &= ~(AgainNorms | AgainActivation);
    if (point.attention == PlanAttention::Unfused)
      recomputed |= AgainScores;
  }
  place();
}

bool LayerTimer::again(RecomputedPart part) const { return recomputed & part; }

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// Ranks of an inner axis of size \p inner and an outer one, taken from inside:
/// how many of each \p count is.
static std::pair<std::int64_t, std::int64_t> takeInner(std::int64_t count,
                                                       std::int64_t inner) {
  const std::int64_t taken = std::min(count, inner);
  return {taken, std::max<std::int64_t>(count / taken, 1)};
}

void LayerTimer::place() {
  auto at = [&](PlanAxis axis) {
    return AxisOnRanks{point.size(axis), point.stride(axis)};
  };
  const AxisOnRanks cp = at(PlanAxis::Cp), dp = at(PlanAxis::Dp);
  // The first `count` ranks of dp x cp, and what is left of them from there.
  auto inner = [&](std::int64_t count) {
    const auto [ofCp, ofDp] = takeInner(count, cp.size);
    return std::array{AxisOnRanks{ofCp, cp.stride},
                      AxisOnRanks{ofDp, dp.stride}};
  };
  auto between = [&](std::int64_t from, std::int64_t to) {
    const auto [ofCp, ofDp] = takeInner(from, cp.size);
    const auto [toCp, toDp] = takeInner(to, cp.size);
    return std::array{
        AxisOnRanks{std::max<std::int64_t>(toCp / ofCp, 1), cp.stride * ofCp},
        AxisOnRanks{std::max<std::int64_t>(toDp / ofDp, 1), dp.stride * ofDp}};
  };
  const std::int64_t all = dp.size * cp.size;
  const std::int64_t shards = point.zeroStage == 0 ? 1 : point.shardGroup;
  const std::int64_t ofExperts = std::max(shards, point.ep);
  placed.tp = collectives.place({at(PlanAxis::Tp)});
  placed.cp = collectives.place({cp});
  placed.ep = collectives.place(inner(point.ep));
  placed.pp = collectives.place({at(PlanAxis::Pp)});
  placed.shards = collectives.place(inner(shards));
  placed.copies = collectives.place(between(shards, all));
  placed.expertShards = collectives.place(between(point.ep, ofExperts));
  placed.expertCopies = collectives.place(between(ofExperts, all));
}

Call LayerTimer::call(CollectiveKind kind, const GroupOnCluster &group,
                      double bytes) const {
  if (group.ranks <= 1 || bytes <= 0)
    return {};
  const double sent = kind == CollectiveKind::Send ? bytes
                      : kind == CollectiveKind::AllReduce
                          ? allReduceBytes(bytes, group.ranks)
                          : gatherOrScatterBytes(bytes, group.ranks);
  return {collectives.seconds(kind, group, bytes), sent,
          group.ranksPerNode > 1 ? kSlowsInNode : kSlowsBetweenNodes};
}

/// In as many calls as there are buckets.
Call LayerTimer::inBuckets(CollectiveKind kind, const GroupOnCluster &group,
                           double bytes) const {
  const double buckets =
      std::max(1.0, std::ceil(bytes / real(point.bucketBytes)));
  return call(kind, group, bytes / buckets) * buckets;
}

//===----------------------------------------------------------------------===//
// Computation
//===----------------------------------------------------------------------===//

/// A product with a weight [n, k], and in backward two more.
void LayerTimer::multiply(PartTimes &part, double m, double n, double k,
                          bool isAgain, double groups) const {
  const double quantized = point.blockLength > 0 && practice.quantizedBytes == 0
                               ? kBlockBytes
                               : practice.quantizedBytes;
  const Product forward{m, n, k, format, groups, elementBytes, true, quantized};
  part.forward.products += kernels.product(forward);
  Product input{m, k, n, format, groups, elementBytes, true, quantized};
  // Added to the sum of all micro-batches; both sides were quantized before.
  Product weights{n, k, m, format, groups, 2 * gradientBytes, false};
  input.isGradient = weights.isGradient = true;
  part.inputGrad.products += kernels.product(input);
  part.weightGrad.products += kernels.product(weights);
  part.elements += groups * n * k;
  if (isAgain) {
    part.again.products += kernels.product(forward);
    part.againFlops += forward.flops();
  }
}

/// A kernel bound by memory.
void LayerTimer::move(PartTimes &part, double forwardBytes,
                      double backwardBytes, bool isAgain) const {
  part.forward.memory += kernels.memory(forwardBytes);
  part.inputGrad.memory += kernels.memory(backwardBytes);
  if (isAgain)
    part.again.memory += kernels.memory(forwardBytes);
}

/// There and back.
void LayerTimer::rotate(PartTimes &part, double bytes, bool isAgain) const {
  const double moved = 2 * bytes * (practice.fusesKernels ? 1 : kPlainRotation);
  move(part, moved, moved, isAgain);
}

void LayerTimer::projections(PartTimes &part) const {
  const double d = real(model.hidden);
  multiply(part, tokens, queries + 2 * keys, d, again(AgainProjections));
  multiply(part, tokens, d, queries, again(AgainOutput));
  const double rotated = elementBytes * tokens * (queries + keys);
  if (model.position == PositionKind::Rope)
    rotate(part, rotated, again(AgainProjections));
  if (model.qkNorm)
    move(part, 2 * rotated, 3 * rotated, again(AgainProjections));
}

/// Down to narrow vectors on every rank of tp, and up to a rank's heads.
void LayerTimer::latentProjections(PartTimes &part) const {
  const LatentConfig &latent = *model.latent;
  const double d = real(model.hidden), rank = real(latent.queryRank),
               values = real(latent.valueRank), rope = real(latent.ropeSize),
               wide = queryHeads * real(latent.plainSize + latent.ropeSize);
  const bool isAgain = again(AgainProjections);
  if (latent.queryRank > 0)
    multiply(part, tokens, rank, d, isAgain);
  multiply(part, tokens, wide, latent.queryRank > 0 ? rank : d, isAgain);
  multiply(part, tokens, values + rope, d, isAgain);
  const double up = queryHeads * real(latent.plainSize + latent.valueSize);
  multiply(part, tokens, up, values, isAgain);
  multiply(part, tokens, d, queryHeads * real(latent.valueSize),
           again(AgainOutput));
  // Norms of both narrow vectors; the rotated part of queries and keys.
  const double narrow = elementBytes * tokens * (rank + values);
  move(part, 2 * narrow, 3 * narrow, isAgain);
  rotate(part, elementBytes * tokens * (queryHeads + 1) * rope, isAgain);
}

void LayerTimer::plainMlp(PartTimes &part) const {
  const double d = real(model.hidden),
               f = std::ceil(real(model.ffn) / real(point.tp)),
               wide = model.gatedMlp ? 2 * f : f;
  multiply(part, tokens, wide, d, again(AgainUp));
  multiply(part, tokens, d, f, again(AgainDown));
  // Reads what is wide, writes f; backward reads both and writes what is wide.
  const bool isPlain = model.gatedMlp && !practice.fusesKernels;
  move(part,
       elementBytes * tokens * (wide + f) * (isPlain ? kPlainGateForward : 1),
       elementBytes * tokens * (2 * wide + f) *
           (isPlain ? kPlainGateBackward : 1),
       again(AgainActivation));
}

/// Balanced: each token goes through `perToken` experts, and each rank of ep
/// has as many rows as its tokens have experts.
void LayerTimer::expertsMlp(LayerTimes &times) const {
  const ExpertsConfig &experts = *model.experts;
  PartTimes &part = times.mlp;
  const double d = real(model.hidden), tp = real(point.tp);
  const double rows = tokens * real(experts.perToken);
  const double local = std::ceil(real(experts.count) / real(point.ep));
  const double f = std::ceil(real(experts.ffn) / tp);
  multiply(part, edgeTokens, real(experts.count), d, again(AgainNorms));
  const double dense = part.elements;
  multiply(part, rows / local, 2 * f, d, again(AgainUp), local);
  multiply(part, rows / local, d, f, again(AgainDown), local);
  part.expertElements = part.elements - dense;
  move(part, elementBytes * rows * 3 * f, elementBytes * rows * 5 * f,
       again(AgainActivation));
  // Rows are put into the order of experts, and back with their weights.
  const double dealt = elementBytes * rows * d;
  move(part, 2 * dealt, 2 * dealt, again(AgainUp));
  move(part, 2 * dealt, 2 * dealt, again(AgainDown));
  if (experts.sharedFfn > 0) {
    const double shared = std::ceil(real(experts.sharedFfn) / tp);
    multiply(part, tokens, 2 * shared, d, again(AgainUp));
    multiply(part, tokens, d, shared, again(AgainDown));
    move(part, elementBytes * tokens * 3 * shared,
         elementBytes * tokens * 5 * shared, again(AgainActivation));
  }
}

/// Weights, and biases where a mean is taken too; whole on every rank.
double LayerTimer::normElements() const {
  return real(model.hidden) * (model.normHasBias() ? 2 : 1);
}

LayerTimes LayerTimer::layer(bool hasExperts) const {
  LayerTimes times;
  // A norm reads x and writes n; backward reads both gradients and x, writes
  // one and adds the residual's.
  const double edge = elementBytes * edgeTokens * real(model.hidden);
  const bool savesMasks =
      practice.storesMasks || point.dropoutMasks == PlanMasks::Saved;
  const double mask =
      savesMasks && model.dropout.residual > 0 ? edge / elementBytes : 0;
  for (PartTimes *part : {&times.attention, &times.mlp}) {
    // LayerNorm is a kernel of its own everywhere.
    const double plain = practice.fusesKernels || model.norm != NormKind::Rms
                             ? 0
                             : kPlainNorm * edge;
    move(*part, 2 * edge + plain, 6 * edge + 2 * plain, again(AgainNorms));
    part->elements += normElements();
    // The residual's sum, with dropout.
    move(*part, 3 * edge + mask, mask > 0 ? 2 * edge + mask : 0,
         part == &times.attention ? again(AgainOutput) : again(AgainDown));
  }
  if (model.latent)
    latentProjections(times.attention);
  else
    projections(times.attention);
  core(times);
  if (hasExperts)
    expertsMlp(times);
  else
    plainMlp(times.mlp);
  communicate(times, hasExperts);
  states(times);
  copyUnits(times.attention);
  copyUnits(times.mlp);
  return times;
}

EndTimes LayerTimer::embedding() const {
  EndTimes end;
  const double edge = elementBytes * edgeTokens * real(model.hidden);
  end.forward.memory = kernels.memory(2 * edge);
  end.weightGrad.memory = kernels.memory(3 * edge);
  end.elements =
      std::ceil(real(model.vocabulary) / real(point.tp)) * real(model.hidden);
  end.reduce = tensorCalls(point.stride(PlanAxis::Tp)).second;
  end.gradients = gradientsOf(end.elements, false);
  end.parameters = parametersOf(end.elements, false);
  return end;
}

/// In bf16 whatever the recipe is.
EndTimes LayerTimer::head() const {
  EndTimes end;
  const double d = real(model.hidden),
               rows = std::ceil(real(model.vocabulary) / real(point.tp));
  const ProductFormat plain =
      format == ProductFormat::Fp32 ? ProductFormat::Fp32 : ProductFormat::Bf16;
  const Product logits{tokens, rows, d, plain, 1, elementBytes};
  end.forward.products = kernels.product(logits);
  end.inputGrad.products =
      kernels.product({tokens, d, rows, plain, 1, elementBytes});
  end.weightGrad.products =
      kernels.product({rows, d, tokens, plain, 1, 2 * gradientBytes, false});
  const double loss = practice.lossBytes * elementBytes / 2 * tokens * rows / 2;
  end.forward.memory = end.inputGrad.memory = kernels.memory(loss);
  end.elements = model.tiedEmbeddings && point.pp == 1 ? 0 : rows * d;
  end.elements += normElements();
  const auto [gather, reduce] = tensorCalls(point.stride(PlanAxis::Tp));
  end.reduce = both(gather, reduce);
  end.gradients = gradientsOf(end.elements, false);
  end.parameters = parametersOf(end.elements, false);
  return end;
}

//===----------------------------------------------------------------------===//
// Communication
//===----------------------------------------------------------------------===//

std::pair<Call, Call> LayerTimer::tensorCalls(std::int64_t stride) const {
  const double whole = elementBytes * tokens * real(model.hidden);
  const GroupOnCluster tp = collectives.place({{point.tp, stride}});
  if (!point.sequenceParallel)
    return {{}, call(CollectiveKind::AllReduce, tp, whole)};
  return {call(CollectiveKind::AllGather, tp, whole),
          call(CollectiveKind::ReduceScatter, tp, whole)};
}

/// Rows to experts, or back. Nodes that k experts of a token lie on, of n,
/// drawn alike: n (1 - (1 - 1/n)^k).
Call LayerTimer::exchange() const {
  const double each =
      practice.exchangeBytes > 0 ? practice.exchangeBytes : elementBytes;
  const double experts = real(model.experts->perToken);
  const double rows = each * edgeTokens * experts * real(model.hidden);
  const GroupOnCluster &ep = placed.ep;
  if (!practice.sendsOncePerNode || ep.isInNode())
    return call(CollectiveKind::AllToAll, ep, rows);
  const double n = real(ep.nodes);
  double nodes = n * (1 - std::pow(1 - 1 / n, experts));
  if (practice.nodesPerToken > 0)
    nodes = std::min(nodes, real(practice.nodesPerToken));
  const Call outside =
      call(CollectiveKind::AllToAll, ep, rows * nodes / experts);
  const Call inside = call(CollectiveKind::AllToAll,
                           collectives.place({{ep.ranksPerNode, 1}}), rows);
  return inside.seconds > outside.seconds ? inside : outside;
}

/// Keys and values go on to the next rank while attention reads them, cp - 1
/// times; in backward their gradients too. A step takes as long as the longer
/// of the two, and one move of gradients has no step beside it: home after the
/// last one, or keys before the first.
void LayerTimer::ring(LayerTimes &times) const {
  const double more = real(point.cp) - 1;
  const double pair = 2 * elementBytes * tokens * keys;
  const Call forward = call(CollectiveKind::Send, placed.cp, pair),
             backward = call(CollectiveKind::Send, placed.cp, 2 * pair);
  times.contextForward = forward * more;
  times.contextBackward = backward * more;
  auto longer = [&](const Call &step, double core) {
    return more * std::max(0.0, step.seconds - core / real(point.cp));
  };
  times.ringForward = longer(forward, times.coreForward);
  times.ringBackward = longer(backward, times.coreBackward) + forward.seconds;
}

void LayerTimer::communicate(LayerTimes &times, bool hasExperts) const {
  std::tie(times.gather, times.reduce) =
      tensorCalls(point.stride(PlanAxis::Tp));
  times.gathersAgain = (again(AgainProjections) || again(AgainNorms)) +
                       (again(AgainUp) || again(AgainNorms));
  times.reducesAgain = again(AgainOutput) + again(AgainDown);
  times.coreAgain = again(AgainCore);
  if (point.cp > 1) {
    const double pair = 2 * elementBytes * tokens * keys * real(point.cp);
    if (point.context == PlanContext::Ring) {
      ring(times);
    } else if (point.context == PlanContext::Ulysses) {
      const double heads = elementBytes * tokens * (2 * queries + 2 * keys);
      times.contextForward = call(CollectiveKind::AllToAll, placed.cp, heads);
      times.contextBackward = times.contextForward;
    } else {
      times.contextForward = call(CollectiveKind::AllGather, placed.cp, pair);
      times.contextBackward = times.contextForward;
      times.contextBackward =
          both(times.contextForward,
               call(CollectiveKind::ReduceScatter, placed.cp, pair));
    }
  }
  if (hasExperts)
    times.exchange = exchange();
}

/// Of a layer, in as many parts as software makes of it.
Call LayerTimer::inParts(CollectiveKind kind, const GroupOnCluster &group,
                         double bytes) const {
  const double parts = practice.collectivesPerLayer;
  return call(kind, group, bytes / parts) * parts;
}

/// Sums of gradients over all that have a copy of the parameters: whole, or
/// each its shard, and that over the shard groups.
Call LayerTimer::gradientsOf(double elements, bool ofExperts) const {
  const GroupOnCluster &shards =
      ofExperts ? placed.expertShards : placed.shards;
  const GroupOnCluster &copies =
      ofExperts ? placed.expertCopies : placed.copies;
  const double bytes = elements * reduceBytes;
  return both(
      inBuckets(CollectiveKind::ReduceScatter, shards, bytes),
      inBuckets(CollectiveKind::AllReduce, copies, bytes / real(shards.ranks)));
}

Call LayerTimer::parametersOf(double elements, bool ofExperts) const {
  const GroupOnCluster &shards =
      ofExperts ? placed.expertShards : placed.shards;
  const double bytes = elements * elementBytes;
  return point.zeroStage >= 3
             ? inParts(CollectiveKind::AllGather, shards, bytes)
             : inBuckets(CollectiveKind::AllGather, shards, bytes);
}

void LayerTimer::states(LayerTimes &times) const {
  const double experts = times.mlp.expertElements;
  const double dense = times.attention.elements + times.mlp.elements - experts;
  times.gradients = both(gradientsOf(dense, false), gradientsOf(experts, true));
  times.parameters =
      both(parametersOf(dense, false), parametersOf(experts, true));
}

/// Between buffers of collectives and parameters or gradients, where these are
/// called in every micro-batch.
void LayerTimer::copyUnits(PartTimes &part) const {
  if (point.zeroStage < 3)
    return;
  const double gathered = practice.gatherCopyBytes * part.elements;
  if (point.gather != PlanGather::OncePerStep)
    part.forward.memory += kernels.memory(gathered);
  if (point.gather == PlanGather::EveryPass)
    part.inputGrad.memory += kernels.memory(gathered);
  if (point.reduce == PlanReduce::EveryMicroBatch)
    part.weightGrad.memory +=
        kernels.memory(practice.sumCopyBytes * part.elements);
}

double LayerTimer::transferBytes() const {
  return elementBytes * edgeTokens * real(model.hidden) /
         (point.sequenceParallel ? 1 : real(point.tp));
}

/// Parts that ranks of tp send are put together where they arrive.
double LayerTimer::transferSeconds() const {
  const double gathers = point.sequenceParallel
                             ? 0
                             : call(CollectiveKind::AllGather, placed.tp,
                                    elementBytes * tokens * real(model.hidden))
                                   .seconds;
  return call(CollectiveKind::Send, placed.pp, transferBytes()).seconds +
         gathers;
}

HostCopies LayerTimer::copies(const LayerShape &layer,
                              double hostBytesPerSecond) const {
  auto copy = [&](auto isCopied) {
    double bytes = 0;
    for (const LayerValue &value : layer.values)
      bytes += value.bit & point.offloaded && isCopied(value)
                   ? real(value.bytes)
                   : 0;
    return Call{bytes / (kHostOneWay * hostBytesPerSecond), bytes, 1};
  };
  auto all = [](const LayerValue &) { return true; };
  return {copy(all), copy(all),
          copy([](const LayerValue &value) { return value.forInputs != 0; }),
          copy([](const LayerValue &value) { return value.forWeights != 0; })};
}

Call LayerTimer::norm() const {
  return call(CollectiveKind::AllReduce,
              collectives.place({{point.ranks(), 1}}), 8);
}

/// On the host, master and moments come and go block by block beside kernels:
/// never quicker than where they stay.
OptimizerTimes LayerTimer::optimizer(bool offloads,
                                     double hostBytesPerSecond) const {
  constexpr double many = 1e9;
  const double once = kernels.memory(many), twice = kernels.memory(2 * many);
  double element =
      (twice - once) / many * (kMomentBytes + 3 * gradientBytes + elementBytes);
  if (offloads)
    element =
        std::max(element, kMomentBytes / (kHostBothWays * hostBytesPerSecond));
  return {2 * once - twice, element / real(placed.shards.ranks),
          element / real(placed.expertShards.ranks)};
}
