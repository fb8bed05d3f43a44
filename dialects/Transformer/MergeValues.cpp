//===- MergeValues.cpp - equal values become one --------------------------===//

#include "dialects/Transformer/MergeValues.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle::transformer;

/// The operand, or the result before it, that a result of a call is in each of
/// its callees, which end in `ends`; null where there is none.
static Value sameValue(OpResult result, ValueRange operands,
                       ArrayRef<Operation *> ends) {
  unsigned index = result.getResultNumber();
  auto isAlways = [&](auto holds) {
    return llvm::all_of(ends, [&](Operation *end) {
      return holds(end, end->getOperand(index));
    });
  };
  if (auto argument = dyn_cast<BlockArgument>(ends[0]->getOperand(index)))
    if (unsigned number = argument.getArgNumber();
        isAlways([&](Operation *, Value value) {
          auto other = dyn_cast<BlockArgument>(value);
          return other && other.getArgNumber() == number;
        }))
      return operands[number];
  for (unsigned before = 0; before < index; ++before)
    if (isAlways([&](Operation *end, Value value) {
          return end->getOperand(before) == value;
        }))
      return result.getOwner()->getResult(before);
  return {};
}

void heddle::transformer::mergeResults(ModuleOp module,
                                       const SymbolTable &symbols) {
  module.walk([&](Operation *call) {
    SmallVector<Operation *> ends;
    for (StringRef name : calleesOf(call))
      ends.push_back(
          symbols.lookup<func::FuncOp>(name).getBody().front().getTerminator());
    if (ends.empty())
      return;
    auto byLayer = dyn_cast<CallByLayerOp>(call);
    ValueRange operands =
        byLayer ? ValueRange(byLayer.getInputs()) : call->getOperands();
    for (OpResult result : call->getResults())
      if (Value same = sameValue(result, operands, ends))
        result.replaceAllUsesWith(same);
  });
}

void heddle::transformer::mergeCarried(ModuleOp module) {
  module.walk([](LoopOp loop) {
    YieldOp yield = loop.getYield();
    for (size_t i = 1; i < loop.getInits().size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (loop.getInits()[i] == loop.getInits()[j] &&
            yield.getCarried()[i] == yield.getCarried()[j]) {
          loop.getCarried()[i].replaceAllUsesWith(loop.getCarried()[j]);
          loop.getResult(i).replaceAllUsesWith(loop.getResult(j));
          loop.getInitsMutable().erase(i);
          yield.getCarriedMutable().erase(i);
          loop.getBody().eraseArgument(i + 1);
          OpBuilder builder(loop);
          SmallVector<Type> types;
          for (Value result : loop.getResults())
            if (result != loop.getResult(i))
              types.push_back(result.getType());
          auto smaller = LoopOp::create(builder, loop.getLoc(), types,
                                        loop.getOverAttr(), loop.getCountAttr(),
                                        loop.getReversedAttr(), loop.getInits(),
                                        loop.getFromAttr(), loop.getLimit());
          smaller.getBody().takeBody(loop.getBody());
          for (auto [k, result] : llvm::enumerate(loop.getResults()))
            if (k != i)
              result.replaceAllUsesWith(smaller.getResult(k < i ? k : k - 1));
          loop.erase();
          return;
        }
  });
}
