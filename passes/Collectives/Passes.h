//===- Passes.h - the program of one rank -----------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_COLLECTIVES_PASSES_H
#define HEDDLE_PASSES_COLLECTIVES_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace heddle {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Collectives/Passes.h.inc"

} // namespace heddle

#endif // HEDDLE_PASSES_COLLECTIVES_PASSES_H
