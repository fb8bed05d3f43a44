//===- Packing.cpp - offsets for objects with lifetimes -------------------===//

#include "passes/Memory/Packing.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle::memory;

int64_t heddle::memory::pack(ArrayRef<Object *> objects, int64_t base) {
  SmallVector<Object *> order(objects), placed;
  llvm::stable_sort(order,
                    [](Object *a, Object *b) { return a->bytes > b->bytes; });
  int64_t end = 0;
  for (Object *object : order) {
    if (object->first < 0) { // nobody touches it
      object->offset = base;
      end = std::max(end, base + object->bytes);
      continue;
    }
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (Object *other : placed)
      if (other->first <= object->last && object->first <= other->last)
        taken.emplace_back(other->offset, other->offset + other->bytes);
    llvm::sort(taken);
    int64_t offset = base;
    for (auto [from, to] : taken) {
      if (offset + object->bytes <= from)
        break;
      offset =
          std::max(offset, static_cast<int64_t>(llvm::alignTo(to, kAlignment)));
    }
    object->offset = offset;
    end = std::max(end, offset + object->bytes);
    placed.push_back(object);
  }
  return end;
}

int64_t heddle::memory::liveBytes(ArrayRef<Object *> objects,
                                  int64_t position) {
  int64_t bytes = 0;
  for (Object *object : objects)
    if (object->first >= 0 && object->first <= position &&
        position <= object->last)
      bytes += object->bytes;
  return bytes;
}

std::pair<int64_t, int64_t>
heddle::memory::findPeak(ArrayRef<Object *> objects) {
  std::pair<int64_t, int64_t> peak = {0, -1};
  for (Object *object :
       objects) // the peak begins where something is first needed
    if (object->first >= 0)
      if (int64_t bytes = liveBytes(objects, object->first); bytes > peak.first)
        peak = {bytes, object->first};
  return peak;
}
