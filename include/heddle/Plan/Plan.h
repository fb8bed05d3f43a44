// A plan: every decision of a parallel training program, as a value. plan.json
// is its text. A person, a script or the planner makes it; passes only read it.

#ifndef HEDDLE_PLAN_PLAN_H
#define HEDDLE_PLAN_PLAN_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Model/ModelConfig.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Support/Document.h"
#include "heddle/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Layers `first` to `last`, both included; empty where last < first.
struct PlanRange {
  std::int64_t first = 0;
  std::int64_t last = -1;

  bool empty() const { return last < first; }
  bool contains(std::int64_t layer) const {
    return first <= layer && layer <= last;
  }
  /// "a..b", "a" or "".
  std::string text() const;
  bool operator==(const PlanRange &) const = default;
};

/// Axes per factor letter, outermost axis first: {"g": ["tp"]}.
using PlanSplit = std::map<std::string, std::vector<std::string>>;

/// What `match` (a glob) matches is split so. Of an ordered list of rules the
/// last one that matches counts.
struct PlanRule {
  std::string match;
  PlanSplit split;

  bool operator==(const PlanRule &) const = default;
};

/// A stage as the plan numbers it: rank of pp and chunk on that rank.
struct PlanPlace {
  std::int64_t rank = 0;
  std::int64_t chunk = 0;

  bool operator==(const PlanPlace &) const = default;
};

enum class PlanScheduleKind {
  None,
  GPipe,
  OneFOneB,
  Interleaved1F1B,
  ZbH1,
  ZbH2,
  ZbV,
  VHalf,
  VMin,
  DualPipe,
  DualPipeV,
  Table, ///< the rows are in the plan
};

/// The word of plan.json for a schedule; "table" for Table.
std::string scheduleWord(PlanScheduleKind kind);

struct PlanStages {
  std::vector<std::vector<PlanRange>> layers; ///< [rank of pp][chunk]
  PlanPlace embedding;
  PlanPlace head;
  PlanScheduleKind schedule = PlanScheduleKind::None;
  std::vector<std::string> table; ///< one row per rank of pp, for Table only

  bool operator==(const PlanStages &) const = default;
};

struct PlanTensor {
  std::vector<PlanRule> parameters; ///< on Hugging Face names
  std::vector<PlanRule> values;     ///< on `segment.value` names
  std::vector<PlanRule> saved;      ///< the same; no rule: like in forward

  bool operator==(const PlanTensor &) const = default;
};

enum class PlanContext { None, Ring, Ulysses, AllGather };
/// One kernel, or a product for the scores, their softmax, and a product with
/// the values, whose matrices are saved.
enum class PlanAttention { Flash, Unfused };
/// Of the layers' dropouts. Saved, a mask has a byte per element.
enum class PlanMasks { DrawnAgain, Saved };
/// Of what `selective` would make again: all that costs nothing that counts, or
/// no inputs of products with parameters, which then stay saved.
enum class PlanSave { Least, LinearInputs };
enum class PlanReduce { EveryMicroBatch, Last };
enum class PlanGather { EveryPass, EveryMicroBatch, OncePerStep };

struct PlanZero {
  std::int64_t stage = 0;
  std::int64_t shardGroup = 1; ///< ranks of dp x cp that hold one copy
  std::int64_t prefetch = 0;   ///< blocks gathered ahead
  PlanReduce reduce = PlanReduce::Last;
  PlanGather gather = PlanGather::OncePerStep;

  bool operator==(const PlanZero &) const = default;
};

enum class PlanRecomputeKind { Values, Selective, Full, Budget };

struct PlanRecompute {
  PlanRange layers;
  PlanRecomputeKind kind = PlanRecomputeKind::Values;
  std::vector<std::string> values; ///< for Values: recomputed ones; may be none
  std::int64_t budgetBytes = 0;    ///< for Budget: of a layer and micro-batch
  /// For Full and Selective: not what backward does not read.
  bool prune = true;

  bool operator==(const PlanRecompute &) const = default;
};

struct PlanOffload {
  std::vector<std::string> saved;
  bool optimizer = false;

  bool operator==(const PlanOffload &) const = default;
};

/// Products with the parameters that match, forward and backward.
struct PlanPrecisionException {
  std::string match;
  std::string compute;

  bool operator==(const PlanPrecisionException &) const = default;
};

struct PlanPrecision {
  std::string recipe = "fp32";
  std::string compute = "fp32";
  std::string master = "none"; ///< "none": parameters are their own master
  std::string gradients = "fp32";
  std::string reduce = "fp32";
  /// How operands of products are scaled, a name of `Scaling.cpp`; "" in
  /// recipes whose formats need no scale.
  std::string scaling;
  std::int64_t blockLength = 0; ///< 0 where scales belong to tensors
  /// Steps whose largest magnitudes scales are made of; 0 where they are made
  /// of tensors as they are now.
  std::int64_t amaxHistory = 0;
  std::string amaxAlgorithm; ///< "max", "most_recent"; "" without a history
  std::vector<PlanPrecisionException> exceptions;

  /// fp16 has 5 bits of exponent: gradients vanish unless the loss is scaled.
  bool scalesLoss() const { return compute == "fp16"; }

  bool operator==(const PlanPrecision &) const = default;
};

enum class PlanBucketOrder { Backward, Forward };

struct PlanBuckets {
  std::int64_t gradientBytes = 26214400;
  PlanBucketOrder order = PlanBucketOrder::Backward;

  bool operator==(const PlanBuckets &) const = default;
};

struct Plan {
  std::int64_t version = 1;
  /// Axes with sizes, outermost first; pp, dp, cp and tp are among them.
  std::vector<std::pair<std::string, std::int64_t>> mesh;
  std::int64_t microBatch = 1; ///< sequences per rank of dp
  std::int64_t microBatches = 1;
  PlanStages stages;
  PlanTensor tensor;
  PlanContext context = PlanContext::None;
  PlanAttention attention = PlanAttention::Flash;
  PlanZero zero;
  std::vector<PlanRecompute> recompute;
  PlanMasks dropoutMasks = PlanMasks::DrawnAgain;
  PlanSave save = PlanSave::Least;
  PlanOffload offload;
  PlanPrecision precision;
  PlanBuckets buckets;
  std::optional<std::int64_t> overlapMemoryBytes; ///< absent: no overlap

  bool operator==(const Plan &) const = default;

  /// Size of an axis; 1 if the mesh does not list it.
  std::int64_t axisSize(const std::string &axis) const;
  /// pp x dp x cp x tp; ep, edp and etp are another view of the same ranks.
  std::int64_t ranks() const;
  /// dp x micro-batches x micro-batch: sequences of one optimizer step.
  std::int64_t globalBatch() const;
};

/// The canonical text: the full form, every key, keys in one order. Equal plans
/// have equal texts, and reading the text gives the plan again.
std::string writePlan(const Plan &plan);

/// Reads plan.json. Refuses, with file and line: unknown keys, words, axes and
/// factors, numbers out of range, sizes that contradict each other.
///
/// Short forms become the full form and absent keys their defaults: `tensor`
/// "megatron" (the default), `sequence_parallel`, `save_gathered`, `stages`
/// (all layers on the one stage), `recompute` none | selective | full | [names]
/// | {budget_bytes}, `precision` and `stages.schedule` as one word. Those that
/// depend on the model (megatron, absent stages) need \p model; a full form
/// does not. Whether the plan fits a model is checkPlan's question.
Result<Plan> readPlan(const Document &document,
                      const ModelConfig *model = nullptr);
Result<Plan> readPlan(const std::filesystem::path &path,
                      const ModelConfig *model = nullptr);

/// The rules that `tensor: megatron` stands for: column then row, attention by
/// heads, embedding and head by vocabulary. Only rules that a parameter of the
/// model needs.
std::vector<PlanRule> megatronRules(const ModelConfig &model);

/// Something legal that the user may not want, one sentence with its number.
struct PlanWarning {
  std::string message;
};

/// Whether this compiler can make the plan for this model. An error is the
/// first thing that is wrong: axes and batch that do not multiply out, layers
/// not covered once, a parameter without a rule, a factor that a parameter does
/// not have, an axis used twice, a size that must not be padded and does not
/// divide, more ranks than devices, or a feature that is not supported yet and
/// would be active. A plan that readPlan did not make is checked as well.
/// \p cluster may be null.
Result<std::vector<PlanWarning>> checkPlan(const Plan &plan,
                                           const ModelConfig &model,
                                           const TrainSettings &train,
                                           const Cluster *cluster = nullptr);

} // namespace heddle

#endif // HEDDLE_PLAN_PLAN_H
