//===- MergeValues.cpp - equal values become one --------------------------===//

#include "dialects/Transformer/MergeValues.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle::transformer;

void heddle::transformer::mergeResults(ModuleOp module,
                                       const SymbolTable &symbols) {
  module.walk([&](func::CallOp call) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    Operation *end = callee.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        call.getResult(i).replaceAllUsesWith(
            call.getOperand(argument.getArgNumber()));
        continue;
      }
      auto first = llvm::find(end->getOperands(), value);
      unsigned same = first - end->getOperands().begin();
      if (same != i)
        call.getResult(i).replaceAllUsesWith(call.getResult(same));
    }
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
