//===- CompileProgram.h - From a plan to an executable ----------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_COMPILEPROGRAM_H
#define HEDDLE_TOOLS_COMPILEPROGRAM_H

#include "passes/Lowering/Emit.h"
#include "passes/Lowering/TouchedBytes.h"
#include "passes/Memory/MemoryReport.h"
#include "tools/heddle/Inputs.h"

#include <filesystem>

namespace heddle::tool {

/// A plan as texts.
struct CompiledProgram {
  lowering::ProgramText text;
  std::vector<MemoryReport> memory; ///< of each pipeline stage
  std::vector<std::vector<lowering::TouchedBytes>> touched; ///< the same
};

/// Compiles a checked plan. With `irFolder` the IR after each phase is written
/// there, as NN-phase.mlir, also where a later phase fails. With `apart` each
/// object of memory gets bytes of its own, behind the last phase.
Result<CompiledProgram> compileProgram(const ModelConfig &model,
                                       const TrainSettings &train,
                                       const Plan &plan,
                                       const std::string &irFolder = "",
                                       bool apart = false);

/// Builds the executable of the host; kernels come from the cache where they
/// are known.
Result<void> buildHost(const lowering::ProgramText &text,
                       const std::filesystem::path &output);

/// Compiles the program in `program` (as written by writeProgram) with nvcc to
/// objects in `output`.
Result<void> buildCuda(const std::filesystem::path &program,
                       const std::filesystem::path &output);

} // namespace heddle::tool

#endif
