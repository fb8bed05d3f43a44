//===- StepFormats.cpp - formats of the step ------------------------------===//
//
// Calls and accesses have the formats of what they call and access. Two places
// need casts: around a reduction of gradients that travels in a format of its
// own, and behind the optimizer, where it keeps a master of each parameter.
//
//===----------------------------------------------------------------------===//

#include "passes/Precision/Formats.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace {

class StepFormats {
public:
  StepFormats(func::FuncOp step, const Formats &formats)
      : module(step->getParentOfType<ModuleOp>()), formats(formats),
        builder(step.getContext()) {}

  LogicalResult visit(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block))
      if (failed(visit(op)))
        return failure();
    return success();
  }

private:
  LogicalResult visit(Operation &op) {
    return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
        .Case<LoadOp>([&](auto load) {
          setFormat(load.getResult(),
                    stateOf(load.getState()).getTensorType().getElementType());
          return success();
        })
        .Case<GetOp>([&](auto get) {
          get.getResult().setType(
              cast<StackType>(get.getStack().getType()).getElementType());
          return success();
        })
        .Case<func::CallOp>([&](auto call) {
          auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
          for (auto [result, type] :
               llvm::zip(call.getResults(), callee.getResultTypes()))
            result.setType(type);
          return success();
        })
        .Case<LoopOp>([&](auto loop) { return visitLoop(loop); })
        .Case<dist::ReshardOp>([&](auto reshard) {
          setFormat(reshard.getResult(), formatOf(reshard.getInput()));
          return success();
        })
        .Case<AccumulateOp, StoreOp>([&](auto access) {
          castReduction(access, access.getValueMutable(),
                        stateOf(access.getState()));
          return success();
        })
        .Case<AdamWOp, SgdOp>([&](auto update) {
          if (formats.master)
            return keepMaster(update);
          setFormat(update.getNewParameter(), formats.compute);
          return success();
        })
        .Default(success());
  }

  LogicalResult visitLoop(LoopOp loop) {
    for (auto [argument, init] : llvm::zip(loop.getCarried(), loop.getInits()))
      argument.setType(init.getType());
    if (failed(visit(loop.getBody().front())))
      return failure();
    YieldOp yield = loop.getYield();
    for (auto [result, value] :
         llvm::zip(loop.getCarriedResults(), yield.getCarried()))
      result.setType(value.getType());
    for (auto [stack, value] :
         llvm::zip(loop.getStacks(), yield.getCollected()))
      stack.setType(StackType::get(loop.getContext(), loop.getCount(),
                                   cast<RankedTensorType>(value.getType())));
    return success();
  }

  StateOp stateOf(StringRef name) { return module.lookupSymbol<StateOp>(name); }

  Value makeCast(Location location, Value value, Type format, StringRef why,
                 StringRef suffix) {
    auto type = cast<RankedTensorType>(value.getType());
    auto op = CastOp::create(builder,
                             NameLoc::get(builder.getStringAttr(why), location),
                             withFormat(type, format), value);
    setNames(op, {(getName(value) + suffix).str()});
    return op.getResult();
  }

  static bool reduces(dist::ReshardOp reshard) {
    ArrayAttr left = dist::getLayout(reshard.getResult()).getPartial();
    return llvm::any_of(
        dist::getLayout(reshard.getInput()).getPartial(),
        [&](Attribute axis) { return !llvm::is_contained(left, axis); });
  }

  /// Puts casts around the reshards between what a rank has of a gradient and
  /// where it is kept, if they add over ranks in another format.
  void castReduction(Operation *access, OpOperand &value, StateOp state) {
    if (formats.reduce == formats.gradients ||
        (state.getKind() != StateKind::Gradient &&
         state.getKind() != StateKind::GradientSum))
      return;
    SmallVector<dist::ReshardOp> steps; // the last one first
    bool adds = false;
    for (Value next = value.get();
         auto reshard = next.getDefiningOp<dist::ReshardOp>();
         next = reshard.getInput()) {
      steps.push_back(reshard);
      adds |= reduces(reshard);
    }
    if (!adds)
      return;
    dist::ReshardOp first = steps.back();
    builder.setInsertionPoint(first);
    first.getInputMutable().assign(
        makeCast(first.getLoc(), first.getInput(), formats.reduce,
                 "the plan reduces gradients in this format", "_wide"));
    for (dist::ReshardOp step : steps)
      setFormat(step.getResult(), formats.reduce);
    builder.setInsertionPoint(access);
    value.assign(makeCast(access->getLoc(), value.get(), formats.gradients,
                          "the plan keeps gradients in this format", "_kept"));
  }

  /// The master beside a parameter, in the layout that the optimizer has.
  StateOp makeMaster(StateOp parameter, RankedTensorType type) {
    std::string name = (parameter.getSymName() + ".master").str();
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfter(parameter);
    return StateOp::create(
        builder, parameter.getLoc(), name, StateKind::Master,
        parameter.getLayersAttr(), withFormat(type, formats.master),
        FlatSymbolRefAttr::get(builder.getContext(), parameter.getSymName()));
  }

  template <class Update>
  LogicalResult keepMaster(Update update) {
    Value parameter = update.getParameter();
    Value source = parameter;
    SmallVector<Operation *> unused; // the last one first
    while (auto reshard = source.template getDefiningOp<dist::ReshardOp>()) {
      unused.push_back(reshard);
      source = reshard.getInput();
    }
    auto load = source.template getDefiningOp<LoadOp>();
    if (!load || stateOf(load.getState()).getKind() != StateKind::Parameter)
      return update.emitOpError()
             << "updates a value that is no parameter's, so it has no master";
    unused.push_back(load);
    auto type = cast<RankedTensorType>(parameter.getType());
    StateOp master = makeMaster(stateOf(load.getState()), type);

    builder.setInsertionPoint(update);
    auto wide = LoadOp::create(builder, load.getLoc(), master.getTensorType(),
                               master.getSymName(), load.getIndex());
    setNames(wide, {(getName(source) + "_master").str()});
    update.getParameterMutable().assign(wide.getResult());
    for (Operation *op : unused)
      if (op->use_empty())
        op->erase();

    Value next = update.getNewParameter();
    setFormat(next, formats.master);
    builder.setInsertionPointAfter(update);
    Value rounded =
        makeCast(update.getLoc(), next, formats.compute,
                 "computes in this format, with a master", "_rounded");
    next.replaceAllUsesExcept(rounded, rounded.getDefiningOp());
    StoreOp::create(builder, update.getLoc(), next, master.getSymName(),
                    wide.getIndex());
    return success();
  }

  ModuleOp module;
  const Formats &formats;
  OpBuilder builder;
};

} // namespace

LogicalResult precision::setStepFormats(func::FuncOp step,
                                        const Formats &formats) {
  Block &body = step.getBody().front();
  if (failed(StepFormats(step, formats).visit(body)))
    return failure();
  step.setFunctionType(
      FunctionType::get(step.getContext(), step.getBody().getArgumentTypes(),
                        body.getTerminator()->getOperandTypes()));
  return success();
}
