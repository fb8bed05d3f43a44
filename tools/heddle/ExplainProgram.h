//===- ExplainProgram.h - What a plan makes of a model ----------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_EXPLAINPROGRAM_H
#define HEDDLE_TOOLS_EXPLAINPROGRAM_H

#include "passes/Collectives/ReshardReport.h"
#include "passes/Memory/MemoryReport.h"
#include "passes/Planning/SegmentValues.h"
#include "tools/heddle/Inputs.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// A value that a plan's rules can name.
struct NamedValue {
  std::string name, factors;
  bool isSaved;
};

/// What compiling tells about a plan; nothing is emitted.
struct ProgramFacts {
  std::vector<NamedValue> values;
  std::vector<ReshardReport> reshards;
  std::vector<MemoryReport> memory; ///< of each pipeline stage, if compiled
};

/// Compiles the plan, as far as memory where `withMemory`. Plan and settings
/// must be there, and checked.
Result<ProgramFacts> findProgram(const Inputs &inputs, bool withMemory);

nlohmann::ordered_json valuesJson(const ProgramFacts &facts);
nlohmann::ordered_json reshardsJson(const ProgramFacts &facts);

/// A row per reshard: from and to, steps with bytes, both causes.
void printReshards(const ProgramFacts &facts);

/// Prints peak, arena, classes and, with `all`, every object.
void printMemory(const std::vector<MemoryReport> &reports, bool all);

} // namespace heddle::tool

#endif
