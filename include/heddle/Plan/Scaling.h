//===- Scaling.h - How operands of narrow products are scaled ---*- C++ -*-===//
//
// Recipes as data: a new one that needs no op of its own is a row.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PLAN_SCALING_H
#define HEDDLE_PLAN_SCALING_H

#include "heddle/Model/Parameters.h"
#include "heddle/Plan/Plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Formats of the operands of a layer's products, by what they are, and what
/// belongs to one scale: a tensor, over all ranks that hold parts of it, or
/// without these, `blockLength` numbers that a product sums over of one row; or
/// both, blocks' scales being relative to the tensor's. A scale is made of the
/// largest magnitude that is there now, and ranks of dp have scales of their
/// own; or of those of earlier steps, over all micro-batches and ranks of dp.
/// Head and embedding stay in what the plan computes in.
struct ScalingRecipe {
  std::string_view recipe;                       ///< precision.recipe
  std::string_view name;                         ///< precision.scaling
  std::string_view activation, weight, gradient; ///< "e4m3", "e5m2" or "e2m1"
  bool powerOfTwo;                               ///< scales
  std::int64_t blockLength = 0;                  ///< 0: a tensor has one scale
  /// Whether a plan may choose another length: no hardware has it.
  bool hasAnyLength = false;
  /// Weights' blocks have as many rows, so that both ways of summing over them
  /// have the same codes.
  bool hasSquareWeights = false;
  std::string_view blockScales = "fp32"; ///< or "e8m0" or "e4m3"
  /// Both operands of a weight's gradient are mixed by a Hadamard matrix of
  /// `blockLength` tokens first.
  bool mixesTokens = false;
  bool roundsGradientsAtRandom = false; ///< all else to nearest
  /// Of how many steps before this one; 0: of the tensor as it is now.
  std::int64_t amaxHistory = 0;
  bool isMostRecent = false; ///< of these, the last one alone

  /// Whether a tensor has a scale beside those of its blocks.
  bool hasTwoLevels() const { return blockLength > 0 && blockScales == "e4m3"; }
  bool hasTensorScales() const { return blockLength == 0 || hasTwoLevels(); }
  std::int64_t blockScaleBytes() const { return blockScales == "fp32" ? 4 : 1; }
  std::int64_t codeBits() const { return activation == "e2m1" ? 4 : 8; }
  /// Of an element that products read, its part of a block's scale included;
  /// that of a tensor's is nothing.
  double bitsPerElement() const {
    const double bits = static_cast<double>(codeBits());
    return blockLength == 0
               ? bits
               : bits + 8. * static_cast<double>(blockScaleBytes()) /
                            static_cast<double>(blockLength);
  }
  std::int64_t weightRows() const { return hasSquareWeights ? blockLength : 1; }
};

/// A row of `Scaling.cpp`, with its defaults.
void setScaling(PlanPrecision &precision, std::string_view name);
/// Sets what a plan that names no more than a recipe does.
void setDefaultScaling(PlanPrecision &precision);

/// What a plan does, with the length of blocks that it has chosen; none where
/// its formats need no scale.
std::optional<ScalingRecipe> scalingOf(const PlanPrecision &precision);

/// Layers in which a plan leaves products with a parameter in what it computes
/// in, in order. It has been checked.
std::vector<std::int64_t> plainLayers(const Plan &plan,
                                      const ParameterFamily &family);

/// What values between products have in a recipe: fp8 and nvfp4 are formats of
/// operands of products alone.
std::string computeFormat(std::string_view recipe);

} // namespace heddle

#endif
