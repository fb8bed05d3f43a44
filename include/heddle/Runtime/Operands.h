//===- Operands.h - What a kernel is launched over ------------------------===//
//
// A kernel is a functor on values; an operand says where the value of element
// (row, column) of the launch lies, in which format, and whether it is read,
// written or both. From that one declaration come loads and stores, conversion,
// and the byte ranges that the happens-before check sees.
//
//   in(p)        element [row, column], rows dense    read
//   inRow(p)     element [row]                        the same in the whole row
//   inColumn(p)  element [column]                     the same in every row
//   inScalar(p)  the one element
//   out..., inout...: written; read and written
//   in(p).pitched(n)    rows lie n elements apart
//   in(p).grouped(n)    n neighbouring rows of the launch share a row
//   in(p).repeated(n)   row n of the launch is row 0 again (after grouping)
//   gathered(table, index, first, count)   row index[row] - first of a table of
//                       `count` rows, a shard; 0 where that row is elsewhere
//   rowIndex(first), columnIndex(first)    the number itself, i32
//
// The functor gets one argument per operand, in order: a value where it is
// read, a reference where it is written.
//
// Rows that a skeleton writes must not share memory with rows that it reads,
// except element for element (the same place, or inout). A written operand that
// is grouped or repeated would be written by several rows and is refused.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_OPERANDS_H
#define HEDDLE_RUNTIME_OPERANDS_H

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/heddle_rt.h"

namespace heddle {

enum Mode { Read = 1, Write = 2, ReadWrite = 3 };
enum Shape { Full, PerRow, PerColumn, Scalar };

/// One row of an operand from some column on: what a skeleton's inner loop
/// sees. Values that are the same along the row are loaded when it is made.
template <class T, Mode mode, Shape shape>
struct Slice {
  static constexpr bool kAlongRow = shape == Full || shape == PerColumn;
  T *data;
  wide<T> value;

  /// The same row, begun `columns` later. What a row has once keeps the value
  /// it had when the row's slice was made.
  HEDDLE_FN Slice from(int64_t columns) const {
    return {kAlongRow ? data + columns : data, value};
  }
  HEDDLE_FN wide<T> load(int64_t i) const {
    if constexpr ((mode & Read) == 0)
      return {};
    else if constexpr (kAlongRow)
      return widen(data[i]);
    else
      return value;
  }
  /// Stores of the elements of a row, and of what a row has once.
  HEDDLE_FN void storeElement(int64_t i, wide<T> v) const {
    if constexpr ((mode & Write) != 0 && kAlongRow)
      narrow(v, data[i]);
  }
  HEDDLE_FN void storeOnce(wide<T> v) const {
    if constexpr ((mode & Write) != 0 && !kAlongRow)
      narrow(v, *data);
  }
};

template <class T, Mode m, Shape s>
struct Operand {
  static constexpr Mode mode = m;
  static constexpr Shape shape = s;
  static constexpr int kAccesses = 1;
  using Element = std::remove_const_t<T>;

  T *data;
  int64_t pitch = 0;  ///< elements from row to row; 0: the columns
  int64_t group = 1;  ///< rows of the launch that share a row
  int64_t period = 0; ///< rows after which they repeat; 0: never

  Operand pitched(int64_t elements) const {
    static_assert(s == Full, "only rows can lie apart");
    Operand o = *this;
    o.pitch = elements;
    return o;
  }
  Operand grouped(int64_t rows) const {
    static_assert(m == Read, "grouped rows would be written several times");
    Operand o = *this;
    o.group = rows;
    return o;
  }
  Operand repeated(int64_t rows) const {
    static_assert(m == Read, "repeated rows would be written several times");
    Operand o = *this;
    o.period = rows;
    return o;
  }

  HEDDLE_FN Slice<T, m, s> slice(int64_t row, int64_t column,
                                 int64_t columns) const {
    T *p = data;
    if constexpr (s == Full || s == PerRow) {
      if constexpr (m == Read) { // grouped and repeated rows are only read
        if (group != 1)
          row /= group;
        if (period != 0)
          row %= period;
      }
      p += s == Full ? row * (pitch ? pitch : columns) + column : row;
    } else if constexpr (s == PerColumn) {
      p += column;
    }
    if constexpr ((m & Read) != 0 && !Slice<T, m, s>::kAlongRow)
      return {p, widen(*p)};
    else
      return {p, {}};
  }

  /// Writes kAccesses ranges. Rows that lie apart are declared with what lies
  /// between them only as far as `accesses` can say it: one range.
  void declare(int64_t rows, int64_t columns, heddle_rt_access *to) const {
    int64_t held = (rows + group - 1) / group;
    if (period != 0 && held > period)
      held = period;
    int64_t n = 1;
    if constexpr (s == Full)
      n = rows * columns == 0
              ? 0
              : (held - 1) * (pitch ? pitch : columns) + columns;
    else if constexpr (s == PerRow)
      n = held;
    else if constexpr (s == PerColumn)
      n = columns;
    to[0] = {data, n * int64_t(sizeof(T)),
             m == ReadWrite     ? 2
             : (m & Write) != 0 ? 1
                                : 0};
  }
};

template <class T>
Operand<const T, Read, Full> in(const T *p) {
  return {p};
}
template <class T>
Operand<const T, Read, PerRow> inRow(const T *p) {
  return {p};
}
template <class T>
Operand<const T, Read, PerColumn> inColumn(const T *p) {
  return {p};
}
template <class T>
Operand<const T, Read, Scalar> inScalar(const T *p) {
  return {p};
}
template <class T>
Operand<T, Write, Full> out(T *p) {
  return {p};
}
template <class T>
Operand<T, Write, PerRow> outRow(T *p) {
  return {p};
}
template <class T>
Operand<T, Write, PerColumn> outColumn(T *p) {
  return {p};
}
template <class T>
Operand<T, Write, Scalar> outScalar(T *p) {
  return {p};
}
template <class T>
Operand<T, ReadWrite, Full> inout(T *p) {
  return {p};
}
template <class T>
Operand<T, ReadWrite, PerRow> inoutRow(T *p) {
  return {p};
}
template <class T>
Operand<T, ReadWrite, PerColumn> inoutColumn(T *p) {
  return {p};
}
template <class T>
Operand<T, ReadWrite, Scalar> inoutScalar(T *p) {
  return {p};
}

/// A row of a table, or zeros.
template <class T>
struct GatheredSlice {
  static constexpr bool kAlongRow = true;
  const T *data;
  bool present;
  HEDDLE_FN GatheredSlice from(int64_t columns) const {
    return {present ? data + columns : data, present};
  }
  HEDDLE_FN wide<T> load(int64_t i) const {
    return present ? widen(data[i]) : wide<T>(0);
  }
  HEDDLE_FN void storeElement(int64_t, wide<T>) const {}
  HEDDLE_FN void storeOnce(wide<T>) const {}
};

template <class T>
struct Gathered {
  static constexpr Mode mode = Read;
  static constexpr Shape shape = Full;
  static constexpr int kAccesses = 2;
  using Element = T;

  const T *table;
  const int32_t *index;
  int64_t first, count;

  HEDDLE_FN GatheredSlice<T> slice(int64_t row, int64_t column,
                                   int64_t columns) const {
    const int64_t local = int64_t(index[row]) - first;
    const bool present = local >= 0 && local < count;
    return {table + (present ? local * columns + column : 0), present};
  }
  void declare(int64_t rows, int64_t columns, heddle_rt_access *to) const {
    to[0] = {table, count * columns * int64_t(sizeof(T)), 0};
    to[1] = {index, rows * int64_t(sizeof(int32_t)), 0};
  }
};
template <class T>
Gathered<T> gathered(const T *table, const int32_t *index, int64_t first,
                     int64_t count) {
  return {table, index, first, count};
}

struct IndexSlice {
  static constexpr bool kAlongRow = true;
  int32_t start, step;
  HEDDLE_FN IndexSlice from(int64_t columns) const {
    return {start + step * int32_t(columns), step};
  }
  HEDDLE_FN int32_t load(int64_t i) const { return start + step * int32_t(i); }
  HEDDLE_FN void storeElement(int64_t, int32_t) const {}
  HEDDLE_FN void storeOnce(int32_t) const {}
};
template <bool ofRow>
struct Index {
  static constexpr Mode mode = Read;
  static constexpr Shape shape = ofRow ? PerRow : PerColumn;
  static constexpr int kAccesses = 0;
  using Element = int32_t;

  int64_t first;
  HEDDLE_FN IndexSlice slice(int64_t row, int64_t column, int64_t) const {
    return {int32_t(first + (ofRow ? row : column)), ofRow ? 0 : 1};
  }
  void declare(int64_t, int64_t, heddle_rt_access *) const {}
};
inline Index<true> rowIndex(int64_t first = 0) { return {first}; }
inline Index<false> columnIndex(int64_t first = 0) { return {first}; }

//===----------------------------------------------------------------------===//
// The reduction order, shared by host and device: lane l of kLanes takes
// columns l, l + kLanes, ...; lanes of a warp are combined by a butterfly, then
// the warps in turn. Warps without a column take no part. Neither threads nor
// vector width shows in it.
//===----------------------------------------------------------------------===//

inline constexpr int kLanes = 256;
inline constexpr int kWarp = 32;
inline constexpr int kWarps = kLanes / kWarp;
/// Elements that reduceAll sums in one tree before it adds up the trees.
inline constexpr int64_t kReduceChunk = 16384;
/// Rows that columnwise adds up before it adds up the sums.
inline constexpr int64_t kRowChunk = 64;

HEDDLE_FN int warpsWithColumns(int64_t columns) {
  const int64_t warps = (columns + kWarp - 1) / kWarp;
  return warps < 1 ? 1 : warps < kWarps ? int(warps) : kWarps;
}

/// How many values functor F reduces in passes before P.
template <class F, int P>
struct ReducedBefore {
  static constexpr int value =
      ReducedBefore<F, P - 1>::value + F::kReductions[P - 1];
};
template <class F>
struct ReducedBefore<F, 0> {
  static constexpr int value = 0;
};
template <class F>
inline constexpr int kReduced = ReducedBefore<F, F::kPasses>::value;

template <class O>
inline constexpr bool kWritesElements =
    (O::mode & Write) != 0 && (O::shape == Full || O::shape == PerColumn);
template <class O>
inline constexpr bool kWritesOnce =
    (O::mode & Write) != 0 && (O::shape == PerRow || O::shape == Scalar);

/// Bytes of workspace that a launch needs, from sizes alone; 8-byte aligned.
constexpr int64_t reduceAllWorkspace(int64_t elements) {
  return (elements + kReduceChunk - 1) / kReduceChunk * 8;
}
constexpr int64_t columnwiseWorkspace(int64_t rows, int64_t columns,
                                      int64_t reductions) {
  return (rows + kRowChunk - 1) / kRowChunk * columns * reductions * 4;
}
/// Of segmentSort, kept until the last segmentSum that uses it: four i32 per
/// index.
constexpr int64_t segmentWorkspace(int64_t indices) { return indices * 16; }

} // namespace heddle

#endif
