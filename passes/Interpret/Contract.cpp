//===- Contract.cpp - products of tensors ---------------------------------===//
//
// Both operands are brought into the form of a batch of matrices, multiplied by
// plain loops, and the product is brought into the order of the result.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Random.h"
#include "passes/Interpret/Multiply.h"
#include "passes/Interpret/Places.h"
#include "passes/Interpret/Rank.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

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

/// What of so many rows and columns belongs to one scale.
static SmallVector<int64_t, 2> blockOf(ArrayRef<int64_t> blocks, int64_t rows,
                                       int64_t columns) {
  if (blocks.empty())
    return {std::max<int64_t>(rows, 1), std::max<int64_t>(columns, 1)};
  return SmallVector<int64_t, 2>(blocks);
}

/// Codes times the scales of their blocks.
template <class Real>
static Tensor scaled(const Tensor &codes, const Tensor &scales, int64_t rows,
                     ArrayRef<int64_t> blocks) {
  Tensor values = codes;
  int64_t columns = static_cast<int64_t>(codes.floats.size()) / rows;
  auto block = blockOf(blocks, rows, columns);
  int64_t perRow = llvm::divideCeilSigned(columns, block[1]);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      double &value = values.floats[row * columns + column];
      value = static_cast<Real>(value) *
              static_cast<Real>(
                  scales.floats[row / block[0] * perRow + column / block[1]]);
    }
  return values;
}

/// Elements of an operand along the letters that the sum leaves.
static int64_t keptSize(StringRef list, StringRef kept, const Tensor &operand) {
  int64_t size = 1;
  for (auto [letter, extent] : llvm::zip(lettersOf(list), operand.shape))
    if (llvm::is_contained(lettersOf(kept), letter))
      size *= extent;
  return size;
}

/// Numbers multiply the product; scales of blocks, which come first, the
/// operands.
template <class Real>
static Tensor scaledContract(ContractOp op, const Tensor &lhs,
                             const Tensor &rhs, ArrayRef<Tensor> scales) {
  ArrayRef<int64_t> shape = op.getResult().getType().getShape();
  Tensor product;
  if (ArrayRef<int64_t> blocks = op.getBlocks(); !blocks.empty()) {
    auto [lists, kept] = op.getSpec().split("->");
    auto [first, second] = lists.split(",");
    product =
        contract<Real>(scaled<Real>(lhs, scales[0], keptSize(first, kept, lhs),
                                    {blocks[0], blocks[2]}),
                       scaled<Real>(rhs, scales[1], keptSize(second, kept, rhs),
                                    {blocks[1], blocks[2]}),
                       op.getSpec(), shape);
    scales = scales.drop_front(2);
  } else {
    product = contract<Real>(lhs, rhs, op.getSpec(), shape);
  }
  if (scales.empty())
    return product;
  Real scale = static_cast<Real>(scales[0].floats[0]) *
               static_cast<Real>(scales[1].floats[0]);
  for (double &element : product.floats)
    element = static_cast<Real>(element) * scale;
  return product;
}

static LogicalResult evaluate(ContractOp op, Frame &frame) {
  const Tensor &lhs = frame.get(op.getLhs()), &rhs = frame.get(op.getRhs());
  Tensor result =
      inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
        using Real = decltype(zero);
        if (op.getScales().empty())
          return contract<Real>(lhs, rhs, op.getSpec(),
                                op.getResult().getType().getShape());
        SmallVector<Tensor> scales;
        for (Value scale : op.getScales())
          scales.push_back(frame.get(scale));
        return scaledContract<Real>(op, lhs, rhs, scales);
      });
  frame.set(op.getResult(), std::move(result));
  return success();
}

//===----------------------------------------------------------------------===//
// Formats with a scale
//===----------------------------------------------------------------------===//

/// A NaN wins.
static double larger(double most, double element) {
  double magnitude = std::abs(element);
  return magnitude <= most || std::isnan(most) ? most : magnitude;
}

static LogicalResult evaluate(AmaxOp op, Frame &frame) {
  double most = 0;
  for (double element : frame.get(op.getInput()).floats)
    most = larger(most, element);
  frame.set(op.getResult(), Tensor::scalar(most));
  return success();
}

/// Input times this is what codes round; the exact reading rounds nothing.
static float upScale(double amax, double largest, bool powerOfTwo) {
  if (!std::isfinite(amax))
    return std::numeric_limits<float>::quiet_NaN();
  if (amax == 0)
    return 1;
  float up = std::min(static_cast<float>(largest) / static_cast<float>(amax),
                      std::numeric_limits<float>::max());
  return powerOfTwo ? std::ldexp(1.0f, std::ilogb(up)) : up;
}

namespace {
/// The codes' matrix, block by block.
struct Matrix {
  std::vector<double> &values;
  int64_t rows, columns;
  SmallVector<int64_t, 2> block;

  /// Calls `each` with the elements of each block, which may change them.
  template <class Each>
  void forBlocks(Each each) {
    std::vector<double *> elements;
    for (int64_t top = 0; top < rows; top += block[0])
      for (int64_t left = 0; left < columns; left += block[1]) {
        elements.clear();
        for (int64_t row = top; row < std::min(top + block[0], rows); ++row)
          for (int64_t column = left;
               column < std::min(left + block[1], columns); ++column)
            elements.push_back(&values[row * columns + column]);
        each(elements);
      }
  }
};
} // namespace

/// The input, its first dimensions turned to be its last.
static Tensor turned(QuantizeOp op, const Tensor &input) {
  auto type = cast<RankedTensorType>(op.getCodes().getType());
  int64_t rows =
      countElements(ArrayRef(input.shape).take_front(op.getRotate()));
  int64_t columns =
      static_cast<int64_t>(input.floats.size()) / std::max<int64_t>(rows, 1);
  Tensor codes = Tensor::zeros(type);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      codes.floats[column * rows + row] = input.floats[row * columns + column];
  return codes;
}

/// Columns of `values`, `width` of them, mixed in groups of `length` rows.
template <class Real>
static void mixRows(std::vector<double> &values, int64_t width, int64_t length,
                    uint64_t signs) {
  const Real scale = static_cast<Real>(1 / std::sqrt(double(length)));
  const auto size = static_cast<int64_t>(values.size());
  std::vector<Real> column(length);
  for (int64_t top = 0; top + length * width <= size; top += length * width)
    for (int64_t c = 0; c < width; ++c) {
      for (int64_t i = 0; i < length; ++i)
        column[i] = static_cast<Real>(values[top + i * width + c]) *
                    (signs >> i & 1 ? Real(-1) : Real(1));
      // Sylvester: H of 2n is [[H, H], [H, -H]], so its halves may be mixed
      // first: numbers 1 apart, then 2, 4, ...
      for (int64_t half = 1; half < length; half *= 2)
        for (int64_t begin = 0; begin < length; begin += 2 * half)
          for (int64_t i = begin; i < begin + half; ++i) {
            Real low = column[i], high = column[i + half];
            column[i] = low + high;
            column[i + half] = low - high;
          }
      for (int64_t i = 0; i < length; ++i)
        values[top + i * width + c] = column[i] * scale;
    }
}

static LogicalResult evaluate(HadamardOp op, Frame &frame) {
  Tensor mixed = frame.get(op.getInput());
  int64_t width = countElements(ArrayRef(mixed.shape).drop_front(op.getOver()));
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    mixRows<decltype(zero)>(mixed.floats, width, op.getLength(), op.getSigns());
  });
  frame.set(op.getResult(), std::move(mixed));
  return success();
}

static double largestOf(Type type) {
  return APFloat::getLargest(cast<FloatType>(type).getFloatSemantics())
      .convertToDouble();
}

/// The nearest number of a format, none above its largest.
static double nearest(float value, Type type) {
  Tensor one = Tensor::scalar(value);
  double most = largestOf(type);
  if (!std::isnan(value))
    one.floats[0] = std::clamp<double>(value, -most, most);
  roundTo(one, type, Reading::Rounded);
  return one.floats[0];
}

namespace {
/// What a block is multiplied by, and the scale that undoes it: beside that of
/// the tensor, where there is one.
struct BlockScale {
  float up = 1;
  double scale = 1;
};
} // namespace

/// Of two levels: `tensorUp` brings the tensor's largest number to the largest
/// code with the largest scale.
static BlockScale scaleOf(QuantizeOp op, double amax, float tensorUp) {
  double largest = largestOf(op.getCodes().getType().getElementType());
  if (!op.getTensorScale()) {
    float up = upScale(amax, largest, op.getPowerOfTwo());
    return {up, 1.0f / up};
  }
  double scale =
      nearest(static_cast<float>(amax) * tensorUp / static_cast<float>(largest),
              op.getScale().getType().getElementType());
  if (scale == 0)
    return {0, scale};
  float up = tensorUp / static_cast<float>(scale);
  return {std::isinf(up) ? std::numeric_limits<float>::max() : up, scale};
}

namespace {
/// How codes of the input's elements are rounded at random.
struct Noise {
  Noise(QuantizeOp op, Frame &frame)
      : seed(static_cast<uint64_t>(frame.get(op.getSeed()).integers[0])),
        site(static_cast<uint32_t>(*op.getSite())),
        numbers(frame.get(op.getTokenNumbers()).integers),
        rotated(op.getRotate() != 0) {
    ArrayRef<int64_t> shape = op.getInput().getType().getShape();
    size_t tokens = op.getTokenNumbers().getType().getRank();
    for (size_t dim = tokens; dim < shape.size(); ++dim)
      parts.emplace_back(heddle::dist::getShard(op, "q" + std::to_string(dim)),
                         shape[dim], frame);
  }

  /// The number of the format below `value` or above, which stands so far from
  /// the codes' first.
  double round(double value, int64_t at) const {
    double size = std::min(std::abs(value), 6.0);
    double step = size < 2 ? 0.5 : size < 4 ? 1 : 2;
    double below = std::floor(size / step) * step;
    double above = std::floor((size - below) / step * 0x1p22) +
                   static_cast<double>(wordOf(at) >> 10);
    return std::copysign(above < 0x1p22 ? below : std::min(below + step, 6.0),
                         value);
  }

private:
  uint32_t wordOf(int64_t at) const {
    auto tokens = static_cast<int64_t>(numbers.size());
    int64_t columns = 1;
    for (const Part &part : parts)
      columns *= part.size;
    int64_t token = rotated ? at % tokens : at / columns;
    int64_t column = rotated ? at / tokens : at % columns;
    int64_t place = 0, stride = 1;
    for (const Part &part : llvm::reverse(parts)) {
      place += (part.first + column % part.size) * stride;
      column /= part.size;
      stride *= part.extent;
    }
    return heddle::random::dropoutWord(seed, site, 0,
                                       static_cast<uint32_t>(numbers[token]),
                                       static_cast<uint32_t>(place));
  }

  uint64_t seed;
  uint32_t site;
  const std::vector<int64_t> &numbers;
  bool rotated;
  std::vector<Part> parts;
};
} // namespace

static float tensorUpScale(QuantizeOp op, Frame &frame) {
  if (!op.getTensorScale())
    return 1;
  double largest = largestOf(op.getScale().getType().getElementType()) *
                   largestOf(op.getCodes().getType().getElementType());
  return upScale(frame.get(op.getAmax()).floats[0], largest, false);
}

static LogicalResult evaluate(QuantizeOp op, Frame &frame) {
  auto type = cast<RankedTensorType>(op.getCodes().getType());
  Tensor codes = turned(op, frame.get(op.getInput()));
  Tensor scales =
      Tensor::zeros(cast<RankedTensorType>(op.getScale().getType()));
  const bool rounds = frame.getReading(op.getCodes()) == Reading::Rounded;
  const double largest = largestOf(type.getElementType());
  // A GPU's conversions have the largest code where the format has no NaN.
  const double nan =
      APFloat::semanticsHasNaN(
          cast<FloatType>(type.getElementType()).getFloatSemantics())
          ? std::numeric_limits<double>::quiet_NaN()
          : largest;
  const bool isOfTensor = op.getAmax() && !op.getTensorScale();
  const float tensorUp = rounds ? tensorUpScale(op, frame) : 1;
  int64_t columns = countElements(type.getShape().take_back(op.getOver()));
  int64_t rows = static_cast<int64_t>(codes.floats.size()) / columns;
  Matrix matrix{codes.floats, rows, columns,
                blockOf(op.getBlocks(), rows, columns)};
  std::optional<Noise> noise;
  if (rounds && op.getSeed())
    noise.emplace(op, frame);
  auto scale = scales.floats.begin();
  matrix.forBlocks([&](ArrayRef<double *> block) {
    double amax = isOfTensor ? frame.get(op.getAmax()).floats[0] : 0;
    if (!isOfTensor)
      for (double *value : block)
        amax = larger(amax, *value);
    const BlockScale own = rounds ? scaleOf(op, amax, tensorUp) : BlockScale();
    *scale++ = own.scale;
    for (double *value : block) {
      const float each = static_cast<float>(*value) * own.up;
      if (rounds)
        *value = std::isnan(each) ? nan
                                  : std::clamp<double>(each, -largest, largest);
      if (noise && !std::isnan(each))
        *value = noise->round(*value, value - codes.floats.data());
    }
  });
  frame.set(op.getCodes(), std::move(codes));
  frame.set(op.getScale(), std::move(scales));
  if (op.getTensorScale())
    frame.set(op.getTensorScale(), Tensor::scalar(1.0f / tensorUp));
  return success();
}

void heddle::interpret::addContract(Evaluators &evaluators) {
  evaluators.add<ContractOp>(evaluate);
  evaluators.add<AmaxOp>(evaluate);
  evaluators.add<HadamardOp>(evaluate);
  evaluators.add<QuantizeOp>(evaluate);
}
