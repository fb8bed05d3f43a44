//===- CutMicroBatch.cpp - a micro-batch as the regions of a run ----------===//

#include "passes/Stages/Cut.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::stages;
using namespace heddle::transformer;

namespace {

/// A tensor on its way between stages: of what is whole over axes within a
/// stage each rank sends its part.
struct Wire {
  RankedTensorType whole, part;
  dist::MeshAttr mesh;
  ArrayAttr axes; ///< over which it is cut for the way; may be none
  int64_t dim = 0;
};

class MicroBatchCut {
public:
  MicroBatchCut(LoopOp micro, stage::TableOp table,
                const stage::StageTable &stages)
      : micro(micro), table(table), stages(stages), builder(micro),
        location(micro.getLoc()) {}

  FailureOr<stage::RunOp> run() {
    if (failed(sortOps()) || failed(planWires()))
      return failure();
    findSaved();
    made = stage::RunOp::create(builder, location, micro.getResultTypes(),
                                table.getSymName(), micro.getInits());
    if (auto names = micro->getAttr(kNamesName))
      made->setAttr(kNamesName, names);
    buildForward();
    buildBackward();
    micro->replaceAllUsesWith(made);
    micro.erase();
    return made;
  }

private:
  //===--------------------------------------------------------------------===//
  // What belongs where
  //===--------------------------------------------------------------------===//

  LogicalResult sortOps() {
    for (Operation &op : micro.getBody().front().without_terminator()) {
      if (isa<GetOp>(op))
        continue; // inputs: each region takes those that it reads
      if (auto loop = dyn_cast<LoopOp>(op)) {
        bool calls = !loop.getBody().front().getOps<func::CallOp>().empty();
        if (calls)
          (loop.getReversed() ? backwardLoop : forwardLoop) = loop;
        else
          gathers.push_back(loop);
        continue;
      }
      (!forwardLoop ? embedding : !backwardLoop ? head : rest).push_back(&op);
    }
    if (!forwardLoop || !backwardLoop)
      return micro.emitOpError()
             << "needs a loop over layers forward and one backward";
    sortRest();
    gatherForHead();
    return success();
  }

  /// Behind the layers: what the embedding's backward needs, and the rest,
  /// which goes with the head.
  void sortRest() {
    DenseSet<Operation *> ofEmbedding;
    for (Operation *op : rest)
      for (Value operand : op->getOperands())
        if (operand.getDefiningOp() == backwardLoop ||
            ofEmbedding.contains(operand.getDefiningOp()))
          ofEmbedding.insert(op);
    for (Operation *op : llvm::reverse(rest))
      if (op->getNumResults() > 0 &&
          llvm::all_of(op->getUsers(), [&](Operation *user) {
            return ofEmbedding.contains(user);
          }))
        ofEmbedding.insert(op);
    for (Operation *op : rest)
      (ofEmbedding.contains(op) ? ending : head).push_back(op);
  }

  /// What the embedding gathers of a shared parameter the head reads: it
  /// gathers it itself where it is elsewhere.
  void gatherForHead() {
    if (stages.placeOfEnd(stage::Part::Embedding, 0) ==
        stages.placeOfEnd(stage::Part::Head, 0)) // of each path
      return;
    llvm::SetVector<Operation *> gathering;
    for (Operation *op : head)
      if (auto load = dyn_cast<LoadOp>(op))
        for (Operation *other : embedding)
          if (auto store = dyn_cast<StoreOp>(other);
              store && store.getState() == load.getState())
            gathering.insert(store);
    for (size_t i = 0; i < gathering.size(); ++i)
      for (Value operand : gathering[i]->getOperands())
        if (Operation *maker = operand.getDefiningOp())
          gathering.insert(maker);
    SmallVector<Operation *> all(gathering.begin(), gathering.end());
    llvm::sort(
        all, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    head.insert(head.begin(), all.begin(), all.end());
  }

  /// One gradient for all that blocks carry: it depends on their sum alone.
  bool sendsSum() {
    return forwardLoop.getInits().size() > 1 &&
           backwardLoop.getInits().size() == 1;
  }

  LogicalResult planWires() {
    size_t carried = forwardLoop.getInits().size();
    if (!sendsSum() && carried != backwardLoop.getInits().size())
      return micro.emitOpError()
             << "carries " << carried << " values forward and "
             << backwardLoop.getInits().size() << " gradients backward";
    auto module = micro->getParentOfType<ModuleOp>();
    auto mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
    auto function = module.lookupSymbol<func::FuncOp>("embedding");
    for (unsigned i = 0; i < (sendsSum() ? 1 : carried); ++i) {
      auto layout = function ? function.getResultAttrOfType<dist::LayoutAttr>(
                                   i, dist::kLayoutName)
                             : dist::LayoutAttr();
      wires.push_back(
          planWire(cast<RankedTensorType>(forwardLoop.getInits()[i].getType()),
                   mesh, layout));
    }
    return success();
  }

  static bool cutsOver(dist::LayoutAttr layout, StringAttr axis) {
    for (int64_t dim = 0; dim < layout.getRank(); ++dim)
      if (llvm::is_contained(layout.getAxes(dim), axis))
        return true;
    return false;
  }

  Wire planWire(RankedTensorType type, dist::MeshAttr mesh,
                dist::LayoutAttr layout) {
    Wire wire{type, type, mesh, builder.getArrayAttr({})};
    if (!mesh || !layout)
      return wire;
    SmallVector<Attribute> axes;
    int64_t parts = 1;
    for (auto [name, size] :
         llvm::zip(mesh.getNames(), mesh.getSizes().asArrayRef())) {
      if (size == 1 || cast<StringAttr>(name).getValue() == stage::kStageAxis ||
          cutsOver(layout, cast<StringAttr>(name)))
        continue;
      axes.push_back(name);
      parts *= size;
    }
    for (int64_t dim : {1, 0, 2}) {
      if (parts == 1 || dim >= type.getRank() || type.getDimSize(dim) % parts)
        continue;
      SmallVector<int64_t> shape(type.getShape());
      shape[dim] /= parts;
      wire.part = RankedTensorType::get(shape, type.getElementType());
      wire.axes = builder.getArrayAttr(axes);
      wire.dim = dim;
      return wire;
    }
    return wire;
  }

  /// What backward reads of forward.
  void findSaved() {
    auto usedBy = [&](Value value, ArrayRef<Operation *> ops) {
      return llvm::any_of(value.getUsers(), [&](Operation *user) {
        while (user->getParentOp() != micro)
          user = user->getParentOp();
        return llvm::is_contained(ops, user);
      });
    };
    for (Value stack : forwardLoop.getStacks())
      if (!stack.use_empty())
        savedStacks.push_back(stack);
    for (Value value : forwardLoop.getCarriedResults())
      if (usedBy(value, head))
        savedForHead.push_back(value);
    for (Operation *op : embedding)
      for (Value value : op->getResults())
        if (usedBy(value, ending))
          savedForEmbedding.push_back(value);
  }

  //===--------------------------------------------------------------------===//
  // Regions
  //===--------------------------------------------------------------------===//

  /// Begins a region: chunk and micro-batch, then arguments of these types.
  Block *begin(Region &region, TypeRange types) {
    Block *block = &region.emplaceBlock();
    block->addArguments({builder.getIndexType(), builder.getIndexType()},
                        {location, location});
    for (Type type : types)
      block->addArgument(type, location);
    builder.setInsertionPointToStart(block);
    mapping.clear();
    mapping.map(micro.getIndex(), block->getArgument(1));
    chunk = block->getArgument(0);
    return block;
  }

  /// Inputs of the step that these ops read, ahead of them.
  void cloneInputs(ArrayRef<Operation *> ops) {
    for (Operation *op : ops)
      op->walk([&](Operation *inner) {
        for (Value operand : inner->getOperands())
          if (auto get = operand.getDefiningOp<GetOp>();
              get && get->getParentOp() == micro && !mapping.contains(operand))
            builder.clone(*get, mapping);
      });
  }

  void cloneAll(ArrayRef<Operation *> ops) {
    for (Operation *op : ops)
      builder.clone(*op, mapping);
  }

  SmallVector<Value> mapped(ValueRange values) {
    SmallVector<Value> result;
    for (Value value : values)
      result.push_back(mapping.lookupOrDefault(value));
    return result;
  }

  /// `fill` and `otherwise` give what their region yields.
  stage::WhereOp where(stage::Part part, TypeRange types,
                       function_ref<SmallVector<Value>()> fill,
                       function_ref<SmallVector<Value>()> otherwise = {}) {
    OpBuilder::InsertionGuard guard(builder);
    auto op = stage::WhereOp::create(builder, location, types, part, chunk);
    auto build = [&](Region &region, function_ref<SmallVector<Value>()> body) {
      builder.setInsertionPointToStart(&region.emplaceBlock());
      SmallVector<Value> values = body();
      stage::YieldOp::create(builder, location, values, ValueRange(),
                             ValueRange());
    };
    build(op.getBody(), fill);
    if (otherwise)
      build(op.getOtherwise(), otherwise);
    return op;
  }

  SmallVector<Value> undefined(TypeRange types) {
    SmallVector<Value> values;
    for (Type type : types)
      values.push_back(stage::UndefinedOp::create(builder, location, type));
    return values;
  }

  /// Values that only one end of the chain has.
  ValueRange onlyWhere(stage::Part part, ValueRange values) {
    if (values.empty())
      return {};
    TypeRange types = values.getTypes();
    return where(
               part, types, [&] { return llvm::to_vector(values); },
               [&] { return undefined(types); })
        .getResults();
  }

  Type ofChunk(Type type) {
    auto stack = dyn_cast<StackType>(type);
    return stack ? StackType::get(type.getContext(), stages.mostOfChunk(),
                                  stack.getElementType())
                 : type;
  }

  /// A loop over all layers becomes one over those of the chunk; what it reads
  /// and writes of states is at the layer's position among the place's.
  LoopOp cloneLoop(LoopOp loop) {
    auto limit = stage::LayersOp::create(builder, location,
                                         builder.getIndexType(), chunk);
    auto copy = cast<LoopOp>(builder.clone(*loop, mapping));
    for (Value result : copy.getResults())
      result.setType(ofChunk(result.getType()));
    copy = withBounds(copy, stages.mostOfChunk(), limit);
    for (auto [from, to] : llvm::zip(loop.getResults(), copy.getResults()))
      mapping.map(from, to);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&copy.getBody().front());
    Value layer = stage::LayerOp::create(
        builder, location, builder.getIndexType(), copy.getIndex(), chunk);
    copy.getIndex().replaceUsesWithIf(layer, [&](OpOperand &use) {
      auto get = dyn_cast<GetOp>(use.getOwner());
      bool ofSaved = get && !isa<func::FuncOp>(
                                get.getStack().getParentBlock()->getParentOp());
      return use.getOwner() != layer.getDefiningOp() && !ofSaved;
    });
    return copy;
  }

  Location because(StringRef why) {
    return NameLoc::get(builder.getStringAttr(why), location);
  }

  Value cutForWay(const Wire &wire, Value value) {
    if (wire.axes.empty())
      return value;
    return dist::SliceOp::create(
        builder, because("each rank sends its part to the next stage"),
        wire.part, value, wire.mesh, wire.axes, wire.dim);
  }

  Value gatherAfterWay(const Wire &wire, Value part) {
    if (wire.axes.empty())
      return part;
    return dist::AllGatherOp::create(
        builder, because("ranks of the stage received a part each"), wire.whole,
        part, wire.mesh, wire.axes, wire.dim);
  }

  SmallVector<Type> wireTypes() {
    SmallVector<Type> types;
    for (const Wire &wire : wires)
      types.push_back(wire.part);
    return types;
  }

  //===--------------------------------------------------------------------===//
  // Forward
  //===--------------------------------------------------------------------===//

  void buildForward() {
    OpBuilder::InsertionGuard guard(builder);
    Block *block = begin(made.getForward(), wireTypes());
    auto received = block->getArguments().drop_front(2);
    SmallVector<Operation *> all = embedding;
    llvm::append_range(all, gathers);
    all.push_back(forwardLoop);
    cloneInputs(all);
    SmallVector<Value> fromEmbedding(forwardLoop.getInits());
    llvm::append_range(fromEmbedding, savedForEmbedding);
    auto begun = where(
        stage::Part::Embedding, ValueRange(fromEmbedding).getTypes(),
        [&] {
          cloneAll(embedding);
          return mapped(fromEmbedding);
        },
        [&] { return arrive(received); });
    for (auto [from, to] : llvm::zip(fromEmbedding, begun.getResults()))
      mapping.map(from, to);
    for (LoopOp loop : gathers)
      cloneLoop(loop);
    LoopOp loop = cloneLoop(forwardLoop);
    auto sent = where(
        stage::Part::Successor, wireTypes(),
        [&] { return depart(loop.getCarriedResults()); },
        [&] { return undefined(wireTypes()); });
    SmallVector<Value> saved = mapped(savedStacks);
    llvm::append_range(saved,
                       onlyWhere(stage::Part::Head, mapped(savedForHead)));
    llvm::append_range(saved, mapped(savedForEmbedding));
    stage::YieldOp::create(builder, location, ValueRange(), sent.getResults(),
                           saved);
  }

  /// What blocks carry, of what was received.
  SmallVector<Value> arrive(ValueRange received) {
    SmallVector<Value> values;
    for (auto [wire, part] : llvm::zip(wires, received))
      values.push_back(gatherAfterWay(wire, part));
    while (values.size() < forwardLoop.getInits().size())
      values.push_back(
          ZerosLikeOp::create(builder, location, values.front()).getResult());
    llvm::append_range(values,
                       undefined(ValueRange(savedForEmbedding).getTypes()));
    return values;
  }

  SmallVector<Value> depart(ValueRange carried) {
    SmallVector<Value> values(carried.begin(), carried.end());
    if (sendsSum()) {
      Value sum = values.front();
      for (Value next : ArrayRef(values).drop_front()) {
        sum = AddOp::create(builder, location, sum, next);
        setNames(sum.getDefiningOp(), {"sent"});
      }
      values = {sum};
    }
    for (auto [wire, value] : llvm::zip(wires, values))
      value = cutForWay(wire, value);
    return values;
  }

  //===--------------------------------------------------------------------===//
  // Backward
  //===--------------------------------------------------------------------===//

  void buildBackward() {
    OpBuilder::InsertionGuard guard(builder);
    SmallVector<Value> saved(savedStacks);
    llvm::append_range(saved, savedForHead);
    llvm::append_range(saved, savedForEmbedding);
    SmallVector<Type> types(micro.getInits().getTypes());
    llvm::append_range(types, wireTypes());
    for (Value value : saved)
      types.push_back(ofChunk(value.getType()));
    Block *block = begin(made.getBackward(), types);
    auto arguments = block->getArguments().drop_front(2);
    auto carried = arguments.take_front(micro.getInits().size());
    auto received = arguments.slice(carried.size(), wires.size());
    for (auto [from, to] : llvm::zip(micro.getCarried(), carried))
      mapping.map(from, to);
    for (auto [from, to] :
         llvm::zip(saved, arguments.drop_front(carried.size() + wires.size())))
      mapping.map(from, to);
    SmallVector<Operation *> all = head;
    all.push_back(backwardLoop);
    llvm::append_range(all, ending);
    cloneInputs(all);
    SmallVector<Value> next = runHead(carried, received);
    LoopOp loop = cloneLoop(backwardLoop);
    where(stage::Part::Embedding, {}, [&]() -> SmallVector<Value> {
      cloneAll(ending);
      return {};
    });
    auto sent = where(
        stage::Part::Predecessor, wireTypes(),
        [&] {
          SmallVector<Value> values;
          for (auto [wire, value] : llvm::zip(wires, loop.getCarriedResults()))
            values.push_back(cutForWay(wire, value));
          return values;
        },
        [&] { return undefined(wireTypes()); });
    stage::YieldOp::create(builder, location, next, sent.getResults(),
                           ValueRange());
  }

  /// Head, and gradients of what the last block carries; returns the next
  /// carried values of the run.
  SmallVector<Value> runHead(ValueRange carried, ValueRange received) {
    SmallVector<Value> results(micro.getYield().getCarried());
    llvm::append_range(results, backwardLoop.getInits());
    auto begun = where(
        stage::Part::Head, ValueRange(results).getTypes(),
        [&] {
          cloneAll(head);
          return mapped(results);
        },
        [&] {
          SmallVector<Value> values(carried.begin(), carried.end());
          for (auto [wire, part] : llvm::zip(wires, received))
            values.push_back(gatherAfterWay(wire, part));
          return values;
        });
    for (auto [from, to] :
         llvm::zip(backwardLoop.getInits(),
                   begun.getResults().drop_front(carried.size())))
      mapping.map(from, to);
    return llvm::to_vector_of<Value>(
        begun.getResults().take_front(carried.size()));
  }

  LoopOp micro;
  stage::TableOp table;
  const stage::StageTable &stages;
  OpBuilder builder;
  Location location;
  LoopOp forwardLoop, backwardLoop;
  SmallVector<LoopOp> gathers;
  SmallVector<Operation *> embedding, head, rest, ending;
  SmallVector<Wire> wires;
  SmallVector<Value> savedStacks, savedForHead, savedForEmbedding;
  stage::RunOp made;
  IRMapping mapping;
  Value chunk;
};

} // namespace

FailureOr<stage::RunOp>
heddle::stages::cutMicroBatches(LoopOp loop, stage::TableOp table,
                                const stage::StageTable &stages) {
  return MicroBatchCut(loop, table, stages).run();
}
