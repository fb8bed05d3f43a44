//===- ExplainMemory.h - The memory of a plan, for explain ------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_EXPLAINMEMORY_H
#define HEDDLE_TOOLS_EXPLAINMEMORY_H

#include "passes/Memory/MemoryReport.h"
#include "tools/heddle/Inputs.h"

namespace heddle::tool {

/// Compiles the plan up to memory; the program is not emitted. Plan and
/// settings must be there, and checked.
Result<MemoryReport> findMemory(const Inputs &inputs);

/// Prints peak, arena, classes and, with `all`, every object.
void printMemory(const MemoryReport &report, bool all);

} // namespace heddle::tool

#endif
