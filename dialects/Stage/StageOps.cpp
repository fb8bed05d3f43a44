//===- StageOps.cpp - what the ops say of themselves ----------------------===//

#include "dialects/Stage/StageTable.h"
#include "heddle/Schedule/Verify.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::stage;

#define GET_OP_CLASSES
#include "dialects/Stage/StageOps.cpp.inc"

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

/// (C2): along a chain layers follow each other from 0 on, and every chain has
/// as many.
static LogicalResult verifyChains(TableOp op, const StageTable &table) {
  const Placement &placement = table.schedule.placement;
  int64_t layers = 0;
  for (int64_t path = 0; path < placement.numPaths(); ++path) {
    int64_t next = 0;
    for (int64_t stage = 0; stage < placement.stages(); ++stage) {
      PlanPlace at = placement.placeOf({path, stage});
      const PlanRange &range = table.layersOf(at.rank, at.chunk);
      if (!range.empty() && range.first != next)
        return op.emitOpError()
               << "place " << at.rank << " chunk " << at.chunk << " is stage "
               << stage << " and has layers " << range.text()
               << "; the stages before it end with layer " << next - 1;
      next += StageTable::count(range);
    }
    if (path > 0 && next != layers)
      return op.emitOpError()
             << "one chain has " << layers << " layers, another " << next;
    layers = next;
  }
  return success();
}

/// (C4)
static LogicalResult verifyCopies(TableOp op, const StageTable &table) {
  const Placement &placement = table.schedule.placement;
  if (placement.numPaths() == 1)
    return success();
  if (!placement.isMirrored())
    return op.emitOpError() << "has " << placement.numPaths()
                            << " chains; expected two, whose stages are "
                               "equally far from the two ends";
  for (int64_t stage = 0; stage < placement.stages(); ++stage) {
    PlanPlace one = placement.placeOf({0, stage}),
              other = placement.placeOf({1, stage});
    if (table.layersOf(one.rank, one.chunk) !=
        table.layersOf(other.rank, other.chunk))
      return op.emitOpError()
             << "has layers " << table.layersOf(one.rank, one.chunk).text()
             << " in stage " << stage << " of one chain and "
             << table.layersOf(other.rank, other.chunk).text()
             << " in that of the other";
  }
  return success();
}

LogicalResult TableOp::verify() {
  FailureOr<StageTable> table = StageTable::read(*this);
  if (failed(table) || failed(verifyChains(*this, *table)) ||
      failed(verifyCopies(*this, *table)))
    return failure();
  if (auto fault = findScheduleFault(table->schedule)) // C3
    return emitOpError() << fault->message;
  return success();
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

YieldOp RunOp::getYield(Region &region) {
  return cast<YieldOp>(region.front().getTerminator());
}

YieldOp WhereOp::getYield(Region &region) {
  return cast<YieldOp>(region.front().getTerminator());
}

unsigned RunOp::getNumSent(bool forward) {
  return getYield(forward ? getForward() : getBackward()).getSent().size();
}

/// The `count` arguments of a region from `first` on.
static Block::BlockArgListType slice(Region &region, unsigned first,
                                     unsigned count) {
  return region.getArguments().slice(first, count);
}

Block::BlockArgListType RunOp::getReceived(bool forward) {
  return forward
             ? slice(getForward(), 2, getNumSent(true))
             : slice(getBackward(), 2 + getInits().size(), getNumSent(false));
}

Block::BlockArgListType RunOp::getCarried() {
  return slice(getBackward(), 2, getInits().size());
}

Block::BlockArgListType RunOp::getSaved(Region &region) {
  unsigned first =
      &region == &getBackward() ? 2 + getInits().size() + getNumSent(false) : 2;
  return slice(region, first, getYield(getForward()).getSaved().size());
}

Block::BlockArgListType RunOp::getKept() {
  return getWeight().getArguments().drop_front(
      2 + getYield(getForward()).getSaved().size());
}

void RunOp::getAsmBlockArgumentNames(Region &region,
                                     OpAsmSetValueNameFn setName) {
  if (region.getNumArguments() < 2) // an op may be printed to be refused
    return;
  setName(region.getArgument(0), "chunk");
  setName(region.getArgument(1), "i");
}

static LogicalResult verifyYield(Operation *op, Region &region) {
  if (region.empty() ||
      !isa_and_nonnull<YieldOp>(region.front().getTerminator()))
    return op->emitOpError() << "needs regions that end in a yield";
  return success();
}

/// (C1): the arguments of a region have these types, behind two indices.
static LogicalResult verifyArguments(RunOp op, Region &region, StringRef name,
                                     ArrayRef<TypeRange> groups) {
  SmallVector<Type> expected(2, IndexType::get(op.getContext()));
  for (TypeRange group : groups)
    llvm::append_range(expected, group);
  if (region.getArgumentTypes() != TypeRange(expected))
    return op.emitOpError()
           << name << " needs arguments (" << expected << "), and has ("
           << region.getArgumentTypes() << ")";
  return success();
}

LogicalResult RunOp::verifyRegions() {
  SmallVector<Region *> regions = {&getForward(), &getBackward()};
  if (!getWeight().empty())
    regions.push_back(&getWeight());
  for (Region *region : regions)
    if (failed(verifyYield(*this, *region))) // C2
      return failure();
  YieldOp forward = getYield(getForward()), backward = getYield(getBackward());
  if (!forward.getCarried().empty() ||
      backward.getCarried().getTypes() != getInits().getTypes() ||
      getResultTypes() != getInits().getTypes()) // C2
    return emitOpError() << "carries (" << getInits().getTypes()
                         << "): backward yields those types, forward none, and "
                            "results have them";
  if (failed(verifyArguments(*this, getForward(), "forward",
                             {forward.getSent().getTypes()})) ||
      failed(
          verifyArguments(*this, getBackward(), "backward",
                          {getInits().getTypes(), backward.getSent().getTypes(),
                           forward.getSaved().getTypes()})))
    return failure();
  if (getWeight().empty()) {
    if (!backward.getSaved().empty())
      return emitOpError() << "backward saves values, but there is no weight";
    return success();
  }
  if (getYield(getWeight())->getNumOperands() > 0) // C2
    return emitOpError() << "weight yields values";
  return verifyArguments(
      *this, getWeight(), "weight",
      {forward.getSaved().getTypes(), backward.getSaved().getTypes()});
}

LogicalResult RunOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!symbols.lookupNearestSymbolFrom<TableOp>(*this, getTableAttr())) // C3
    return emitOpError() << "refers to " << getTableAttr()
                         << ", which is no table of slots";
  return success();
}

LogicalResult WhereOp::verifyRegions() {
  if (getPart() == Part::Last && !(*this)->getParentOfType<RunOp>()) // C2
    return emitOpError() << "asks for a chunk's last slot, but is in no run";
  if (getPart() == Part::Last && getChunk()) // C2
    return emitOpError()
           << "asks for the last slot of the chunk that runs, and "
              "names a chunk; leave the chunk out";
  if (getOtherwise().empty() && getNumResults() > 0)
    return emitOpError() << "has results, but nothing where it is otherwise";
  for (Region *region : getRegions()) {
    if (region->empty())
      continue;
    if (failed(verifyYield(*this, *region)))
      return failure();
    YieldOp yield = getYield(*region);
    if (!yield.getSent().empty() || !yield.getSaved().empty()) // C1
      return emitOpError() << "sends or saves values, which only a run does";
    if (yield.getCarried().getTypes() != getResultTypes()) // C1
      return emitOpError() << "has results (" << getResultTypes()
                           << "), and yields (" << yield.getCarried().getTypes()
                           << ")";
  }
  return success();
}
