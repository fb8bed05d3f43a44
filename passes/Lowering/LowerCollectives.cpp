//===- LowerCollectives.cpp - collectives, and the copies beside them -----===//

#include "passes/Lowering/KernelBodies.h"
#include "passes/Lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using rt::OperandAttr;
using rt::OperandKind;
using rt::OperandMode;

/// Product of the sizes before and behind dimension `dim`.
static std::pair<int64_t, int64_t> around(ArrayRef<int64_t> shape,
                                          int64_t dim) {
  int64_t outer = 1, inner = 1;
  for (auto [i, size] : llvm::enumerate(shape))
    (static_cast<int64_t>(i) < dim ? outer : inner) *=
        static_cast<int64_t>(i) == dim ? 1 : size;
  return {outer, inner};
}

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static rt::Reduction reductionOf(dist::Reduction reduction) {
  return reduction == dist::Reduction::Max ? rt::Reduction::max
                                           : rt::Reduction::sum;
}

static void lowerAllToAll(OpBuilder &builder, dist::AllToAllOp op,
                          StringRef label, Value input, Value output,
                          StringRef stream) {
  ArrayRef<int64_t> before = shapeOf(op.getInput()),
                    after = shapeOf(op.getResult());
  int64_t first = std::min(op.getDim(), op.getToDim()),
          last = std::max(op.getDim(), op.getToDim());
  int64_t outer = around(before, first).first,
          inner = around(before, last).second, middle = 1;
  for (int64_t i = first + 1; i < last; ++i)
    middle *= before[i];
  rt::AllToAllOp::create(builder, op.getLoc(), label, input, output, outer,
                         after[op.getToDim()], middle, before[op.getDim()],
                         inner, op.getToDim() < op.getDim(), op.getAxes(),
                         stream);
}

LogicalResult BlockLowering::lowerCollective(Operation *op) {
  Value input = placeOf(op->getOperand(0));
  std::string label = labelOf(op);
  auto axes = op->getAttrOfType<ArrayAttr>("axes");
  if (cast<rt::BufType>(input.getType()).getElementType().isInteger(8) &&
      !isa<dist::SliceOp>(op))
    return op->emitOpError()
           << "moves a mask of dropout between ranks, which no collective "
              "does; lay it where backward reads it (tensor.saved), or set "
              "dropout_masks to \"drawn_again\"";
  if (!isa<dist::SliceOp, dist::MakePartialOp>(op))
    program.communicators.insert(axes);
  llvm::TypeSwitch<Operation *>(op)
      .Case<dist::AllReduceOp>([&](auto o) {
        rt::AllReduceOp::create(builder, o.getLoc(), label,
                                reductionOf(o.getReduction()), input,
                                placeOf(o.getResult()), axes, stream);
      })
      .Case<dist::ReduceScatterOp>([&](auto o) {
        int64_t outer = around(shapeOf(o.getInput()), o.getDim()).first;
        rt::ReduceScatterOp::create(
            builder, o.getLoc(), label, reductionOf(o.getReduction()), input,
            placeOf(o.getResult()), outer, axes, stream);
      })
      .Case<dist::AllGatherOp>([&](auto o) {
        int64_t outer = around(shapeOf(o.getInput()), o.getDim()).first;
        rt::AllGatherOp::create(builder, o.getLoc(), label, input,
                                placeOf(o.getResult()), outer, axes, stream);
      })
      .Case<dist::AllToAllOp>([&](auto o) {
        lowerAllToAll(builder, o, label, input, placeOf(o.getResult()), stream);
      })
      .Case<dist::PermuteOp>([&](auto o) {
        rt::PermuteOp::create(builder, o.getLoc(), label, input,
                              placeOf(o.getResult()), o.getSources(), axes,
                              stream);
      })
      .Case<dist::SliceOp>([&](auto o) { slice(o); })
      .Case<dist::MakePartialOp>([&](auto o) { makePartial(o, axes); });
  finishSum(op, op->getResult(0));
  return success();
}

/// Copies this rank's block, one run of neighbouring elements after another.
void BlockLowering::slice(dist::SliceOp op) {
  ArrayRef<int64_t> before = shapeOf(op.getInput()),
                    after = shapeOf(op.getResult());
  auto [outer, inner] = around(after, op.getDim());
  int64_t run = after[op.getDim()] * inner, whole = before[op.getDim()] * inner;
  Value input = placeOf(op.getInput()), output = placeOf(op.getResult());
  Value place = rt::RankIndexOp::create(
      builder, op.getLoc(), builder.getIndexType(), op.getAxes(), 1);
  auto type = rt::BufType::get(
      {run}, cast<rt::BufType>(input.getType()).getElementType());
  auto copyRun = [&](OpBuilder &at, ValueRange outerIndex) {
    SmallVector<Value> from(outerIndex);
    from.push_back(place);
    SmallVector<int64_t> fromStrides(outerIndex.size(), whole),
        toStrides(outerIndex.size(), run);
    fromStrides.push_back(run);
    Value source = rt::ViewOp::create(at, op.getLoc(), type, input,
                                      at.getI64IntegerAttr(0), from,
                                      at.getDenseI64ArrayAttr(fromStrides));
    Value target = rt::ViewOp::create(at, op.getLoc(), type, output,
                                      at.getI64IntegerAttr(0), outerIndex,
                                      at.getDenseI64ArrayAttr(toStrides));
    rt::CopyOp::create(at, op.getLoc(), labelOf(op), source, target, stream);
  };
  if (outer == 1)
    return copyRun(builder, {});
  auto loop = rt::ForOp::create(builder, op.getLoc(), "block", 0, outer);
  OpBuilder inside = OpBuilder::atBlockBegin(&loop.getBody().front());
  copyRun(inside, loop.getInductionVariable());
}

static OperandAttr operandOf(OpBuilder &builder, StringRef name,
                             OperandMode mode, OperandKind kind, Value buffer) {
  auto type = dyn_cast<rt::BufType>(buffer.getType());
  return OperandAttr::get(builder.getContext(), name, mode, kind,
                          type ? type.getElementType()
                               : Type(builder.getI32Type()));
}

/// The value on the first rank of the group, zero on the others.
void BlockLowering::makePartial(Operation *op, ArrayAttr axes) {
  Value input = placeOf(op->getOperand(0)), output = placeOf(op->getResult(0));
  Value place = rt::RankIndexOp::create(builder, op->getLoc(),
                                        builder.getIndexType(), axes, 1);
  int64_t elements =
      cast<RankedTensorType>(op->getOperand(0).getType()).getNumElements();
  KernelLaunch launch{
      "make_partial", rt::Skeleton::elementwise, op->getLoc(), labelOf(op), 1,
      elements};
  launch.operands = {
      operandOf(builder, "place", OperandMode::read, OperandKind::integer,
                place),
      operandOf(builder, "x", OperandMode::read, OperandKind::full, input),
      operandOf(builder, "y", OperandMode::write, OperandKind::full, output)};
  launch.arguments = {place, input, output};
  launchRaw(*this, launch, [](BodyBuilder &body, rt::KernelOp kernel) {
    Value x = kernel.getArgumentOf(1);
    Value first = arith::CmpIOp::create(
        body.builder, body.location, arith::CmpIPredicate::eq,
        kernel.getArgumentOf(0), body.integer(0));
    Value zero = arith::ConstantOp::create(
        body.builder, body.location, body.builder.getZeroAttr(x.getType()));
    return SmallVector<Value>{
        arith::SelectOp::create(body.builder, body.location, first, x, zero)};
  });
}

/// Query heads that are padding give zero.
void BlockLowering::maskPaddedHeads(transformer::AttentionOp op) {
  dist::ShardAttr shard = dist::getShard(op, "r");
  ArrayRef<int64_t> shape = shapeOf(op.getResult());
  int64_t heads = shape[3], size = shape[4];
  if (!shard || shard.getMesh().getGroupSize(shard.getAxes()) * heads <=
                    shard.getExtent())
    return;
  Value output = placeOf(op.getResult());
  Value first = beginOfShard(op.getLoc(), shard, heads * size);
  KernelLaunch launch{"mask_padded_heads",
                      rt::Skeleton::rowwise,
                      op.getLoc(),
                      labelOf(op) + ": padded heads",
                      shape[0] * shape[1] * shape[2],
                      heads * size};
  launch.operands = {operandOf(builder, "column", OperandMode::read,
                               OperandKind::column_index, first),
                     operandOf(builder, "x", OperandMode::read_write,
                               OperandKind::full, output)};
  launch.arguments = {first, output};
  int64_t extent = shard.getExtent() * size;
  launchRaw(*this, launch, [&](BodyBuilder &body, rt::KernelOp kernel) {
    Value inside = arith::CmpIOp::create(
        body.builder, body.location, arith::CmpIPredicate::slt,
        kernel.getArgumentOf(0), body.integer(extent));
    return SmallVector<Value>{
        arith::SelectOp::create(body.builder, body.location, inside,
                                kernel.getArgumentOf(1), body.constant(0))};
  });
}

/// to += from.
void BlockLowering::addBuffers(Location location, StringRef label, Value from,
                               Value to, RankedTensorType type) {
  KernelLaunch launch{
      "accumulate",         rt::Skeleton::elementwise, location, label.str(), 1,
      type.getNumElements()};
  launch.operands = {
      operandOf(builder, "x", OperandMode::read, OperandKind::full, from),
      operandOf(builder, "sum", OperandMode::read_write, OperandKind::full,
                to)};
  launch.arguments = {from, to};
  launchRaw(*this, launch, [](BodyBuilder &body, rt::KernelOp kernel) {
    return SmallVector<Value>{arith::AddFOp::create(body.builder, body.location,
                                                    kernel.getArgumentOf(1),
                                                    kernel.getArgumentOf(0))};
  });
}

void BlockLowering::gatherRows(Location location, StringRef label, Value table,
                               Value index, Value first, Value output) {
  int64_t columns = cast<rt::BufType>(table.getType()).getShape()[1];
  int64_t rows = cast<rt::BufType>(index.getType()).getNumElements();
  KernelLaunch launch{"gather_rows", rt::Skeleton::rowwise,
                      location,      label.str(),
                      rows,          columns};
  launch.operands = {
      operandOf(builder, "row", OperandMode::read, OperandKind::gathered,
                table),
      operandOf(builder, "y", OperandMode::write, OperandKind::full, output)};
  launch.arguments = {table, index, first, output};
  launchRaw(*this, launch, [](BodyBuilder &, rt::KernelOp kernel) {
    return SmallVector<Value>{kernel.getArgumentOf(0)};
  });
}
