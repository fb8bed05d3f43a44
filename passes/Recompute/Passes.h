//===- Passes.h - computing again instead of saving -------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_RECOMPUTE_PASSES_H
#define HEDDLE_PASSES_RECOMPUTE_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace heddle {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Recompute/Passes.h.inc"

} // namespace heddle

#endif // HEDDLE_PASSES_RECOMPUTE_PASSES_H
