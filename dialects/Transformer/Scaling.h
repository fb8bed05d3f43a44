//===- Scaling.h - products whose operands are codes with a scale ---------===//

#ifndef HEDDLE_DIALECTS_TRANSFORMER_SCALING_H
#define HEDDLE_DIALECTS_TRANSFORMER_SCALING_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::transformer {

/// Attribute of a contract, a dictionary: the plan's recipe has its operands in
/// `formats`, two types of 8 bits, or f4E2M1FN twice; with `power_of_two`
/// (unit) their scales are such. With `blocks`, as a contract has them, each
/// block has a scale, in the format `scales`: of f8E4M3FN beside one of the
/// tensor; with `signs` operands are mixed first, with `site` the left one is
/// rounded by the contract's noise. With `tensors`, two names, scales are those
/// of earlier steps; in `plain_layers` products stay as they are. Until
/// `precision-quantize-products` has made codes of them.
inline constexpr llvm::StringLiteral kScaledName = "transformer.scaled";
/// Attribute of such a contract whose operands' tensors have scales, per
/// operand the mesh axes over whose ranks parts of one tensor lie, which share
/// its scale.
inline constexpr llvm::StringLiteral kScaleAxesName = "transformer.scale_axes";

/// Attribute of a module whose scales are made of earlier steps' largest
/// magnitudes, a dictionary: "history" (steps), "most_recent" (unit: of these
/// the last one alone), "forward" and "backward": names of the tensors of a
/// layer that have one, by which of its functions makes them.
inline constexpr llvm::StringLiteral kDelayedName =
    "transformer.delayed_scaling";
/// Attribute of an amax of such a tensor: its name.
inline constexpr llvm::StringLiteral kTensorName = "transformer.tensor";

/// What a recipe wants of a product's operands.
struct Scaling {
  mlir::Type formats[2];
  bool powerOfTwo = false;
  /// Rows of a block of each operand, and numbers that are summed over; none:
  /// an operand has one scale.
  llvm::SmallVector<int64_t, 3> blocks;
  mlir::Type scales; ///< of blocks: f32, f8E8M0FNU or f8E4M3FN
  /// Names of the operands as kDelayedName has them; none: scales are made of
  /// what operands are now.
  llvm::SmallVector<std::string, 2> tensors;
  /// Layers in which the product stays as it is, as long as one function stands
  /// for all.
  llvm::SmallVector<int64_t> plainLayers;
  /// Both operands are mixed by `hadamard` first, as many numbers as a block
  /// has of those that are summed, with these signs.
  std::optional<int64_t> signs;
  /// The left operand is rounded at random, by the words of this site.
  std::optional<int64_t> site;

  /// Whether a tensor has a scale and its blocks have others.
  bool hasTwoLevels() const;
  bool hasTensorScale() const { return blocks.empty() || hasTwoLevels(); }

  /// Nothing where it wants nothing; fails, with a message, where the attribute
  /// is no such dictionary.
  static mlir::FailureOr<std::optional<Scaling>> of(ContractOp op);
  void set(ContractOp op) const;
};

} // namespace heddle::transformer

#endif // HEDDLE_DIALECTS_TRANSFORMER_SCALING_H
