//===- Parts.cpp - whole tensors and the parts that ranks hold ------------===//

#include "passes/Interpret/Parts.h"

#include <map>

using namespace mlir;
using namespace heddle::interpret;
using heddle::dist::LayoutAttr;

/// Where the part of `rank` begins in the whole tensor, and its size.
static void findPart(LayoutAttr layout, ArrayRef<int64_t> shape, int64_t rank,
                     SmallVectorImpl<int64_t> &start,
                     SmallVectorImpl<int64_t> &sizes) {
  for (auto [dim, size] : llvm::enumerate(shape)) {
    ArrayAttr axes = layout.getAxes(dim);
    int64_t local =
        layout.getStoredSize(dim, size) / layout.getMesh().getGroupSize(axes);
    sizes.push_back(local);
    start.push_back(layout.getMesh().getGroupIndex(rank, axes) * local);
  }
}

/// How much of a part is not padding; its place is moved inside where none is.
static SmallVector<int64_t> trueSizes(ArrayRef<int64_t> shape,
                                      SmallVectorImpl<int64_t> &start,
                                      ArrayRef<int64_t> sizes) {
  SmallVector<int64_t> result;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    result.push_back(
        std::clamp<int64_t>(shape[dim] - start[dim], 0, sizes[dim]));
    if (result.back() == 0)
      start[dim] = 0;
  }
  return result;
}

/// Elements [begin, begin + count) of a tensor as one row; zeros where it has
/// ended.
static Tensor cutRow(const Tensor &from, int64_t begin, int64_t count) {
  Tensor run = Tensor::zeros(from.kind, {count});
  auto copy = [&](const auto &source, auto &target) {
    int64_t size = source.size();
    for (int64_t i = begin; i < std::min(begin + count, size); ++i)
      target[i - begin] = source[i];
  };
  copy(from.floats, run.floats);
  copy(from.integers, run.integers);
  return run;
}

Tensor heddle::interpret::scatter(const Tensor &whole, LayoutAttr layout,
                                  int64_t rank, int64_t padding) {
  if (ArrayAttr runs = layout.getRuns(); !runs.empty()) {
    int64_t length = layout.getRowElements(whole.shape) /
                     layout.getMesh().getGroupSize(runs);
    ArrayAttr none = ArrayAttr::get(layout.getContext(), {});
    return cutRow(scatter(whole, layout.withRuns(none), rank, padding),
                  layout.getMesh().getGroupIndex(rank, runs) * length, length);
  }
  SmallVector<int64_t> start, sizes;
  findPart(layout, whole.shape, rank, start, sizes);
  Tensor part = Tensor::zeros(whole.kind, sizes);
  llvm::fill(part.floats, static_cast<double>(padding));
  llvm::fill(part.integers, padding);
  SmallVector<int64_t> inside = trueSizes(whole.shape, start, sizes);
  SmallVector<int64_t> origin(sizes.size(), 0);
  if (!llvm::is_contained(inside, 0))
    copyBlock(whole, start, part, origin, inside);
  return part;
}

namespace {
/// Where a rank's part belongs: its place in the tensor, and its place among
/// the summands.
using Slot = std::pair<std::vector<int64_t>, int64_t>;
} // namespace

/// One part per place in the tensor, the summands of each reduced.
static std::map<std::vector<int64_t>, Tensor>
reduceSummands(const std::map<Slot, int64_t> &holders,
               ArrayRef<TensorPtr> parts, bool isMax, Reading reading) {
  std::map<std::vector<int64_t>, Tensor> reduced;
  for (const auto &[slot, rank] : holders) {
    const Tensor &part = *parts[rank];
    auto [entry, isNew] = reduced.try_emplace(slot.first, part);
    if (isNew)
      continue;
    if (!isMax) {
      entry->second = addTensors(entry->second, part, reading);
      continue;
    }
    for (size_t i = 0; i < part.floats.size(); ++i)
      entry->second.floats[i] =
          std::max(entry->second.floats[i], part.floats[i]);
  }
  return reduced;
}

/// What the ranks would hold without the runs of `layout`: the runs of each
/// group side by side.
static std::vector<TensorPtr> joinRuns(ArrayRef<TensorPtr> parts,
                                       LayoutAttr layout,
                                       ArrayRef<int64_t> shape) {
  SmallVector<int64_t> start, sizes;
  findPart(layout, shape, 0, start, sizes);
  std::vector<TensorPtr> joined;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    Tensor part = Tensor::zeros(parts[rank]->kind, sizes);
    int64_t at = 0;
    for (int64_t member : layout.getMesh().getGroup(rank, layout.getRuns())) {
      auto append = [&](const auto &source, auto &target) {
        for (size_t i = 0; i < source.size() && at + i < target.size(); ++i)
          target[at + i] = source[i];
      };
      append(parts[member]->floats, part.floats);
      append(parts[member]->integers, part.integers);
      at += parts[member]->getNumElements();
    }
    joined.push_back(std::make_shared<const Tensor>(std::move(part)));
  }
  return joined;
}

FailureOr<Tensor> heddle::interpret::gather(ArrayRef<TensorPtr> parts,
                                            LayoutAttr layout,
                                            ArrayRef<int64_t> shape,
                                            Reading reading,
                                            std::string &message) {
  if (!layout.getRuns().empty())
    return gather(joinRuns(parts, layout, shape),
                  layout.withRuns(ArrayAttr::get(layout.getContext(), {})),
                  shape, reading, message);
  bool isMax = !layout.getPartialMax().empty();
  ArrayAttr summed = isMax ? layout.getPartialMax() : layout.getPartial();
  std::map<Slot, int64_t> holders; // the first rank that holds it
  for (auto [rank, part] : llvm::enumerate(parts)) {
    SmallVector<int64_t> start, sizes;
    findPart(layout, shape, rank, start, sizes);
    Slot slot(std::vector<int64_t>(start.begin(), start.end()),
              layout.getMesh().getGroupIndex(rank, summed));
    auto [holder, isNew] = holders.try_emplace(slot, rank);
    if (isNew || parts[holder->second]->hasSameBits(*part))
      continue;
    message = "ranks " + std::to_string(holder->second) + " and " +
              std::to_string(rank) + " must hold the same bits (layout " +
              layout.getShortForm() + "), but do not";
    return failure();
  }
  Tensor whole = Tensor::zeros(parts.front()->kind, shape);
  for (const auto &[place, part] :
       reduceSummands(holders, parts, isMax, reading)) {
    SmallVector<int64_t> start((ArrayRef(place)));
    SmallVector<int64_t> inside = trueSizes(shape, start, part.shape);
    SmallVector<int64_t> origin(shape.size(), 0);
    if (!llvm::is_contained(inside, 0))
      copyBlock(part, origin, whole, start, inside);
  }
  return whole;
}

int64_t heddle::interpret::countPadding(const Tensor &part, LayoutAttr layout,
                                        ArrayRef<int64_t> shape, int64_t rank) {
  if (!layout.getRuns().empty()) { // what a tensor of ones has no one at
    Tensor ones = Tensor::zeros(part.kind, shape);
    llvm::fill(ones.floats, 1);
    llvm::fill(ones.integers, 1);
    Tensor inside = scatter(ones, layout, rank);
    int64_t count = 0;
    for (size_t i = 0; i < part.floats.size(); ++i)
      count += part.floats[i] != 0 && inside.floats[i] == 0;
    for (size_t i = 0; i < part.integers.size(); ++i)
      count += part.integers[i] != 0 && inside.integers[i] == 0;
    return count;
  }
  SmallVector<int64_t> start, sizes;
  findPart(layout, shape, rank, start, sizes);
  SmallVector<int64_t> inside = trueSizes(shape, start, sizes);
  SmallVector<int64_t> origin(shape.size(), 0);
  Tensor truth = Tensor::zeros(part.kind, inside);
  if (!llvm::is_contained(inside, 0))
    copyBlock(part, origin, truth, origin, inside);
  return part.countNonZero() - truth.countNonZero();
}
