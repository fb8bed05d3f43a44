#include "tools/heddle/CompileProgram.h"

#include "passes/Memory/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "tools/heddle/Diagnostics.h"
#include "tools/heddle/Home.h"

#include "heddle/Support/Files.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

/// Writes the module as 0N-phase.mlir; the first failure is kept.
static void writeIr(Phase phase, mlir::ModuleOp module,
                    const std::string &folder, Result<void> &written) {
  if (!written)
    return;
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  os << "\n";
  written = writeFile(fs::path(folder) / (phaseName(phase) + ".mlir"), text);
}

Result<CompiledProgram> tool::compileProgram(const ModelConfig &model,
                                             const TrainSettings &train,
                                             const Plan &plan,
                                             const std::string &irFolder,
                                             bool apart) {
  Compiler compiler;
  Result<void> written;
  PhaseObserver observer;
  if (!irFolder.empty())
    observer = [&](Phase phase, mlir::ModuleOp module) {
      writeIr(phase, module, irFolder, written);
    };
  auto module = compileUpTo(compiler.context, {model, train, plan},
                            Phase::Memory, observer);
  if (!written)
    return written.error();
  if (failed(module))
    return Error{compiler.errors()};
  mlir::PassManager again(&compiler.context);
  if (apart)
    again.addPass(createPlaceBuffersPass({.apart = true}));
  if (failed(again.run(**module)))
    return Error{compiler.errors()};
  auto text = lowering::emitProgram(**module);
  auto touched = lowering::touchedBytes(**module);
  if (failed(text) || failed(touched))
    return Error{compiler.errors()};
  return CompiledProgram{std::move(*text), getMemoryReports(**module),
                         std::move(*touched)};
}

Result<void> tool::buildHost(const lowering::ProgramText &text,
                             const fs::path &output) {
  lowering::BuildOptions options;
  options.includes = {sourceRoot() + "/include"};
  options.link = hostLink();
  std::string message;
  if (failed(lowering::buildProgram(text, options, output.string(), message)))
    return Error{message};
  return {};
}

Result<void> tool::checkCuda() {
  if (findNvcc().empty())
    return Error{"--target cuda: no nvcc on the search path, in CUDA_HOME or "
                 "in /usr/local/cuda; install the CUDA toolkit, or leave the "
                 "target out"};
  std::error_code ignored;
  for (const std::string &library : cudaLibraries())
    if (!fs::exists(library, ignored))
      return Error{fmt::format("--target cuda: {} is not there any more; build "
                               "heddle again",
                               library)};
  if (cudaLibraries().empty())
    return Error{"--target cuda: this heddle was built where there was no CUDA "
                 "toolkit with NCCL; install both, configure and build heddle "
                 "again"};
  return {};
}

Result<CudaBuild> tool::buildCuda(const lowering::ProgramText &text,
                                  const fs::path &output) {
  if (auto ok = checkCuda(); !ok)
    return ok.error();
  lowering::BuildOptions options;
  options.includes = {sourceRoot() + "/include"};
  options.link = cudaLink();
  options.kernels = lowering::KernelCompiler{
      findNvcc(),
      {"-x", "cu", "-std=c++20", "-gencode", "arch=compute_90a,code=sm_90a",
       "-fmad=false", "-O3", "-Xptxas", "-v"}};
  std::string message;
  lowering::KernelReport report;
  if (failed(lowering::buildProgram(text, options, output.string(), message,
                                    &report)))
    return Error{message};
  return CudaBuild{readPtxas(report.words), report.seconds};
}
