//===- Passes.h - communication beside computing ----------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_OVERLAP_PASSES_H
#define HEDDLE_PASSES_OVERLAP_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace heddle {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Overlap/Passes.h.inc"

} // namespace heddle

#endif // HEDDLE_PASSES_OVERLAP_PASSES_H
