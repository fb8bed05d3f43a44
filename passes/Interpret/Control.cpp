//===- Control.cpp - states, loops, calls ---------------------------------===//

#include "passes/Interpret/Rank.h"

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void Rank::write(StringRef state, size_t layer, TensorPtr value) {
  StateOp written = program.states.lookup(state);
  auto family = program.sharing.find(Program::ownerOfBytes(written));
  for (const std::string &other : family->second)
    if (auto &instances = states.find(other)->second; layer < instances.size())
      instances[layer] = other == state ? value : TensorPtr();
}

template <class Op>
static int64_t layerOf(Op op, Frame &frame) {
  return op.getIndex() ? frame.getIndex(op.getIndex()) : 0;
}

/// Fails where the rank's place does not hold this instance of a state.
template <class Op>
static LogicalResult checkHeld(Op op, int64_t layer, Frame &frame) {
  StateOp state = frame.rank.program.states.lookup(op.getState());
  if (frame.rank.holds(state, layer))
    return success();
  return frame.fail(op, "asks for instance " + llvm::Twine(layer) + " of @\"" +
                            op.getState() +
                            "\", which this place does not hold");
}

/// The instance of a state that `op` names; null after a fault.
template <class Op>
static TensorPtr *findInstance(Op op, Frame &frame) {
  std::vector<TensorPtr> &instances =
      frame.rank.states.find(op.getState().str())->second;
  int64_t layer = layerOf(op, frame);
  if (layer < 0 || layer >= static_cast<int64_t>(instances.size())) {
    (void)frame.fail(op, "asks for layer " + llvm::Twine(layer) + " of " +
                             llvm::Twine(instances.size()) + " of @\"" +
                             op.getState() + "\"");
    return nullptr;
  }
  if (failed(checkHeld(op, layer, frame)))
    return nullptr;
  return &instances[layer];
}

static LogicalResult failUnset(Operation *op, StringRef state, Frame &frame) {
  return frame.fail(op, "reads @\"" + state +
                            "\", which has not been given a value, or lost it "
                            "when another state of its bytes was written");
}

static LogicalResult evaluate(LoadOp op, Frame &frame) {
  TensorPtr *instance = findInstance(op, frame);
  if (!instance)
    return failure();
  if (!*instance)
    return failUnset(op, op.getState(), frame);
  frame.setDatum(op.getResult(), *instance);
  return success();
}

static LogicalResult evaluate(StoreOp op, Frame &frame) {
  TensorPtr *instance = findInstance(op, frame);
  if (!instance)
    return failure();
  frame.rank.write(op.getState(), layerOf(op, frame),
                   frame.getPtr(op.getValue()));
  return success();
}

static LogicalResult evaluate(AccumulateOp op, Frame &frame) {
  TensorPtr *instance = findInstance(op, frame);
  if (!instance)
    return failure();
  if (!*instance)
    return failUnset(op, op.getState(), frame);
  Tensor sum = addTensors(**instance, frame.get(op.getValue()),
                          frame.getReading(op.getValue()));
  roundTo(sum, cast<RankedTensorType>(op.getValue().getType()).getElementType(),
          frame.rank.program.reading);
  frame.rank.write(op.getState(), layerOf(op, frame),
                   std::make_shared<const Tensor>(std::move(sum)));
  return success();
}

static LogicalResult evaluate(ZeroOp op, Frame &frame) {
  StateOp state = frame.rank.program.states.lookup(op.getState());
  if (!state.getLayers() && failed(checkHeld(op, 0, frame)))
    return failure();
  auto zero =
      std::make_shared<const Tensor>(Tensor::zeros(state.getTensorType()));
  for (int64_t layer = 0; layer < state.getCount(); ++layer)
    frame.rank.write(op.getState(), layer, zero);
  return success();
}

//===----------------------------------------------------------------------===//
// Loops and calls
//===----------------------------------------------------------------------===//

static LogicalResult evaluate(LoopOp op, Frame &frame) {
  int64_t count = op.getLimit() ? frame.getIndex(op.getLimit()) : op.getCount();
  if (op.getLimit() && (count < 0 || count > int64_t(op.getCount())))
    return frame.fail(op, "runs up to " + llvm::Twine(count) +
                              ", and has room for " +
                              llvm::Twine(op.getCount()));
  YieldOp yield = op.getYield();
  std::vector<std::vector<TensorPtr>> stacks(
      op.getStacks().size(), std::vector<TensorPtr>(op.getCount()));
  SmallVector<Datum> carried;
  for (Value init : op.getInits())
    carried.push_back(frame.getDatum(init));
  for (int64_t turn = 0; turn < count; ++turn) {
    int64_t index = op.getReversed() ? count - 1 - turn : turn;
    frame.setDatum(op.getIndex(), index + op.getFirst());
    for (auto [argument, datum] : llvm::zip(op.getCarried(), carried))
      frame.setDatum(argument, datum);
    if (failed(frame.run(op.getBody().front())))
      return failure();
    for (auto [datum, value] : llvm::zip(carried, yield.getCarried()))
      datum = frame.getDatum(value);
    for (auto [stack, value] : llvm::zip(stacks, yield.getCollected()))
      stack[index] = frame.getPtr(value);
  }
  for (auto [result, datum] : llvm::zip(op.getCarriedResults(), carried))
    frame.setDatum(result, datum);
  for (auto [result, stack] : llvm::zip(op.getStacks(), stacks))
    frame.setDatum(result, stack);
  return success();
}

static LogicalResult evaluate(GetOp op, Frame &frame) {
  const auto &stack =
      std::get<std::vector<TensorPtr>>(frame.getDatum(op.getStack()));
  int64_t index = frame.getIndex(op.getIndex());
  if (index < 0 || index >= static_cast<int64_t>(stack.size()))
    return frame.fail(op, "asks for entry " + llvm::Twine(index) + " of " +
                              llvm::Twine(stack.size()));
  frame.setDatum(op.getResult(), stack[index]);
  return success();
}

static LogicalResult call(Operation *op, StringRef name, ValueRange operands,
                          Frame &frame) {
  func::FuncOp callee = frame.rank.program.functions.lookup(name);
  SmallVector<Datum> arguments;
  for (Value operand : operands)
    arguments.push_back(frame.getDatum(operand));
  FailureOr<SmallVector<Datum>> results =
      frame.rank.call(callee, arguments, frame.exchange);
  if (failed(results))
    return failure();
  for (auto [result, datum] : llvm::zip(op->getResults(), *results))
    frame.setDatum(result, datum);
  return success();
}

static LogicalResult evaluate(func::CallOp op, Frame &frame) {
  return call(op, op.getCallee(), op.getOperands(), frame);
}

static LogicalResult evaluate(CallByLayerOp op, Frame &frame) {
  int64_t layer = frame.getIndex(op.getLayer());
  const auto &stages = frame.rank.program.stages;
  int64_t held = stages ? stages->heldBy(frame.rank.place())
                        : static_cast<int64_t>(op.getChoices().size());
  if (layer < 0 || layer >= held)
    return frame.fail(op, "is called for layer " + llvm::Twine(layer) + " of " +
                              llvm::Twine(held));
  if (stages)
    layer = stages->layerAt(frame.rank.place(), layer);
  return call(op, calleesOf(op)[op.getChoices()[layer]], op.getInputs(), frame);
}

static LogicalResult evaluate(RecomputeOp op, Frame &frame) {
  for (auto [argument, input] :
       llvm::zip(op.getBody().getArguments(), op.getInputs()))
    frame.setDatum(argument, frame.getDatum(input));
  if (failed(frame.run(op.getBody().front())))
    return failure();
  for (auto [result, value] :
       llvm::zip(op.getResults(), op.getYield().getCarried()))
    frame.setDatum(result, frame.getDatum(value));
  return success();
}

void heddle::interpret::addControl(Evaluators &evaluators) {
  evaluators.add<LoadOp>(evaluate);
  evaluators.add<StoreOp>(evaluate);
  evaluators.add<AccumulateOp>(evaluate);
  evaluators.add<ZeroOp>(evaluate);
  evaluators.add<LoopOp>(evaluate);
  evaluators.add<GetOp>(evaluate);
  evaluators.add<func::CallOp>(evaluate);
  evaluators.add<CallByLayerOp>(evaluate);
  evaluators.add<RecomputeOp>(evaluate);
}
