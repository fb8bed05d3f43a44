//===- MergeValues.h - equal values become one ------------------*- C++ -*-===//

#ifndef HEDDLE_DIALECTS_TRANSFORMER_MERGEVALUES_H
#define HEDDLE_DIALECTS_TRANSFORMER_MERGEVALUES_H

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/BuiltinOps.h"

namespace heddle::transformer {

/// Results of calls that are equal for a reason seen in the callee become one
/// value: a buffer is then passed once.
void mergeResults(mlir::ModuleOp module, const mlir::SymbolTable &symbols);

/// What a loop carries twice, begun and continued by the same value, it carries
/// once.
void mergeCarried(mlir::ModuleOp module);

} // namespace heddle::transformer

#endif // HEDDLE_DIALECTS_TRANSFORMER_MERGEVALUES_H
