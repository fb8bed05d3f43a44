//===- Passes.h - pipeline stages -------------------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_STAGES_PASSES_H
#define HEDDLE_PASSES_STAGES_PASSES_H

#include "dialects/Stage/Stage.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace heddle {
#define GEN_PASS_DECL
#include "passes/Stages/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/Stages/Passes.h.inc"
} // namespace heddle

#endif // HEDDLE_PASSES_STAGES_PASSES_H
