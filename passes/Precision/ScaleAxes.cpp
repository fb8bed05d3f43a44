//===- ScaleAxes.cpp - how operands that are scaled are cut ---------------===//

#include "dialects/Transformer/Scaling.h"
#include "passes/Precision/Formats.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace {

/// One product that the recipe scales, on whole tensors with layouts.
class ScaledProduct {
public:
  ScaledProduct(ContractOp op, ArrayAttr data) : op(op), data(data) {}

  LogicalResult note() {
    FailureOr<std::optional<Scaling>> scaling = Scaling::of(op);
    if (failed(scaling))
      return failure();
    if (!*scaling)
      return success();
    if (!(*scaling)->blocks.empty() && failed(checkBlocks((*scaling)->blocks)))
      return failure();
    if (!(*scaling)->hasTensorScale())
      return success();
    SmallVector<Attribute> lists;
    for (Value operand : {op.getLhs(), op.getRhs()})
      lists.push_back(axesOf(operand));
    op->setAttr(kScaleAxesName, ArrayAttr::get(op.getContext(), lists));
    return success();
  }

private:
  /// Ranks of data have other tensors.
  bool cuts(Attribute axis) const {
    return !data || !llvm::is_contained(data, axis);
  }

  /// Over whose ranks parts of one tensor lie, in the mesh's order.
  ArrayAttr axesOf(Value operand) {
    SmallVector<Attribute> axes;
    if (dist::LayoutAttr layout = dist::getLayout(operand)) {
      llvm::DenseSet<Attribute> all;
      for (int64_t dim = 0; dim < layout.getRank(); ++dim)
        all.insert(layout.getAxes(dim).begin(), layout.getAxes(dim).end());
      llvm::copy_if(
          layout.getMesh().getNames(), std::back_inserter(axes),
          [&](Attribute axis) { return all.contains(axis) && cuts(axis); });
    }
    return ArrayAttr::get(op.getContext(), axes);
  }

  /// A block lies on one rank: else its scale would depend on the plan.
  LogicalResult checkBlocks(ArrayRef<int64_t> blocks) {
    auto [lists, kept] = op.getSpec().split("->");
    auto [first, second] = lists.split(",");
    SmallVector<StringRef> keptLetters;
    llvm::SplitString(kept, keptLetters);
    const std::pair<Value, StringRef> operands[] = {{op.getLhs(), first},
                                                    {op.getRhs(), second}};
    for (auto [i, operand] : llvm::enumerate(operands))
      for (bool isKept : {true, false}) {
        SmallVector<StringRef> letters;
        llvm::SplitString(operand.second, letters);
        SmallVector<int64_t> dims;
        for (auto [dim, letter] : llvm::enumerate(letters))
          if (llvm::is_contained(keptLetters, letter) == isKept)
            dims.push_back(static_cast<int64_t>(dim));
        if (failed(
                checkRuns(operand.first, dims, isKept ? blocks[i] : blocks[2])))
          return failure();
      }
    return success();
  }

  /// Of dimensions that are one side of an operand's matrix, how many numbers
  /// lie on a rank one behind the other.
  LogicalResult checkRuns(Value operand, ArrayRef<int64_t> dims,
                          int64_t block) {
    dist::LayoutAttr layout = dist::getLayout(operand);
    auto type = cast<RankedTensorType>(operand.getType());
    int64_t run = 1;
    for (int64_t dim : llvm::reverse(dims)) {
      run *= layout ? layout.getStoredSize(dim, type.getDimSize(dim))
                    : type.getDimSize(dim);
      int64_t ranks = 1;
      if (layout)
        for (Attribute axis : layout.getAxes(dim))
          ranks *=
              cuts(axis) ? layout.getMesh().getSize(cast<StringAttr>(axis)) : 1;
      if (ranks == 1)
        continue;
      run /= ranks;
      if (run % block == 0)
        return success();
      return op.emitOpError()
             << "has a scale for each " << block << " numbers of '"
             << getName(operand) << "', but a rank holds " << run
             << " of them in a row; cut it so that ranks hold whole blocks, or "
                "set precision.recipe to \"fp8\" with scaling \"current\"";
    }
    return success();
  }

  ContractOp op;
  ArrayAttr data;
};

} // namespace

LogicalResult precision::noteScaleAxes(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  auto storage = module->getAttrOfType<DictionaryAttr>(dist::kStorageName);
  auto data = storage ? storage.getAs<ArrayAttr>("data") : ArrayAttr();
  WalkResult result = function.walk([&](ContractOp op) {
    return failed(ScaledProduct(op, data).note()) ? WalkResult::interrupt()
                                                  : WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
