//===- Contract.cpp - products of tensors ---------------------------------===//
//
// Both operands are brought into the form of a batch of matrices, multiplied by
// plain loops, and the product is brought into the order of the result.
//
//===----------------------------------------------------------------------===//

#include "passes/Interpret/Multiply.h"
#include "passes/Interpret/Rank.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

using Letters = SmallVector<StringRef>;

static Letters lettersOf(StringRef list) {
  Letters letters;
  llvm::SplitString(list, letters);
  return letters;
}

namespace {
/// The letters of a contract by where they stand.
struct Roles {
  Letters batch;   // both operands and the result
  Letters rows;    // lhs and result
  Letters columns; // rhs and result
  Letters summed;  // both operands
  llvm::StringMap<int64_t> sizes;

  int64_t count(const Letters &letters) const {
    int64_t product = 1;
    for (StringRef letter : letters)
      product *= sizes.lookup(letter);
    return product;
  }
};
} // namespace

static Roles findRoles(const Letters &lhs, const Letters &rhs,
                       const Letters &result, ArrayRef<int64_t> lhsShape,
                       ArrayRef<int64_t> rhsShape) {
  Roles roles;
  for (auto [letter, size] : llvm::zip(lhs, lhsShape)) {
    roles.sizes[letter] = size;
    bool inRhs = llvm::is_contained(rhs, letter);
    bool inResult = llvm::is_contained(result, letter);
    (inRhs ? (inResult ? roles.batch : roles.summed) : roles.rows)
        .push_back(letter);
  }
  for (auto [letter, size] : llvm::zip(rhs, rhsShape)) {
    roles.sizes[letter] = size;
    if (!llvm::is_contained(lhs, letter))
      roles.columns.push_back(letter);
  }
  return roles;
}

/// `values`, whose dimensions are `from`, with its dimensions in order `to`.
template <class To, class From>
static std::vector<To> permute(const std::vector<From> &values,
                               const Letters &from, const Letters &to,
                               const llvm::StringMap<int64_t> &sizes) {
  size_t rank = to.size();
  llvm::StringMap<int64_t> strides;
  int64_t stride = 1;
  for (StringRef letter : llvm::reverse(from)) {
    strides[letter] = stride;
    stride *= sizes.lookup(letter);
  }
  SmallVector<int64_t> steps, extents, index(rank, 0);
  for (StringRef letter : to) {
    steps.push_back(strides.lookup(letter));
    extents.push_back(sizes.lookup(letter));
  }
  std::vector<To> result(values.size());
  int64_t source = 0;
  for (To &element : result) {
    element = static_cast<To>(values[source]);
    // Count up like an odometer, keeping the source in step.
    for (size_t dim = rank; dim-- > 0;) {
      source += steps[dim];
      if (++index[dim] < extents[dim])
        break;
      source -= steps[dim] * extents[dim];
      index[dim] = 0;
    }
  }
  return result;
}

template <class Real>
static Tensor contract(const Tensor &lhs, const Tensor &rhs, StringRef spec,
                       ArrayRef<int64_t> shape) {
  auto [left, right] = spec.split("->");
  auto [first, second] = left.split(",");
  Letters l = lettersOf(first), r = lettersOf(second), o = lettersOf(right);
  Roles roles = findRoles(l, r, o, lhs.shape, rhs.shape);
  auto joined = [](std::initializer_list<const Letters *> lists) {
    Letters all;
    for (const Letters *list : lists)
      all.append(*list);
    return all;
  };
  std::vector<Real> a = permute<Real>(
      lhs.floats, l, joined({&roles.batch, &roles.rows, &roles.summed}),
      roles.sizes);
  std::vector<Real> b = permute<Real>(
      rhs.floats, r, joined({&roles.batch, &roles.summed, &roles.columns}),
      roles.sizes);
  int64_t batch = roles.count(roles.batch), rows = roles.count(roles.rows),
          columns = roles.count(roles.columns),
          inner = roles.count(roles.summed);
  std::vector<Real> c(batch * rows * columns);
  for (int64_t i = 0; i < batch; ++i)
    multiply(a.data() + i * rows * inner, b.data() + i * inner * columns,
             c.data() + i * rows * columns, rows, columns, inner);
  return Tensor::ofFloats(
      shape,
      permute<double>(c, joined({&roles.batch, &roles.rows, &roles.columns}), o,
                      roles.sizes));
}

static LogicalResult evaluate(ContractOp op, Frame &frame) {
  Tensor result =
      inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
        using Real = decltype(zero);
        Tensor product =
            contract<Real>(frame.get(op.getLhs()), frame.get(op.getRhs()),
                           op.getSpec(), op.getResult().getType().getShape());
        Real scale = 1;
        for (Value each : op.getScales())
          scale *= static_cast<Real>(frame.get(each).floats[0]);
        if (!op.getScales().empty())
          for (double &element : product.floats)
            element = static_cast<Real>(element) * scale;
        return product;
      });
  frame.set(op.getResult(), std::move(result));
  return success();
}

//===----------------------------------------------------------------------===//
// Formats with a scale
//===----------------------------------------------------------------------===//

/// A NaN wins.
static LogicalResult evaluate(AmaxOp op, Frame &frame) {
  double most = 0;
  for (double element : frame.get(op.getInput()).floats)
    if (double magnitude = std::abs(element); !(magnitude <= most))
      most = std::isnan(most) ? most : magnitude;
  frame.set(op.getResult(), Tensor::scalar(most));
  return success();
}

/// Input times this is what codes round; the exact reading rounds nothing.
static float upScale(QuantizeOp op, double amax, double largest) {
  if (!std::isfinite(amax))
    return std::numeric_limits<float>::quiet_NaN();
  if (amax == 0)
    return 1;
  float up = std::min(static_cast<float>(largest) / static_cast<float>(amax),
                      std::numeric_limits<float>::max());
  return op.getPowerOfTwo() ? std::ldexp(1.0f, std::ilogb(up)) : up;
}

static LogicalResult evaluate(QuantizeOp op, Frame &frame) {
  const Tensor &input = frame.get(op.getInput());
  auto type = cast<RankedTensorType>(op.getCodes().getType());
  std::vector<double> values = input.floats;
  double scale = 1;
  if (frame.getReading(op.getCodes()) == Reading::Rounded) {
    const double largest =
        APFloat::getLargest(
            cast<FloatType>(type.getElementType()).getFloatSemantics())
            .convertToDouble();
    const float up = upScale(op, frame.get(op.getAmax()).floats[0], largest);
    scale = 1.0f / up;
    for (double &value : values) {
      float scaled = static_cast<float>(value) * up;
      value = std::isnan(scaled)
                  ? scaled
                  : std::clamp<double>(scaled, -largest, largest);
    }
  }
  // The matrix of what stands before `rotate` and the rest, turned.
  int64_t rows =
      countElements(ArrayRef(input.shape).take_front(op.getRotate()));
  int64_t columns =
      static_cast<int64_t>(values.size()) / std::max<int64_t>(rows, 1);
  Tensor codes = Tensor::zeros(type);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      codes.floats[column * rows + row] = values[row * columns + column];
  frame.set(op.getCodes(), std::move(codes));
  frame.set(op.getScale(), Tensor::scalar(scale));
  return success();
}

void heddle::interpret::addContract(Evaluators &evaluators) {
  evaluators.add<ContractOp>(evaluate);
  evaluators.add<AmaxOp>(evaluate);
  evaluators.add<QuantizeOp>(evaluate);
}
