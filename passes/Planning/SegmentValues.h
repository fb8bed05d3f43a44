//===- SegmentValues.h - values of segments, as plans name them -*- C++ -*-===//

#ifndef HEDDLE_PASSES_PLANNING_SEGMENTVALUES_H
#define HEDDLE_PASSES_PLANNING_SEGMENTVALUES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include <string>
#include <vector>

namespace heddle {

/// A value of tokens in a segment.
struct SegmentValue {
  std::string name;    ///< "block.n1"
  std::string factors; ///< "b s d", one per dimension
  mlir::RankedTensorType type;
  bool isSaved = false; ///< kept from forward to backward
};

/// The values that a rule of a plan can name, in the order in which the program
/// makes them: the edge of a block (`block.x`, `block.delta`) and the results
/// of ops, forward and backward, which have the factor b. Parameters, their
/// parts and their gradients are not among them. A dimension's factor is
/// followed from the arguments through the factor rules of the ops.
std::vector<SegmentValue> findSegmentValues(mlir::ModuleOp module);

} // namespace heddle

#endif // HEDDLE_PASSES_PLANNING_SEGMENTVALUES_H
