//===- heddle-opt.cpp - Runs passes on IR ---------------------------------===//

#include "tools/heddle-opt/Register.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  heddle::registerDialects(registry);
  heddle::registerPasses();
  return failed(
      mlir::MlirOptMain(argc, argv, "heddle's optimizer driver\n", registry));
}
