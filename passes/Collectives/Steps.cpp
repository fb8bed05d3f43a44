//===- Steps.cpp - a reshard as collectives -------------------------------===//

#include "passes/Collectives/Steps.h"

#include "dialects/Dist/ReshardReason.h"
#include "heddle/Plan/Reshard.h"

#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace heddle;
using dist::LayoutAttr;
using dist::MeshAttr;

static ReshardMesh meshOf(MeshAttr mesh) {
  ReshardMesh result;
  for (auto [name, size] :
       llvm::zip(mesh.getNames(), mesh.getSizes().asArrayRef()))
    result.axes.emplace_back(cast<StringAttr>(name).getValue().str(), size);
  return result;
}

static std::vector<int> indicesOf(MeshAttr mesh, ArrayAttr axes) {
  std::vector<int> indices;
  for (Attribute axis : axes)
    indices.push_back(
        static_cast<int>(mesh.getIndex(cast<StringAttr>(axis).getValue())));
  return indices;
}

static ReshardLayout layoutOf(LayoutAttr layout) {
  ReshardLayout result;
  for (int64_t dim = 0; dim < layout.getRank(); ++dim)
    result.dims.push_back(indicesOf(layout.getMesh(), layout.getAxes(dim)));
  result.partialMax = !layout.getPartialMax().empty();
  result.partial =
      indicesOf(layout.getMesh(), result.partialMax ? layout.getPartialMax()
                                                    : layout.getPartial());
  return result;
}

namespace {
/// Turns the steps of one reshard into ops.
class StepBuilder {
public:
  StepBuilder(OpBuilder &builder, Location location, MeshAttr mesh,
              ArrayRef<int64_t> stored)
      : builder(builder), location(location), mesh(mesh), stored(stored) {}

  Value build(const ReshardStep &step, Value input) {
    auto type =
        cast<RankedTensorType>(input.getType()).clone(localShape(step.after));
    ArrayAttr axes = namesOf(step.axes);
    auto reduction =
        step.reduceMax ? dist::Reduction::Max : dist::Reduction::Sum;
    switch (step.kind) {
    case ReshardKind::Slice:
      return dist::SliceOp::create(builder, location, type, input, mesh, axes,
                                   step.dim);
    case ReshardKind::MakePartial:
      if (step.reduceMax) // the maximum of equal values is the value
        return input;
      return dist::MakePartialOp::create(builder, location, type, input, mesh,
                                         axes);
    case ReshardKind::AllGather:
      return dist::AllGatherOp::create(builder, location, type, input, mesh,
                                       axes, step.dim);
    case ReshardKind::ReduceScatter:
      return dist::ReduceScatterOp::create(builder, location, type, input,
                                           reduction, mesh, axes, step.dim);
    case ReshardKind::AllReduce:
      return dist::AllReduceOp::create(builder, location, type, input,
                                       reduction, mesh, axes);
    case ReshardKind::AllToAll:
      return dist::AllToAllOp::create(builder, location, type, input, mesh,
                                      axes, step.dim, step.toDim);
    case ReshardKind::Permute: {
      SmallVector<int64_t> sources(step.sources.begin(), step.sources.end());
      return dist::PermuteOp::create(builder, location, type, input, mesh, axes,
                                     sources);
    }
    }
    llvm_unreachable("all kinds of steps are handled");
  }

private:
  SmallVector<int64_t> localShape(const ReshardLayout &layout) const {
    SmallVector<int64_t> shape(stored);
    for (auto [size, axes] : llvm::zip(shape, layout.dims))
      for (int axis : axes)
        size /= mesh.getSizes()[axis];
    return shape;
  }

  ArrayAttr namesOf(const std::vector<int> &axes) {
    SmallVector<Attribute> names;
    for (int axis : axes)
      names.push_back(mesh.getNames()[axis]);
    return builder.getArrayAttr(names);
  }

  OpBuilder &builder;
  Location location;
  MeshAttr mesh;
  SmallVector<int64_t> stored;
};
} // namespace

FailureOr<Value> collectives::buildReshard(OpBuilder &builder,
                                           Location location, Value input,
                                           RankedTensorType from,
                                           RankedTensorType to,
                                           int64_t number) {
  LayoutAttr source = dist::getLayout(from), target = dist::getLayout(to);
  SmallVector<int64_t> stored;
  for (auto [dim, size] : llvm::enumerate(from.getShape())) {
    stored.push_back(source.getStoredSize(dim, size));
    if (stored.back() != target.getStoredSize(dim, size))
      return emitError(location)
             << "dim " << dim << " of size " << size << " is stored as "
             << stored.back() << " on one side and as "
             << target.getStoredSize(dim, size)
             << " on the other; a reshard cannot change padding";
  }
  int64_t bytes = llvm::divideCeil(from.getElementTypeBitWidth(), 8);
  std::vector<std::int64_t> shape(stored.begin(), stored.end());
  auto reason =
      dist::ReshardReason::find(location).value_or(dist::ReshardReason());
  reason.from = source.getShortForm();
  reason.to = target.getShortForm();
  reason.number = number;
  Value value = input;
  for (const ReshardStep &step :
       findReshard(meshOf(source.getMesh()), shape, bytes, layoutOf(source),
                   layoutOf(target))) {
    reason.bytes = step.bytes;
    Location where = reason.attach(location);
    value = StepBuilder(builder, where, source.getMesh(), stored)
                .build(step, value);
    remark::passed(
        where, remark::RemarkOpts::name("LowerReshard").category("collectives"))
        << reshardKindName(step.kind) << remark::metric("Bytes", step.bytes)
        << remark::metric("Value", StringRef(reason.value))
        << remark::metric("From", StringRef(reason.from))
        << remark::metric("To", StringRef(reason.to))
        << remark::metric("Made", StringRef(reason.made))
        << remark::metric("Wanted", StringRef(reason.wanted));
  }
  return value;
}
