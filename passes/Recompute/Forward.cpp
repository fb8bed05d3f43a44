//===- Forward.cpp - what forward of a block computes ---------------------===//

#include "passes/Recompute/Forward.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::recompute;
using namespace heddle::transformer;

int64_t recompute::bytesOf(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

Forward::Forward(func::FuncOp function) : function(function) {
  Operation *end = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands()))
    if (auto name = function.getResultAttrOfType<StringAttr>(i, kSavedName)) {
      byName[name.getValue()] = value;
      names[value] = name.str();
    }
}

StringRef Forward::baseName(Value value) const {
  while (value && getName(value).empty()) {
    Operation *maker = value.getDefiningOp();
    value = maker && maker->getNumOperands() ? maker->getOperand(0) : Value();
  }
  return value ? getName(value) : "";
}

std::string Forward::nameToSave(Value value) {
  std::string &name = names[value];
  if (!name.empty())
    return name;
  StringRef base = baseName(value);
  name = base.empty() ? "value" : base.str();
  for (unsigned number = 2; byName.contains(name); ++number)
    name = base.str() + "." + std::to_string(number);
  byName[name] = value;
  return name;
}

bool Forward::isAlwaysRepeated(Operation *op) {
  return op->getNumOperands() > 0 && !isCostly(op) &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           Operation *maker = operand.getDefiningOp();
           return maker ? isAlwaysRepeated(maker) : !isCarried(operand);
         });
}

bool Forward::isCostly(Operation *op) {
  return isa<dist::CostOpInterface>(op) ||
         isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp,
             dist::AllToAllOp, dist::PermuteOp>(op);
}

bool Forward::makesScores(Operation *op) {
  return isa<ContractOp>(op) &&
         llvm::any_of(op->getUsers(), llvm::IsaPred<ProbabilitiesOp>);
}

bool Forward::readsProbabilities(Operation *op) {
  return isa<ContractOp>(op) && llvm::any_of(op->getOperands(), [](Value v) {
           Operation *maker = v.getDefiningOp();
           if (isa_and_nonnull<DropoutOp, DropoutWithMaskOp>(maker))
             maker = maker->getOperand(0).getDefiningOp();
           return isa_and_nonnull<ProbabilitiesOp>(maker);
         });
}

bool Forward::isCarried(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (!function.getResultAttr(i, kSavedName) &&
        function.getResultAttr(i, kArgumentName) ==
            function.getArgAttr(argument.getArgNumber(), kArgumentName))
      return true;
  return false;
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

FailureOr<Repeated> Forward::resolve(const Choice &choice, ValueRange needed) {
  switch (choice.kind) {
  case Choice::Kind::Values:
    return listed(choice);
  case Choice::Kind::Selective:
    return selective(choice, needed);
  case Choice::Kind::Full:
    return full(needed);
  }
  llvm_unreachable("all kinds are listed");
}

FailureOr<Repeated> Forward::listed(const Choice &choice) {
  Repeated repeated;
  llvm::StringMap<bool> found;
  for (const std::string &name : choice.values)
    found[name] = false;
  llvm::SetVector<StringRef> known;
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (isAlwaysRepeated(&op))
      continue;
    for (Value result : op.getResults()) {
      StringRef name = baseName(result);
      known.insert(name);
      if (auto entry = found.find(name); entry != found.end()) {
        entry->second = true;
        repeated.insert(&op);
      }
    }
  }
  for (const std::string &name : choice.values)
    if (!found[name])
      return function.emitError()
             << "plan: recompute: a block has no value \"" << name
             << "\" to compute again; values are " << llvm::join(known, ", ");
  return repeated;
}

bool Forward::makesLinearInput(Operation *op) {
  auto isParameter = [&](Value value) {
    if (Operation *maker = value.getDefiningOp())
      return isAlwaysRepeated(maker);
    return function.getArgAttr(cast<BlockArgument>(value).getArgNumber(),
                               kStateName) != nullptr;
  };
  return llvm::any_of(op->getUsers(), [&](Operation *user) {
    if (auto product = dyn_cast<ContractOp>(user))
      return isParameter(product.getLhs()) || isParameter(product.getRhs());
    return isCostly(user) && !isa<dist::CostOpInterface>(user) &&
           makesLinearInput(user);
  });
}

bool Forward::isCheap(Value value, const Choice &choice, ValueRange needed,
                      Repeated &repeated) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return !isCarried(value);
  if (isAlwaysRepeated(op))
    return true;
  if ((isCostly(op) && !makesScores(op)) ||
      (choice.keepsLinearInputs && makesLinearInput(op)))
    return false;
  Repeated all = {op};
  for (Value operand : op->getOperands())
    if (!llvm::is_contained(needed, operand) &&
        !isCheap(operand, choice, needed, all))
      return false;
  repeated.insert(all.begin(), all.end());
  return true;
}

Repeated Forward::selective(const Choice &choice, ValueRange needed) {
  Repeated repeated;
  for (Value value : needed)
    (void)isCheap(value, choice, needed, repeated);
  return repeated;
}

/// Ops that follow from values without passing `stop`.
static llvm::DenseSet<Operation *> followers(ValueRange values, Value stop) {
  llvm::DenseSet<Operation *> found;
  SmallVector<Value> open(values.begin(), values.end());
  while (!open.empty())
    for (Operation *user : open.pop_back_val().getUsers())
      if (user->getNumResults() > 0 && found.insert(user).second)
        for (Value result : user->getResults())
          if (result != stop)
            open.push_back(result);
  return found;
}

Value Forward::inputOf(ArrayRef<Operation *> needed) {
  SmallVector<Value> carried;
  int64_t bytes = 0;
  for (BlockArgument argument : function.getArguments())
    if (isCarried(argument)) {
      carried.push_back(argument);
      bytes += bytesOf(argument);
    }
  for (Operation &op : function.getBody().front().without_terminator())
    for (Value value : op.getResults()) {
      if (bytesOf(value) >= bytes || isAlwaysRepeated(&op))
        continue;
      llvm::DenseSet<Operation *> around = followers(carried, value);
      if (around.contains(&op) && llvm::none_of(needed, [&](Operation *other) {
            return other != &op && around.contains(other);
          }))
        return value;
    }
  return {};
}

Repeated Forward::full(ValueRange needed) {
  Repeated repeated;
  SmallVector<Operation *> targets;
  for (Value value : needed)
    if (Operation *op = value.getDefiningOp())
      targets.push_back(op);
  Value input = inputOf(targets);
  for (Operation &op : function.getBody().front().without_terminator())
    if (!input || input.getDefiningOp() != &op)
      repeated.insert(&op);
  return repeated;
}
