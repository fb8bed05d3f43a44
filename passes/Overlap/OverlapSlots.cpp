//===- OverlapSlots.cpp - reduce gradients in the last slots --------------===//
//
// A schedule has no last micro-batch: each chunk has a last slot of its own,
// after which, or in whose layers, its gradients are complete. What is reduced
// there runs beside the slots that follow, and in the idle time behind them.
//
//===----------------------------------------------------------------------===//

#include "passes/Overlap/OverlapSlots.h"

#include "dialects/Stage/StageTable.h"
#include "heddle/Support/Mirror.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::overlap;
using namespace heddle::transformer;

namespace {

class SlotMover {
public:
  SlotMover(stage::RunOp run, const SymbolTable &symbols)
      : run(run), symbols(symbols), builder(run),
        stages(stage::StageTable::of(run->getParentOfType<ModuleOp>())) {}

  void move() {
    SmallVector<Reduction> tail;
    SmallVector<Operation *> holders;
    for (Operation *op = run->getNextNode(); op; op = op->getNextNode())
      if (isa<LoopOp, stage::WhereOp>(op)) {
        holders.push_back(op);
        for (Reduction &reduction :
             findReductions(op->getRegion(0).front(), symbols))
          if (isa<LoadOp>(reduction.ops.front()))
            tail.push_back(std::move(reduction));
      }
    for (Reduction &reduction : tail)
      move(reduction);
    for (Operation *op : holders)
      if (op->use_empty() &&
          llvm::hasSingleElement(op->getRegion(0).front())) // its yield
        op->erase();
  }

private:
  void move(Reduction &reduction) {
    AccumulateOp behind = lastContribution(reduction);
    if (!behind || !meetsInSlots(reduction))
      return;
    builder.setInsertionPoint(endOf(behind->getBlock()));
    IRMapping mapping;
    if (Value index = cast<LoadOp>(reduction.ops.front()).getIndex())
      mapping.map(index, behind.getIndex());
    for (Operation *op : reduction.ops)
      builder.clone(*op, mapping);
    for (Operation *op : llvm::reverse(reduction.ops))
      op->erase();
  }

  /// Where the last part of a sum is added; null where chunks add to one sum:
  /// no slot of one of them is behind those of the other.
  AccumulateOp lastContribution(Reduction &reduction) {
    AccumulateOp last;
    bool inOne = true;
    run.walk([&](AccumulateOp accumulate) {
      if (accumulate.getState() != reduction.sum.getSymName())
        return;
      inOne &= !last || last->getBlock() == accumulate->getBlock();
      last = accumulate;
    });
    return inOne ? last : AccumulateOp();
  }

  /// Places that sum copies of a parameter do so in slots only where both run
  /// these in one order: else ranks could wait for each other in a circle.
  bool meetsInSlots(Reduction &reduction) {
    bool sumsCopies = llvm::any_of(reduction.ops, [](Operation *op) {
      auto axes = op->getAttrOfType<ArrayAttr>("axes");
      return axes && llvm::is_contained(axes.getAsValueRange<StringAttr>(),
                                        mirrorOf(stage::kStageAxis));
    });
    return !sumsCopies || (stages && stages->schedule.isMirrored());
  }

  /// The end of what is done in the last slot, behind all else of a block.
  Operation *endOf(Block *block) {
    Operation *&end = ends[block];
    if (end)
      return end;
    builder.setInsertionPoint(block->getTerminator());
    auto where = stage::WhereOp::create(builder, run.getLoc(), TypeRange(),
                                        stage::Part::Last, Value());
    builder.setInsertionPointToStart(&where.getBody().emplaceBlock());
    end = stage::YieldOp::create(builder, run.getLoc(), ValueRange(),
                                 ValueRange(), ValueRange());
    return end;
  }

  stage::RunOp run;
  const SymbolTable &symbols;
  OpBuilder builder;
  std::optional<stage::StageTable> stages;
  llvm::DenseMap<Block *, Operation *> ends;
};

} // namespace

void heddle::overlap::moveIntoSlots(stage::RunOp run,
                                    const SymbolTable &symbols) {
  SlotMover(run, symbols).move();
}
