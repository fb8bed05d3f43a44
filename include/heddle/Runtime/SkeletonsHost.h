//===- SkeletonsHost.h - Kernels as vectorised loops ----------------------===//
//
// The skeletons that emitted programs launch, for host compilers. Each queues
// one or two bodies with heddle_rt_host_launch, which splits them over threads;
// no result depends on that split. SkeletonsCuda.h has the same functions with
// the same arithmetic.
//
// Functors (HEDDLE_FN members, fp32 arithmetic; `v...` is one argument per
// operand, a reference where it is written):
//
//   elementwise   operator()(v...)
//   rowwise, columnwise
//     kPasses       reductions in turn, 0 or more (columnwise: 1)
//     kReductions   [kPasses], values that each reduces; absent if kPasses is 0
//     init<P>(float *s)                         sets the values of pass P
//     accumulate<P>(float *s, column, v...)     takes one element in
//     combine<P>(float *s, const float *t)      s becomes s and t together
//     apply(const float *s, column, v...)       writes the outputs
//     `s` holds all values, pass after pass; those of earlier passes are final.
//   reduceAll
//     Value         double, float, int64_t: what is summed
//     map(v...)     the summand of an element
//     apply(Value, v...)   writes the scalar outputs
//
// apply may run several times for one row; it must depend on its arguments
// alone. In the run for outputs that a row has once, column is 0.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_SKELETONSHOST_H
#define HEDDLE_RUNTIME_SKELETONSHOST_H

#include "heddle/Runtime/CachesHost.h"
#include "heddle/Runtime/Operands.h"

#include <tuple>
#include <utility>

namespace heddle {
namespace host {

template <class F, class... O>
struct Call {
  F f;
  int64_t rows, columns;
  bool stream;
  std::tuple<O...> operands;
};

template <class O>
using ValueOf = decltype(std::declval<const SliceOf<O> &>().load(0));

/// The inner loops of the skeletons over operands O. (Functions, since clang
/// loses what nested generic lambdas capture.)
template <class F, class... O>
struct Loops {
  HEDDLE_INLINE static void element(const F &f, int64_t i,
                                    const SliceOf<O> &...s, ValueOf<O>... v) {
    f(v...);
    (s.storeElement(i, v), ...);
  }
  HEDDLE_INLINE static void elements(const F &f, const float *, int64_t,
                                     int64_t count, SliceOf<O>... s) {
    HEDDLE_SIMD
    for (int64_t i = 0; i < count; ++i)
      element(f, i, s..., s.load(i)...);
  }

  HEDDLE_INLINE static void applyElement(const F &f, const float *values,
                                         int64_t column, int64_t i,
                                         const SliceOf<O> &...s,
                                         ValueOf<O>... v) {
    f.apply(values, int32_t(column), v...);
    (s.storeElement(i, v), ...);
  }
  HEDDLE_INLINE static void applyElements(const F &f, const float *values,
                                          int64_t first, int64_t count,
                                          SliceOf<O>... s) {
    HEDDLE_SIMD
    for (int64_t i = 0; i < count; ++i)
      applyElement(f, values, first + i, i, s..., s.load(i)...);
  }
  HEDDLE_INLINE static void applyOnce(const F &f, const float *values,
                                      const SliceOf<O> &...s, ValueOf<O>... v) {
    f.apply(values, 0, v...);
    (s.storeOnce(v), ...);
  }

  template <class Totals>
  HEDDLE_INLINE static void applyColumns(const F &f, const Totals &totals,
                                         int64_t first, int64_t count,
                                         SliceOf<O>... s) {
    HEDDLE_SIMD
    for (int64_t i = 0; i < count; ++i) {
      float values[Totals::kOwn];
      totals.get(values, int(i));
      applyElement(f, values, first + i, i, s..., s.load(i)...);
    }
  }
  template <class Value>
  HEDDLE_INLINE static void mapElements(const F &f, Value *lanes, int64_t first,
                                        int count, SliceOf<O>... s) {
    HEDDLE_SIMD
    for (int l = 0; l < count; ++l)
      lanes[l] += f.map(s.load(first + l)...);
  }
  /// The arguments of operands with elements are zeros: no element is meant.
  template <class Value>
  static void applyTotal(const F &f, Value total, SliceOf<O>... s,
                         ValueOf<O>... v) {
    f.apply(total, v...);
    (s.storeOnce(v), ...);
  }

  /// One of the loops over a block, through stages where the launch streams.
  template <auto Loop>
  HEDDLE_INLINE static void block(bool stream, const F &f, const float *values,
                                  int64_t first, int64_t count,
                                  const SliceOf<O> &...s) {
    if constexpr ((Stage<O>::kUsed || ...)) {
      if (stream)
        return staged<Loop>(f, values, first, count, Stage<O>()..., s...);
    }
    Loop(f, values, first, count, s...);
  }

private:
  template <auto Loop>
  HEDDLE_INLINE static void
  staged(const F &f, const float *values, int64_t first, int64_t count,
         Stage<O> &&...stage, const SliceOf<O> &...s) {
    Loop(f, values, first, count, stage.redirect(s)...);
    (stage.flush(s, count), ...);
  }
};

template <class F, class... O>
void elementwiseBody(const void *args, int64_t begin, int64_t end) {
  const auto &call = *static_cast<const Call<F, O...> *>(args);
  const F f = call.f;
  const auto run = [&](const O &...o) {
    using L = Loops<F, O...>;
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t count = end - first < kBlock ? end - first : kBlock;
      L::template block<&L::elements>(call.stream, f, nullptr, first, count,
                                      o.slice(0, first, call.columns)...);
    }
  };
  std::apply(run, call.operands);
  if (call.stream)
    fence();
}

/// The values of pass P, one per lane. `s` of the functor holds the values of
/// earlier passes, then those of a lane.
template <class F, int P>
struct Lanes {
  static constexpr int kBefore = ReducedBefore<F, P>::value;
  static constexpr int kOwn = F::kReductions[P];
  static constexpr int kSeen = kBefore + kOwn;
  alignas(64) float own[kOwn][kLanes];

  HEDDLE_INLINE void get(float *s, int l) const {
    for (int k = 0; k < kOwn; ++k)
      s[kBefore + k] = own[k][l];
  }
  HEDDLE_INLINE void set(const float *s, int l) {
    for (int k = 0; k < kOwn; ++k)
      own[k][l] = s[kBefore + k];
  }
  HEDDLE_INLINE void fill(const float *s) {
    for (int k = 0; k < kOwn; ++k)
      for (int l = 0; l < kLanes; ++l)
        own[k][l] = s[kBefore + k];
  }
  /// Lane `l` becomes itself together with lane `m` of `other`.
  HEDDLE_INLINE void combine(const F &f, const float *before, int l,
                             const Lanes &other, int m) {
    float s[kSeen], t[kSeen];
    for (int k = 0; k < kBefore; ++k)
      s[k] = t[k] = before[k];
    get(s, l);
    other.get(t, m);
    f.template combine<P>(s, t);
    set(s, l);
  }
  /// Columns [first, first + count) of a row into lanes 0 to count - 1; the
  /// slices begin at the first column.
  template <class... S>
  HEDDLE_INLINE void accumulate(const F &f, const float *before, int64_t first,
                                int count, S... slices) {
    HEDDLE_SIMD
    for (int l = 0; l < count; ++l) {
      float s[kSeen];
      for (int k = 0; k < kBefore; ++k)
        s[k] = before[k];
      get(s, l);
      f.template accumulate<P>(s, int32_t(first + l), slices.load(l)...);
      set(s, l);
    }
  }
  /// The tree over a row; its result is left in lane 0.
  HEDDLE_INLINE void reduce(const F &f, const float *before, int64_t columns) {
    const int warps = warpsWithColumns(columns);
    for (int w = 0; w < warps; ++w)
      for (int half = kWarp / 2; half; half /= 2) {
        HEDDLE_SIMD
        for (int l = w * kWarp; l < w * kWarp + half; ++l)
          combine(f, before, l, *this, l + half);
      }
    for (int w = 1; w < warps; ++w)
      combine(f, before, 0, *this, w * kWarp);
  }
};

/// Pass P over a row: its values are added to `values`. `fetches`: it is the
/// last to look at the row.
template <int P, bool fetches, class F, class Next, class... S>
HEDDLE_INLINE inline void reduceRow(const F &f, float *values, int64_t columns,
                                    const Next &next, const S &...s) {
  Lanes<F, P> lanes;
  f.template init<P>(values);
  lanes.fill(values);
  int64_t first = 0;
  for (; first + kLanes <= columns; first += kLanes) {
    if constexpr (fetches)
      next.fetch(first, kLanes);
    lanes.accumulate(f, values, first, kLanes, s.from(first)...);
  }
  if (first < columns)
    lanes.accumulate(f, values, first, int(columns - first), s.from(first)...);
  lanes.reduce(f, values, columns);
  lanes.get(values, 0);
}

template <class F, class... O, int... P>
HEDDLE_INLINE inline void reduceThenApply(const Call<F, O...> &call, const F &f,
                                          std::integer_sequence<int, P...>,
                                          const Ahead<O...> &next,
                                          const SliceOf<O> &...s) {
  using L = Loops<F, O...>;
  const int64_t n = call.columns;
  float values[kReduced<F> + 1]; // one more, for functors that reduce nothing
  constexpr int kLast = F::kPasses - !(kWritesElements<O> || ...);
  (reduceRow<P, (P > 0 && P == kLast)>(f, values, n, next, s...), ...);
  if constexpr ((kWritesOnce<O> || ...))
    L::applyOnce(f, values, s..., s.load(0)...);
  if constexpr ((kWritesElements<O> || ...))
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t count = n - first < kBlock ? n - first : kBlock;
      if constexpr (F::kPasses > 0)
        next.fetch(first, count);
      L::template block<&L::applyElements>(call.stream, f, values, first, count,
                                           s.from(first)...);
    }
}

template <class F, class... O>
void rowwiseBody(const void *args, int64_t begin, int64_t end) {
  const auto &call = *static_cast<const Call<F, O...> *>(args);
  const F f = call.f;
  const std::make_integer_sequence<int, F::kPasses> passes;
  const auto run = [&](const O &...o) {
    for (int64_t r = begin; r < end; ++r)
      reduceThenApply<F, O...>(call, f, passes,
                               Ahead<O...>(r + 1, end, call.columns, o...),
                               o.slice(r, 0, call.columns)...);
  };
  std::apply(run, call.operands);
  if (call.stream)
    fence();
}

/// Columns [first, first + count): sums of kRowChunk rows, then their sum.
template <class F, class... O>
HEDDLE_INLINE inline void
reduceColumns(const F &f, Lanes<F, 0> &total, const float *zero, int64_t rows,
              int64_t columns, int64_t first, int count, const O &...o) {
  Lanes<F, 0> chunk;
  total.fill(zero);
  for (int64_t top = 0; top < rows; top += kRowChunk) {
    const int64_t left = rows - top;
    const int64_t bottom = top + (left < kRowChunk ? left : kRowChunk);
    Lanes<F, 0> &sums = top == 0 ? total : chunk;
    sums.fill(zero);
    for (int64_t r = top; r < bottom; ++r)
      sums.accumulate(f, zero, first, count, o.slice(r, first, columns)...);
    if (top != 0) {
      HEDDLE_SIMD
      for (int l = 0; l < kLanes; ++l)
        total.combine(f, zero, l, chunk, l);
    }
  }
}

/// Items are blocks of kLanes columns: a thread owns columns, walks all rows.
template <class F, class... O>
void columnwiseBody(const void *args, int64_t begin, int64_t end) {
  const auto &call = *static_cast<const Call<F, O...> *>(args);
  const F f = call.f;
  float zero[Lanes<F, 0>::kOwn];
  f.template init<0>(zero);
  const auto run = [&](const O &...o) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item * kLanes, left = call.columns - first;
      const int count = left < kLanes ? int(left) : kLanes;
      Lanes<F, 0> total;
      reduceColumns<F, O...>(f, total, zero, call.rows, call.columns, first,
                             count, o...);
      Loops<F, O...>::applyColumns(f, total, first, count,
                                   o.slice(0, first, call.columns)...);
    }
  };
  std::apply(run, call.operands);
}

template <class Value>
struct ValueLanes {
  alignas(64) Value lane[kLanes];

  ValueLanes() {
    for (int l = 0; l < kLanes; ++l)
      lane[l] = Value(0);
  }
  Value sum(int64_t elements) {
    const int warps = warpsWithColumns(elements);
    for (int w = 0; w < warps; ++w)
      for (int half = kWarp / 2; half; half /= 2)
        for (int l = w * kWarp; l < w * kWarp + half; ++l)
          lane[l] += lane[l + half];
    for (int w = 1; w < warps; ++w)
      lane[0] += lane[w * kWarp];
    return lane[0];
  }
};

template <class F, class... O>
struct ReduceCall {
  F f;
  int64_t elements;
  typename F::Value *partial;
  std::tuple<O...> operands;
};

/// Items are chunks of kReduceChunk elements; each leaves one partial sum.
template <class F, class... O>
void reduceChunksBody(const void *args, int64_t begin, int64_t end) {
  const auto &call = *static_cast<const ReduceCall<F, O...> *>(args);
  const F f = call.f;
  using L = Loops<F, O...>;
  const auto run = [&](const O &...o) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t top = item * kReduceChunk, left = call.elements - top;
      const int64_t count = left < kReduceChunk ? left : kReduceChunk;
      ValueLanes<typename F::Value> lanes;
      int64_t i = 0;
      for (; i + kLanes <= count; i += kLanes)
        L::mapElements(f, lanes.lane, i, kLanes,
                       o.slice(0, top, call.elements)...);
      if (i < count)
        L::mapElements(f, lanes.lane, i, int(count - i),
                       o.slice(0, top, call.elements)...);
      call.partial[item] = lanes.sum(count);
    }
  };
  std::apply(run, call.operands);
}

/// The slice of a scalar; nothing of operands with many elements.
template <class O>
SliceOf<O> scalarSlice(const O &o) {
  if constexpr (O::shape == Scalar)
    return o.slice(0, 0, 0);
  else
    return {};
}
template <class O>
ValueOf<O> scalarValue(const O &o) {
  if constexpr (O::shape == Scalar)
    return o.slice(0, 0, 0).load(0);
  else
    return {};
}

template <class F, class... O>
void reduceTotalBody(const void *args, int64_t, int64_t) {
  const auto &call = *static_cast<const ReduceCall<F, O...> *>(args);
  const int64_t chunks = (call.elements + kReduceChunk - 1) / kReduceChunk;
  ValueLanes<typename F::Value> lanes;
  for (int64_t i = 0; i < chunks; ++i)
    lanes.lane[i % kLanes] += call.partial[i];
  const typename F::Value total = lanes.sum(chunks);
  const auto run = [&](const O &...o) {
    Loops<F, O...>::applyTotal(call.f, total, scalarSlice(o)...,
                               scalarValue(o)...);
  };
  std::apply(run, call.operands);
}

template <class... O>
struct Ranges {
  static constexpr int kCount = (0 + ... + O::kAccesses);
  heddle_rt_access access[kCount + 1]; ///< and room for a workspace

  Ranges(int64_t rows, int64_t columns, const O &...o) {
    heddle_rt_access *next = access;
    ((o.declare(rows, columns, next), next += O::kAccesses), ...);
  }
};

constexpr int64_t grainOf(int64_t elementsPerItem) {
  const int64_t grain = kReduceChunk / (elementsPerItem ? elementsPerItem : 1);
  return grain < 1 ? 1 : grain;
}

} // namespace host

/// f on each of n elements. Operands: any but row-wise outputs; a row-wise or
/// scalar input is element 0 of its row.
template <class F, class... O>
heddle_rt_status elementwise(heddle_rt_stream *stream, const char *name,
                             int64_t n, F f, O... o) {
  static_assert(!(kWritesOnce<O> || ...),
                "an elementwise output is an element");
  const host::Call<F, O...> call{
      f, 1, n, host::worthStreaming<O...>(1, n), {o...}};
  const host::Ranges<O...> ranges(1, n, o...);
  return heddle_rt_host_launch(stream, name, host::elementwiseBody<F, O...>,
                               &call, sizeof call, n, host::grainOf(1),
                               ranges.access, ranges.kCount);
}

/// Reduces each of `rows` rows in F::kPasses passes, then applies. Outputs are
/// whole rows or one element per row.
template <class F, class... O>
heddle_rt_status rowwise(heddle_rt_stream *stream, const char *name,
                         int64_t rows, int64_t columns, F f, O... o) {
  static_assert(!(((O::mode & Write) != 0 &&
                   (O::shape == PerColumn || O::shape == Scalar)) ||
                  ...),
                "rows would write one element together");
  const host::Call<F, O...> call{
      f, rows, columns, host::worthStreaming<O...>(rows, columns), {o...}};
  const host::Ranges<O...> ranges(rows, columns, o...);
  return heddle_rt_host_launch(
      stream, name, host::rowwiseBody<F, O...>, &call, sizeof call,
      columns ? rows : 0, host::grainOf(columns), ranges.access, ranges.kCount);
}

/// Reduces each of `columns` columns over the rows, then applies: outputs are
/// one element per column. `workspace`: columnwiseWorkspace() bytes, which the
/// host does not need but declares, so that both sides have one meaning.
template <class F, class... O>
heddle_rt_status columnwise(heddle_rt_stream *stream, const char *name,
                            int64_t rows, int64_t columns, F f,
                            float *workspace, O... o) {
  static_assert(F::kPasses == 1, "columns are reduced in one pass");
  static_assert(!(((O::mode & Write) != 0 && O::shape != PerColumn) || ...),
                "a column-wise output has one element per column");
  const host::Call<F, O...> call{f, rows, columns, false, {o...}};
  host::Ranges<O...> ranges(rows, columns, o...);
  ranges.access[ranges.kCount] = {
      workspace, columnwiseWorkspace(rows, columns, F::kReductions[0]), 1};
  return heddle_rt_host_launch(
      stream, name, host::columnwiseBody<F, O...>, &call, sizeof call,
      (columns + kLanes - 1) / kLanes, 1, ranges.access, ranges.kCount + 1);
}

/// Sums f.map over n elements in a fixed order, then f.apply once with the sum
/// and the scalar operands (arguments of other operands are then 0).
/// `workspace`: reduceAllWorkspace(n) bytes, 8-byte aligned.
template <class F, class... O>
heddle_rt_status reduceAll(heddle_rt_stream *stream, const char *name,
                           int64_t n, F f, void *workspace, O... o) {
  static_assert(!(((O::mode & Write) != 0 && O::shape != Scalar) || ...),
                "an output of reduceAll is a scalar");
  const host::ReduceCall<F, O...> call{
      f, n, static_cast<typename F::Value *>(workspace), {o...}};
  const int64_t chunks = (n + kReduceChunk - 1) / kReduceChunk;
  host::Ranges<O...> ranges(1, n, o...);
  ranges.access[ranges.kCount] = {workspace, reduceAllWorkspace(n), 1};
  if (heddle_rt_status status = heddle_rt_host_launch(
          stream, name, host::reduceChunksBody<F, O...>, &call, sizeof call,
          chunks, 1, ranges.access, ranges.kCount + 1))
    return status;
  return heddle_rt_host_launch(stream, name, host::reduceTotalBody<F, O...>,
                               &call, sizeof call, 1, 1, ranges.access,
                               ranges.kCount + 1);
}

} // namespace heddle

#endif
