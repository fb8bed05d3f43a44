//===- ReverseMode.cpp - gradients behind the ops of a function -----------===//

#include "passes/Autodiff/ReverseMode.h"

#include "heddle/Support/Check.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace heddle::autodiff {

using namespace transformer;

bool isDifferentiable(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && isa<FloatType>(tensor.getElementType());
}

static Block &bodyOf(func::FuncOp function) {
  return function.getBody().front();
}

/// What to call `value` in the name of its gradient.
static std::string describe(Value value) {
  if (StringRef name = getName(value); !name.empty())
    return name.str();
  if (Operation *op = value.getDefiningOp())
    return op->getName().stripDialect().str();
  return "arg" + std::to_string(cast<BlockArgument>(value).getArgNumber());
}

static void setName(Value value, StringRef name) {
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  SmallVector<std::string> all;
  for (Value other : op->getResults())
    all.push_back(getName(other).str());
  all[result.getResultNumber()] = name.str();
  setNames(op, all);
}

ReverseMode::ReverseMode(func::FuncOp function)
    : builder(bodyOf(function).getTerminator()), function(function) {
  for (Value argument : function.getArguments())
    names.add(getName(argument));
  for (Operation &op : bodyOf(function).without_terminator()) {
    ops.push_back(&op);
    for (Value result : op.getResults())
      names.add(getName(result));
  }
  findActive();
}

void ReverseMode::findActive() {
  for (Value argument : function.getArguments())
    if (isDifferentiable(argument.getType()))
      active.insert(argument);
  auto isActive = [&](Value value) { return active.contains(value); };
  for (Operation *op : ops)
    if (llvm::any_of(op->getOperands(), isActive))
      for (Value result : op->getResults())
        if (isDifferentiable(result.getType()))
          active.insert(result);
}

void ReverseMode::seed(Value value, Value gradient, StringRef reader) {
  if (active.contains(value))
    contributions[value].push_back({gradient, reader.str()});
}

LogicalResult ReverseMode::run() {
  for (Operation *op : llvm::reverse(ops))
    if (failed(visit(op)))
      return failure();
  return success();
}

LogicalResult ReverseMode::visit(Operation *op) {
  SmallVector<Value> gradients;
  for (Value result : op->getResults())
    gradients.push_back(total(result));
  if (llvm::none_of(gradients, [](Value gradient) { return gradient; }))
    return success();
  auto interface = dyn_cast<dist::GradientOpInterface>(op);
  if (!interface)
    return op->emitOpError() << "has no gradient, but @" << function.getName()
                             << " needs one: its results depend on its "
                                "arguments through this op";
  SmallVector<Value> made = interface.buildGradient(builder, gradients);
  if (made.empty())
    return failure();
  HEDDLE_CHECK(made.size() == op->getNumOperands(),
               "{} builds {} gradients for {} operands",
               op->getName().getStringRef().str(), made.size(),
               op->getNumOperands());
  for (auto [operand, gradient] : llvm::zip(op->getOperands(), made))
    if (gradient)
      seed(operand, gradient, describe(op->getResult(0)));
  return success();
}

/// Names a value that a gradient has just been built as; one that is known
/// already (what an add passes on) keeps its name.
void ReverseMode::nameIfNew(Value value, StringRef name) {
  if (isa<OpResult>(value) && getName(value).empty())
    setName(value, names.unique(name));
}

Value ReverseMode::total(Value value) {
  auto entry = contributions.find(value);
  if (entry == contributions.end())
    return {};
  SmallVector<Contribution> all = std::move(entry->second);
  contributions.erase(entry);
  std::string name = "d_" + describe(value);
  if (all.size() == 1) {
    nameIfNew(all.front().gradient, name);
    return all.front().gradient;
  }
  for (const Contribution &one : all)
    nameIfNew(one.gradient, name + "_" + one.reader);
  Value sum = all.front().gradient;
  for (const Contribution &one : ArrayRef(all).drop_front()) {
    sum = AddOp::create(builder, value.getLoc(), sum, one.gradient);
    setName(sum, names.unique(&one == &all.back() ? name : name + "_sum"));
  }
  return sum;
}

Value ReverseMode::take(BlockArgument argument) {
  if (Value gradient = total(argument))
    return gradient;
  Value zeros = ZerosLikeOp::create(builder, argument.getLoc(), argument);
  setName(zeros, names.unique("d_" + describe(argument)));
  return zeros;
}

void ReverseMode::finish() {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(bodyOf(function))))
    if (isOpTriviallyDead(&op))
      op.erase();
  for (Operation &op : bodyOf(function).without_terminator())
    for (Value result : op.getResults())
      nameIfNew(result, op.getName().stripDialect());
}

} // namespace heddle::autodiff
