//===- BlockForward.h - Forward of a block, op by op ------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_BLOCKFORWARD_H
#define HEDDLE_LIB_COST_BLOCKFORWARD_H

#include "heddle/Cost/RankSizes.h"

namespace heddle::detail {

/// Forward of one block on one rank, in order. Parts of parameters, which are
/// always taken anew, are not among the ops.
std::vector<BlockOp> blockForward(const ModelConfig &model,
                                  const RankSizes &sizes);

/// What layers save and repeat under a choice. \p saved: what forward saves
/// where nothing is computed again.
LayersUnder layersUnder(const PlanRecompute &choice,
                        const std::vector<BlockOp> &forward,
                        const std::vector<SavedValue> &saved,
                        const RankSizes &sizes);

/// The cheapest list of values with which a layer saves at most \p bytes of a
/// micro-batch; an error where it cannot.
Result<std::vector<std::string>>
valuesWithin(std::int64_t bytes, const std::vector<BlockOp> &forward,
             const std::vector<SavedValue> &saved, const RankSizes &sizes);

/// Gathers of normed inputs in backward that can run beside the product in
/// front of them: of ops that are computed again, by number, and what backward
/// gathers of the first and second norm's results where those are saved in
/// parts.
struct GathersBeside {
  std::vector<std::size_t> again;
  bool inputs[2] = {false, false};
};
GathersBeside gathersBeside(const LayersUnder &under, const RankSizes &sizes);

/// What is saved of a value: where sequences are cut, n1 and n2 gathered or
/// not.
std::string savedKey(const std::string &name, const RankSizes &sizes);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_BLOCKFORWARD_H
