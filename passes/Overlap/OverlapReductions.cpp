//===- OverlapReductions.cpp - reduce gradients while backward runs -------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Overlap/OverlapSlots.h"
#include "passes/Overlap/Passes.h"
#include "passes/Overlap/Reductions.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::overlap;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_OVERLAPREDUCTIONSPASS
#include "passes/Overlap/Passes.h.inc"
} // namespace heddle

namespace {

class Mover {
public:
  Mover(func::FuncOp step, const SymbolTable &symbols)
      : step(step), symbols(symbols) {}

  void run() {
    findTail();
    if (tail.empty())
      return;
    LoopOp last = takeOutLast();
    for (Reduction &reduction : tail)
      move(reduction, last);
    for (LoopOp loop : emptied)
      if (llvm::hasSingleElement(loop.getBody().front())) // its yield
        loop.erase();
  }

private:
  Block &body() { return step.getBody().front(); }

  LoopOp microBatches() {
    LoopOp found;
    for (auto loop : body().getOps<LoopOp>())
      loop.walk([&](Operation *op) {
        if (!calleesOf(op).empty())
          found = loop;
      });
    return found;
  }

  /// Reductions of whole sums behind the loop over micro-batches.
  void findTail() {
    auto collect = [&](Block &block) {
      for (Reduction &reduction : findReductions(block, symbols))
        if (isa<LoadOp>(reduction.ops.front()))
          tail.push_back(std::move(reduction));
    };
    LoopOp first = microBatches();
    if (!first)
      return;
    for (auto loop : body().getOps<LoopOp>())
      if (first->isBeforeInBlock(loop)) {
        size_t before = tail.size();
        collect(loop.getBody().front());
        if (tail.size() > before)
          emptied.push_back(loop);
      }
    collect(body());
  }

  /// Splits the loop over micro-batches into all but the last, and the last.
  LoopOp takeOutLast() {
    LoopOp loop = microBatches();
    int64_t count = loop.getCount();
    if (count == 1)
      return loop;
    OpBuilder builder(loop->getContext());
    builder.setInsertionPointAfter(loop);
    auto last = cast<LoopOp>(builder.clone(*loop));
    last.setCount(1);
    last.setFrom(count - 1);
    loop.setCount(count - 1);
    for (auto [before, after] : llvm::zip(loop.getResults(), last.getResults()))
      before.replaceAllUsesExcept(after, last);
    last.getInitsMutable().assign(loop.getCarriedResults());
    return last;
  }

  /// Where the last contribution to a sum is added.
  static Operation *lastContribution(StateOp sum, LoopOp micro) {
    Operation *last = nullptr;
    micro.walk([&](AccumulateOp accumulate) {
      if (accumulate.getState() == sum.getSymName())
        last = accumulate;
    });
    return last;
  }

  static Operation *callBefore(Operation *op) {
    while (op && calleesOf(op).empty())
      op = op->getPrevNode();
    return op;
  }

  void move(Reduction &reduction, LoopOp micro) {
    Operation *behind = lastContribution(reduction.sum, micro);
    OpBuilder builder(behind->getContext());
    // At the end of a layer, where all its gradients are; else at once.
    Operation *&place = places[callBefore(behind)];
    if (!place || place->isBeforeInBlock(behind))
      place = behind;
    builder.setInsertionPointAfter(place);
    IRMapping mapping;
    if (Value index = cast<LoadOp>(reduction.ops.front()).getIndex())
      mapping.map(index, cast<AccumulateOp>(behind).getIndex());
    for (Operation *op : reduction.ops)
      place = builder.clone(*op, mapping);
    for (Operation *op : llvm::reverse(reduction.ops))
      op->erase();
  }

  func::FuncOp step;
  const SymbolTable &symbols;
  SmallVector<Reduction> tail;
  SmallVector<LoopOp> emptied;
  llvm::DenseMap<Operation *, Operation *> places; ///< by call
};

struct OverlapReductionsPass
    : heddle::impl::OverlapReductionsPassBase<OverlapReductionsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (!step || !Settings::read(module).reductions)
      return;
    SymbolTable symbols(module);
    stage::RunOp slots;
    step.walk([&](stage::RunOp run) { slots = run; });
    if (slots)
      moveIntoSlots(slots, symbols);
    else
      Mover(step, symbols).run();
  }
};

} // namespace
