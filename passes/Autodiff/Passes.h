//===- Passes.h - the autodiff family's passes ------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_AUTODIFF_PASSES_H
#define HEDDLE_PASSES_AUTODIFF_PASSES_H

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace heddle {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/Autodiff/Passes.h.inc"

} // namespace heddle

#endif // HEDDLE_PASSES_AUTODIFF_PASSES_H
