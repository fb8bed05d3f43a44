//===- Tensor.h - values of the interpreter ---------------------*- C++ -*-===//
//
// Plain dense tensors, and the few things done with them everywhere.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_INTERPRET_TENSOR_H
#define HEDDLE_PASSES_INTERPRET_TENSOR_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace heddle::interpret {

/// Exact: every float is fp64 and every cast the identity. Rounded: arithmetic
/// and sums are fp32, each op's result is rounded to its element type (f64
/// results are summed in fp64).
enum class Reading { Exact, Rounded };

/// Dense, last dimension fastest. Floats are kept as doubles in both readings:
/// every format up to fp64 fits without loss.
struct Tensor {
  enum class Kind { Float, Integer };

  Kind kind = Kind::Float;
  std::vector<int64_t> shape;
  std::vector<double> floats;    // of Kind::Float
  std::vector<int64_t> integers; // of Kind::Integer

  static Tensor zeros(Kind kind, llvm::ArrayRef<int64_t> shape);
  /// Zeros in the shape and kind of a tensor type, its layout not looked at.
  static Tensor zeros(mlir::RankedTensorType type);
  static Tensor ofFloats(llvm::ArrayRef<int64_t> shape,
                         std::vector<double> values);
  static Tensor ofIntegers(llvm::ArrayRef<int64_t> shape,
                           std::vector<int64_t> values);
  static Tensor scalar(double value) { return ofFloats({}, {value}); }

  int64_t getNumElements() const {
    return kind == Kind::Float ? floats.size() : integers.size();
  }
  bool isInteger() const { return kind == Kind::Integer; }
  /// Same kind, shape and bits (a NaN equals itself, 0 and -0 differ).
  bool hasSameBits(const Tensor &other) const;
  /// Number of elements that are not zero.
  int64_t countNonZero() const;
};

using TensorPtr = std::shared_ptr<const Tensor>;

/// "float 2x3", for messages.
std::string describe(const Tensor &tensor);

/// Product of sizes.
int64_t countElements(llvm::ArrayRef<int64_t> shape);

/// Rounds every float to `elementType`; nothing in the exact reading.
void roundTo(Tensor &tensor, mlir::Type elementType, Reading reading);

/// The sum of two tensors of one kind and shape, not yet rounded.
Tensor addTensors(const Tensor &a, const Tensor &b, Reading reading);

/// Copies the block of `sizes` elements at `fromStart` to `toStart`. Both
/// blocks lie inside their tensors, which are of one kind and rank.
void copyBlock(const Tensor &from, llvm::ArrayRef<int64_t> fromStart,
               Tensor &to, llvm::ArrayRef<int64_t> toStart,
               llvm::ArrayRef<int64_t> sizes);

/// Calls `body` with a float or a double: the type in which `reading` computes.
template <class Body>
auto inArithmeticOf(Reading reading, Body body) {
  return reading == Reading::Exact ? body(double()) : body(float());
}

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_TENSOR_H
