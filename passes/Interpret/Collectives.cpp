//===- Collectives.cpp - what moves between ranks -------------------------===//

#include "passes/Interpret/Rank.h"

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::dist;

/// Fails where the ranks of `mesh` are not those that run.
static LogicalResult checkMesh(Operation *op, MeshAttr mesh, Frame &frame) {
  if (mesh.getNumRanks() == frame.rank.program.numRanks)
    return success();
  return frame.fail(op, "is on a mesh of " + llvm::Twine(mesh.getNumRanks()) +
                            " ranks, but " +
                            llvm::Twine(frame.rank.program.numRanks) + " run");
}

/// The inputs of the group of `op`, in its order; empty where the ranks cannot
/// meet.
template <class Op>
static std::vector<TensorPtr> meetGroup(Op op, Frame &frame) {
  if (failed(checkMesh(op, op.getMesh(), frame)))
    return {};
  return frame.exchange.meet(
      frame.rank.number, op,
      op.getMesh().getGroup(frame.rank.number, op.getAxes()),
      frame.getPtr(op.getInput()));
}

/// Position of the rank in the group of `op`.
template <class Op>
static int64_t positionOf(Op op, Frame &frame) {
  return op.getMesh().getGroupIndex(frame.rank.number, op.getAxes());
}

static Tensor largerOf(const Tensor &a, const Tensor &b) {
  Tensor result = a;
  for (size_t i = 0; i < a.floats.size(); ++i)
    result.floats[i] = std::max(a.floats[i], b.floats[i]);
  for (size_t i = 0; i < a.integers.size(); ++i)
    result.integers[i] = std::max(a.integers[i], b.integers[i]);
  return result;
}

/// Sum or maximum of the inputs, in the order of the group.
static Tensor reduce(ArrayRef<TensorPtr> inputs, Reduction reduction,
                     Reading reading) {
  Tensor result = *inputs.front();
  for (const TensorPtr &input : inputs.drop_front())
    result = reduction == Reduction::Sum ? addTensors(result, *input, reading)
                                         : largerOf(result, *input);
  return result;
}

/// Slice `index` of `count` equal ones along `dim`.
static Tensor sliceOf(const Tensor &whole, int64_t dim, int64_t index,
                      int64_t count) {
  SmallVector<int64_t> shape(ArrayRef(whole.shape)), start(shape.size(), 0);
  shape[dim] /= count;
  Tensor slice = Tensor::zeros(whole.kind, shape);
  SmallVector<int64_t> from = start;
  from[dim] = index * shape[dim];
  copyBlock(whole, from, slice, start, shape);
  return slice;
}

/// The tensors side by side along `dim`.
static Tensor concatenate(ArrayRef<Tensor> parts, int64_t dim) {
  SmallVector<int64_t> shape(ArrayRef(parts.front().shape)),
      start(shape.size(), 0);
  SmallVector<int64_t> whole = shape, to = start;
  whole[dim] *= parts.size();
  Tensor result = Tensor::zeros(parts.front().kind, whole);
  for (const Tensor &part : parts) {
    copyBlock(part, start, result, to, shape);
    to[dim] += shape[dim];
  }
  return result;
}

static LogicalResult evaluate(AllReduceOp op, Frame &frame) {
  std::vector<TensorPtr> inputs = meetGroup(op, frame);
  if (inputs.empty())
    return failure();
  frame.set(op.getResult(), reduce(inputs, op.getReduction(),
                                   frame.getReading(op.getResult())));
  return success();
}

static LogicalResult evaluate(ReduceScatterOp op, Frame &frame) {
  std::vector<TensorPtr> inputs = meetGroup(op, frame);
  if (inputs.empty())
    return failure();
  Tensor sum =
      reduce(inputs, op.getReduction(), frame.getReading(op.getResult()));
  frame.set(op.getResult(),
            sliceOf(sum, op.getDim(), positionOf(op, frame), inputs.size()));
  return success();
}

static LogicalResult evaluate(AllGatherOp op, Frame &frame) {
  std::vector<TensorPtr> inputs = meetGroup(op, frame);
  if (inputs.empty())
    return failure();
  std::vector<Tensor> parts;
  for (const TensorPtr &input : inputs)
    parts.push_back(*input);
  frame.set(op.getResult(), concatenate(parts, op.getDim()));
  return success();
}

static LogicalResult evaluate(AllToAllOp op, Frame &frame) {
  std::vector<TensorPtr> inputs = meetGroup(op, frame);
  if (inputs.empty())
    return failure();
  std::vector<Tensor> parts;
  for (const TensorPtr &input : inputs)
    parts.push_back(
        sliceOf(*input, op.getToDim(), positionOf(op, frame), inputs.size()));
  frame.set(op.getResult(), concatenate(parts, op.getDim()));
  return success();
}

static LogicalResult evaluate(PermuteOp op, Frame &frame) {
  std::vector<TensorPtr> inputs = meetGroup(op, frame);
  if (inputs.empty())
    return failure();
  Tensor received = *inputs[op.getSources()[positionOf(op, frame)]];
  received.shape =
      cast<RankedTensorType>(op.getResult().getType()).getShape().vec();
  frame.set(op.getResult(), std::move(received));
  return success();
}

static LogicalResult evaluate(SliceOp op, Frame &frame) {
  if (failed(checkMesh(op, op.getMesh(), frame)))
    return failure();
  frame.set(op.getResult(), sliceOf(frame.get(op.getInput()), op.getDim(),
                                    positionOf(op, frame),
                                    op.getMesh().getGroupSize(op.getAxes())));
  return success();
}

static LogicalResult evaluate(MakePartialOp op, Frame &frame) {
  if (failed(checkMesh(op, op.getMesh(), frame)))
    return failure();
  const Tensor &whole = frame.get(op.getInput());
  frame.set(op.getResult(), positionOf(op, frame) == 0
                                ? whole
                                : Tensor::zeros(whole.kind, whole.shape));
  return success();
}

/// The first elements of `from`, row-major; zeros behind them.
static Tensor reshaped(const Tensor &from, Type type) {
  auto shape = cast<RankedTensorType>(type).getShape();
  Tensor to = Tensor::zeros(from.kind, shape);
  llvm::copy(ArrayRef(from.floats).take_front(to.floats.size()),
             to.floats.begin());
  llvm::copy(ArrayRef(from.integers).take_front(to.integers.size()),
             to.integers.begin());
  return to;
}

static LogicalResult evaluate(ToRowOp op, Frame &frame) {
  frame.set(op.getResult(), reshaped(frame.get(op.getInput()), op.getType()));
  return success();
}

static LogicalResult evaluate(FromRowOp op, Frame &frame) {
  frame.set(op.getResult(), reshaped(frame.get(op.getInput()), op.getType()));
  return success();
}

static LogicalResult evaluate(BucketOp op, Frame &frame) {
  return frame.run(op.getBody().front());
}

// Found only where layouts are still in the types; the module then runs on
// whole tensors, whose value a reshard does not change.
static LogicalResult evaluate(ReshardOp op, Frame &frame) {
  frame.setDatum(op.getResult(), frame.getDatum(op.getInput()));
  return success();
}

void heddle::interpret::addCollectives(Evaluators &evaluators) {
  evaluators.add<AllReduceOp>(evaluate);
  evaluators.add<ReduceScatterOp>(evaluate);
  evaluators.add<AllGatherOp>(evaluate);
  evaluators.add<AllToAllOp>(evaluate);
  evaluators.add<PermuteOp>(evaluate);
  evaluators.add<SliceOp>(evaluate);
  evaluators.add<MakePartialOp>(evaluate);
  evaluators.add<ToRowOp>(evaluate);
  evaluators.add<FromRowOp>(evaluate);
  evaluators.add<BucketOp>(evaluate);
  evaluators.add<ReshardOp>(evaluate);
}
