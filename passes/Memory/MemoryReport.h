//===- MemoryReport.h - what a program's memory is for ----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_MEMORY_MEMORYREPORT_H
#define HEDDLE_PASSES_MEMORY_MEMORYREPORT_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace heddle {

/// One object of a rank's arena.
struct MemoryObject {
  std::string name, memoryClass, function, reason;
  int64_t bytes = 0, offset = 0;
  int64_t layerStride = 0; ///< bytes from one entry to the next, 0 for one
  std::string heldIn = {}; ///< the loop that it keeps them for; "" for none
  std::string arena = "compute";
};

/// Two figures of device memory, never mixed: what is needed at one time, and
/// what the arena takes. What is on the host is in neither.
struct MemoryReport {
  int64_t livePeakBytes = 0, arenaBytes = 0, hostBytes = 0;
  std::string peakFunction, peakOp; ///< where the peak is
  std::vector<MemoryObject> objects;
};

/// The report of a module whose buffers were placed, for the ranks of a
/// pipeline stage.
MemoryReport getMemoryReport(mlir::ModuleOp module, int64_t stage = 0);
/// The same of every stage.
std::vector<MemoryReport> getMemoryReports(mlir::ModuleOp module);

} // namespace heddle

#endif // HEDDLE_PASSES_MEMORY_MEMORYREPORT_H
