//===- CutStep.cpp - what stands around the run of slots ------------------===//

#include "passes/Stages/Cut.h"

#include "heddle/Support/Mirror.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::stages;
using namespace heddle::transformer;

namespace {

/// What is done to states of one part: ops that belong together, and the sums
/// over all parameters that go through them.
struct Group {
  llvm::SetVector<Operation *> ops;
  SmallVector<AddOp> sums; ///< the last ops: their other operand passes by
  bool sharedByEnds = false, atEmbedding = false, atHead = false;

  stage::Part part() const {
    // A shared parameter counts once in what is summed over all parameters.
    if (sharedByEnds || (atEmbedding && atHead))
      return sums.empty() ? stage::Part::Ends : stage::Part::Embedding;
    return atHead ? stage::Part::Head : stage::Part::Embedding;
  }
};

class StepCut {
public:
  StepCut(func::FuncOp step, stage::RunOp run, const stage::StageTable &stages,
          const stage::StateParts &parts)
      : step(step), run(run), stages(stages), parts(parts), builder(run) {}

  LogicalResult cut() {
    limitLoops();
    SmallVector<Operation *> ops;
    for (Operation &op : body())
      ops.push_back(&op);
    for (Operation *op : ops)
      if (parts.partOf(op) && !grouped.contains(op))
        enclose(collect(op));
    if (failed(checkEnds()))
      return failure();
    sumCopies();
    sumOverPlaces();
    return success();
  }

private:
  Block &body() { return step.getBody().front(); }

  /// Loops over all layers become loops over those of the place.
  void limitLoops() {
    Value limit;
    for (auto loop : llvm::make_early_inc_range(body().getOps<LoopOp>())) {
      if (loop.getOver() != "layer")
        continue;
      if (!limit) {
        builder.setInsertionPointToStart(&body());
        limit = stage::LayersOp::create(builder, step.getLoc(),
                                        builder.getIndexType(), Value());
      }
      withBounds(loop, stages.mostOfPlace(), limit);
    }
  }

  void note(Group &group, Operation *op) {
    group.ops.insert(op);
    grouped.insert(op);
    if (auto part = parts.partOf(op)) {
      group.sharedByEnds |= *part == stage::Part::Ends;
      group.atEmbedding |= *part == stage::Part::Embedding;
      group.atHead |= *part == stage::Part::Head;
    }
  }

  /// All that follows from an op on a state, up to sums over all parameters,
  /// and what else that reads of states.
  Group collect(Operation *seed) {
    Group group;
    SmallVector<Operation *> list = {seed};
    note(group, seed);
    while (!list.empty()) {
      Operation *op = list.pop_back_val();
      auto visit = [&](Operation *other) {
        if (other && !group.ops.contains(other) &&
            other->getBlock() == &body()) {
          note(group, other);
          list.push_back(other);
        }
      };
      for (Value operand : op->getOperands())
        if (Operation *maker = operand.getDefiningOp();
            maker && parts.partOf(maker))
          visit(maker);
      if (isa<AddOp>(op) && isSum(cast<AddOp>(op), group)) {
        group.sums.push_back(cast<AddOp>(op));
        continue;
      }
      for (Operation *user : op->getUsers())
        visit(user);
    }
    return group;
  }

  /// Whether an operand of an add comes from outside of the group: it is a sum
  /// over all parameters.
  static bool isSum(AddOp add, const Group &group) {
    return llvm::any_of(add->getOperands(), [&](Value operand) {
      return !group.ops.contains(operand.getDefiningOp());
    });
  }

  /// Puts a group where its last op stands, under the condition that the place
  /// has the part.
  void enclose(Group group) {
    SmallVector<Operation *> ops(group.ops.begin(), group.ops.end());
    llvm::sort(
        ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    builder.setInsertionPoint(ops.back());
    Location location = ops.back()->getLoc();
    SmallVector<Value> sums, passing;
    for (AddOp sum : group.sums) {
      sums.push_back(sum.getResult());
      for (Value operand : sum->getOperands())
        if (!group.ops.contains(operand.getDefiningOp()))
          passing.push_back(operand);
    }
    auto where = stage::WhereOp::create(
        builder, location, ValueRange(sums).getTypes(), group.part(), Value());
    OpBuilder inside = OpBuilder::atBlockBegin(&where.getBody().emplaceBlock());
    auto end = stage::YieldOp::create(inside, location, sums, ValueRange(),
                                      ValueRange());
    for (Operation *op : ops)
      op->moveBefore(end);
    for (auto [sum, result] : llvm::zip(sums, where.getResults()))
      sum.replaceAllUsesExcept(result, end);
    if (!sums.empty()) {
      inside.createBlock(&where.getOtherwise());
      stage::YieldOp::create(inside, location, passing, ValueRange(),
                             ValueRange());
    }
    sharesEnds |= group.sharedByEnds;
    if (group.sharedByEnds && stages.copies() == 1)
      sumEnds(where);
  }

  /// A shared parameter's gradient is the sum over both ends.
  void sumEnds(stage::WhereOp where) {
    bool moves = stages.placeOfEnd(stage::Part::Embedding, 0) !=
                 stages.placeOfEnd(stage::Part::Head, 0);
    for (auto store : where.getBody().front().getOps<StoreOp>())
      if (isOfGradient(store))
        sumStored(store, moves, [&](Value value) -> Value {
          return stage::SumEndsOp::create(builder, store.getLoc(),
                                          value.getType(), value);
        });
  }

  bool isOfGradient(StoreOp store) {
    return parts.stateOf(store.getState()).getKind() == StateKind::Gradient;
  }

  /// Stores a gradient's sum over places. Where it `moves` it does in the
  /// format in which gradients are reduced, as it has come out of a reduction,
  /// before a cast to what is kept.
  void sumStored(StoreOp store, bool moves, function_ref<Value(Value)> sum) {
    OpOperand *operand = &store.getValueMutable();
    if (auto behind = operand->get().getDefiningOp<CastOp>())
      operand = &behind.getInputMutable();
    Value value = operand->get();
    auto type = cast<RankedTensorType>(value.getType());
    auto travels =
        moves ? type.clone(formatOfReductions(type.getElementType())) : type;
    builder.setInsertionPoint(operand->getOwner());
    if (travels != type)
      value = makeCast(value, travels,
                       "the plan reduces gradients in this format", "_wide");
    value = sum(value);
    if (travels != type)
      value = makeCast(value, type, "the plan keeps gradients in this format",
                       "_kept");
    operand->set(value);
  }

  /// What the plan names for gradients that are added over ranks; `otherwise`
  /// where it names none.
  Type formatOfReductions(Type otherwise) {
    auto named =
        step->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(
            kPrecisionName);
    auto type = named ? named.getAs<TypeAttr>("reduce") : TypeAttr();
    return type ? type.getValue() : otherwise;
  }

  Value makeCast(Value value, Type type, StringRef why, StringRef suffix) {
    auto location = NameLoc::get(builder.getStringAttr(why), value.getLoc());
    auto op = CastOp::create(builder, location, type, value);
    setNames(op, {(getName(value) + suffix).str()});
    return op.getResult();
  }

  /// Where there are two copies, their sum is also that over both ends, if each
  /// place with an end of one copy has the other end of the other.
  LogicalResult checkEnds() {
    if (!sharesEnds || stages.copies() == 1)
      return success();
    for (int64_t place = 0; place < stages.places(); ++place)
      if (stages.has(stage::Part::Embedding, place) !=
          stages.has(stage::Part::Head, place))
        return run.emitOpError()
               << "embedding and head share parameters, and place " << place
               << " has one end of a copy of the model only; let each such "
                  "place have both";
    return success();
  }

  /// Each copy of the model has seen other micro-batches: the gradient is the
  /// sum over both, in one order, so that copies stay equal bit by bit.
  void sumCopies() {
    if (stages.copies() == 1)
      return;
    SmallVector<StoreOp> stores;
    step.walk([&](StoreOp store) {
      if (isOfGradient(store))
        stores.push_back(store);
    });
    for (StoreOp store : stores)
      sumStored(store, /*moves=*/true, [&](Value value) {
        Value sum =
            allReduce(value, mirrorOf(stage::kStageAxis),
                      "each copy of the model has a part of the gradient");
        setNames(sum.getDefiningOp(), {getName(value).str()});
        return sum;
      });
  }

  /// The loss is where the head is, and each place has the squares of its own
  /// gradients.
  void sumOverPlaces() {
    if (stages.places() == 1)
      return;
    for (Value result : run.getResults()) {
      builder.setInsertionPointAfter(run);
      Value sum = allReduce(result, stage::kStageAxis,
                            "the loss is at the end of the chain");
      result.replaceAllUsesExcept(sum, sum.getDefiningOp());
    }
    for (auto clip : body().getOps<ClipFactorOp>()) {
      builder.setInsertionPoint(clip);
      clip.getSumMutable().assign(
          allReduce(clip.getSum(), stage::kStageAxis,
                    "the norm is over the gradients of all stages"));
      clip.setCopies(stages.copies());
    }
  }

  Value allReduce(Value value, StringRef axis, StringRef why) {
    auto mesh =
        step->getParentOfType<ModuleOp>()->getAttrOfType<dist::MeshAttr>(
            dist::kMeshName);
    Location location = NameLoc::get(builder.getStringAttr(why), run.getLoc());
    return dist::AllReduceOp::create(builder, location, value.getType(), value,
                                     dist::Reduction::Sum, mesh,
                                     builder.getStrArrayAttr({axis}));
  }

  func::FuncOp step;
  stage::RunOp run;
  const stage::StageTable &stages;
  const stage::StateParts &parts;
  OpBuilder builder;
  DenseSet<Operation *> grouped;
  bool sharesEnds = false;
};

} // namespace

LogicalResult heddle::stages::cutStep(func::FuncOp step, stage::RunOp run,
                                      const stage::StageTable &stages,
                                      const stage::StateParts &parts) {
  return StepCut(step, run, stages, parts).cut();
}
