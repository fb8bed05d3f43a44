//===- Rank.cpp - one rank that runs a module -----------------------------===//

#include "passes/Interpret/Rank.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using transformer::StateOp;

Evaluators Evaluators::of(MLIRContext &context) {
  Evaluators evaluators;
  addElementwise(evaluators);
  addContract(evaluators);
  addNorms(evaluators);
  addAttention(evaluators);
  addLoss(evaluators);
  addStep(evaluators);
  addControl(evaluators);
  addCollectives(evaluators);
  addStages(evaluators);
  for (Dialect *dialect : context.getLoadedDialects())
    if (auto *more = dialect->getRegisteredInterface<EvaluatorInterface>())
      more->addTo(evaluators);
  return evaluators;
}

int64_t Rank::place() const {
  Builder builder(program.module->getContext());
  return program.mesh.getGroupIndex(
      number, builder.getStrArrayAttr({stage::kStageAxis}));
}

std::optional<int64_t> Rank::indexOf(StateOp state, int64_t layer) const {
  if (program.stages && state.getLayers())
    return program.stages->positionOf(place(), layer);
  return holds(state, layer) ? std::optional(layer) : std::nullopt;
}

bool Rank::holds(StateOp state, int64_t index) const {
  if (!program.stages)
    return true;
  if (state.getLayers())
    return index < program.stages->heldBy(place());
  auto part = program.stateParts->partOf(state.getSymName());
  return !part || program.stages->has(*part, place());
}

void Frame::set(Value value, Tensor tensor) {
  roundTo(tensor, cast<RankedTensorType>(value.getType()).getElementType(),
          rank.program.reading);
  setDatum(value, std::make_shared<const Tensor>(std::move(tensor)));
}

Reading Frame::getReading(Value value) const {
  return cast<RankedTensorType>(value.getType()).getElementType().isF64()
             ? Reading::Exact
             : rank.program.reading;
}

LogicalResult Frame::fail(Operation *op, const llvm::Twine &message) {
  std::string text = message.str();
  if (rank.program.numRanks > 1)
    text += " (on rank " + std::to_string(rank.number) + ")";
  rank.fault = Fault{op, std::move(text)};
  return failure();
}

/// Whether an op only passes its operands on: into a body, or out of it.
static bool passesOn(Operation &op) {
  return isa<transformer::LoopOp, func::CallOp, transformer::CallByLayerOp,
             stage::RunOp>(op);
}

LogicalResult Frame::checkDefined(Operation &op) {
  if (passesOn(op))
    return success();
  for (OpOperand &operand : op.getOpOperands())
    if (isUndefined(getDatum(operand.get())))
      return fail(&op, "uses operand " +
                           llvm::Twine(operand.getOperandNumber()) +
                           ", which is undefined here: no stage of this rank "
                           "has made or received it");
  return success();
}

LogicalResult Frame::run(Block &block) {
  for (Operation &op : block.without_terminator()) {
    const Evaluators::Function *evaluate =
        rank.program.evaluators.find(op.getName().getStringRef());
    if (!evaluate)
      return fail(&op, "has no meaning in the interpreter");
    if (failed(checkDefined(op)) || failed((*evaluate)(&op, *this)))
      return failure();
  }
  return success();
}

FailureOr<SmallVector<Datum>> Rank::call(func::FuncOp function,
                                         ArrayRef<Datum> arguments,
                                         Exchange &exchange) {
  constexpr int64_t kDeepest = 100;
  Frame frame(*this, exchange);
  if (function.isExternal())
    return frame.fail(function, "has no body to run");
  if (depth >= kDeepest)
    return frame.fail(function, "calls itself");
  for (auto [argument, datum] : llvm::zip(function.getArguments(), arguments))
    frame.setDatum(argument, datum);
  ++depth;
  LogicalResult ran = frame.run(function.front());
  --depth;
  if (failed(ran))
    return failure();
  SmallVector<Datum> results;
  for (Value value : function.front().getTerminator()->getOperands())
    results.push_back(frame.getDatum(value));
  return results;
}
