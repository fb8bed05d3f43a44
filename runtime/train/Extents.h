//===- Extents.h - Which part of a whole tensor a rank holds --------------===//

#ifndef RUNTIME_TRAIN_EXTENTS_H
#define RUNTIME_TRAIN_EXTENTS_H

#include "heddle/Runtime/Tables.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle::train {

/// A rank's share of a tensor, as runs of its file form: neighbouring elements
/// there, wherever they lie in the rank's block. Padding is in no run. Along
/// `stageAxis` ranks hold other tensors; nothing is cut over it.
class Extents {
public:
  Extents(const std::vector<std::pair<std::string, int64_t>> &mesh,
          int64_t rank, const runtime::Layout &layout,
          const runtime::FileForm &file, const std::string &stageAxis = "");

  /// Elements of the rank's block.
  int64_t blockElements() const { return block; }
  /// The part of the block, as a row with what fills it up, that the rank
  /// stores: all of it, or its run.
  int64_t storedBegin() const { return stored; }
  int64_t storedElements() const { return storedCount; }
  bool storesRun() const { return isRun; }
  /// Whether the rank is the first of those with this share on its stage.
  bool first() const { return isFirst; }
  /// Ranks with this share, on any stage, have this number alone in common.
  int64_t share() const { return shareNumber; }

  int64_t runCount() const { return runs; }
  int64_t runElements() const { return runLength; }
  /// First element of run `i` in the file form.
  int64_t runStart(int64_t i) const;

  /// Copies run `i` between its elements side by side and the rank's block.
  template <class T, class U>
  void toBlock(int64_t i, const T *from, U *block) const {
    walk(i, [&](int64_t element, int64_t place) {
      block[place] = U(from[element]);
    });
  }
  template <class T, class U>
  void fromBlock(int64_t i, const T *block, U *to) const {
    walk(i, [&](int64_t element, int64_t place) {
      to[element] = U(block[place]);
    });
  }
  /// Calls visit(element of run `i`, place in what the rank stores) for the
  /// elements that it stores.
  template <class Visit>
  void visitStored(int64_t i, Visit visit) const {
    walk(i, [&](int64_t element, int64_t place) {
      if (place >= stored && place < stored + storedCount)
        visit(element, place - stored);
    });
  }

private:
  /// A dimension in the order of the file form.
  struct Dim {
    int64_t count;     ///< true elements of the rank
    int64_t fileStart; ///< elements before the rank's first
    int64_t fileStride, blockStride;
  };

  int64_t blockStart(int64_t run) const;
  template <class Visit>
  void walk(int64_t run, Visit visit) const;

  std::vector<Dim> dims;
  size_t outer = 0; ///< dims before this one number the runs
  int64_t runs = 1, runLength = 1, block = 1, shareNumber = 0;
  int64_t stored = 0, storedCount = 0;
  bool isFirst = true, isRun = false;
};

template <class Visit>
void Extents::walk(int64_t run, Visit visit) const {
  const int64_t start = blockStart(run);
  if (outer == dims.size())
    return visit(0, start);
  const Dim &inner = dims.back();
  const int64_t lines = runLength / (inner.count ? inner.count : 1);
  for (int64_t line = 0; line < lines; ++line) {
    int64_t place = start, rest = line;
    for (size_t d = dims.size() - 1; d-- > outer;) {
      place += rest % dims[d].count * dims[d].blockStride;
      rest /= dims[d].count;
    }
    for (int64_t i = 0; i < inner.count; ++i)
      visit(line * inner.count + i, place + i * inner.blockStride);
  }
}

} // namespace heddle::train

#endif
