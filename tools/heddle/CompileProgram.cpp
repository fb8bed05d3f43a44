#include "tools/heddle/CompileProgram.h"

#include "passes/Memory/Passes.h"
#include "passes/Pipelines/Pipelines.h"
#include "tools/heddle/Diagnostics.h"
#include "tools/heddle/Home.h"
#include "tools/heddle/Launch.h"

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

Result<void> tool::buildCuda(const fs::path &program, const fs::path &output) {
  std::string nvcc = findNvcc();
  if (nvcc.empty())
    return Error{"--target cuda: no nvcc on the search path, in CUDA_HOME or "
                 "in /usr/local/cuda; install the CUDA toolkit, or leave the "
                 "target out"};
  std::error_code error;
  fs::create_directories(output, error);
  if (error)
    return Error{fmt::format("{}: cannot make the folder: {}", output.string(),
                             error.message())};
  for (const char *source : {"step", "kernels"}) {
    Result<Outcome> outcome =
        execute({nvcc, "-x", "cu", "-gencode", "arch=compute_90a,code=sm_90a",
                 "-fmad=false", "-std=c++20", "-c", "-I" + program.string(),
                 "-I" + sourceRoot() + "/include",
                 (program / (std::string(source) + ".cpp")).string(), "-o",
                 (output / (std::string(source) + ".o")).string()},
                Capture::Both);
    if (!outcome)
      return outcome.error();
    if (outcome->code != 0)
      return Error{fmt::format("nvcc cannot compile {}.cpp:\n{}", source,
                               outcome->errors)};
  }
  return {};
}
