//===- Parts.h - whole tensors and the parts that ranks hold ----*- C++ -*-===//

#ifndef HEDDLE_PASSES_INTERPRET_PARTS_H
#define HEDDLE_PASSES_INTERPRET_PARTS_H

#include "dialects/Dist/Dist.h"
#include "passes/Interpret/Tensor.h"

#include <string>

namespace heddle::interpret {

/// What `rank` holds of `whole`; elements of padding are `padding`. The layout
/// is not partial.
Tensor scatter(const Tensor &whole, dist::LayoutAttr layout, int64_t rank,
               int64_t padding = 0);

/// The whole tensor of shape `shape` from what each rank holds: partial values
/// are reduced in the order of ranks, padding is dropped. Fails, with what is
/// wrong in `message`, where two ranks that should hold the same bits do not.
llvm::FailureOr<Tensor> gather(llvm::ArrayRef<TensorPtr> parts,
                               dist::LayoutAttr layout,
                               llvm::ArrayRef<int64_t> shape, Reading reading,
                               std::string &message);

/// Number of elements of padding in a rank's part that are not zero.
int64_t countPadding(const Tensor &part, dist::LayoutAttr layout,
                     llvm::ArrayRef<int64_t> shape, int64_t rank);

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_PARTS_H
