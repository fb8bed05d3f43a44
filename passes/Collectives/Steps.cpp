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

/// `axes` without those in `others`.
static ArrayAttr without(ArrayAttr axes, ArrayAttr others) {
  SmallVector<Attribute> rest;
  for (Attribute axis : axes)
    if (!llvm::is_contained(others, axis))
      rest.push_back(axis);
  return ArrayAttr::get(axes.getContext(), rest);
}

namespace {
/// Brings one value from layout to layout: by search where dimensions alone are
/// cut, else by what gathers, cuts and reduces runs.
class Resharder {
public:
  Resharder(OpBuilder &builder, Location location, RankedTensorType type,
            Value input, dist::ReshardReason reason)
      : builder(builder), location(location), type(type), value(input),
        now(dist::getLayout(type)), none(builder.getArrayAttr({})),
        reason(std::move(reason)) {
    for (auto [dim, size] : llvm::enumerate(type.getShape()))
      stored.push_back(now.getStoredSize(dim, size));
  }

  FailureOr<Value> run(LayoutAttr target) {
    if (!now.getRuns().empty() && (now.getRuns() != target.getRuns() ||
                                   now.getDims() != target.getDims()))
      joinRuns();
    if (now.getRuns().empty() && target.getRuns().empty())
      search(target);
    else if (!now.getPartialMax().empty() || !target.getPartialMax().empty())
      return emitError(location) << "a partial maximum cannot be in runs";
    else
      reachRuns(target);
    return value;
  }

private:
  void search(LayoutAttr target) {
    std::vector<std::int64_t> shape(stored.begin(), stored.end());
    for (const ReshardStep &step :
         findReshard(meshOf(now.getMesh()), shape, elementBytes(),
                     layoutOf(now), layoutOf(target)))
      value = StepBuilder(builder, tell(reshardKindName(step.kind), step.bytes),
                          now.getMesh(), stored)
                  .build(step, value);
    now = target;
  }

  /// Every rank's run => the compute shard.
  void joinRuns() {
    int64_t ranks = groupSize(now.getRuns());
    value = dist::AllGatherOp::create(
        builder, tell("all_gather", (ranks - 1) * localBytes()),
        rowType(elements() * ranks), value, now.getMesh(), now.getRuns(), 0);
    now = now.withRuns(none);
    value = dist::FromRowOp::create(
        builder, location, dist::getLocalType(dist::withLayout(type, now)),
        value);
  }

  void reachRuns(LayoutAttr target) {
    if (now.getRuns().empty()) {
      // Dimensions first, sums left as they are: runs are cut from what is
      // computed with.
      search(target.withRuns(none).withPartial(now.getPartial()));
      cutIntoRuns(target);
    }
    // What is left is reduced on the run, which is smaller.
    if (ArrayAttr axes = without(now.getPartial(), target.getPartial());
        !axes.empty())
      allReduce(axes);
    if (ArrayAttr axes = without(target.getPartial(), now.getPartial());
        !axes.empty())
      value = dist::MakePartialOp::create(builder, location, value.getType(),
                                          value, now.getMesh(), axes);
    now = target;
  }

  void cutIntoRuns(LayoutAttr target) {
    ArrayAttr runs = target.getRuns();
    ArrayAttr whole = without(runs, now.getPartial()); // hold equal values
    if (!whole.empty() && whole != runs)               // some sum, some do not
      allReduce(without(runs, whole));
    int64_t row = now.withRuns(runs).getRowElements(type.getShape());
    auto runType = rowType(row / groupSize(runs));
    value = dist::ToRowOp::create(builder, location, rowType(row), value);
    if (whole.empty()) {
      int64_t ranks = groupSize(runs);
      value = dist::ReduceScatterOp::create(
          builder, tell("reduce_scatter", localBytes() / ranks * (ranks - 1)),
          runType, value, dist::Reduction::Sum, now.getMesh(), runs, 0);
    } else {
      value = dist::SliceOp::create(builder, tell("slice", 0), runType, value,
                                    now.getMesh(), runs, 0);
    }
    now = now.withRuns(runs).withPartial(without(now.getPartial(), runs));
  }

  void allReduce(ArrayAttr axes) {
    double ranks = static_cast<double>(groupSize(axes));
    auto bytes = static_cast<int64_t>(2 * (ranks - 1) / ranks *
                                      static_cast<double>(localBytes()));
    value = dist::AllReduceOp::create(
        builder, tell("all_reduce", bytes), value.getType(), value,
        dist::Reduction::Sum, now.getMesh(), axes);
    now = now.withPartial(without(now.getPartial(), axes));
  }

  /// The location of a step that sends `bytes`, which a remark says.
  Location tell(StringRef kind, int64_t bytes) {
    reason.bytes = bytes;
    Location where = reason.attach(location);
    remark::passed(
        where, remark::RemarkOpts::name("LowerReshard").category("collectives"))
        << kind << remark::metric("Bytes", bytes)
        << remark::metric("Value", StringRef(reason.value))
        << remark::metric("From", StringRef(reason.from))
        << remark::metric("To", StringRef(reason.to))
        << remark::metric("Made", StringRef(reason.made))
        << remark::metric("Wanted", StringRef(reason.wanted));
    return where;
  }

  int64_t groupSize(ArrayAttr axes) { return now.getMesh().getGroupSize(axes); }
  int64_t elements() {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  }
  int64_t elementBytes() {
    return llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  }
  int64_t localBytes() { return elements() * elementBytes(); }
  RankedTensorType rowType(int64_t count) {
    return RankedTensorType::get({count}, type.getElementType());
  }

  OpBuilder &builder;
  Location location;
  RankedTensorType type;
  Value value;
  LayoutAttr now; ///< of `value`
  ArrayAttr none;
  dist::ReshardReason reason;
  SmallVector<int64_t> stored;
};
} // namespace

FailureOr<Value> collectives::buildReshard(OpBuilder &builder,
                                           Location location, Value input,
                                           RankedTensorType from,
                                           RankedTensorType to,
                                           int64_t number) {
  LayoutAttr source = dist::getLayout(from), target = dist::getLayout(to);
  for (auto [dim, size] : llvm::enumerate(from.getShape()))
    if (source.getStoredSize(dim, size) != target.getStoredSize(dim, size))
      return emitError(location)
             << "dim " << dim << " of size " << size << " is stored as "
             << source.getStoredSize(dim, size) << " on one side and as "
             << target.getStoredSize(dim, size)
             << " on the other; a reshard cannot change padding";
  auto reason =
      dist::ReshardReason::find(location).value_or(dist::ReshardReason());
  reason.from = source.getShortForm();
  reason.to = target.getShortForm();
  reason.number = number;
  return Resharder(builder, location, from, input, reason).run(target);
}
