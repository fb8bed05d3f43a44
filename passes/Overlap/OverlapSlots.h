//===- OverlapSlots.h - reduce gradients in the last slots ------*- C++ -*-===//

#ifndef HEDDLE_PASSES_OVERLAP_OVERLAPSLOTS_H
#define HEDDLE_PASSES_OVERLAP_OVERLAPSLOTS_H

#include "dialects/Stage/Stage.h"
#include "passes/Overlap/Reductions.h"

namespace heddle::overlap {

/// Moves reductions of whole sums behind a run of slots to where the last slot
/// adds to them. A gradient that both ends of a chain share stays: it is summed
/// over them first.
void moveIntoSlots(stage::RunOp run, const mlir::SymbolTable &symbols);

} // namespace heddle::overlap

#endif // HEDDLE_PASSES_OVERLAP_OVERLAPSLOTS_H
