//===- LowerBuckets.cpp - the step: rows, runs, buckets => rt -------------===//

#include "passes/Lowering/StepLowering.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

LogicalResult StepLowering::lowerBucket(dist::BucketOp bucket) {
  Block &body = bucket.getBody().front();
  prepare(body);
  if (computeAhead)
    order("gradients_ready", kCompute, kComm);
  computeAhead = false;
  lowering.stream = kComm.str();
  for (Operation &op : body)
    zeroTails(&op);
  for (auto op = body.begin(); op != body.end();) {
    auto end = std::next(op);
    bool together =
        isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp>(*op);
    while (together && end != body.end() && end->getName() == op->getName() &&
           end->getAttr("axes") == op->getAttr("axes"))
      ++end; // of one step: those of the next one go over other axes
    SmallVector<Operation *> ops;
    for (; op != end; ++op)
      ops.push_back(&*op);
    if (failed(lowerTogether(ops)))
      return failure();
  }
  if (failed(lowering.flush()))
    return failure();
  lowering.stream = kCompute.str();
  communicating = true;
  return success();
}

/// "9 gradients: bd_gradient_sum to g1_gradient_sum", of those that are reduced
/// as one, in their order.
static std::string labelOfAll(ArrayRef<Operation *> ops) {
  StringRef first = getName(ops.front()->getResult(0)),
            last = getName(ops.back()->getResult(0));
  if (ops.size() == 1 || first.empty() || last.empty())
    return labelOf(ops.front());
  return (llvm::Twine(ops.size()) + " gradients: " + first + " to " + last)
      .str();
}

void StepLowering::noteMoved(StringRef object) {
  moving.insert(object);
  movedEver.insert(object);
}

LogicalResult StepLowering::lowerTogether(ArrayRef<Operation *> ops) {
  // What is still to be launched does not belong into a group.
  if (failed(lowering.flush()))
    return failure();
  for (Operation *op : ops) {
    if (auto reduce = dyn_cast<dist::AllReduceOp>(op);
        reduce && !lowering.isBound(reduce.getResult()))
      lowering.bind(reduce.getResult(), lowering.placeOf(reduce.getInput()));
    if (auto store = dyn_cast<StoreOp>(op))
      noteMoved(states.bytesOf(store.getState()));
    if (auto sum = dyn_cast<AccumulateOp>(op))
      noteMoved(states.bytesOf(sum.getState()));
    if (op->getNumOperands() &&
        !calleesOf(op->getOperand(0).getDefiningOp()).empty())
      movesResults = true;
  }
  if (Value whole = wholeBucket(ops)) {
    auto first = cast<dist::AllReduceOp>(ops.front());
    program.communicators.insert(first.getAxes());
    rt::AllReduceOp::create(builder(), first.getLoc(), labelOfAll(ops),
                            rt::Reduction::sum, whole, whole, first.getAxes(),
                            lowering.stream);
    return success();
  }
  OpBuilder::InsertionGuard guard(builder());
  if (ops.size() > 1) {
    // Buffers stand before the group: others may use them too.
    for (Operation *op : ops)
      placeResult(op);
    auto group = rt::GroupOp::create(builder(), ops.front()->getLoc());
    builder().setInsertionPointToStart(&group.getBody().emplaceBlock());
  }
  for (Operation *op : ops)
    if (failed(lowerOne(*op)))
      return failure();
  return success();
}

Value StepLowering::wholeBucket(ArrayRef<Operation *> ops) {
  SmallVector<StringRef> members;
  Value index;
  for (Operation *op : ops) {
    auto reduce = dyn_cast<dist::AllReduceOp>(op);
    if (!reduce || lowering.placeOf(reduce.getInput()) !=
                       lowering.placeOf(reduce.getResult()))
      return {};
    Value source = reduce.getInput();
    while (auto before = source.getDefiningOp<dist::AllReduceOp>())
      source = before.getInput();
    auto load = source.getDefiningOp<LoadOp>();
    if (!load)
      return {};
    members.push_back(load.getState());
    index = load.getIndex();
  }
  return states.wholeBucket(members, indices.lookup(index));
}

void StepLowering::prepareStore(StoreOp store) {
  Value value = store.getValue();
  Operation *maker = value.getDefiningOp();
  if (lowering.isBound(value) || !maker ||
      maker->getBlock() != store->getBlock() || isa<LoadOp, LoopOp>(maker))
    return;
  lowering.bind(value, stateEntry(store.getState(), store.getIndex()));
  auto whole = dyn_cast<dist::FromRowOp>(maker);
  Value row = whole ? states.rowOf(lowering.placeOf(value)) : Value();
  if (!row || !isFree(whole.getInput()))
    return;
  lowering.bind(whole.getInput(), row);
  auto gather = whole.getInput().getDefiningOp<dist::AllGatherOp>();
  if (gather && isFree(gather.getInput()))
    lowering.bind(gather.getInput(), states.runOf(row, gather.getAxes()));
}

/// The op that alone reads a value, if it is one of those between two casts.
static Operation *nextOnTheWay(Value value) {
  Operation *user = value.hasOneUse() ? *value.user_begin() : nullptr;
  return isa_and_nonnull<dist::AllReduceOp, dist::ToRowOp,
                         dist::ReduceScatterOp, dist::SliceOp>(user)
             ? user
             : nullptr;
}

void StepLowering::placeCasts(dist::BucketOp bucket) {
  Family family{
      "gradients_on_their_way", "cast to be reduced", {}, "communication"};
  for (auto cast : bucket.getBody().getOps<CastOp>()) {
    Operation *next = nextOnTheWay(cast.getResult());
    if (!next) // behind a reduction
      continue;
    Operation *last = next;
    while (isa<dist::AllReduceOp>(last) && nextOnTheWay(last->getResult(0)))
      last = nextOnTheWay(last->getResult(0));
    auto row = dyn_cast<dist::ToRowOp>(last);
    auto type = cast.getResult().getType();
    int64_t elements =
        row ? row.getType().getNumElements() : type.getNumElements();
    family.type = RankedTensorType::get({elements}, type.getElementType());
    Value made = states.rowEntry(family, Value());
    family.offset += bytesBetween(family.type);
    if (elements > type.getNumElements())
      rowsWithTail[cast].push_back({row, made});
    Value place = states.viewOf(made, type.getShape());
    lowering.bind(cast.getResult(), place);
    for (; next; next = nextOnTheWay(next->getResult(0))) {
      if (isa<dist::ToRowOp>(next))
        place = made;
      else if (!row && !isa<dist::AllReduceOp>(next)) // a part of a dimension
        break;
      else if (!isa<dist::AllReduceOp>(next)) // in a run of the row
        place = states.runOf(made, next->getAttrOfType<ArrayAttr>("axes"));
      lowering.bind(next->getResult(0), place);
    }
  }
}

void StepLowering::prepareRow(dist::ToRowOp row) {
  Value value = row.getInput();
  if (!isFree(value))
    return;
  auto reduce = value.getDefiningOp<dist::AllReduceOp>();
  auto load = reduce ? reduce.getInput().getDefiningOp<LoadOp>() : LoadOp();
  if (load)
    lowering.bind(value, stateEntry(load.getState(), load.getIndex()));
  else
    beginRow(row);
}

void StepLowering::beginRow(dist::ToRowOp row) {
  Value value = row.getInput();
  auto type = cast<RankedTensorType>(value.getType());
  Value made = states.makeRow(value, row.getType().getNumElements());
  lowering.bind(value, states.viewOf(made, type.getShape()));
  if (row.getType().getNumElements() > type.getNumElements())
    rowsWithTail[value.getDefiningOp()].push_back({row, made});
}

void StepLowering::zeroTails(Operation *maker) {
  // A body that is lowered twice has rows of its own each time.
  auto rows = std::move(rowsWithTail[maker]);
  rowsWithTail.erase(maker);
  for (auto [op, made] : rows) {
    dist::ToRowOp row = op;
    int64_t begin =
        cast<RankedTensorType>(row.getInput().getType()).getNumElements();
    int64_t tail = row.getType().getNumElements() - begin;
    computeAhead |= lowering.stream == kCompute;
    rt::ZeroOp::create(builder(), row.getLoc(),
                       "step: end of " + getName(row.getInput()).str(),
                       states.viewOf(made, {tail}, begin), lowering.stream);
  }
}

LogicalResult StepLowering::lowerRow(dist::ToRowOp op) {
  Value place = lowering.placeOf(op.getInput()), row = states.rowOf(place);
  if (!row) { // a value that begins no row goes where one is
    row = states.makeRow(op.getInput(), op.getType().getNumElements());
    rt::ZeroOp::create(builder(), op.getLoc(), labelOf(op), row, kCompute);
    auto type = cast<RankedTensorType>(op.getInput().getType());
    lowering.copy(op.getLoc(), labelOf(op), place,
                  states.viewOf(row, type.getShape()));
  }
  lowering.bind(op.getResult(), row);
  return success();
}

LogicalResult StepLowering::lowerFromRow(dist::FromRowOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Value view = states.viewOf(lowering.placeOf(op.getInput()), type.getShape());
  if (lowering.isBound(op.getResult()))
    moveTo(op.getLoc(), view, lowering.placeOf(op.getResult()));
  else
    lowering.bind(op.getResult(), view);
  return success();
}

bool StepLowering::ofRow(Operation *op) {
  return isa_and_nonnull<dist::ToRowOp>(op->getOperand(0).getDefiningOp());
}

LogicalResult StepLowering::lowerSlice(dist::SliceOp op) {
  if (!ofRow(op))
    return lowering.lower(op);
  lowering.bind(op.getResult(),
                states.runOf(lowering.placeOf(op.getInput()), op.getAxes()));
  return success();
}

void StepLowering::placeResult(Operation *op) {
  Value result = op->getNumResults() ? op->getResult(0) : Value();
  if (!result || lowering.isBound(result))
    return;
  if (auto reduce = dyn_cast<dist::ReduceScatterOp>(op); reduce && ofRow(op))
    lowering.bind(result, states.runOf(lowering.placeOf(reduce.getInput()),
                                       reduce.getAxes()));
  else if (isa<dist::AllGatherOp>(op) &&
           llvm::all_of(op->getUsers(), llvm::IsaPred<dist::FromRowOp>))
    lowering.bind(
        result, states.makeRow(
                    op->getOperand(0),
                    cast<RankedTensorType>(result.getType()).getNumElements()));
  else
    lowering.placeOf(result);
}
