//===- Scaling.h - How operands of narrow products are scaled ---*- C++ -*-===//
//
// Recipes as data: a new one that needs no op of its own is a row.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PLAN_SCALING_H
#define HEDDLE_PLAN_SCALING_H

#include <string>
#include <string_view>

namespace heddle {

/// Formats of the operands of a layer's products, by what they are. One scale
/// per tensor, from the largest magnitude that the tensor has now, over all
/// ranks that hold parts of it; ranks of dp have scales of their own. Head and
/// embedding stay in what the plan computes in.
struct ScalingRecipe {
  std::string_view name;                         ///< precision.scaling
  std::string_view activation, weight, gradient; ///< "e4m3" or "e5m2"
  bool powerOfTwo;                               ///< scales
};

/// The recipe of a name, or null.
const ScalingRecipe *findScaling(std::string_view name);

/// What values between products have in a recipe: fp8 and nvfp4 are formats of
/// operands of products alone.
std::string computeFormat(std::string_view recipe);

} // namespace heddle

#endif
