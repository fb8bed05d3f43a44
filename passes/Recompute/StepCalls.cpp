//===- StepCalls.cpp - the step calls other functions of a layer ----------===//

#include "passes/Recompute/StepCalls.h"

#include "dialects/Stage/StageTable.h"
#include "heddle/Support/Check.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::recompute;
using namespace heddle::transformer;

static std::string nameOfArgument(func::FuncOp function, unsigned index) {
  auto name = function.getArgAttrOfType<StringAttr>(index, kArgumentName);
  return name ? name.str() : "";
}

static std::string nameOfResult(func::FuncOp function, unsigned index) {
  auto name = function.getResultAttrOfType<StringAttr>(index, kArgumentName);
  return name ? name.str() : "";
}

//===----------------------------------------------------------------------===//
// What there is
//===----------------------------------------------------------------------===//

FailureOr<StepCalls> StepCalls::find(ModuleOp module) {
  StepCalls calls(module);
  auto step = module.lookupSymbol<func::FuncOp>("step");
  step.walk([&](func::CallOp op) {
    if (isa<LoopOp>(op->getParentOp()))
      calls.note(op, module.lookupSymbol<func::FuncOp>(op.getCallee()));
  });
  if (!calls.forward.op || calls.halves.empty())
    return step.emitError() << "has no loops over layers that call @block and "
                               "its backward, so nothing can be computed again";
  auto stages = stage::StageTable::of(module);
  calls.layers = stages && calls.run()
                     ? stages->layers()
                     : static_cast<int64_t>(calls.forward.loop.getCount());
  return calls;
}

void StepCalls::note(func::CallOp op, func::FuncOp function) {
  Call call{op, function, cast<LoopOp>(op->getParentOp()), {}};
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    call.operands[nameOfArgument(function, i)] = op.getOperand(i);
  if (function.getName() == "block")
    forward = call;
  else if (function.getName().starts_with("block_bwd"))
    halves.push_back(call);
}

func::FuncOp StepCalls::getForward() const { return forward.function; }

SmallVector<func::FuncOp> StepCalls::getHalves() const {
  return llvm::map_to_vector(halves,
                             [](const Call &half) { return half.function; });
}

stage::RunOp StepCalls::run() const {
  return LoopOp(forward.loop)->getParentOfType<stage::RunOp>();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Value StepCalls::heldLayer(LoopOp loop) {
  if (!run())
    return loop.getIndex();
  for (auto layer : loop.getBody().front().getOps<stage::LayerOp>())
    if (layer.getIndex() == loop.getIndex())
      return layer;
  OpBuilder builder = OpBuilder::atBlockBegin(&loop.getBody().front());
  return stage::LayerOp::create(
      builder, loop.getLoc(), builder.getIndexType(), loop.getIndex(),
      stage::RunOp::getChunk(*loop->getParentRegion()));
}

Operation *StepCalls::makeCall(Call &old, const Callees &callees,
                               ArrayRef<Value> operands) {
  OpBuilder builder(old.op);
  func::FuncOp first = callees.first();
  Operation *made;
  if (callees.functions.size() == 1) {
    made = func::CallOp::create(builder, old.op.getLoc(), first, operands);
  } else {
    SmallVector<Attribute> names;
    for (func::FuncOp function : callees.functions)
      names.push_back(FlatSymbolRefAttr::get(function));
    made =
        CallByLayerOp::create(builder, old.op.getLoc(), first.getResultTypes(),
                              builder.getArrayAttr(names), heldLayer(old.loop),
                              callees.choices, operands);
  }
  SmallVector<std::string> names;
  for (unsigned i = 0; i < first.getNumResults(); ++i)
    names.push_back(nameOfResult(first, i));
  setNames(made, names);
  return made;
}

/// A loop that collects these values, under these names; what it carries stays.
static LoopOp collect(LoopOp loop, ArrayRef<Value> values,
                      ArrayRef<std::string> names) {
  OpBuilder builder(loop);
  SmallVector<Type> types(loop.getCarriedResults().getTypes());
  SmallVector<std::string> all;
  for (Value result : loop.getCarriedResults())
    all.push_back(getName(result).str());
  for (auto [value, name] : llvm::zip(values, names)) {
    types.push_back(StackType::get(loop.getContext(), loop.getCount(),
                                   cast<RankedTensorType>(value.getType())));
    all.push_back("all_" + name);
  }
  loop.getYield().getCollectedMutable().assign(values);
  auto made = LoopOp::create(
      builder, loop.getLoc(), types, loop.getOver(), loop.getCount(),
      loop.getReversed(), loop.getInits(), loop.getFromAttr(), loop.getLimit());
  setNames(made, all);
  made.getBody().takeBody(loop.getBody());
  for (auto [from, to] :
       llvm::zip(loop.getCarriedResults(), made.getCarriedResults()))
    from.replaceAllUsesWith(to);
  return made;
}

void StepCalls::replace(const Callees &forwardCallees,
                        ArrayRef<Callees> halfCallees) {
  for (auto [half, callees] : llvm::zip(halves, halfCallees))
    replaceHalf(half, callees);
  dropStacks();
  replaceForward(forwardCallees);
  keepMore();
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

void StepCalls::replaceHalf(Call &half, const Callees &callees) {
  func::FuncOp function = callees.first();
  SmallVector<Value> operands;
  IRMapping map;
  map.map(forward.loop.getIndex(), half.loop.getIndex());
  if (stage::RunOp run = this->run()) {
    Region &from = run.getForward(), *to = half.loop->getParentRegion();
    map.map(stage::RunOp::getChunk(from), stage::RunOp::getChunk(*to));
    map.map(stage::RunOp::getMicroBatch(from),
            stage::RunOp::getMicroBatch(*to));
    map.map(heldLayer(forward.loop), heldLayer(half.loop));
  }
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    Type type = function.getArgumentTypes()[i];
    std::string name = nameOfArgument(function, i);
    Value inForward = forward.operands.lookup(name);
    bool isKept = function.getArgAttr(i, kKeptName) != nullptr;
    if (isKept || function.getArgAttr(i, kSavedName) ||
        llvm::is_contained(forward.loop.getCarried(), inForward))
      operands.push_back(await(half, type, name, isKept));
    else if (Value value = half.operands.lookup(name))
      operands.push_back(value);
    else
      operands.push_back(bring(inForward, half, map));
  }
  Operation *made = makeCall(half, callees, operands);
  for (auto [from, to] : llvm::zip(half.op.getResults(), made->getResults()))
    from.replaceAllUsesWith(to);
  half.op.erase();
  for (auto get :
       llvm::make_early_inc_range(half.loop.getBody().front().getOps<GetOp>()))
    if (get->use_empty())
      get.erase();
}

Value StepCalls::await(Call &half, Type type, StringRef name, bool isKept) {
  OpBuilder builder(half.op);
  auto place = stage::UndefinedOp::create(builder, half.op.getLoc(), type);
  awaited.push_back({place, name.str(), isKept, &half});
  return place;
}

Value StepCalls::bring(Value value, Call &half, IRMapping &map) {
  HEDDLE_CHECK(value, "backward reads what no call of a block takes");
  if (map.contains(value))
    return map.lookup(value);
  Operation *maker = value.getDefiningOp();
  stage::RunOp run = this->run();
  Region &scope = run ? run.getForward() : forward.loop.getBody();
  if (!maker || !scope.isAncestor(maker->getParentRegion()))
    return value; // of the step
  for (Value operand : maker->getOperands())
    bring(operand, half, map);
  bool inLoop = maker->getParentOp() == forward.loop;
  OpBuilder builder(inLoop ? half.op.getOperation() : half.loop.getOperation());
  builder.clone(*maker, map);
  return map.lookup(value);
}

/// What forward saves and nothing reads any more.
void StepCalls::dropStacks() {
  stage::RunOp run = this->run();
  if (!run)
    return;
  stage::YieldOp yield = stage::RunOp::getYield(run.getForward());
  Region &backward = run.getBackward(), &weight = run.getWeight();
  for (unsigned i = yield.getSaved().size(); i-- > 0;) {
    BlockArgument argument = run.getSaved(backward)[i];
    bool isRead = !argument.use_empty() ||
                  (!weight.empty() && !run.getSaved(weight)[i].use_empty());
    if (isRead || yield.getSaved()[i].getDefiningOp() != forward.loop)
      continue;
    unsigned index = argument.getArgNumber();
    if (!weight.empty())
      weight.eraseArgument(run.getSaved(weight)[i].getArgNumber());
    backward.eraseArgument(index);
    yield.getSavedMutable().erase(i);
  }
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

void StepCalls::replaceForward(const Callees &callees) {
  func::FuncOp function = callees.first();
  Operation *made =
      makeCall(forward, callees, llvm::to_vector(forward.op.getOperands()));
  llvm::MapVector<StringRef, Value> results;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (auto name = function.getResultAttrOfType<StringAttr>(i, kSavedName))
      results[name.getValue()] = made->getResult(i);
  SmallVector<Value> values;
  SmallVector<std::string> names;
  auto add = [&](Value value, StringRef name) {
    if (llvm::is_contained(names, name))
      return;
    values.push_back(value);
    names.push_back(name.str());
  };
  for (auto &[name, value] : results)
    add(value, name);
  for (Awaited &one : awaited)
    if (!one.isKept && !results.contains(one.name))
      add(forward.operands.lookup(one.name), one.name);
  // Carried results come first, in both.
  for (auto [i, result] : llvm::enumerate(forward.op.getResults()))
    if (!forward.function.getResultAttr(i, kSavedName))
      result.replaceAllUsesWith(made->getResult(i));
  LoopOp old = forward.loop;
  for (Value stack : old.getStacks())
    HEDDLE_CHECK(stack.use_empty(), "{} is read by more than backward",
                 getName(stack).str());
  forward.loop = collect(old, values, names);
  old.erase();
  forward.op.erase();
  for (Awaited &one : awaited)
    if (!one.isKept)
      connect(one,
              forward.loop
                  .getStacks()[llvm::find(names, one.name) - names.begin()]);
}

/// What the first half makes for the second is collected.
void StepCalls::keepMore() {
  if (halves.size() < 2)
    return;
  Call &first = halves.front();
  SmallVector<Value> values(first.loop.getYield().getCollected());
  SmallVector<std::string> names;
  for (Value stack : first.loop.getStacks())
    names.push_back(getName(stack).drop_front(StringRef("all_").size()).str());
  Operation *made = nullptr;
  for (Operation &op : first.loop.getBody().front())
    if (!calleesOf(&op).empty())
      made = &op;
  auto function = module.lookupSymbol<func::FuncOp>(calleesOf(made).front());
  SmallVector<std::pair<Awaited *, unsigned>> found;
  for (Awaited &one : awaited) {
    if (!one.isKept)
      continue;
    Value value;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (function.getResultAttr(i, kKeptName) &&
          nameOfResult(function, i) == one.name)
        value = made->getResult(i);
    HEDDLE_CHECK(value, "{} is kept by no half", one.name);
    auto known = llvm::find(values, value);
    found.emplace_back(&one, known - values.begin());
    if (known == values.end()) {
      values.push_back(value);
      names.push_back(one.name);
    }
  }
  LoopOp old = first.loop;
  first.loop = collect(old, values, names);
  for (auto [from, to] : llvm::zip(old.getStacks(), first.loop.getStacks()))
    from.replaceAllUsesWith(to);
  old.erase();
  for (auto [one, index] : found)
    connect(*one, first.loop.getStacks()[index]);
}

//===----------------------------------------------------------------------===//
// From loop to loop
//===----------------------------------------------------------------------===//

void StepCalls::connect(Awaited &one, Value stack) {
  OpBuilder builder(one.place);
  Value here = inRegion(stack, one.half->loop->getParentRegion());
  auto get = GetOp::create(builder, one.place->getLoc(),
                           one.place->getResult(0).getType(), here,
                           one.half->loop.getIndex());
  setNames(get, {one.name});
  one.place->getResult(0).replaceAllUsesWith(get);
  one.place->erase();
}

Value StepCalls::inRegion(Value stack, Region *region) {
  stage::RunOp run = this->run();
  if (!run)
    return stack;
  Region &forward = run.getForward(), &backward = run.getBackward(),
         &weight = run.getWeight();
  bool isKept = backward.isAncestor(stack.getParentRegion());
  stage::YieldOp yield = stage::RunOp::getYield(isKept ? backward : forward);
  auto saved = yield.getSaved();
  unsigned index = llvm::find(saved, stack) - saved.begin();
  if (index == saved.size()) {
    if (!isKept)
      backward.addArgument(stack.getType(), stack.getLoc());
    if (isKept)
      weight.addArgument(stack.getType(), stack.getLoc());
    else if (!weight.empty())
      weight.front().insertArgument(2 + index, stack.getType(), stack.getLoc());
    yield.getSavedMutable().append(stack);
  }
  return isKept ? run.getKept()[index] : run.getSaved(*region)[index];
}
