//===- Cut.h - one function cut into two ------------------------*- C++ -*-===//
//
// Forward from backward, and input gradients from weight gradients, are the
// same cut.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_TRANSFORMER_CUT_H
#define HEDDLE_DIALECTS_TRANSFORMER_CUT_H

#include "dialects/Transformer/Transformer.h"

namespace heddle::transformer {

struct CutFunctions {
  mlir::func::FuncOp first, second;
};

/// Cuts `joint`, which has one block and ops without effects, and erases it.
///
/// `first` computes the leading `results` results of `joint` and what these
/// need. `second` computes the others; those that `first` computes anyway are
/// results of `first` instead, behind its own.
///
/// An op's result that `first` makes and `second` reads *crosses*: it is a
/// further result of `first` and one of the first arguments of `second`, both
/// with the attribute `crossing` = its name; the result also says in
/// `transformer.reason` which ops read it. Arguments of `joint` that are read
/// are arguments of each function that reads them, in the order and with the
/// attributes that they have in `joint`; they never cross.
///
/// Where `repeat` holds for the op that makes it, a value does not cross: its
/// op stands in both functions, and its operands are what `second` reads.
///
/// Every value that crosses has a name.
CutFunctions cut(mlir::func::FuncOp joint, unsigned results,
                 llvm::StringRef firstName, llvm::StringRef secondName,
                 llvm::StringRef crossing,
                 llvm::function_ref<bool(mlir::Operation *)> repeat);

} // namespace heddle::transformer

#endif // HEDDLE_DIALECTS_TRANSFORMER_CUT_H
