//===- DistVerify.cpp - verifiers of the collectives, by label ------------===//

#include "dialects/Dist/Dist.h"
#include "heddle/Support/Mirror.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle::dist;

LogicalResult ReshardOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  auto result = cast<RankedTensorType>(getResult().getType());
  if (input.getShape() != result.getShape() ||
      input.getElementType() != result.getElementType()) // C1
    return emitOpError() << "changes " << input << " into " << result
                         << "; only the layout may change";
  LayoutAttr from = getLayout(input), to = getLayout(result);
  if (!from || !to || from.getMesh() != to.getMesh()) // C2
    return emitOpError() << "needs a layout on both sides, on one mesh";
  for (Attribute axis : to.getPartial()) // C3
    if (llvm::is_contained(from.getPartialMax(), axis))
      return emitOpError() << "cannot turn a maximum over " << axis
                           << " into a sum";
  for (Attribute axis : to.getPartialMax())
    if (llvm::is_contained(from.getPartial(), axis))
      return emitOpError() << "cannot turn a sum over " << axis
                           << " into a maximum";
  return success();
}

/// C1: names are axes of the mesh or mirrors of such, none twice.
static LogicalResult verifyAxes(Operation *op, MeshAttr mesh, ArrayAttr axes) {
  llvm::StringSet<> seen;
  for (Attribute axis : axes) {
    StringRef name = cast<StringAttr>(axis).getValue();
    if (!mesh.hasGroups(name))
      return op->emitOpError() << "axis " << axis << " is not in the mesh";
    StringRef mirrored = heddle::mirroredAxis(name);
    if (!seen.insert(mesh.getIndex(name) < 0 ? mirrored : name).second)
      return op->emitOpError() << "axis " << axis << " is named twice";
  }
  return success();
}

/// C4: `result` is `input` with some sizes changed, given by `shape`.
static LogicalResult verifyShape(Operation *op, RankedTensorType input,
                                 Type result, ArrayRef<int64_t> shape) {
  RankedTensorType expected = input.clone(shape);
  if (result != expected)
    return op->emitOpError()
           << "result must be " << expected << ", got " << result;
  return success();
}

/// C2: `dim` exists.
static LogicalResult verifyDim(Operation *op, RankedTensorType input,
                               int64_t dim) {
  if (dim >= input.getRank())
    return op->emitOpError()
           << "dim " << dim << " is out of range for a tensor of rank "
           << input.getRank();
  return success();
}

/// C3: `dim` can be cut; divides it in `shape`.
static LogicalResult cut(Operation *op, SmallVectorImpl<int64_t> &shape,
                         int64_t dim, int64_t groupSize) {
  if (shape[dim] % groupSize != 0)
    return op->emitOpError()
           << "cannot cut dim " << dim << " of size " << shape[dim] << " into "
           << groupSize << " equal slices";
  shape[dim] /= groupSize;
  return success();
}

template <class OpType>
static LogicalResult verifySameType(OpType op) {
  if (failed(verifyAxes(op, op.getMesh(), op.getAxes())))
    return failure();
  auto input = cast<RankedTensorType>(op.getInput().getType());
  return verifyShape(op, input, op.getType(), input.getShape());
}
LogicalResult AllReduceOp::verify() { return verifySameType(*this); }
LogicalResult MakePartialOp::verify() { return verifySameType(*this); }

template <class OpType>
static LogicalResult verifyCut(OpType op) {
  auto input = cast<RankedTensorType>(op.getInput().getType());
  SmallVector<int64_t> shape(input.getShape());
  if (failed(verifyAxes(op, op.getMesh(), op.getAxes())) ||
      failed(verifyDim(op, input, op.getDim())) ||
      failed(
          cut(op, shape, op.getDim(), op.getMesh().getGroupSize(op.getAxes()))))
    return failure();
  return verifyShape(op, input, op.getType(), shape);
}
LogicalResult ReduceScatterOp::verify() { return verifyCut(*this); }
LogicalResult SliceOp::verify() { return verifyCut(*this); }

LogicalResult AllGatherOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  if (failed(verifyAxes(*this, getMesh(), getAxes())) ||
      failed(verifyDim(*this, input, getDim())))
    return failure();
  SmallVector<int64_t> shape(input.getShape());
  shape[getDim()] *= getMesh().getGroupSize(getAxes());
  return verifyShape(*this, input, getType(), shape);
}

LogicalResult AllToAllOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType());
  int64_t groupSize = 0;
  if (failed(verifyAxes(*this, getMesh(), getAxes())) ||
      failed(verifyDim(*this, input, getDim())) ||
      failed(verifyDim(*this, input, getToDim())))
    return failure();
  if (getDim() == getToDim()) // C2
    return emitOpError() << "dim and to_dim are both " << getDim();
  groupSize = getMesh().getGroupSize(getAxes());
  SmallVector<int64_t> shape(input.getShape());
  if (failed(cut(*this, shape, getToDim(), groupSize)))
    return failure();
  shape[getDim()] *= groupSize;
  return verifyShape(*this, input, getType(), shape);
}

LogicalResult PermuteOp::verify() {
  if (failed(verifyAxes(*this, getMesh(), getAxes()))) // C1
    return failure();
  int64_t ranks = getMesh().getGroupSize(getAxes());
  SmallVector<int64_t> sorted(getSources());
  llvm::sort(sorted);
  bool permutation = static_cast<int64_t>(sorted.size()) == ranks;
  for (auto [i, source] : llvm::enumerate(sorted))
    permutation &= source == static_cast<int64_t>(i);
  if (!permutation) // C2
    return emitOpError() << "sources must be a permutation of the " << ranks
                         << " positions of a group";
  auto input = cast<RankedTensorType>(getInput().getType());
  auto result = cast<RankedTensorType>(getType());
  if (input.getNumElements() != result.getNumElements() ||
      input.getElementType() != result.getElementType()) // C3
    return emitOpError() << "cannot turn " << input << " into " << result;
  return success();
}

/// C1 of both: a row of at least as many elements as the tensor.
static LogicalResult verifyRow(Operation *op, Type row, Type tensor) {
  auto flat = cast<RankedTensorType>(row),
       whole = cast<RankedTensorType>(tensor);
  if (flat.getRank() != 1 || flat.getElementType() != whole.getElementType() ||
      flat.getNumElements() < whole.getNumElements())
    return op->emitOpError() << flat << " is no row that begins with " << whole;
  return success();
}
LogicalResult ToRowOp::verify() {
  return verifyRow(*this, getType(), getInput().getType());
}
LogicalResult FromRowOp::verify() {
  return verifyRow(*this, getInput().getType(), getType());
}
