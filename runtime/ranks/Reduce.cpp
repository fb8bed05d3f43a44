#include "runtime/ranks/Reduce.h"

#include "heddle/Runtime/Formats.h"

#include <algorithm>

namespace heddle::ranks {

namespace {

constexpr int64_t kRun = 1024; ///< elements that stay in the first cache

template <class T, class Op>
void reduceAs(void *output, const std::vector<const void *> &parts,
              int64_t elements, Op op) {
  wide<T> sum[kRun];
  for (int64_t at = 0; at < elements; at += kRun) {
    const int64_t n = std::min(kRun, elements - at);
    const T *first = static_cast<const T *>(parts[0]) + at;
    for (int64_t i = 0; i < n; ++i)
      sum[i] = widen(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T *part = static_cast<const T *>(parts[p]) + at;
      for (int64_t i = 0; i < n; ++i)
        sum[i] = op(sum[i], widen(part[i]));
    }
    T *to = static_cast<T *>(output) + at;
    for (int64_t i = 0; i < n; ++i)
      narrow(sum[i], to[i]);
  }
}

template <class T, class Compared = T>
void reduceWith(void *output, const std::vector<const void *> &parts,
                int64_t elements, heddle_rt_reduction reduction) {
  if (reduction == HEDDLE_RT_SUM)
    reduceAs<T>(output, parts, elements,
                [](auto a, auto b) { return decltype(a)(a + b); });
  else // a NaN on either side stays
    reduceAs<Compared>(output, parts, elements,
                       [](auto a, auto b) { return a > b || a != a ? a : b; });
}

} // namespace

void reduce(void *output, const std::vector<const void *> &parts,
            int64_t elements, heddle_rt_dtype dtype,
            heddle_rt_reduction reduction) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return reduceWith<float>(output, parts, elements, reduction);
  case HEDDLE_RT_BF16:
    return reduceWith<bf16>(output, parts, elements, reduction);
  case HEDDLE_RT_F16:
    return reduceWith<f16>(output, parts, elements, reduction);
  case HEDDLE_RT_I32:
    return reduceWith<uint32_t, int32_t>(output, parts, elements, reduction);
  case HEDDLE_RT_I64:
    return reduceWith<uint64_t, int64_t>(output, parts, elements, reduction);
  case HEDDLE_RT_F64:
    return reduceWith<double>(output, parts, elements, reduction);
  case HEDDLE_RT_U8:
    return reduceWith<uint8_t>(output, parts, elements, reduction);
  case HEDDLE_RT_F8E4M3:
  case HEDDLE_RT_F8E5M2:
  case HEDDLE_RT_F8E8M0:
  case HEDDLE_RT_F4E2M1:
    return; // refused: checkAllReduce, checkReduceScatter
  }
}

} // namespace heddle::ranks
