//===- SplitBackward.cpp - input gradients apart from weight gradients ----===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Stage/StageTable.h"
#include "dialects/Transformer/Cut.h"
#include "passes/Stages/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_SPLITBACKWARDPASS
#include "passes/Stages/Passes.h.inc"
} // namespace heddle

/// Gives each result a name of its own, as what crosses is known by it: what a
/// collective brings may have none, or that of what it moves.
static void nameAll(func::FuncOp function) {
  llvm::StringSet<> taken;
  function.walk([&](Operation *op) {
    SmallVector<std::string> names;
    for (Value result : op->getResults()) {
      std::string base =
          getName(result).empty() ? "moved" : getName(result).str();
      names.push_back(base);
      for (unsigned number = 2; !taken.insert(names.back()).second; ++number)
        names.back() = base + "." + std::to_string(number);
    }
    if (!names.empty())
      setNames(op, names);
  });
}

static std::string nameOfArgument(func::FuncOp function, unsigned i) {
  auto name = function.getArgAttrOfType<StringAttr>(i, kArgumentName);
  return name ? name.str() : "";
}

/// Parts of parameters are taken again instead of kept.
static bool readsParametersOnly(Operation *op) {
  return op->getNumOperands() > 0 &&
         llvm::all_of(op->getOperands(), [](Value operand) {
           auto argument = dyn_cast<BlockArgument>(operand);
           auto function =
               argument
                   ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp())
                   : func::FuncOp();
           return function &&
                  function.getArgAttr(argument.getArgNumber(), kStateName);
         });
}

namespace {

class Splitter {
public:
  Splitter(stage::RunOp run, LoopOp loop, func::CallOp call)
      : run(run), loop(loop), call(call), builder(run),
        location(loop.getLoc()) {}

  void split(func::FuncOp function) {
    unsigned results = 0;
    while (results < function.getNumResults() &&
           !function.getResultAttr(results, kGradientName))
      ++results;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      operands[nameOfArgument(function, i)] = call.getOperand(i);
    for (unsigned i = results; i < function.getNumResults(); ++i)
      gradients.push_back(function.getResultAttr(i, kGradientName));
    std::string name = function.getName().str();
    nameAll(function);
    halves = cut(function, results, name + "_input", name + "_weight",
                 kKeptName, readsParametersOnly);
    numLeading = results;
    numKept = 0;
    for (unsigned i = 0; i < halves.second.getNumArguments(); ++i)
      numKept += halves.second.getArgAttr(i, kKeptName) != nullptr;
    findIncoming();
    buildInput();
    buildWeight();
  }

private:
  /// Gradients that come into a layer and that the second half reads too.
  void findIncoming() {
    for (unsigned i = numKept; i < halves.second.getNumArguments(); ++i) {
      Value operand = operands.lookup(nameOfArgument(halves.second, i));
      if (llvm::is_contained(loop.getCarried(), operand))
        incoming.insert(operand);
    }
  }

  SmallVector<Value> operandsOf(func::FuncOp function, unsigned first) {
    SmallVector<Value> values;
    for (unsigned i = first; i < function.getNumArguments(); ++i)
      values.push_back(operands.lookup(nameOfArgument(function, i)));
    return values;
  }

  /// What the first half returns of the joint function's result `i`.
  std::optional<unsigned> resultOfFirst(unsigned i) {
    if (i < numLeading)
      return i;
    for (unsigned k = numLeading; k < halves.first.getNumResults(); ++k)
      if (halves.first.getResultAttr(k, kGradientName) ==
          gradients[i - numLeading])
        return k;
    return std::nullopt;
  }

  /// Whether a value is a gradient that the second half makes, or follows from
  /// one: what is reduced and added up goes with it.
  bool follows(Value value) {
    Operation *maker = value.getDefiningOp();
    return maker && (maker == call || llvm::is_contained(following, maker));
  }

  /// The loop calls the first half, and collects what is kept.
  void buildInput() {
    builder.setInsertionPoint(call);
    auto first = func::CallOp::create(builder, call.getLoc(), halves.first,
                                      operandsOf(halves.first, 0));
    SmallVector<std::string> names;
    for (unsigned i = 0; i < halves.first.getNumResults(); ++i)
      names.push_back(
          halves.first.getResultAttrOfType<StringAttr>(i, kArgumentName).str());
    setNames(first, names);
    for (unsigned i = 0; i < call.getNumResults(); ++i)
      if (auto k = resultOfFirst(i))
        call.getResult(i).replaceAllUsesWith(first.getResult(*k));
    for (Operation &op : loop.getBody().front().without_terminator())
      if (llvm::any_of(op.getOperands(), [&](Value v) { return follows(v); }))
        following.push_back(&op);
    SmallVector<Value> collected(incoming.begin(), incoming.end());
    for (unsigned i = halves.first.getNumResults() - numKept;
         i < halves.first.getNumResults(); ++i)
      collected.push_back(first.getResult(i));
    SmallVector<Type> types(loop.getResultTypes());
    SmallVector<std::string> stackNames;
    for (Value result : loop.getResults())
      stackNames.push_back(getName(result).str());
    for (Value value : collected) {
      types.push_back(StackType::get(builder.getContext(), loop.getCount(),
                                     cast<RankedTensorType>(value.getType())));
      StringRef name = getName(value);
      stackNames.push_back("all_" + (name.empty() ? "d_in" : name.str()));
    }
    loop.getYield().getCollectedMutable().assign(collected);
    builder.setInsertionPoint(loop);
    input = LoopOp::create(builder, location, types, loop.getOver(),
                           loop.getCount(), loop.getReversed(), loop.getInits(),
                           loop.getFromAttr(), loop.getLimit());
    setNames(input, stackNames);
  }

  /// A loop of the weight region: the second half, and its sums.
  void buildWeight() {
    IRMapping map;
    Block *block = &run.getWeight().emplaceBlock();
    Region &backward = run.getBackward();
    auto add = [&](Value from) {
      map.map(from, block->addArgument(from.getType(), location));
    };
    add(stage::RunOp::getChunk(backward));
    add(stage::RunOp::getMicroBatch(backward));
    for (Value saved : run.getSaved(backward))
      add(saved);
    SmallVector<Value> stacks;
    for (Value stack : input.getStacks())
      stacks.push_back(block->addArgument(stack.getType(), location));
    builder.setInsertionPointToEnd(block);
    auto limit =
        stage::LayersOp::create(builder, location, builder.getIndexType(),
                                stage::RunOp::getChunk(run.getWeight()));
    auto made =
        LoopOp::create(builder, location, TypeRange(), "layer", loop.getCount(),
                       loop.getReversed(), ValueRange(), IntegerAttr(), limit);
    stage::YieldOp::create(builder, location, ValueRange(), ValueRange(),
                           ValueRange());
    fillWeight(made, map, stacks);
    // Only now, as the second half was read out of the loop.
    finishInput();
  }

  void fillWeight(LoopOp made, IRMapping &map, ArrayRef<Value> stacks) {
    Block &body = made.getBody().emplaceBlock();
    map.map(loop.getIndex(),
            body.addArgument(builder.getIndexType(), location));
    builder.setInsertionPointToStart(&body);
    auto get = [&](unsigned stack, StringRef name) {
      auto type = cast<StackType>(stacks[stack].getType()).getElementType();
      auto op = GetOp::create(builder, location, type, stacks[stack],
                              made.getIndex());
      setNames(op, {name.str()});
      return op.getResult();
    };
    unsigned stack = 0;
    for (Value value : incoming)
      map.map(value, get(stack++, "d_in"));
    SmallVector<Value> arguments;
    for (unsigned i = 0; i < numKept; ++i)
      arguments.push_back(get(stack++, nameOfArgument(halves.second, i)));
    for (Value value : operandsOf(halves.second, numKept))
      arguments.push_back(bring(value, made, map));
    // In front of the call: it may add to the states itself.
    for (Operation *op : following)
      for (Value operand : op->getOperands())
        if (!follows(operand))
          bring(operand, made, map);
    auto second =
        func::CallOp::create(builder, call.getLoc(), halves.second, arguments);
    SmallVector<std::string> names;
    for (unsigned i = 0; i < halves.second.getNumResults(); ++i)
      names.push_back(
          halves.second.getResultAttrOfType<StringAttr>(i, kArgumentName)
              .str());
    setNames(second, names);
    for (unsigned i = 0; i < gradients.size(); ++i)
      for (unsigned k = 0; k < halves.second.getNumResults(); ++k)
        if (halves.second.getResultAttr(k, kGradientName) == gradients[i])
          map.map(call.getResult(numLeading + i), second.getResult(k));
    for (Operation *op : following)
      builder.clone(*op, map);
    for (Operation *op : llvm::reverse(following))
      op->erase();
    YieldOp::create(builder, location, ValueRange(), ValueRange());
  }

  /// A value of backward in the weight region: ops that make it are repeated.
  Value bring(Value value, LoopOp made, IRMapping &map) {
    if (!value || map.contains(value))
      return value ? map.lookup(value) : value;
    Operation *maker = value.getDefiningOp();
    if (!maker || !run.getBackward().isAncestor(maker->getParentRegion()))
      return value; // of the step
    for (Value operand : maker->getOperands())
      bring(operand, made, map);
    OpBuilder::InsertionGuard guard(builder);
    if (maker->getBlock() != &loop.getBody().front())
      builder.setInsertionPoint(made);
    builder.clone(*maker, map);
    return map.lookup(value);
  }

  void finishInput() {
    input.getBody().takeBody(loop.getBody());
    for (auto [from, to] : llvm::zip(loop.getResults(), input.getResults()))
      from.replaceAllUsesWith(to);
    loop.erase();
    call.erase();
    // What only the second half reads is not asked for here.
    auto ops = llvm::map_to_vector(input.getBody().front().without_terminator(),
                                   [](Operation &op) { return &op; });
    for (Operation *op : llvm::reverse(ops))
      if (isOpTriviallyDead(op))
        op->erase();
    stage::YieldOp yield = stage::RunOp::getYield(run.getBackward());
    yield.getSavedMutable().assign(input.getStacks());
  }

  stage::RunOp run;
  LoopOp loop, input;
  func::CallOp call;
  OpBuilder builder;
  Location location;
  llvm::StringMap<Value> operands; ///< of the call, by the argument's name
  SmallVector<Attribute> gradients;
  CutFunctions halves;
  unsigned numLeading = 0, numKept = 0;
  llvm::SetVector<Value> incoming;
  SmallVector<Operation *> following;
};

} // namespace

/// Whether any place runs weight gradients in slots of their own.
static bool hasWeightSlots(const stage::StageTable &stages) {
  return llvm::any_of(stages.schedule.rows, [](const std::vector<Slot> &row) {
    return llvm::any_of(
        row, [](Slot slot) { return slot.kind() == SlotKind::WeightGrad; });
  });
}

namespace heddle {
namespace {
struct SplitBackwardPass : impl::SplitBackwardPassBase<SplitBackwardPass> {
  LogicalResult split(ModuleOp module) {
    auto stages = stage::StageTable::of(module);
    stage::RunOp run;
    module.walk([&](stage::RunOp op) { run = op; });
    if (!stages || !run || !run.getWeight().empty() || !hasWeightSlots(*stages))
      return success();
    func::CallOp call;
    for (auto loop : run.getBackward().front().getOps<LoopOp>())
      for (auto inside : loop.getBody().front().getOps<func::CallOp>())
        call = inside;
    auto function = call ? module.lookupSymbol<func::FuncOp>(call.getCallee())
                         : func::FuncOp();
    if (!function)
      return run.emitOpError() << "has no call of a layer's backward to split";
    Splitter(run, cast<LoopOp>(call->getParentOp()), call).split(function);
    return success();
  }

  void runOnOperation() override {
    if (failed(split(getOperation())))
      signalPassFailure();
  }
};
} // namespace
} // namespace heddle
