//===- heddle-lsp-server.cpp - Hover, definitions, errors in an editor ----===//

#include "tools/heddle-opt/Register.h"

#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  heddle::registerDialects(registry);
  return failed(mlir::MlirLspServerMain(argc, argv, registry));
}
