//===- CutStages.cpp - the step of a place over pp ------------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Transformer/MergeValues.h"
#include "passes/Stages/Cut.h"
#include "passes/Stages/Passes.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::stages;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_CUTSTAGESPASS
#include "passes/Stages/Passes.h.inc"
} // namespace heddle

LoopOp heddle::stages::withBounds(LoopOp loop, int64_t count, Value limit) {
  OpBuilder builder(loop);
  auto made = LoopOp::create(builder, loop.getLoc(), loop.getResultTypes(),
                             loop.getOver(), count, loop.getReversed(),
                             loop.getInits(), loop.getFromAttr(), limit);
  made->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  made.getBody().takeBody(loop.getBody());
  loop->replaceAllUsesWith(made);
  loop.erase();
  return made;
}

/// The loop over micro-batches that calls segments.
static LoopOp findMicroBatches(func::FuncOp step) {
  for (auto loop : step.getBody().front().getOps<LoopOp>())
    if (loop.getOver() == "micro_batch" &&
        loop.walk([](func::CallOp) { return WalkResult::interrupt(); })
            .wasInterrupted())
      return loop;
  return {};
}

/// A place holds so many layers, and takes those entries of the step's inputs
/// that have one per layer.
static void setLayers(ModuleOp module, func::FuncOp step,
                      const stage::StageTable &stages) {
  Builder builder(module.getContext());
  for (auto state : module.getOps<StateOp>())
    if (state.getLayers())
      state.setLayersAttr(builder.getI64IntegerAttr(stages.mostOfPlace()));
  SmallVector<Type> types(step.getArgumentTypes());
  for (BlockArgument argument : step.getArguments())
    if (getName(argument) == kLayerDropoutSeeds) {
      auto stack = cast<StackType>(argument.getType());
      argument.setType(StackType::get(module.getContext(), stages.mostOfPlace(),
                                      stack.getElementType()));
      types[argument.getArgNumber()] = argument.getType();
    }
  step.setFunctionType(
      builder.getFunctionType(types, step.getFunctionType().getResults()));
}

namespace heddle {
namespace {
struct CutStagesPass : impl::CutStagesPassBase<CutStagesPass> {
  LogicalResult cut(ModuleOp module) {
    auto tables = llvm::to_vector(module.getOps<stage::TableOp>());
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (tables.empty() || !step)
      return success();
    LoopOp loop = findMicroBatches(step);
    if (!loop)
      return step.emitError() << "has no loop over micro-batches to cut";
    FailureOr<stage::StageTable> stages = stage::StageTable::read(tables[0]);
    if (failed(stages))
      return failure();
    auto count = static_cast<int64_t>(loop.getCount());
    if (count != stages->schedule.microBatches)
      return tables[0].emitOpError()
             << "has " << stages->schedule.microBatches
             << " micro-batches, and the step " << count;
    SymbolTable symbols(module);
    mergeResults(module, symbols);
    mergeCarried(module);
    stage::StateParts parts(module);
    parts.note();
    auto run = cutMicroBatches(findMicroBatches(step), tables[0], *stages);
    if (failed(run) || failed(cutStep(step, *run, *stages, parts)))
      return failure();
    setLayers(module, step, *stages);
    return success();
  }

  void runOnOperation() override {
    if (failed(cut(getOperation())))
      signalPassFailure();
  }
};
} // namespace
} // namespace heddle
