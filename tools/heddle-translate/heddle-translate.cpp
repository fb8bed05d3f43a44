//===- heddle-translate.cpp - Into IR and out of it -----------------------===//

#include "passes/Import/Import.h"
#include "passes/Lowering/Emit.h"
#include "tools/heddle-opt/ReadText.h"
#include "tools/heddle-opt/Register.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

namespace cl = llvm::cl;

static cl::opt<int64_t> sequences("sequences", cl::init(1),
                                  cl::desc("sequences of a micro-batch, for "
                                           "--import-model"));
static cl::opt<int64_t> sequenceLength("sequence-length", cl::init(16),
                                       cl::desc("tokens of a sequence"));
static cl::opt<int64_t> microBatches("micro-batches", cl::init(1),
                                     cl::desc("micro-batches of a step"));

/// The model of the config.json in `source`.
static OwningOpRef<Operation *> importText(llvm::SourceMgr &source,
                                           MLIRContext *context) {
  const llvm::MemoryBuffer *buffer =
      source.getMemoryBuffer(source.getMainFileID());
  auto refuse = [](const heddle::Error &error) {
    llvm::errs() << "error: " << error.message << "\n";
    return OwningOpRef<Operation *>();
  };
  auto document = heddle::Document::parse(buffer->getBuffer().str(),
                                          buffer->getBufferIdentifier().str(),
                                          heddle::Document::Syntax::Json);
  if (!document)
    return refuse(document.error());
  auto config = heddle::readModelConfig(*document);
  if (!config)
    return refuse(config.error());
  if (std::optional<std::string> why = heddle::whyNotCompiled(*config))
    return refuse(heddle::Error{*why});
  auto module = heddle::importModel(*context, *config,
                                    {sequences, sequenceLength, microBatches});
  if (failed(module))
    return {};
  return OwningOpRef<Operation *>(module->release().getOperation());
}

static cl::opt<std::string>
    programFolder("program-folder",
                  cl::desc("where --emit-program writes its files; without it "
                           "they are printed one after the other"));
static cl::opt<std::string>
    sourceRoot("runtime-sources",
               cl::desc("root of heddle's sources, from which --emit-program "
                        "copies the runtime into the folder"));

/// The texts of the module's rt.program, in a folder or on `os`.
static LogicalResult emitText(const std::shared_ptr<llvm::SourceMgr> &source,
                              llvm::raw_ostream &os, MLIRContext *context) {
  if (!heddle::checkText(*source->getMemoryBuffer(source->getMainFileID())))
    return failure();
  DialectRegistry registry;
  heddle::registerDialects(registry);
  context->appendDialectRegistry(registry);
  const auto module = parseSourceFile<ModuleOp>(source, context);
  if (!module)
    return failure();
  auto text = heddle::lowering::emitProgram(*module);
  if (failed(text))
    return failure();
  if (programFolder.empty()) {
    os << "// File: step.cpp\n"
       << text->step << "\n// File: kernels.h\n"
       << text->kernels << "\n// File: kernels.cpp\n"
       << text->kernelsSource;
    return success();
  }
  std::string message;
  heddle::lowering::FolderOptions options;
  options.sourceRoot = sourceRoot;
  if (failed(heddle::lowering::writeProgram(*text, programFolder, options,
                                            message)))
    return (*module)->emitError() << message;
  return success();
}

int main(int argc, char **argv) {
  TranslateToMLIRRegistration import(
      "import-model", "the forward of a Hugging Face config.json", importText);
  TranslateRegistration emit("emit-program", "the C++ of an rt.program",
                             emitText);
  return failed(mlirTranslateMain(argc, argv, "heddle's translations"));
}
