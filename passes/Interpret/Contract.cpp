//===- Contract.cpp - products of tensors ---------------------------------===//
//
// Both operands are brought into the form of a batch of matrices, multiplied by
// plain loops, and the product is brought into the order of the result.
//
//===----------------------------------------------------------------------===//

#include "passes/Interpret/Multiply.h"
#include "passes/Interpret/Rank.h"

#include "llvm/ADT/StringExtras.h"

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
        return contract<decltype(zero)>(frame.get(op.getLhs()),
                                        frame.get(op.getRhs()), op.getSpec(),
                                        op.getResult().getType().getShape());
      });
  frame.set(op.getResult(), std::move(result));
  return success();
}

void heddle::interpret::addContract(Evaluators &evaluators) {
  evaluators.add<ContractOp>(evaluate);
}
