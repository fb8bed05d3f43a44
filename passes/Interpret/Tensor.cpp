//===- Tensor.cpp - values of the interpreter -----------------------------===//

#include "passes/Interpret/Tensor.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/SmallVector.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <string>

using namespace mlir;
using namespace heddle::interpret;

int64_t heddle::interpret::countElements(ArrayRef<int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                         std::multiplies<>());
}

Tensor Tensor::zeros(Kind kind, ArrayRef<int64_t> shape) {
  Tensor result;
  result.kind = kind;
  result.shape = shape.vec();
  if (kind == Kind::Float)
    result.floats.resize(countElements(shape));
  else
    result.integers.resize(countElements(shape));
  return result;
}

Tensor Tensor::zeros(RankedTensorType type) {
  return zeros(isa<FloatType>(type.getElementType()) ? Kind::Float
                                                     : Kind::Integer,
               type.getShape());
}

Tensor Tensor::ofFloats(ArrayRef<int64_t> shape, std::vector<double> values) {
  Tensor result;
  result.shape = shape.vec();
  result.floats = std::move(values);
  return result;
}

Tensor Tensor::ofIntegers(ArrayRef<int64_t> shape,
                          std::vector<int64_t> values) {
  Tensor result;
  result.kind = Kind::Integer;
  result.shape = shape.vec();
  result.integers = std::move(values);
  return result;
}

bool Tensor::hasSameBits(const Tensor &other) const {
  return kind == other.kind && shape == other.shape &&
         integers == other.integers && floats.size() == other.floats.size() &&
         (floats.empty() || std::memcmp(floats.data(), other.floats.data(),
                                        floats.size() * sizeof(double)) == 0);
}

int64_t Tensor::countNonZero() const {
  int64_t count = 0;
  for (double value : floats)
    count += !(value == 0);
  for (int64_t value : integers)
    count += value != 0;
  return count;
}

std::string heddle::interpret::describe(const Tensor &tensor) {
  std::string text = tensor.isInteger() ? "integer " : "float ";
  if (tensor.shape.empty())
    return text + "scalar";
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i ? "x" : "") + std::to_string(tensor.shape[i]);
  return text;
}

/// What the program stores: it computes in fp32, so a narrower format is
/// rounded from there.
static double roundFloat(float value, FloatType type) {
  if (type.isF32())
    return value;
  bool lost;
  llvm::APFloat rounded(value);
  rounded.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                  &lost);
  rounded.convert(llvm::APFloat::IEEEdouble(),
                  llvm::APFloat::rmNearestTiesToEven, &lost);
  return rounded.convertToDouble();
}

void heddle::interpret::roundTo(Tensor &tensor, Type elementType,
                                Reading reading) {
  auto type = dyn_cast<FloatType>(elementType);
  if (reading == Reading::Exact || !type || type.isF64())
    return;
  for (double &value : tensor.floats)
    value = roundFloat(static_cast<float>(value), type);
}

Tensor heddle::interpret::addTensors(const Tensor &a, const Tensor &b,
                                     Reading reading) {
  Tensor sum = a;
  for (size_t i = 0; i < sum.integers.size(); ++i)
    sum.integers[i] += b.integers[i];
  inArithmeticOf(reading, [&](auto zero) {
    using Real = decltype(zero);
    for (size_t i = 0; i < sum.floats.size(); ++i)
      sum.floats[i] =
          static_cast<Real>(sum.floats[i]) + static_cast<Real>(b.floats[i]);
  });
  return sum;
}

static SmallVector<int64_t> stridesOf(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

void heddle::interpret::copyBlock(const Tensor &from,
                                  ArrayRef<int64_t> fromStart, Tensor &to,
                                  ArrayRef<int64_t> toStart,
                                  ArrayRef<int64_t> sizes) {
  size_t rank = sizes.size();
  SmallVector<int64_t> fromStrides = stridesOf(from.shape),
                       toStrides = stridesOf(to.shape);
  // One recursion per dimension; the last copies a run.
  std::function<void(size_t, int64_t, int64_t)> copy =
      [&](size_t dim, int64_t source, int64_t target) {
        if (dim + 1 >= rank) {
          int64_t run = rank ? sizes[dim] : 1;
          if (rank) {
            source += fromStart[dim];
            target += toStart[dim];
          }
          if (from.isInteger())
            std::copy_n(from.integers.begin() + source, run,
                        to.integers.begin() + target);
          else
            std::copy_n(from.floats.begin() + source, run,
                        to.floats.begin() + target);
          return;
        }
        for (int64_t i = 0; i < sizes[dim]; ++i)
          copy(dim + 1, source + (fromStart[dim] + i) * fromStrides[dim],
               target + (toStart[dim] + i) * toStrides[dim]);
      };
  copy(0, 0, 0);
}
