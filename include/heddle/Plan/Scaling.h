//===- Scaling.h - How operands of narrow products are scaled ---*- C++ -*-===//
//
// Recipes as data: a new one that needs no op of its own is a row.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PLAN_SCALING_H
#define HEDDLE_PLAN_SCALING_H

#include "heddle/Model/ModelConfig.h"
#include "heddle/Plan/Plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Formats of the operands of a layer's products, by what they are, and what
/// belongs to one scale: a tensor, over all ranks that hold parts of it, or
/// without these, `blockLength` numbers that a product sums over of one row. A
/// scale is made of the largest magnitude that is there now; ranks of dp have
/// scales of their own. Head and embedding stay in what the plan computes in.
struct ScalingRecipe {
  std::string_view name;                         ///< precision.scaling
  std::string_view activation, weight, gradient; ///< "e4m3" or "e5m2"
  bool powerOfTwo;                               ///< scales
  std::int64_t blockLength = 0;                  ///< 0: a tensor has one scale
  /// Whether a plan may choose another length: no hardware has it.
  bool hasAnyLength = false;
  /// Weights' blocks have as many rows, so that both ways of summing over them
  /// have the same codes.
  bool hasSquareWeights = false;
  bool hasByteScales = false; ///< e8m0, else fp32

  std::int64_t weightRows() const { return hasSquareWeights ? blockLength : 1; }
};

/// What a plan does, with the length of blocks that it has chosen; none where
/// its formats need no scale.
std::optional<ScalingRecipe> scalingOf(const PlanPrecision &precision);

/// Names of the parameters, as their families have them, whose products a plan
/// leaves in what it computes in. It has been checked.
std::vector<std::string> plainParameters(const Plan &plan,
                                         const ModelConfig &model);

/// What values between products have in a recipe: fp8 and nvfp4 are formats of
/// operands of products alone.
std::string computeFormat(std::string_view recipe);

} // namespace heddle

#endif
