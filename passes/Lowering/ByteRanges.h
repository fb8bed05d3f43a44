//===- ByteRanges.h - What is known of ranges of bytes ----------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_BYTERANGES_H
#define HEDDLE_PASSES_LOWERING_BYTERANGES_H

#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <map>

namespace heddle::lowering {

/// Offsets are multiples of an alignment: LLVM's own hash of a number keeps the
/// low bits, in which they are all alike.
struct OffsetInfo : llvm::DenseMapInfo<int64_t> {
  static unsigned getHashValue(int64_t offset) {
    return unsigned(uint64_t(offset) * 0x9e3779b97f4a7c15u >> 32);
  }
};

/// Disjoint ranges by their first byte; a Value has the `end` of its range. A
/// walk touches the same ranges over and over, so that boundaries are looked up
/// in a table before the tree is searched.
template <class Value>
class ByteRanges {
public:
  using Map = std::map<int64_t, Value>;
  using Iterator = typename Map::iterator;

  Iterator begin() { return ranges.begin(); }
  Iterator end() { return ranges.end(); }

  /// Cuts ranges so that no range lies across `from` or `to`.
  /// \return the first that begins at `from` or later.
  Iterator cut(int64_t from, int64_t to) {
    Iterator first = cutAt(from);
    if (first == ranges.end() || first->first != from ||
        first->second.end != to)
      cutAt(to);
    return first;
  }

  /// Adds a range where there is none, in front of `next`.
  Iterator add(Iterator next, int64_t from, Value value) {
    Iterator added = ranges.emplace_hint(next, from, std::move(value));
    starts[from] = added;
    return added;
  }

  /// One range in the place of those of [from, value.end), which were cut.
  void replace(Iterator first, int64_t from, Value value) {
    const int64_t to = value.end;
    if (first != ranges.end() && first->first == from)
      (first++)->second = std::move(value);
    else
      add(first, from, std::move(value));
    while (first != ranges.end() && first->first < to) {
      starts.erase(first->first);
      first = ranges.erase(first);
    }
  }

private:
  /// \return the first that begins at `at` or later.
  Iterator cutAt(int64_t at) {
    if (auto known = starts.find(at); known != starts.end())
      return known->second;
    Iterator next = ranges.upper_bound(at);
    if (next == ranges.begin())
      return next;
    Iterator around = std::prev(next);
    if (around->second.end <= at)
      return next;
    Value tail = around->second;
    around->second.end = at;
    return add(next, at, std::move(tail));
  }

  Map ranges;
  llvm::DenseMap<int64_t, Iterator, OffsetInfo> starts;
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_BYTERANGES_H
