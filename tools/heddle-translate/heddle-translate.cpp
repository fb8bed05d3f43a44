//===- heddle-translate.cpp - Into IR and out of it -----------------------===//

#include "passes/Import/Import.h"
#include "tools/heddle-opt/Register.h"

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
  auto module = heddle::importModel(*context, *config,
                                    {sequences, sequenceLength, microBatches});
  if (failed(module))
    return {};
  return OwningOpRef<Operation *>(module->release().getOperation());
}

int main(int argc, char **argv) {
  TranslateToMLIRRegistration import(
      "import-model", "the forward of a Hugging Face config.json", importText);
  return failed(mlirTranslateMain(argc, argv, "heddle's translations"));
}
