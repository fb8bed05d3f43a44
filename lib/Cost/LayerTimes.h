//===- LayerTimes.h - What one layer takes on one rank ----------*- C++ -*-===//
//
// Of one micro-batch: computation in parts that stand between collectives, and
// these collectives. Slots.cpp puts them into an order.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_LIB_COST_LAYERTIMES_H
#define HEDDLE_LIB_COST_LAYERTIMES_H

#include "EstimateTables.h"

#include "heddle/Cost/StepTime.h"

#include <utility>

namespace heddle::detail {

/// One collective, as often as it is called.
struct Call {
  double seconds = 0;
  double bytes = 0; ///< that each rank sends
  double slows = 1; ///< what runs beside it, by this factor

  Call operator*(double times) const {
    return {seconds * times, bytes * times, slows};
  }
};

/// A part of a layer, forward and backward.
struct PartTimes {
  ComputeSeconds forward, inputGrad, weightGrad;
  ComputeSeconds again; ///< of forward, in a layer that is computed again
  /// Operations of `again`, attention over the whole square, as
  /// modelFlopsPerStep counts it.
  double againFlops = 0;
  double elements = 0;       ///< of parameters, on this rank
  double expertElements = 0; ///< of these, those of routed experts
};

/// Of one layer's saved values: to the host behind forward, and back before
/// what reads them.
struct HostCopies {
  Call store, fetch;
  Call fetchForInputs, fetchForWeights; ///< where W slots run apart from B
};

struct LayerTimes {
  PartTimes attention, mlp;
  HostCopies copies;
  /// Of attention's forward and backward, what keys on their way are hidden
  /// beside.
  double coreForward = 0, coreBackward = 0;
  Call gather, reduce; ///< along tp: before a part, and behind it
  /// Of a layer that is computed again: how many of them.
  double gathersAgain = 0, reducesAgain = 0;
  bool coreAgain = false; ///< attention's core, and with it its context
  Call contextForward, contextBackward; ///< keys and values, along cp
  /// Of a ring's, seconds that its steps take longer than the attention beside
  /// them.
  double ringForward = 0, ringBackward = 0;
  Call exchange;   ///< one way, along ep; none: no experts
  Call parameters; ///< gathered, of ZeRO
  Call gradients;  ///< of their sums

  double forwardSeconds() const {
    return attention.forward.total() + mlp.forward.total();
  }
};

/// What stands before the first layer and behind the last.
struct EndTimes {
  ComputeSeconds forward, inputGrad, weightGrad;
  double elements = 0;
  Call reduce; ///< along tp, in one micro-batch
  Call gradients, parameters;
};

/// Groups of a point on the cluster.
struct PointGroups {
  GroupOnCluster tp, cp, ep, pp, shards, copies, expertShards, expertCopies;
};

/// The optimizer of one rank: so much, and so much for each element of
/// parameters of a place, before they are divided among shards.
struct OptimizerTimes {
  double launch = 0, perElement = 0, perExpertElement = 0; ///< seconds

  double seconds(double elements, double expertElements) const {
    return elements > 0 ? launch + (elements - expertElements) * perElement +
                              expertElements * perExpertElement
                        : 0;
  }
};

/// Kernels as they follow each other in a step.
struct PacedKernels {
  const KernelTimes &times;

  double product(const Product &product) const {
    return kernelGaps * times.product(product);
  }
  double attentionScores(const Attention &attention) const {
    return kernelGaps * times.attentionScores(attention);
  }
  double attentionForward(const Attention &attention) const {
    return gapsOf(attention) * times.attentionForward(attention);
  }
  double attentionBackward(const Attention &attention) const {
    return gapsOf(attention) * times.attentionBackward(attention);
  }
  double memory(double bytes) const { return kernelGaps * times.memory(bytes); }

private:
  /// Unfused attention is products and kernels on scores.
  static double gapsOf(const Attention &attention) {
    return attention.kernel == AttentionKernel::Whole ? kernelGaps : 1;
  }
};

/// All that is computed from model, cluster and point, but for the schedule.
class LayerTimer {
public:
  LayerTimer(const ModelConfig &model, const TrainSettings &train,
             const KernelTimes &kernels, const CollectiveTimes &collectives,
             const Practice &practice, const PlanPoint &point);

  LayerTimes layer(bool hasExperts) const;
  /// Along tp: what is gathered before a part of a layer, and summed behind it;
  /// with \p stride ranks between two neighbours.
  std::pair<Call, Call> tensorCalls(std::int64_t stride) const;
  EndTimes embedding() const;
  EndTimes head() const;
  /// Between two stages.
  double transferSeconds() const;
  double transferBytes() const;
  /// With its numbers on the device, or on the host.
  OptimizerTimes optimizer(bool offloads, double hostBytesPerSecond) const;
  /// Of what the point has on the host, of one layer.
  HostCopies copies(const LayerShape &layer, double hostBytesPerSecond) const;
  Call norm() const; ///< the sum that clips gradients
  const PointGroups &groups() const { return placed; }

private:
  double normElements() const;
  void place();
  void multiply(PartTimes &part, double m, double n, double k,
                bool isAgain = false, double groups = 1) const;
  void move(PartTimes &part, double forwardBytes, double backwardBytes,
            bool isAgain) const;
  void rotate(PartTimes &part, double bytes, bool isAgain) const;
  void projections(PartTimes &part) const;
  void latentProjections(PartTimes &part) const;
  Attention attentionOf() const;
  void core(LayerTimes &times) const;
  void coreAgain(LayerTimes &times, const Attention &attention) const;
  void unfuse(Attention &attention) const;
  void addRingSteps(LayerTimes &times, const Attention &attention) const;
  void plainMlp(PartTimes &part) const;
  void expertsMlp(LayerTimes &times) const;
  Call exchange() const;
  void ring(LayerTimes &times) const;
  void communicate(LayerTimes &times, bool hasExperts) const;
  void states(LayerTimes &times) const;
  void copyUnits(PartTimes &part) const;
  Call call(CollectiveKind kind, const GroupOnCluster &group,
            double bytes) const;
  Call inBuckets(CollectiveKind kind, const GroupOnCluster &group,
                 double bytes) const;
  Call inParts(CollectiveKind kind, const GroupOnCluster &group,
               double bytes) const;
  Call gradientsOf(double elements, bool ofExperts) const;
  Call parametersOf(double elements, bool ofExperts) const;
  bool again(RecomputedPart part) const;

  const ModelConfig &model;
  const PacedKernels kernels;
  const CollectiveTimes &collectives;
  const Practice &practice;
  const PlanPoint &point;
  PointGroups placed;
  ProductFormat format;
  double elementBytes, gradientBytes, reduceBytes;
  double length;        ///< of a sequence
  double tokens;        ///< that a rank of tp computes with
  double edgeTokens;    ///< that it has between parts
  double queries, keys; ///< of a token: heads x their size, on this rank
  double queryHeads;
  unsigned recomputed; ///< RecomputedPart bits
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_LAYERTIMES_H
