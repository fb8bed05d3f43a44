//===- Space.h - The plans that are searched --------------------*- C++ -*-===//
//
// Points in three levels, each adding choices to those before it. A point is
// listed once: choices that change nothing have one value (normal form).
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PLANNER_SPACE_H
#define HEDDLE_PLANNER_SPACE_H

#include "heddle/Planner/Problem.h"

#include <array>
#include <map>

namespace heddle {

/// Where the states of a plan are.
struct PlanStorage {
  std::int64_t zeroStage = 0, shardGroup = 1, prefetch = 0;
  PlanReduce reduce = PlanReduce::Last;
  PlanGather gather = PlanGather::OncePerStep;
  bool offloadsOptimizer = false;

  void set(PlanPoint &point) const;
  PlanPoint on(PlanPoint schedule) const {
    set(schedule);
    return schedule;
  }
  bool operator==(const PlanStorage &) const = default;
};

/// What is searched where no demand says otherwise:
///
///  - all devices, or the most that a legal plan can use;
///  - tp: heads split without padding; a demand may ask for others;
///  - cp: sequences of 2 cp equal parts; ep: divisors of the experts;
///  - micro-batches of up to 64 sequences;
///  - 1F1B, interleaved 1F1B of up to 16 chunks, ZB-H1, ZB-V; a demand may ask
///    for others;
///  - layers as even as can be, and with fewer where the head is;
///  - ZeRO 0 to 3 over every group that divides dp x cp; sums of gradients
///    reduced in each micro-batch or at the end; parameters gathered in each
///    pass (one block ahead), in each micro-batch, once;
///  - recompute: none, or as many layers of each place as memory asks for;
///  - where that is not enough, and in place of recompute, saved values of all
///    layers on the host: as few as memory asks for, the largest first;
///  - attention as one kernel, and nothing saved that can be made again for
///    nothing; a demand may ask for others;
///  - the optimizer's numbers on the device or on the host, where the cluster
///    has a host link;
///  - sums of gradients, and these on their way, in fp32; a demand may ask for
///    bf16, where train.yaml lists it: it changes what is computed;
///  - orders of axes: pp.dp.cp.tp, outermost first, with dp or cp one further
///    out, or cp inside tp; a demand may ask for others.
class PlanSpace {
public:
  /// \p problem must outlive it.
  explicit PlanSpace(const PlanProblem &problem);

  /// Formats, pp, dp, cp, tp, ep, micro-batch and micro-batches.
  std::vector<PlanPoint> meshes() const;
  /// With schedule, chunks, layers, sequence parallelism and context.
  std::vector<PlanPoint> schedules(const PlanPoint &mesh) const;
  /// Where a schedule's states can be. With offload right behind the same
  /// without.
  const std::vector<PlanStorage> &storages(const PlanPoint &schedule) const;
  /// Kinds of recompute, the cheapest first.
  std::vector<PointRecompute> recomputes() const;
  /// Orders that differ: axes of size 1 stand where they stand by default.
  const std::vector<std::array<PlanAxis, 4>> &
  orders(const PlanPoint &mesh) const;

private:
  std::vector<PlanPoint> meshesOf(std::int64_t ranks) const;
  void addMicroBatches(const PlanPoint &mesh, std::vector<PlanPoint> &to) const;
  void addTensor(const PlanPoint &cut, std::vector<PlanPoint> &to) const;
  void addGradientFormats(PlanPoint point, std::vector<PlanPoint> &to) const;
  void addSaved(PlanPoint point, std::vector<PlanPoint> &to) const;
  std::vector<PlanPoint> cutsOf(const PlanPoint &mesh) const;
  const std::vector<std::vector<std::int64_t>> &
  layersOf(const PlanPoint &cut) const;
  std::vector<PlanStorage> makeStorages(const PlanPoint &schedule) const;
  std::vector<std::array<PlanAxis, 4>> makeOrders(const PlanPoint &mesh) const;
  /// Whether demands take the point's choice.
  bool allows(const PlanPoint &point, PlanKey key) const {
    return !isAsked[static_cast<std::size_t>(key)] ||
           problem.allows(key, choiceOf(point, key));
  }
  bool allows(PlanKey key, std::int64_t value) const {
    return !isAsked[static_cast<std::size_t>(key)] ||
           problem.allows(key, value);
  }

  const PlanProblem &problem;
  std::array<bool, planKeys> isAsked = {}; ///< there is a demand
  /// Lists that many points share, by what they depend on.
  mutable std::map<std::int64_t, std::vector<std::vector<std::int64_t>>> cuts;
  mutable std::map<std::array<std::int64_t, 3>, std::vector<PlanStorage>> zeros;
  mutable std::array<std::vector<std::array<PlanAxis, 4>>, 16> ordersOf;
};

/// Layers of each stage, in the order of the chain: as even as can be where the
/// last stage counts as \p headLayers layers more.
std::vector<std::int64_t> cutLayers(std::int64_t layers, const PlanPoint &point,
                                    double headLayers);

/// What the head costs in a step, in layers.
double headInLayers(const ModelConfig &model, std::int64_t sequenceLength);

} // namespace heddle

#endif // HEDDLE_PLANNER_SPACE_H
