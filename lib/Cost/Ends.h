//===- Ends.h - Functions at the ends of the chain of layers ----*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_ENDS_H
#define HEDDLE_LIB_COST_ENDS_H

#include "BlockForward.h"

namespace heddle::detail {

/// Norm, logits and loss, and backward of all of them: one function.
std::vector<BlockOp> headOps(const ModelConfig &model, const RankSizes &sizes);

/// From tokens to "x", what the first block reads.
std::vector<BlockOp> embeddingOps(const ModelConfig &model,
                                  const RankSizes &sizes);
/// From its gradient to those of the tables.
std::vector<BlockOp> embeddingGradOps(const ModelConfig &model,
                                      const RankSizes &sizes);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_ENDS_H
