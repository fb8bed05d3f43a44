//===- DistOps.cpp - generated op definitions -----------------------------===//

#include "dialects/Dist/Dist.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;

#define GET_OP_CLASSES
#include "dialects/Dist/DistOps.cpp.inc"
