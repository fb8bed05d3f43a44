//===- heddle-opt.cpp - Runs passes on IR ---------------------------------===//

#include "tools/heddle-opt/ReadText.h"
#include "tools/heddle-opt/Register.h"

#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;

/// As mlir-opt does it, with text alone.
static LogicalResult runPasses(llvm::StringRef from, llvm::StringRef to,
                               DialectRegistry &registry,
                               const MlirOptMainConfig &config) {
  std::string why;
  std::unique_ptr<llvm::MemoryBuffer> input = openInputFile(from, &why);
  if (input && !heddle::checkText(*input))
    return failure();
  auto output = input ? openOutputFile(to, &why) : nullptr;
  if (!output) {
    llvm::errs() << "error: " << why << "\n";
    return failure();
  }
  if (failed(MlirOptMain(output->os(), std::move(input), registry, config)))
    return failure();
  output->keep();
  return success();
}

int main(int argc, char **argv) {
  DialectRegistry registry;
  heddle::registerDialects(registry);
  heddle::registerPasses();
  const auto [from, to] = registerAndParseCLIOptions(
      argc, argv, "heddle's optimizer driver\n", registry);
  const auto config = MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses())
    return failed(MlirOptMain(argc, argv, from, to, registry));
  if (config.shouldEmitBytecode()) {
    llvm::errs() << "error: --emit-bytecode: found a form that heddle's tools "
                    "do not read, expected text\n";
    return 1;
  }
  const llvm::InitLLVM signals(argc, argv);
  return failed(runPasses(from, to, registry, config));
}
