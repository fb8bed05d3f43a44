//===- LowerContract.cpp - contractions as matrix products ----------------===//
//
// Where the letters of each side are neighbours, in one order in both tensors,
// a contraction is one product (or a batch of them). Else some letters are
// those of a product, one those of its batch, and loops run over the rest: so
// it is with heads between the sequence and the head's elements.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/Lowering.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <array>

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

//===----------------------------------------------------------------------===//
// In pieces
//===----------------------------------------------------------------------===//

namespace {
/// Letters that are passed over as one: how far apart neighbours are in the
/// left side, the right side and the result (0: these are the same for all).
struct Axis {
  int64_t size = 1;
  std::array<int64_t, 3> strides = {0, 0, 0};
};

/// One operand of a product: rows by columns as it lies in memory.
struct Lying {
  bool transposed = false;
  int64_t leading = 1;
};

/// What one `rt.gemm` does, and the axes that loops run over.
struct Pieces {
  Axis m, n, k, batch;
  Lying a, b;
  int64_t leadingC = 1;
  SmallVector<Axis> loops;
  int64_t work() const { return m.size * n.size * k.size; }
  bool addsUp() const {
    return llvm::any_of(loops, [](Axis axis) { return axis.strides[2] == 0; });
  }
};
} // namespace

/// The letters of a spec as axes, those merged that lie one behind the other
/// wherever they stand.
static SmallVector<Axis> axesOf(ArrayRef<Letters> lists) {
  SmallVector<Axis> axes;
  SmallVector<StringRef> names;
  for (const Letters &list : lists)
    for (auto [name, size] : llvm::zip(list.names, list.sizes)) {
      if (llvm::is_contained(names, name) || size == 1)
        continue;
      names.push_back(name);
      Axis axis{size};
      for (auto [stride, other] : llvm::zip(axis.strides, lists)) {
        int64_t behind = 1;
        for (auto [letter, count] :
             llvm::reverse(llvm::zip(other.names, other.sizes))) {
          if (letter == name)
            stride = behind;
          behind *= count;
        }
      }
      axes.push_back(axis);
    }
  auto goesOn = [](const Axis &outer, const Axis &inner) {
    return llvm::all_of(llvm::seq(3), [&](int i) {
      return outer.strides[i] == inner.size * inner.strides[i] &&
             (outer.strides[i] == 0) == (inner.strides[i] == 0);
    });
  };
  for (size_t i = 0; i + 1 < axes.size();) {
    if (!goesOn(axes[i], axes[i + 1])) {
      ++i;
      continue;
    }
    axes[i + 1].size *= axes[i].size;
    axes.erase(axes.begin() + i);
    i = i ? i - 1 : 0;
  }
  return axes;
}

/// How a matrix of `rows` x `columns` lies in tensor `i`, if a product can read
/// it so.
static std::optional<Lying> lieIn(int i, const Axis &rows,
                                  const Axis &columns) {
  int64_t row = rows.strides[i], column = columns.strides[i];
  if ((column == 1 || columns.size == 1) &&
      (row >= columns.size || rows.size == 1))
    return Lying{false, std::max(row, columns.size)};
  if ((row == 1 || rows.size == 1) &&
      (column >= rows.size || columns.size == 1))
    return Lying{true, std::max(column, rows.size)};
  return std::nullopt;
}

/// Whether products side by side along `axis` write different elements
/// (`rt.gemm` C4).
static bool canBeBatch(const Pieces &pieces, const Axis &axis) {
  int64_t stride = axis.strides[2];
  int64_t whole = (pieces.m.size - 1) * pieces.leadingC + pieces.n.size;
  return stride >= whole ||
         (stride >= pieces.n.size && stride * axis.size <= pieces.leadingC);
}

/// The largest product that the axes allow, and the largest batch of it.
static Pieces findPieces(ArrayRef<Axis> axes) {
  const Axis none;
  SmallVector<const Axis *> ms = {&none}, ns = {&none}, ks = {&none};
  for (const Axis &axis : axes) {
    bool inA = axis.strides[0], inB = axis.strides[1], inC = axis.strides[2];
    if (inA && inC && !inB)
      ms.push_back(&axis);
    else if (inB && inC && !inA)
      ns.push_back(&axis);
    else if (inA && inB && !inC)
      ks.push_back(&axis);
  }
  Pieces best; // one element by one
  SmallVector<const Axis *> taken;
  for (const Axis *m : ms)
    for (const Axis *n : ns)
      for (const Axis *k : ks) {
        std::optional<Lying> a = lieIn(0, *m, *k), b = lieIn(1, *k, *n),
                             c = lieIn(2, *m, *n);
        if (!a || !b || !c || c->transposed)
          continue;
        Pieces pieces{*m, *n, *k, none, *a, *b, c->leading, {}};
        if (pieces.work() > best.work()) {
          best = pieces;
          taken = {m, n, k};
        }
      }
  const Axis *batch = &none;
  for (const Axis &axis : axes)
    if (!llvm::is_contained(taken, &axis) && axis.size > batch->size &&
        canBeBatch(best, axis))
      batch = &axis;
  best.batch = *batch;
  for (const Axis &axis : axes)
    if (!llvm::is_contained(taken, &axis) && &axis != batch)
      best.loops.push_back(axis);
  return best;
}

/// `buffer` from where the loops stand on, as far as one batch reaches.
static Value pieceOf(OpBuilder &builder, Location location, Value buffer, int i,
                     const Pieces &pieces, ValueRange places) {
  int64_t reach = 1;
  for (const Axis &axis : {pieces.m, pieces.n, pieces.k, pieces.batch})
    reach += (axis.size - 1) * axis.strides[i];
  SmallVector<int64_t> strides;
  SmallVector<Value> indices;
  for (auto [axis, place] : llvm::zip(pieces.loops, places))
    if (axis.strides[i]) {
      strides.push_back(axis.strides[i]);
      indices.push_back(place);
    }
  auto type = rt::BufType::get(
      {reach}, cast<rt::BufType>(buffer.getType()).getElementType());
  return rt::ViewOp::create(builder, location, type, buffer,
                            builder.getI64IntegerAttr(0), indices,
                            builder.getDenseI64ArrayAttr(strides));
}

LogicalResult BlockLowering::lowerInPieces(transformer::ContractOp op) {
  auto [left, right] = op.getSpec().split("->");
  auto [first, second] = left.split(",");
  Value lhs = op.getLhs(), rhs = op.getRhs();
  Letters a = lettersOf(first, lhs), b = lettersOf(second, rhs),
          c = lettersOf(right, op.getResult());
  Pieces pieces = findPieces(axesOf({a, b, c})),
         turned = findPieces(axesOf({b, a, c})); // the result columns x rows
  if (turned.work() > pieces.work()) {
    std::swap(lhs, rhs);
    pieces = turned;
  }
  Value sum = sums.lookup(op.getResult());
  Value result = sum ? sum : placeOf(op.getResult());
  if (!sum && pieces.addsUp())
    rt::ZeroOp::create(builder, op.getLoc(), labelOf(op), result, stream);
  SmallVector<Value> buffers = {placeOf(lhs), placeOf(rhs), result}, places;
  OpBuilder inside = builder;
  for (auto [i, axis] : llvm::enumerate(pieces.loops)) {
    std::string name = "piece" + std::to_string(i);
    auto loop = rt::ForOp::create(inside, op.getLoc(), name, 0, axis.size);
    places.push_back(loop.getInductionVariable());
    inside = OpBuilder::atBlockBegin(&loop.getBody().front());
  }
  for (auto [i, buffer] : llvm::enumerate(buffers))
    buffer = pieceOf(inside, op.getLoc(), buffer, i, pieces, places);
  bool adds = sum || pieces.addsUp();
  const Axis &batch = pieces.batch;
  rt::GemmOp::create(inside, op.getLoc(), labelOf(op), buffers[2], buffers[0],
                     buffers[1], ValueRange(), stream, pieces.m.size,
                     pieces.n.size, pieces.k.size, pieces.a.leading,
                     pieces.b.leading, pieces.leadingC, pieces.a.transposed,
                     pieces.b.transposed, llvm::APFloat(1.0f),
                     llvm::APFloat(adds ? 1.0f : 0.0f), batch.size,
                     batch.strides[0], batch.strides[1], batch.strides[2]);
  return success();
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
  SmallVector<int64_t> blocks(op.getBlocks());
  SmallVector<Value> scales(
      llvm::map_range(op.getScales(), [&](Value v) { return placeOf(v); }));
  if (succeeded(swapped) &&
      *swapped) { // the result is columns x rows: swap the two sides
    std::swap(a, b);
    std::swap(m, n);
    std::swap(lhs, rhs);
    for (size_t i = 0; i < scales.size(); i += 2) // of blocks, then of tensors
      std::swap(scales[i], scales[i + 1]);
    if (!blocks.empty())
      std::swap(blocks[0], blocks[1]);
  }
  FailureOr<bool> transposeA = isTransposed(a, batch, m, k),
                  transposeB = isTransposed(b, batch, k, n);
  bool isOne =
      succeeded(swapped) && succeeded(transposeA) && succeeded(transposeB);
  if (!isOne && !scales.empty())
    return op.emitOpError() << "a product of codes must be one matrix product";
  if (!isOne)
    return lowerInPieces(op);

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
      products > 1 ? rows * columns : 0, blocks);
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

LogicalResult BlockLowering::lowerHadamard(transformer::HadamardOp op) {
  ArrayRef<int64_t> shape = op.getInput().getType().getShape();
  rt::HadamardOp::create(
      builder, op.getLoc(), labelOf(op), placeOf(op.getInput()),
      placeOf(op.getResult()),
      ShapedType::getNumElements(shape.take_front(op.getOver())),
      op.getLength(), op.getSigns(), stream);
  return success();
}

Value BlockLowering::placeOrNone(Value value) {
  return value ? placeOf(value) : Value();
}

/// Of the input's dimensions that are no tokens, where they stand in the whole
/// tensor.
BlockLowering::Columns BlockLowering::columnsOf(transformer::QuantizeOp op) {
  Columns columns;
  ArrayRef<int64_t> shape = op.getInput().getType().getShape();
  int64_t tokens = op.getTokenNumbers().getType().getRank(), stride = 1;
  for (int64_t dim = shape.size(); dim-- > tokens;) {
    dist::ShardAttr shard = dist::getShard(op, "q" + std::to_string(dim));
    columns.sizes.insert(columns.sizes.begin(), shape[dim]);
    columns.strides.insert(columns.strides.begin(), stride);
    columns.begins.push_back(
        beginOfShard(op.getLoc(), shard, shape[dim] * stride));
    stride *= shard ? shard.getExtent() : shape[dim];
  }
  return columns;
}

LogicalResult BlockLowering::lowerQuantize(transformer::QuantizeOp op) {
  // The input as a matrix: what is turned, or else what blocks are not over.
  int64_t rotate = op.getRotate(), rows = 1;
  ArrayRef<int64_t> shape = op.getInput().getType().getShape();
  if (rotate)
    rows = ShapedType::getNumElements(shape.take_front(rotate));
  else if (int64_t over = op.getOver())
    rows = ShapedType::getNumElements(shape.drop_back(over));
  Columns columns;
  if (op.getSeed())
    columns = columnsOf(op);
  rt::QuantizeOp::create(
      builder, op.getLoc(), builder.getStringAttr(labelOf(op)),
      placeOf(op.getInput()), placeOrNone(op.getAmax()), placeOf(op.getCodes()),
      placeOf(op.getScale()), placeOrNone(op.getTensorScale()),
      placeOrNone(op.getSeed()), placeOrNone(op.getTokenNumbers()),
      columns.begins, builder.getI64IntegerAttr(rows),
      rotate ? builder.getUnitAttr() : UnitAttr(), op.getBlocksAttr(),
      op.getPowerOfTwoAttr(), op.getSiteAttr(),
      builder.getDenseI64ArrayAttr(columns.sizes),
      builder.getDenseI64ArrayAttr(columns.strides),
      builder.getStringAttr(stream));
  return success();
}
