//===- StageDialect.cpp - registration ------------------------------------===//

#include "dialects/Stage/Stage.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace heddle::stage;

#include "dialects/Stage/StageDialect.cpp.inc"
#include "dialects/Stage/StageEnums.cpp.inc"

void StageDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Stage/StageOps.cpp.inc"
      >();
}
