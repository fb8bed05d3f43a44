//===- BlockForward.h - A block, op by op -----------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_BLOCKFORWARD_H
#define HEDDLE_LIB_COST_BLOCKFORWARD_H

#include "heddle/Cost/RankSizes.h"

#include <set>

namespace heddle::detail {

/// Bytes of a statistic, and of an element of the optimizer's numbers.
inline constexpr std::int64_t kFloat = 4;

/// Forward of one block on one rank, in order. Parts of parameters, which are
/// always taken anew, are not among the ops.
std::vector<BlockOp> blockForward(const ModelConfig &model,
                                  const RankSizes &sizes);

/// Backward of one block, nothing computed again. What it reads of forward has
/// forward's keys; "d_out" comes in, "d_x" goes out.
std::vector<BlockOp> blockBackward(const ModelConfig &model,
                                   const RankSizes &sizes);

/// Cut in two: what makes the gradient that another stage waits for, and the
/// rest.
std::vector<std::vector<BlockOp>>
halvesOf(const std::vector<BlockOp> &backward);

/// The same ops with what the plan's recipe does in front of products: the
/// largest magnitude of each operand over the ranks that hold its parts, and
/// its codes. Products with the parameters \p plain stay as they are.
std::vector<BlockOp> withScales(const std::vector<BlockOp> &ops,
                                const std::vector<std::string> &plain,
                                const RankSizes &sizes);

/// What ops are called that backward repeats.
inline constexpr const char *kAgain = "what is computed again";

/// One of a block's products with a weight, by what it makes in forward ("q",
/// "k", "v", "a", "gate", "up", "dn"), on one rank.
struct Linear {
  std::string name;
  std::int64_t inner = 0, columns = 0; ///< numbers of a token that go in, out
  AxisList inputAxes, outputAxes;      ///< that cut those
  AxisList weightAxes;
  bool isScaled = false;
  std::string argument = {}; ///< the parameter

  /// Operands, if they are scaled, of forward, of the gradient of the input, of
  /// the weight's.
  std::vector<BlockOp::Operand> forward(const std::string &input,
                                        std::int64_t tokens) const;
  std::vector<BlockOp::Operand> ofInput(const std::string &gradient,
                                        std::int64_t tokens) const;
  std::vector<BlockOp::Operand> ofWeight(const std::string &gradient,
                                         const std::string &input,
                                         std::int64_t tokens) const;
};
Linear linearOf(const RankSizes &sizes, const std::string &name);

/// Values that ops read and do not make, each once.
std::vector<std::string> readOutside(const std::vector<BlockOp> &ops);

/// Bytes of sums along columns: one row of fp32 per chunk of 64 rows, for each
/// sum.
std::int64_t columnSums(std::int64_t rows, std::int64_t columns,
                        std::int64_t sums = 1);

/// What layers save and repeat under a choice. \p saved: what forward saves
/// where nothing is computed again; \p backward: its functions.
LayersUnder layersUnder(const PlanRecompute &choice,
                        const std::vector<BlockOp> &forward,
                        const std::vector<std::vector<BlockOp>> &backward,
                        const std::vector<SavedValue> &saved,
                        const RankSizes &sizes);

/// The cheapest list of values with which a layer saves at most \p bytes of a
/// micro-batch; an error where it cannot.
Result<std::vector<std::string>>
valuesWithin(std::int64_t bytes, const std::vector<BlockOp> &forward,
             const std::vector<SavedValue> &saved, const RankSizes &sizes);

/// Gathers of normed inputs in backward that can run beside the product in
/// front of them, by what they make.
std::set<std::string> gathersBeside(const LayersUnder &under);

/// What is saved of a value: where sequences are cut, n1 and n2 gathered or
/// not.
std::string savedKey(const std::string &name, const RankSizes &sizes);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_BLOCKFORWARD_H
