// A plan in numbers: what the planner searches, and what times and memory are
// estimated from. No rules, no globs, no text: thousands are made in a second.

#ifndef HEDDLE_PLAN_PLANPOINT_H
#define HEDDLE_PLAN_PLANPOINT_H

#include "heddle/Model/Parameters.h"
#include "heddle/Plan/Plan.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Axes of the dense view of ranks.
enum class PlanAxis : std::uint8_t { Pp, Dp, Cp, Tp };
std::string planAxisName(PlanAxis axis); ///< "pp"

/// What of a layer is computed again in backward. Selective: what costs no
/// product (the two norms' outputs and the MLP's product); Full: everything but
/// the layer's input.
enum class PointRecompute : std::uint8_t { None, Selective, Full };

/// Parameters, activations and sequences are split as the short forms
/// `megatron` and `sequence_parallel` say.
struct PlanPoint {
  std::int64_t pp = 1, dp = 1, cp = 1, tp = 1;
  /// Experts are dealt out over this many ranks of dp x cp; each is split over
  /// tp.
  std::int64_t ep = 1;
  /// Outermost first. Ranks fill nodes in this order.
  std::array<PlanAxis, 4> order = {PlanAxis::Pp, PlanAxis::Dp, PlanAxis::Cp,
                                   PlanAxis::Tp};
  bool sequenceParallel = false;
  PlanContext context = PlanContext::None;
  std::int64_t microBatch = 1, microBatches = 1;

  PlanScheduleKind schedule = PlanScheduleKind::None;
  std::int64_t chunks = 1; ///< per rank of pp
  /// Of each stage, in the order in which the model runs through them:
  /// pp x chunks numbers, some may be 0.
  std::vector<std::int64_t> layers = {};

  std::int64_t zeroStage = 0;
  std::int64_t shardGroup = 1;
  std::int64_t prefetch = 0;
  PlanReduce reduce = PlanReduce::Last;
  PlanGather gather = PlanGather::OncePerStep;

  PointRecompute recompute = PointRecompute::None;
  /// Of each rank of pp, how many of its layers are computed again. Empty:
  /// none.
  std::vector<std::int64_t> recomputed = {};
  bool offloadsOptimizer = false;
  /// Of what layers save, what waits for backward on the host: a bit for each
  /// of `savedNames`.
  std::uint32_t offloaded = 0;
  PlanAttention attention = PlanAttention::Flash;
  PlanMasks dropoutMasks = PlanMasks::DrawnAgain;
  PlanSave save = PlanSave::Least;

  std::string recipe = "fp32"; ///< a format of train.yaml
  /// A name of `Scaling.cpp` and blocks' length; "" and 0: the recipe's own.
  std::string scaling = {};
  std::int64_t blockLength = 0;
  /// Of sums of gradients, and of them on their way.
  std::string gradients = "fp32", reduceFormat = "fp32";
  std::int64_t bucketBytes = 26214400;
  bool overlaps = true; ///< reductions and gathers run beside computation

  bool operator==(const PlanPoint &) const = default;

  std::int64_t ranks() const { return pp * dp * cp * tp; }
  std::int64_t size(PlanAxis axis) const;
  /// Ranks between two neighbours along an axis.
  std::int64_t stride(PlanAxis axis) const;
  /// Stage (0 ... pp x chunks - 1) that a chunk of a rank of pp holds.
  std::int64_t stageOf(std::int64_t rank, std::int64_t chunk) const;
  /// Layers of all chunks of a rank of pp.
  std::int64_t layersOf(std::int64_t rank) const;
  /// Of these, in each chunk, the layers that are computed again, its first
  /// ones: so many that chunks keep as equal numbers as can be.
  std::vector<std::int64_t> recomputedOf(std::int64_t rank) const;
  /// The same of \p count layers, into \p again, a number for each chunk.
  void spreadRecomputed(std::int64_t rank, std::int64_t count,
                        std::span<std::int64_t> again) const;
  /// Bytes of an element of what is computed with.
  std::int64_t computeBytes() const { return recipe == "fp32" ? 4 : 2; }
  bool hasMaster() const { return recipe != "fp32"; }
  /// Rows of each saved value, and of each of the optimizer's numbers, that are
  /// on the device where these are on the host: what one layer uses, and what
  /// others write or read ahead.
  std::int64_t hostRows() const;
  /// "pp2 dp4 tp8 micro-batch 1 x 16, 1f1b, ZeRO-1": for people.
  std::string text() const;
};

/// What layers save, by name: whatever the family, and whatever is computed
/// again.
std::span<const std::string_view> savedNames();

/// "gate.up", in the order of `savedNames`; "none" for 0.
std::string offloadedText(std::uint32_t offloaded);

/// The same read: none where a name is unknown or there twice.
std::optional<std::uint32_t> readOffloaded(std::string_view text);

/// Elements of one instance of a parameter that a rank computes with, padding
/// included.
std::int64_t partElements(const PlanPoint &point, const ModelConfig &model,
                          const ParameterFamily &family);

/// Whether a parameter is one of the routed experts'.
bool isOfExperts(const ParameterFamily &family);

/// Ranks that share one copy of a parameter's states: all that compute with the
/// same part of it, or the shard group's share of them.
std::int64_t shardsOf(const PlanPoint &point, const ParameterFamily &family);

/// Bytes of the parameters of a block (the largest kind), gathered.
std::int64_t blockBytes(const PlanPoint &point, const ModelConfig &model);

/// The plan in full. The point must hold together: as many numbers of layers
/// as stages, all of the model's.
Plan planOf(const PlanPoint &point, const ModelConfig &model);

/// The numbers of a plan. An error names what no number stands for: rules other
/// than those of the short forms, a table of slots, lists of values.
Result<PlanPoint> pointOf(const Plan &plan, const ModelConfig &model);

/// What of the plan is planned but not compiled yet, each by name; none where
/// `checkPlan` and `checkStages` take it.
std::vector<std::string> notCompiledYet(const PlanPoint &point,
                                        const ModelConfig &model);

} // namespace heddle

#endif // HEDDLE_PLAN_PLANPOINT_H
