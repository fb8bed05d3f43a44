//===- Passes.h - formats of values -----------------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_PRECISION_PASSES_H
#define HEDDLE_PASSES_PRECISION_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace heddle {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Precision/Passes.h.inc"

} // namespace heddle

#endif // HEDDLE_PASSES_PRECISION_PASSES_H
