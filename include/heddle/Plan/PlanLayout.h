// From a plan's rules to axes per dimension and padded sizes. "Factor" is a
// letter of a tensor's dimension: g KV heads, r query heads per KV head, f ffn,
// v vocabulary, ...

#ifndef HEDDLE_PLAN_PLANLAYOUT_H
#define HEDDLE_PLAN_PLANLAYOUT_H

#include "heddle/Model/ModelConfig.h"
#include "heddle/Model/Parameters.h"
#include "heddle/Plan/Plan.h"
#include "heddle/Plan/Reshard.h"
#include "heddle/Support/Result.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// How tp falls on attention heads.
struct HeadSplit {
  std::int64_t kv = 1;      ///< ranks along which KV heads are split
  std::int64_t copy = 1;    ///< ranks that share KV heads: tp / kv
  std::int64_t paddedG = 1; ///< KV heads, a multiple of kv
  std::int64_t paddedR = 1; ///< query heads per KV head, a multiple of copy

  bool operator==(const HeadSplit &) const = default;
};

/// The split of \p g KV heads with \p r query heads each over \p tp ranks that
/// pads least (paddedG * paddedR), with the most KV splitting among equals;
/// with r = 1 the KV heads take all of tp.
HeadSplit splitHeads(std::int64_t g, std::int64_t r, std::int64_t tp);

/// The mesh of the IR: the plan's, with `tp` replaced by `tp.kv` and `tp.copy`
/// (kv outer) where tp.copy is above 1, and `dp` by `dp.replica` and `dp.shard`
/// (replica outer) where `zero` keeps several copies of the states.
ReshardMesh meshOfPlan(const Plan &plan, const ModelConfig &model);

/// The mesh axes that `dp` stands for, outermost first.
std::vector<std::string> dataAxes(const Plan &plan);

/// The mesh axes over whose ranks `zero` shards states, outermost first; empty
/// where it shards none.
std::vector<std::string> zeroAxes(const Plan &plan);

/// How many layers ahead the plan brings what it does not hold on the device:
/// none without overlap, and never more than the model has others.
std::int64_t layersAhead(const Plan &plan, const ModelConfig &model);

/// Mesh axes per dimension, outermost first; axes of size 1 are left out.
using PlanDims = std::vector<std::vector<std::string>>;

/// The compute layout of a parameter, its dimensions as in family.letters, from
/// the last rule that matches. `tp` stands for `tp.kv`, `tp.copy` where the
/// mesh has them; on g it stands for tp.kv, and r (if the parameter has it)
/// gets tp.copy. An error, worded for the user: no rule, layers of one family
/// with different rules, an unknown axis or factor, an axis used twice.
Result<PlanDims> parameterLayout(const Plan &plan, const ModelConfig &model,
                                 const ParameterFamily &family);

/// The layout that `tensor.values` pins for the value \p name ("block.n1") with
/// the factors \p letters ("b s d"); none where no rule matches.
Result<std::optional<PlanDims>> valueLayout(const Plan &plan,
                                            const ModelConfig &model,
                                            std::string_view name,
                                            std::string_view letters);
/// The same from `tensor.saved`.
Result<std::optional<PlanDims>> savedLayout(const Plan &plan,
                                            const ModelConfig &model,
                                            std::string_view name,
                                            std::string_view letters);

/// True size of each factor of the model's parameters, and of `b` (sequences of
/// a micro-batch over all of dp).
std::map<std::string, std::int64_t> factorSizes(const Plan &plan,
                                                const ModelConfig &model);

/// What sequences of \p length tokens are stored as in every tensor: a multiple
/// of every product of axes that cuts them in a layout of a value.
std::int64_t paddedLength(const Plan &plan, const ModelConfig &model,
                          std::int64_t length);

/// The factors of factorSizes, each rounded up to a multiple of every product
/// of axes that splits it in a layout of a parameter or value: one padded size
/// in every tensor.
std::map<std::string, std::int64_t> paddedSizes(const Plan &plan,
                                                const ModelConfig &model);

/// Elements of one instance of a parameter that a rank computes with, padding
/// included. The parameter has a layout.
std::int64_t partElements(const Plan &plan, const ModelConfig &model,
                          const ParameterFamily &family);

/// What \p elements are stored as where they are cut into equal runs of
/// \p ranks ranks: each run is a multiple of 16 elements.
std::int64_t rowElements(std::int64_t elements, std::int64_t ranks);

} // namespace heddle

#endif // HEDDLE_PLAN_PLANLAYOUT_H
