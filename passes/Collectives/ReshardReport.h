//===- ReshardReport.h - what moves data, and why ---------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_COLLECTIVES_RESHARDREPORT_H
#define HEDDLE_PASSES_COLLECTIVES_RESHARDREPORT_H

#include "dialects/Dist/ReshardReason.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace heddle {

/// One collective, or a step that moves nothing.
struct ReshardStepReport {
  std::string kind;              ///< "all_gather"
  std::vector<std::string> axes; ///< of the group, outermost first
  std::int64_t bytes = 0;        ///< that a rank sends
};

/// One reshard of the program.
struct ReshardReport {
  std::string function; ///< "block_bwd"
  std::string cause;    ///< as the emitted program tells it
  dist::ReshardReason reason;
  std::vector<ReshardStepReport> steps;
  std::int64_t calls = 0; ///< in one step of training

  /// That a rank sends in one call.
  std::int64_t bytes() const;
};

/// The reshards of a partitioned module (`collectives-partition`), function by
/// function in the order of the program.
std::vector<ReshardReport> getReshardReports(mlir::ModuleOp module);

} // namespace heddle

#endif // HEDDLE_PASSES_COLLECTIVES_RESHARDREPORT_H
