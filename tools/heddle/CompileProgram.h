//===- CompileProgram.h - From a plan to an executable ----------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_COMPILEPROGRAM_H
#define HEDDLE_TOOLS_COMPILEPROGRAM_H

#include "passes/Lowering/Emit.h"
#include "passes/Lowering/TouchedBytes.h"
#include "passes/Memory/MemoryReport.h"
#include "tools/heddle/CudaKernels.h"
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

/// What nvcc did for a program.
struct CudaBuild {
  std::vector<CudaKernel> kernels; ///< of the program, not of the runtime
  double nvccSeconds = 0;          ///< 0 where the object was kept
};

/// Why there can be no train-cuda here: no nvcc, or a heddle that was built
/// without the toolkit.
Result<void> checkCuda();

/// Builds train-cuda: kernels by nvcc for sm_90a, as one file, which is kept as
/// the host's kernels are.
Result<CudaBuild> buildCuda(const lowering::ProgramText &text,
                            const std::filesystem::path &output);

} // namespace heddle::tool

#endif
