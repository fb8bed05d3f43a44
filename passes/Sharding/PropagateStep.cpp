//===- PropagateStep.cpp - layouts of the step ----------------------------===//
//
// Calls take the types of what they call, accesses those of states. What a loop
// carries may become partial on the way (a sum over micro-batches of partial
// losses): the loop is tried once to see, then done.
//
//===----------------------------------------------------------------------===//

#include "passes/Sharding/Propagation.h"
#include "passes/Sharding/Storage.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::sharding;
using dist::LayoutAttr;
using namespace heddle::transformer;

namespace {

class StepPropagation {
public:
  StepPropagation(const Pinned &pinned, func::FuncOp step, ArrayAttr data)
      : pinned(pinned), step(step), data(data),
        symbols(step->getParentOfType<ModuleOp>()) {}

  LogicalResult run() {
    Propagation propagation(pinned, "step");
    for (BlockArgument argument : step.getArguments())
      if (failed(visitArgument(argument)))
        return failure();
    if (failed(visitBlock(step.getBody().front(), propagation)))
      return failure();
    // What a trial of a loop has put in front of it.
    step.walk([](dist::ReshardOp reshard) {
      if (reshard->use_empty())
        reshard.erase();
    });
    Operation *end = step.getBody().front().getTerminator();
    step.setFunctionType(FunctionType::get(step.getContext(),
                                           step.getBody().getArgumentTypes(),
                                           end->getOperandTypes()));
    return success();
  }

private:
  LogicalResult visitArgument(BlockArgument argument) {
    StringRef name = getName(argument);
    auto stack = dyn_cast<StackType>(argument.getType());
    auto type = stack ? stack.getElementType()
                      : dyn_cast<RankedTensorType>(argument.getType());
    LayoutAttr layout = pinned.values.lookup(name);
    if (!layout && type && type.getRank() == 0)
      layout = LayoutAttr::get(pinned.mesh, 0);
    if (!type || !layout)
      return step.emitError()
             << "input '" << name << "' of the step has no layout; pin it in "
             << "dist.values";
    type = dist::withLayout(type, layout);
    argument.setType(
        stack ? Type(StackType::get(step.getContext(), stack.getCount(), type))
              : Type(type));
    return success();
  }

  LogicalResult visitBlock(Block &block, Propagation &propagation) {
    for (Operation &op : llvm::make_early_inc_range(block))
      if (failed(visitOp(op, propagation)))
        return failure();
    return success();
  }

  LogicalResult visitOp(Operation &op, Propagation &propagation) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
        .Case<dist::FactorRuleOpInterface>(
            [&](auto rule) { return propagation.visit(rule); })
        .Case<LoopOp>([&](auto loop) { return visitLoop(loop, propagation); })
        .Case<func::CallOp>(
            [&](auto call) { return visitCall(call, propagation); })
        .Case<LoadOp>([&](auto load) {
          load.getResult().setType(stateOf(load.getState()).getTensorType());
          return success();
        })
        .Case<StoreOp, AccumulateOp>([&](auto access) {
          LayoutAttr layout =
              dist::getLayout(stateOf(access.getState()).getTensorType());
          access.getValueMutable().assign(propagation.reshard(
              reduceCopies(access.getValue(), layout, access, propagation),
              layout, access,
              "state " + access.getState() + " has this layout"));
          return success();
        })
        .Case<GetOp>([&](auto get) {
          get.getResult().setType(
              cast<StackType>(get.getStack().getType()).getElementType());
          return success();
        })
        .Case<ZerosOp>([&](auto zeros) {
          auto type = cast<RankedTensorType>(zeros.getType());
          zeros.getResult().setType(dist::withLayout(
              type, LayoutAttr::get(pinned.mesh, type.getRank())));
          return success();
        })
        .Case<func::ReturnOp>(
            [&](auto end) { return visitReturn(end, propagation); })
        .Case<ZeroOp, YieldOp, dist::ReshardOp>([](auto) { return success(); })
        .Default([](Operation *other) {
          return other->emitOpError()
                 << "has no factor rule, so it cannot be given a layout";
        });
  }

  /// A gradient that is a sum over axes of data and others is reduced over the
  /// others first. Then sums over data have one order, however they are taken
  /// (buckets of gradients, reduce-scatter into runs), and one group.
  Value reduceCopies(Value value, LayoutAttr target, Operation *user,
                     Propagation &propagation) {
    LayoutAttr layout = propagation.layoutOf(value);
    SmallVector<Attribute> ofData;
    bool others = false;
    for (Attribute axis : layout.getPartial()) {
      if (llvm::is_contained(data, axis) ||
          llvm::is_contained(target.getPartial(), axis))
        ofData.push_back(axis);
      else
        others = true;
    }
    if (!others || ofData.empty())
      return value;
    return propagation.reshard(
        value, layout.withPartial(ArrayAttr::get(step.getContext(), ofData)),
        user, "its copies hold parts of the gradient");
  }

  StateOp stateOf(StringRef name) { return symbols.lookup<StateOp>(name); }

  LogicalResult visitCall(func::CallOp call, Propagation &propagation) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!callee)
      return call.emitOpError()
             << "calls " << call.getCallee() << ", which is no function";
    for (auto [i, type] : llvm::enumerate(callee.getArgumentTypes()))
      call->setOperand(i, propagation.reshard(
                              call.getOperand(i), dist::getLayout(type), call,
                              call.getCallee() + " takes it in this layout"));
    for (auto [result, type] :
         llvm::zip(call.getResults(), callee.getResultTypes()))
      result.setType(type);
    return success();
  }

  LogicalResult visitReturn(func::ReturnOp end, Propagation &propagation) {
    for (auto [i, value] : llvm::enumerate(end.getOperands())) {
      int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
      end->setOperand(
          i, propagation.reshard(value, LayoutAttr::get(pinned.mesh, rank), end,
                                 "a result of the step is whole"));
    }
    return success();
  }

  /// Gives the body's arguments the layouts `carried`, and visits the body.
  LogicalResult visitBody(LoopOp loop, ArrayRef<LayoutAttr> carried,
                          Propagation &propagation) {
    for (auto [argument, layout] : llvm::zip(loop.getCarried(), carried))
      argument.setType(
          dist::withLayout(cast<RankedTensorType>(argument.getType()), layout));
    return visitBlock(loop.getBody().front(), propagation);
  }

  /// What the loop's carried values are from the second iteration on.
  FailureOr<SmallVector<LayoutAttr>> findCarried(LoopOp loop,
                                                 const Propagation &outer) {
    SmallVector<LayoutAttr> carried;
    for (Value init : loop.getInits())
      carried.push_back(outer.layoutOf(init));
    if (carried.empty())
      return carried;
    auto trial = cast<LoopOp>(loop->clone());
    OpBuilder(loop).insert(trial);
    Propagation propagation(pinned, "step");
    LogicalResult result = visitBody(trial, carried, propagation);
    if (succeeded(result))
      for (auto [layout, value] :
           llvm::zip(carried, trial.getYield().getCarried())) {
        // A sum that becomes partial, or over more axes, stays so; any other
        // change is undone at the yield.
        LayoutAttr yielded = propagation.layoutOf(value);
        bool keepsParts =
            llvm::all_of(layout.getPartial(), [&](Attribute axis) {
              return llvm::is_contained(yielded.getPartial(), axis);
            });
        if (yielded.isPartial() && keepsParts &&
            layout.getPartialMax().empty() &&
            yielded.getDims() == layout.getDims())
          layout = yielded;
      }
    trial->erase();
    if (failed(result))
      return failure();
    return carried;
  }

  LogicalResult visitLoop(LoopOp loop, Propagation &propagation) {
    FailureOr<SmallVector<LayoutAttr>> carried = findCarried(loop, propagation);
    if (failed(carried))
      return failure();
    for (auto [i, layout] : llvm::enumerate(*carried))
      loop->setOperand(
          i, propagation.reshard(loop.getInits()[i], layout, loop,
                                 "the loop carries it in this layout"));
    if (failed(visitBody(loop, *carried, propagation)))
      return failure();
    YieldOp yield = loop.getYield();
    for (auto [i, layout] : llvm::enumerate(*carried)) {
      yield->setOperand(
          i, propagation.reshard(yield.getCarried()[i], layout, yield,
                                 "the loop carries it in this layout"));
      loop.getResult(i).setType(yield.getCarried()[i].getType());
    }
    for (auto [stack, value] :
         llvm::zip(loop.getStacks(), yield.getCollected()))
      stack.setType(StackType::get(loop.getContext(), loop.getCount(),
                                   cast<RankedTensorType>(value.getType())));
    return success();
  }

  const Pinned &pinned;
  func::FuncOp step;
  ArrayAttr data; ///< axes over which ranks have different sequences
  SymbolTable symbols;
};

} // namespace

LogicalResult sharding::propagateStep(func::FuncOp step, const Pinned &pinned) {
  FailureOr<Storage> storage = Storage::read(step->getParentOfType<ModuleOp>());
  if (failed(storage))
    return failure();
  return StepPropagation(pinned, step, storage->data).run();
}
