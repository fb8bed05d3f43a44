//===- LowerContract.cpp - contractions as matrix products ----------------===//

#include "passes/Lowering/Lowering.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;

namespace {
/// The letters of one list of a spec, with sizes.
struct Letters {
  SmallVector<StringRef> names;
  SmallVector<int64_t> sizes;

  bool has(StringRef name) const { return llvm::is_contained(names, name); }
};

} // namespace

static Letters lettersOf(StringRef list, Value value) {
  Letters letters;
  llvm::SplitString(list, letters.names);
  llvm::append_range(letters.sizes,
                     cast<RankedTensorType>(value.getType()).getShape());
  return letters;
}

/// The letters of `list` that `keep` accepts, in order.
template <class Keep>
static SmallVector<StringRef> only(const Letters &list, Keep keep) {
  SmallVector<StringRef> kept;
  for (StringRef name : list.names)
    if (keep(name))
      kept.push_back(name);
  return kept;
}

static int64_t product(const Letters &list, ArrayRef<StringRef> names) {
  int64_t result = 1;
  for (auto [name, size] : llvm::zip(list.names, list.sizes))
    if (llvm::is_contained(names, name))
      result *= size;
  return result;
}

/// `list` as a matrix of `rows` x `columns`: plainly, or the other way round.
static FailureOr<bool> isTransposed(const Letters &list, size_t skip,
                                    ArrayRef<StringRef> rows,
                                    ArrayRef<StringRef> columns) {
  auto inOrder = [&](ArrayRef<StringRef> first, ArrayRef<StringRef> second) {
    SmallVector<StringRef> both(first);
    llvm::append_range(both, second);
    return ArrayRef(list.names).drop_front(skip) == ArrayRef(both);
  };
  if (inOrder(rows, columns))
    return false;
  if (inOrder(columns, rows))
    return true;
  return failure();
}

LogicalResult BlockLowering::lowerContract(transformer::ContractOp op) {
  auto [left, right] = op.getSpec().split("->");
  auto [first, second] = left.split(",");
  Letters a = lettersOf(first, op.getLhs()), b = lettersOf(second, op.getRhs()),
          c = lettersOf(right, op.getResult());
  // Letters that all three begin with are a batch of products.
  size_t batch = 0;
  while (batch < c.names.size() && batch < a.names.size() &&
         batch < b.names.size() && a.names[batch] == c.names[batch] &&
         b.names[batch] == c.names[batch])
    ++batch;
  SmallVector<StringRef> shared(ArrayRef(c.names).take_front(batch));
  auto inBatch = [&](StringRef name) {
    return llvm::is_contained(shared, name);
  };
  SmallVector<StringRef> m =
      only(c, [&](StringRef n) { return a.has(n) && !b.has(n); });
  SmallVector<StringRef> n =
      only(c, [&](StringRef n) { return b.has(n) && !a.has(n); });
  SmallVector<StringRef> k = only(
      a, [&](StringRef n) { return b.has(n) && !c.has(n) && !inBatch(n); });

  FailureOr<bool> swapped = isTransposed(c, batch, m, n);
  Value lhs = op.getLhs(), rhs = op.getRhs();
  SmallVector<Value> scales(
      llvm::map_range(op.getScales(), [&](Value v) { return placeOf(v); }));
  if (succeeded(swapped) &&
      *swapped) { // the result is columns x rows: swap the two sides
    std::swap(a, b);
    std::swap(m, n);
    std::swap(lhs, rhs);
    std::reverse(scales.begin(), scales.end());
  }
  FailureOr<bool> transposeA = isTransposed(a, batch, m, k),
                  transposeB = isTransposed(b, batch, k, n);
  if (failed(swapped) || failed(transposeA) || failed(transposeB))
    return op.emitOpError()
           << "\"" << op.getSpec()
           << "\" is not one matrix product: the letters of a side must be "
              "neighbours, in one order in both tensors";

  int64_t rows = product(c, m), columns = product(c, n), depth = product(a, k);
  int64_t products = product(c, shared);
  Value sum = sums.lookup(op.getResult());
  Value result = sum ? sum : placeOf(op.getResult());
  auto number = [](float value) { return llvm::APFloat(value); };
  rt::GemmOp::create(
      builder, op.getLoc(), labelOf(op), result, placeOf(lhs), placeOf(rhs),
      scales, stream, rows, columns, depth, *transposeA ? rows : depth,
      *transposeB ? depth : columns, columns, *transposeA, *transposeB,
      number(1.0f), number(sum ? 1.0f : 0.0f), products,
      products > 1 ? rows * depth : 0, products > 1 ? depth * columns : 0,
      products > 1 ? rows * columns : 0);
  return success();
}

//===----------------------------------------------------------------------===//
// Formats with a scale
//===----------------------------------------------------------------------===//

LogicalResult BlockLowering::lowerAmax(transformer::AmaxOp op) {
  rt::AmaxOp::create(builder, op.getLoc(), labelOf(op), placeOf(op.getInput()),
                     placeOf(op.getResult()), stream);
  return success();
}

LogicalResult BlockLowering::lowerQuantize(transformer::QuantizeOp op) {
  int64_t rows = 1, rotate = op.getRotate();
  for (int64_t size : op.getInput().getType().getShape().take_front(rotate))
    rows *= size;
  rt::QuantizeOp::create(builder, op.getLoc(), labelOf(op),
                         placeOf(op.getInput()), placeOf(op.getAmax()),
                         placeOf(op.getCodes()), placeOf(op.getScale()), rows,
                         rotate != 0, op.getPowerOfTwo(), stream);
  return success();
}
