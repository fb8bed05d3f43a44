#include "CollectiveCases.h"

#include "OnDevice.h"

#include "heddle/Runtime/Formats.h"
#include "runtime/common/Dtype.h"
#include "runtime/common/Status.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace heddle::test {

using runtime::fail;

namespace {

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Element `i` of a rank's input: values whose fp32 sum depends on the order.
double value(int rank, int64_t i) {
  const uint64_t bits = scramble(uint64_t(rank) * 1000003u + uint64_t(i) + 1);
  const double unit = double(bits >> 11) * 0x1p-53 - 0.5;
  return std::ldexp(unit, int(bits % 23));
}

template <class T>
struct Dtype;
template <>
struct Dtype<float> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_F32;
};
template <>
struct Dtype<bf16> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_BF16;
};
template <>
struct Dtype<f16> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_F16;
};
template <>
struct Dtype<int32_t> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_I32;
};
template <>
struct Dtype<int64_t> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_I64;
};
template <>
struct Dtype<double> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_F64;
};
template <>
struct Dtype<uint8_t> {
  static constexpr heddle_rt_dtype value = HEDDLE_RT_U8;
};

template <class T>
constexpr bool kNarrow = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class T>
std::vector<T> inputOf(int rank, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double v = value(rank, i);
    if constexpr (kNarrow<T>)
      narrow(float(v) / 1024, values[size_t(i)]);
    else if constexpr (std::is_floating_point_v<T>)
      values[size_t(i)] = T(v);
    else
      values[size_t(i)] = T(int64_t(v));
  }
  return values;
}

/// The reduction in rank order, as the header promises it.
template <class T>
T reduced(const std::vector<std::vector<T>> &inputs, int64_t i,
          heddle_rt_reduction reduction) {
  wide<T> sum = widen(inputs[0][size_t(i)]);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const wide<T> next = widen(inputs[rank][size_t(i)]);
    if (reduction == HEDDLE_RT_MAX)
      sum = sum > next ? sum : next;
    else
      sum = wide<T>(sum + next);
  }
  T result;
  narrow(sum, result);
  return result;
}

/// One communicator to test, and everybody's input.
struct Group {
  heddle_rt_context *context;
  heddle_rt_comm *comm = nullptr;
  heddle_rt_stream *stream = nullptr;
  int32_t rank = 0, size = 1;
};

template <class T>
struct Case {
  const Group &group;
  std::vector<std::vector<T>> inputs;
  Case(const Group &group, int64_t elements) : group(group) {
    for (int rank = 0; rank < group.size; ++rank)
      inputs.push_back(inputOf<T>(rank, elements));
  }
  const std::vector<T> &own() const { return inputs[size_t(group.rank)]; }

  OnDevice<T> on(const std::vector<T> &values) const {
    return {group.context, group.stream, values};
  }
  OnDevice<T> on(int64_t n) const { return on(std::vector<T>(size_t(n))); }

  heddle_rt_status expect(const char *what, OnDevice<T> &device,
                          const std::vector<T> &wanted) const {
    const std::vector<T> got = device.read();
    for (size_t i = 0; i < wanted.size(); ++i)
      if (std::memcmp(&got[i], &wanted[i], sizeof(T)) != 0)
        return fail(HEDDLE_RT_CHECK_FAILED,
                    "{} of {} on rank {} of {}: element {} is {}, expected {}",
                    what, runtime::nameOf(Dtype<T>::value), group.rank,
                    group.size, i, double(widen(got[i])),
                    double(widen(wanted[i])));
    return HEDDLE_RT_OK;
  }
};

template <class T>
heddle_rt_status allReduceCase(const Group &group, int64_t n,
                               heddle_rt_reduction reduction) {
  const Case<T> test(group, n);
  std::vector<T> wanted(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    wanted[size_t(i)] = reduced(test.inputs, i, reduction);
  // Out of place, then in place.
  auto own = test.on(test.own()), got = test.on(test.own()), other = test.on(n);
  HEDDLE_RT_TRY(heddle_rt_all_reduce(group.comm, group.stream, own.data(),
                                     other.data(), n, Dtype<T>::value,
                                     reduction));
  HEDDLE_RT_TRY(test.expect("all_reduce", other, wanted));
  HEDDLE_RT_TRY(heddle_rt_all_reduce(group.comm, group.stream, got.data(),
                                     got.data(), n, Dtype<T>::value,
                                     reduction));
  return test.expect("all_reduce in place", got, wanted);
}

template <class T>
heddle_rt_status scatterCase(const Group &group, int64_t outer, int64_t slice,
                             heddle_rt_reduction reduction) {
  const int64_t n = group.size, whole = outer * n * slice;
  const Case<T> test(group, whole);
  std::vector<T> wanted;
  auto own = test.on(test.own()), got = test.on(outer * slice);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < slice; ++i)
      wanted.push_back(
          reduced(test.inputs, (o * n + group.rank) * slice + i, reduction));
  HEDDLE_RT_TRY(heddle_rt_reduce_scatter(group.comm, group.stream, own.data(),
                                         got.data(), outer, slice,
                                         Dtype<T>::value, reduction));
  HEDDLE_RT_TRY(test.expect("reduce_scatter", got, wanted));
  // Gathered again it must be the all-reduce, bit by bit.
  auto all = test.on(whole), sum = test.on(whole);
  HEDDLE_RT_TRY(heddle_rt_all_gather(group.comm, group.stream, got.data(),
                                     all.data(), outer, slice,
                                     Dtype<T>::value));
  HEDDLE_RT_TRY(heddle_rt_all_reduce(group.comm, group.stream, own.data(),
                                     sum.data(), whole, Dtype<T>::value,
                                     reduction));
  const std::vector<T> total = sum.read();
  HEDDLE_RT_TRY(test.expect("reduce_scatter + all_gather", all, total));
  if (outer != 1)
    return HEDDLE_RT_OK;
  auto place = test.on(test.own());
  T *mine = place.data() + group.rank * slice;
  HEDDLE_RT_TRY(heddle_rt_reduce_scatter(group.comm, group.stream, place.data(),
                                         mine, 1, slice, Dtype<T>::value,
                                         reduction));
  HEDDLE_RT_TRY(heddle_rt_all_gather(group.comm, group.stream, mine,
                                     place.data(), 1, slice, Dtype<T>::value));
  return test.expect("reduce_scatter and all_gather in place", place, total);
}

template <class T>
heddle_rt_status gatherCase(const Group &group, int64_t outer, int64_t slice) {
  const Case<T> test(group, outer * slice);
  std::vector<T> wanted;
  for (int64_t o = 0; o < outer; ++o)
    for (int rank = 0; rank < group.size; ++rank)
      for (int64_t i = 0; i < slice; ++i)
        wanted.push_back(test.inputs[size_t(rank)][size_t(o * slice + i)]);
  auto own = test.on(test.own()), got = test.on(int64_t(wanted.size()));
  HEDDLE_RT_TRY(heddle_rt_all_gather(group.comm, group.stream, own.data(),
                                     got.data(), outer, slice,
                                     Dtype<T>::value));
  return test.expect("all_gather", got, wanted);
}

template <class T>
heddle_rt_status allToAllCase(const Group &group,
                              const heddle_rt_all_to_all_shape &s) {
  const int64_t n = group.size;
  const int64_t all = s.outer * s.split * s.middle * s.concat * s.inner * n;
  const Case<T> test(group, all);
  std::vector<T> wanted(static_cast<size_t>(all));
  auto own = test.on(test.own()), got = test.on(all);
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t p = 0; p < s.split; ++p)
      for (int64_t m = 0; m < s.middle; ++m)
        for (int64_t c = 0; c < n * s.concat; ++c)
          for (int64_t i = 0; i < s.inner; ++i) {
            const int64_t from = c / s.concat, at = c % s.concat;
            const int64_t cut = group.rank * s.split + p;
            const int64_t source =
                s.split_first
                    ? (((o * n * s.split + cut) * s.middle + m) * s.concat +
                       at) * s.inner +
                          i
                    : (((o * s.concat + at) * s.middle + m) * n * s.split +
                       cut) * s.inner +
                          i;
            const int64_t target =
                s.split_first
                    ? (((o * s.split + p) * s.middle + m) * n * s.concat + c) *
                              s.inner +
                          i
                    : (((o * n * s.concat + c) * s.middle + m) * s.split + p) *
                              s.inner +
                          i;
            wanted[size_t(target)] = test.inputs[size_t(from)][size_t(source)];
          }
  HEDDLE_RT_TRY(heddle_rt_all_to_all(group.comm, group.stream, own.data(),
                                     got.data(), &s, Dtype<T>::value));
  return test.expect("all_to_all", got, wanted);
}

heddle_rt_status permuteCase(const Group &group, int64_t elements) {
  const Case<int32_t> test(group, elements);
  for (int shift = 0; shift < group.size; ++shift) {
    std::vector<int32_t> from;
    for (int rank = 0; rank < group.size; ++rank)
      from.push_back((rank + shift) % group.size);
    // One rank gets nothing, another is read twice.
    from[size_t(shift)] = -1;
    from.back() = from.front();
    const int source = from[size_t(group.rank)];
    auto own = test.on(test.own());
    auto got = test.on(std::vector<int32_t>(size_t(elements), 77));
    HEDDLE_RT_TRY(heddle_rt_permute(group.comm, group.stream, own.data(),
                                    got.data(), elements, HEDDLE_RT_I32,
                                    from.data()));
    const std::vector<int32_t> untouched(static_cast<size_t>(elements), 77);
    HEDDLE_RT_TRY(test.expect(
        "permute", got, source < 0 ? untouched : test.inputs[size_t(source)]));
  }
  return HEDDLE_RT_OK;
}

/// Each rank sends to the next and receives from the one before; ungrouped
/// from even to odd ranks.
heddle_rt_status pairCases(heddle_rt_context *context, const Group &group) {
  if (group.size == 1)
    return HEDDLE_RT_OK;
  const int64_t n = 1000;
  const Case<float> test(group, n);
  const int next = (group.rank + 1) % group.size;
  const int last = (group.rank + group.size - 1) % group.size;
  auto own = test.on(test.own()), got = test.on(n), sum = test.on(n);
  std::vector<float> total(n);
  HEDDLE_RT_TRY(heddle_rt_group_begin(context));
  HEDDLE_RT_TRY(heddle_rt_send(group.comm, group.stream, own.data(), n,
                               HEDDLE_RT_F32, next));
  HEDDLE_RT_TRY(heddle_rt_receive(group.comm, group.stream, got.data(), n,
                                  HEDDLE_RT_F32, last));
  HEDDLE_RT_TRY(heddle_rt_all_reduce(group.comm, group.stream, own.data(),
                                     sum.data(), n, HEDDLE_RT_F32,
                                     HEDDLE_RT_SUM));
  HEDDLE_RT_TRY(heddle_rt_group_end(context));
  HEDDLE_RT_TRY(test.expect("send and receive in a group", got,
                            test.inputs[size_t(last)]));
  for (int64_t i = 0; i < n; ++i)
    total[size_t(i)] = reduced(test.inputs, i, HEDDLE_RT_SUM);
  HEDDLE_RT_TRY(test.expect("all_reduce in a group", sum, total));
  const int partner = group.rank ^ 1;
  if (partner >= group.size)
    return HEDDLE_RT_OK;
  // Two messages keep their order.
  auto first = test.on(n), second = test.on(n);
  if (group.rank % 2 == 0) {
    HEDDLE_RT_TRY(heddle_rt_send(group.comm, group.stream, own.data(), n,
                                 HEDDLE_RT_F32, partner));
    HEDDLE_RT_TRY(heddle_rt_send(group.comm, group.stream, sum.data(), n,
                                 HEDDLE_RT_F32, partner));
    return heddle_rt_stream_synchronize(group.stream);
  }
  HEDDLE_RT_TRY(heddle_rt_receive(group.comm, group.stream, first.data(), n,
                                  HEDDLE_RT_F32, partner));
  HEDDLE_RT_TRY(heddle_rt_receive(group.comm, group.stream, second.data(), n,
                                  HEDDLE_RT_F32, partner));
  HEDDLE_RT_TRY(
      test.expect("first receive", first, test.inputs[size_t(partner)]));
  return test.expect("second receive", second, total);
}

template <class T>
heddle_rt_status casesOf(const Group &group) {
  for (const heddle_rt_reduction op : {HEDDLE_RT_SUM, HEDDLE_RT_MAX}) {
    for (const int64_t n : {1, 7, 64, 5000})
      HEDDLE_RT_TRY(allReduceCase<T>(group, n, op));
    HEDDLE_RT_TRY(scatterCase<T>(group, 1, 1025, op));
    HEDDLE_RT_TRY(scatterCase<T>(group, 3, 17, op));
  }
  HEDDLE_RT_TRY(gatherCase<T>(group, 1, 33));
  HEDDLE_RT_TRY(gatherCase<T>(group, 4, 5));
  for (const int32_t splitFirst : {0, 1}) {
    HEDDLE_RT_TRY(allToAllCase<T>(group, {2, 3, 2, 5, 4, splitFirst}));
    HEDDLE_RT_TRY(allToAllCase<T>(group, {1, 8, 1, 1, 16, splitFirst}));
    HEDDLE_RT_TRY(allToAllCase<T>(group, {3, 1, 4, 2, 1, splitFirst}));
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status nanCase(const Group &group) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> own = {group.rank == 0 ? nan : 1.0f,
                                  group.rank == group.size - 1 ? nan : 1.0f,
                                  float(group.rank)};
  OnDevice<float> in(group.context, group.stream, own);
  OnDevice<float> result(group.context, group.stream, {0, 0, 0});
  HEDDLE_RT_TRY(heddle_rt_all_reduce(group.comm, group.stream, in.data(),
                                     result.data(), 3, HEDDLE_RT_F32,
                                     HEDDLE_RT_MAX));
  const std::vector<float> out = result.read();
  if (!std::isnan(out[0]) || !std::isnan(out[1]) ||
      out[2] != float(group.size - 1))
    return fail(HEDDLE_RT_CHECK_FAILED, "maximum with NaN: {} {} {}", out[0],
                out[1], out[2]);
  return HEDDLE_RT_OK;
}

heddle_rt_status allCases(heddle_rt_context *context, const Group &group) {
  HEDDLE_RT_TRY(casesOf<float>(group));
  HEDDLE_RT_TRY(casesOf<bf16>(group));
  HEDDLE_RT_TRY(casesOf<f16>(group));
  HEDDLE_RT_TRY(casesOf<int32_t>(group));
  HEDDLE_RT_TRY(casesOf<int64_t>(group));
  HEDDLE_RT_TRY(casesOf<double>(group));
  HEDDLE_RT_TRY(casesOf<uint8_t>(group));
  HEDDLE_RT_TRY(nanCase(group));
  HEDDLE_RT_TRY(permuteCase(group, 123));
  HEDDLE_RT_TRY(pairCases(context, group));
  return heddle_rt_stream_synchronize(group.stream);
}

} // namespace

heddle_rt_status runCollectiveCases(heddle_rt_context *context) {
  int32_t rank = 0, size = 0;
  HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
  Group world{context}, part{context};
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &world.stream));
  HEDDLE_RT_TRY(
      heddle_rt_comm_split(context, 0, rank, size, "world", &world.comm));
  HEDDLE_RT_TRY(heddle_rt_comm_rank(world.comm, &world.rank, &world.size));
  HEDDLE_RT_TRY(allCases(context, world));
  // Even and odd ranks, placed in reverse order.
  part.stream = world.stream;
  const int32_t places = (size - rank % 2 + 1) / 2;
  HEDDLE_RT_TRY(heddle_rt_comm_split(context, rank % 2, places - 1 - rank / 2,
                                     places, "half", &part.comm));
  HEDDLE_RT_TRY(heddle_rt_comm_rank(part.comm, &part.rank, &part.size));
  return allCases(context, part);
}

} // namespace heddle::test
