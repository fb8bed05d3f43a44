//===- LowerStep.cpp - the step: states and calls => rt -------------------===//

#include "passes/Lowering/StepLowering.h"

#include "heddle/Support/Check.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

LogicalResult StepLowering::run(func::FuncOp step) {
  if (failed(beginStages(step)))
    return failure();
  states.findRows(step);
  for (BlockArgument argument : step.getArguments())
    bindInput(argument);
  Block &block = step.getBody().front();
  for (auto [i, value] : llvm::enumerate(block.getTerminator()->getOperands()))
    bindOutput(step, i, value);
  if (failed(lowerBlock(block)))
    return failure();
  for (auto [i, value] : llvm::enumerate(block.getTerminator()->getOperands()))
    lowering.copy(step.getLoc(), "step: result", lowering.placeOf(value),
                  outputs[i]);
  join();
  states.notePlaces();
  if (failed(checkOffload(step)))
    return failure();
  if (sendsStates) // nothing crosses a step
    order("copied", kCopies, kCompute);
  return success();
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

RankedTensorType StepLowering::tensorOf(Type type) {
  auto stack = dyn_cast<StackType>(type);
  return stack ? stack.getElementType() : cast<RankedTensorType>(type);
}

void StepLowering::bindInput(BlockArgument argument) {
  Family family{"inputs." + getName(argument).str(), "filled before each step",
                tensorOf(argument.getType()), "inputs"};
  if (isa<StackType>(argument.getType())) {
    // Without gaps: the caller sees one tensor of all micro-batches.
    family.stride = family.type.getNumElements() *
                    llvm::divideCeil(family.type.getElementTypeBitWidth(), 8);
    if (stages) // a slot says which entry, not a loop
      family.bytesByStage.assign(
          stages->places(),
          family.stride * cast<StackType>(argument.getType()).getCount());
    stacks[argument] = family;
  } else {
    lowering.bind(argument, entry(family, Value()));
  }
}

void StepLowering::bindOutput(func::FuncOp step, unsigned index, Value value) {
  auto name = step.getResultAttrOfType<StringAttr>(index, kArgumentName);
  std::string text = name ? name.getValue().str() : getName(value).str();
  Family family{"outputs." + text, "read after each step",
                tensorOf(value.getType()), "outputs"};
  outputs.push_back(entry(family, Value()));
  if (value.getDefiningOp() && !isa<LoopOp>(value.getDefiningOp()) &&
      !lowering.isBound(value))
    lowering.bind(value, outputs.back());
}

Value StepLowering::stateEntry(StringRef name, Value index) {
  HEDDLE_CHECK(!index || indices.contains(index),
               "the index of state {} has no number yet", name.str());
  if (StateOp state = stateOnHost(name))
    return entry(rowsOfState(state),
                 index ? slotOf(hostRows(), indices.lookup(index)) : Value());
  return states.place(name, indices.lookup(index));
}

bool StepLowering::sameBuffer(Value a, Value b) {
  auto u = a.getDefiningOp<rt::ViewOp>(), v = b.getDefiningOp<rt::ViewOp>();
  if (u && v) // of one cache: equal views are one value
    return a == b;
  auto x = a.getDefiningOp<rt::BufferOp>(), y = b.getDefiningOp<rt::BufferOp>();
  return a == b ||
         (x && y && x.getName() == y.getName() &&
          x.getOffset() == y.getOffset() && x.getIndices() == y.getIndices() &&
          x.getStrides() == y.getStrides());
}

void StepLowering::moveTo(Location location, Value from, Value to) {
  if (!sameBuffer(from, to))
    lowering.copy(location, "step: copy", from, to);
}

std::string StepLowering::newEvent(StringRef what) {
  std::string name = lowering.uniqueName(what);
  program.events.insert(builder().getStringAttr(name));
  return name;
}

void StepLowering::order(StringRef event, StringRef before, StringRef after) {
  std::string name = newEvent(event);
  rt::RecordOp::create(builder(), builder().getUnknownLoc(), name, before);
  rt::WaitOp::create(builder(), builder().getUnknownLoc(), name, after);
}

void StepLowering::join() {
  if (communicating)
    order("reduced", kComm, kCompute);
  communicating = movesResults = false;
  moving.clear();
}

void StepLowering::joinBefore(Operation &op) {
  StringRef state;
  if (auto load = dyn_cast<LoadOp>(op))
    state = load.getState();
  else if (auto store = dyn_cast<StoreOp>(op))
    state = store.getState();
  else if (auto zero = dyn_cast<ZeroOp>(op))
    state = zero.getState();
  else if (auto sum = dyn_cast<AccumulateOp>(op); sum && !sum.getIndex())
    state = sum.getState();
  if (!state.empty() && moving.contains(states.bytesOf(state)))
    join();
}

void StepLowering::prepare(Block &block) {
  // Places of states that are stored to depend on them.
  for (Operation &op : block)
    if (isa<stage::LayersOp, stage::LayerOp>(op))
      lowerNumber(op);
  for (Operation &op : block) {
    if (auto loop = dyn_cast<LoopOp>(op))
      planLoop(loop);
    if (auto store = dyn_cast<StoreOp>(op))
      prepareStore(store);
    // What is cast behind a reduction adds itself to the sum.
    if (auto sum = dyn_cast<AccumulateOp>(op))
      if (auto cast = sum.getValue().getDefiningOp<CastOp>();
          cast && isFree(cast.getResult()))
        lowering.accumulate(cast.getResult(),
                            stateEntry(sum.getState(), sum.getIndex()));
  }
  for (Operation &op : block) {
    if (auto row = dyn_cast<dist::ToRowOp>(op))
      prepareRow(row);
    if (auto bucket = dyn_cast<dist::BucketOp>(op)) {
      placeCasts(bucket);
      for (auto row : bucket.getBody().getOps<dist::ToRowOp>())
        prepareRow(row);
    }
  }
  lowering.prepare(block);
}

bool StepLowering::isFree(Value value) {
  Operation *maker = value.getDefiningOp();
  if (!maker || !value.hasOneUse() || lowering.isBound(value) ||
      isa<LoadOp, GetOp, LoopOp>(maker))
    return false;
  Operation *user = *value.user_begin();
  if (isa<dist::BucketOp>(user->getParentOp()) &&
      !isa<dist::BucketOp>(maker->getParentOp()))
    user = user->getParentOp();
  return user->getBlock() == maker->getBlock();
}

LogicalResult StepLowering::lowerBlock(Block &block) {
  prepare(block);
  for (Operation &op : block.without_terminator())
    if (failed(lowerOp(op)))
      return failure();
  return lowering.flush();
}

LogicalResult StepLowering::lowerOp(Operation &op) {
  if ((isa<LoopOp>(op) || !isa<dist::FactorRuleOpInterface>(op)) &&
      failed(lowering.flush()))
    return failure();
  joinBefore(op);
  zeroTails(&op);
  computeAhead |= !isa<dist::BucketOp>(op);
  return lowerOne(op);
}

LogicalResult StepLowering::lowerOne(Operation &op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case<LoopOp>([&](auto loop) { return lowerLoop(loop); })
      .Case<func::CallOp, CallByLayerOp>(
          [&](auto call) { return lowerCall(call); })
      .Case<dist::BucketOp>([&](auto bucket) { return lowerBucket(bucket); })
      .Case<stage::RunOp>([&](auto run) { return lowerRun(run); })
      .Case<stage::WhereOp>([&](auto where) { return lowerWhere(where); })
      .Case<stage::SumEndsOp>([&](auto sums) { return lowerSumEnds(sums); })
      .Case<stage::UndefinedOp>([](auto) { return success(); })
      .Case<stage::LayersOp, stage::LayerOp>(
          [](auto) { return success(); }) // prepared
      .Case<LoadOp>([&](auto load) {
        if (lowering.isBound(load.getResult())) // brought from the host
          return success();
        if (!load.getIndex())
          fetchState(load);
        lowering.bind(load.getResult(),
                      stateEntry(load.getState(), load.getIndex()));
        return success();
      })
      .Case<GetOp>([&](auto get) {
        if (lowering.isBound(get.getResult())) // brought from the host
          return success();
        lowering.bind(get.getResult(), entry(stacks[get.getStack()],
                                             indices.lookup(get.getIndex())));
        return success();
      })
      .Case<StoreOp>([&](auto store) {
        moveTo(store.getLoc(), lowering.placeOf(store.getValue()),
               stateEntry(store.getState(), store.getIndex()));
        sendState(store);
        return success();
      })
      .Case<dist::ToRowOp>([&](auto row) { return lowerRow(row); })
      .Case<dist::FromRowOp>([&](auto row) { return lowerFromRow(row); })
      .Case<dist::SliceOp>([&](auto slice) { return lowerSlice(slice); })
      .Case<dist::ReduceScatterOp, dist::AllGatherOp>([&](auto moves) {
        if (ahead.contains(moves))
          return success();
        placeResult(moves);
        return lowering.lower(moves);
      })
      .Case<AccumulateOp>([&](auto sum) { return lowerAccumulate(sum); })
      .Case<ZeroOp>([&](auto zero) { return lowerZero(zero); })
      .Case<ZerosOp>([&](auto zeros) {
        rt::ZeroOp::create(builder(), zeros.getLoc(), labelOf(zeros),
                           lowering.placeOf(zeros.getResult()), kCompute);
        return success();
      })
      .Default([&](Operation *other) { return lowering.lower(other); });
}

LogicalResult StepLowering::lowerZero(ZeroOp zero) {
  auto state = program.symbols.lookup<StateOp>(zero.getState());
  Family family = states.familyOf(state);
  auto emit = [&](Value index) {
    rt::ZeroOp::create(builder(), zero.getLoc(), "step: zero " + family.name,
                       entry(family, index), kCompute);
  };
  if (!family.stride) {
    emit(Value());
    return success();
  }
  OpFoldResult count = builder().getI64IntegerAttr(state.getCount());
  if (stages)
    count = number("layers_held", Value());
  auto loop =
      rt::ForOp::create(builder(), zero.getLoc(), "layer",
                        OpFoldResult(builder().getI64IntegerAttr(0)), count);
  OpBuilder::InsertionGuard guard(builder());
  builder().setInsertionPointToStart(&loop.getBody().front());
  emit(loop.getInductionVariable());
  return success();
}

const Signature *StepLowering::accumulatingCall(Value value) {
  SmallVector<StringRef> callees = calleesOf(value.getDefiningOp());
  if (callees.empty())
    return nullptr;
  const Signature &signature = signatures.find(callees.front())->second;
  return signature.accumulates[cast<OpResult>(value).getResultNumber()]
             ? &signature
             : nullptr;
}

LogicalResult StepLowering::lowerAccumulate(AccumulateOp sum) {
  if (!accumulatingCall(sum.getValue()) && !lowering.adds(sum.getValue()))
    lowering.addBuffers(sum.getLoc(), "step: accumulate",
                        lowering.placeOf(sum.getValue()),
                        stateEntry(sum.getState(), sum.getIndex()),
                        cast<RankedTensorType>(sum.getValue().getType()));
  return success();
}

LogicalResult lowering::lowerStep(Program &program, func::FuncOp step,
                                  const llvm::StringMap<Signature> &signatures,
                                  rt::FuncOp into) {
  OpBuilder builder = OpBuilder::atBlockBegin(&into.getBody().front());
  return StepLowering(program, signatures, builder).run(step);
}
