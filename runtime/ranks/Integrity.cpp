#include "runtime/ranks/Integrity.h"

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/Random.h"
#include "runtime/common/Dtype.h"

#include <cmath>
#include <limits>

namespace heddle::ranks {

namespace {

/// Half a unit in the last place, relative.
double roundingOf(heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_BF16:
    return 0x1p-9;
  case HEDDLE_RT_F16:
    return 0x1p-12;
  case HEDDLE_RT_F64:
    return 0x1p-53;
  default:
    return 0x1p-24;
  }
}

/// The largest number of a format.
double largestOf(heddle_rt_dtype dtype) {
  return dtype == HEDDLE_RT_F16   ? 65504
         : dtype == HEDDLE_RT_F64 ? std::numeric_limits<double>::max()
                                  : double(std::numeric_limits<float>::max());
}

template <class T, class Use>
void forEach(const Strided &slice, Use use) {
  const int64_t perBlock = slice.blockBytes / int64_t(sizeof(T));
  for (int64_t block = 0; block < slice.blocks; ++block) {
    const T *data =
        reinterpret_cast<const T *>(slice.data + block * slice.stride);
    for (int64_t i = 0; i < perBlock; ++i)
      use(double(widen(data[i])), data + i, block * perBlock + i);
  }
}

template <class Use>
void forEach(const Strided &slice, heddle_rt_dtype dtype, Use use) {
  switch (dtype) {
  case HEDDLE_RT_BF16:
    return forEach<bf16>(slice, use);
  case HEDDLE_RT_F16:
    return forEach<f16>(slice, use);
  case HEDDLE_RT_F64:
    return forEach<double>(slice, use);
  default:
    return forEach<float>(slice, use);
  }
}

template <class T>
SliceSum sumAs(const Strided &slice) {
  // Lanes: one chain of additions would be slower than the reduction itself.
  constexpr int kLanes = 16;
  double sums[kLanes] = {}, magnitudes[kLanes] = {};
  SliceSum total;
  const int64_t perBlock = slice.blockBytes / int64_t(sizeof(T));
  for (int64_t block = 0; block < slice.blocks; ++block) {
    const T *data =
        reinterpret_cast<const T *>(slice.data + block * slice.stride);
    int64_t i = 0;
    for (; i + kLanes <= perBlock; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) {
        const double value = double(widen(data[i + lane]));
        sums[lane] += value;
        magnitudes[lane] += std::abs(value);
      }
    for (; i < perBlock; ++i) {
      const double value = double(widen(data[i]));
      total.sum += value;
      total.magnitude += std::abs(value);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    total.sum += sums[lane];
    total.magnitude += magnitudes[lane];
  }
  return total;
}

uint64_t hashOf(const Strided &slice, uint64_t hash) {
  for (int64_t block = 0; block < slice.blocks; ++block) {
    const std::byte *data = slice.data + block * slice.stride;
    int64_t i = 0;
    for (; i + 8 <= slice.blockBytes; i += 8) {
      uint64_t word;
      __builtin_memcpy(&word, data + i, 8);
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    for (; i < slice.blockBytes; ++i)
      hash = (hash ^ uint64_t(data[i])) * 0x100000001b3u;
  }
  return hash;
}

} // namespace

bool isFloat(heddle_rt_dtype dtype) {
  return dtype == HEDDLE_RT_F32 || dtype == HEDDLE_RT_BF16 ||
         dtype == HEDDLE_RT_F16 || dtype == HEDDLE_RT_F64;
}

SliceSum sumOf(const Strided &slice, heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_BF16:
    return sumAs<bf16>(slice);
  case HEDDLE_RT_F16:
    return sumAs<f16>(slice);
  case HEDDLE_RT_F64:
    return sumAs<double>(slice);
  default:
    return sumAs<float>(slice);
  }
}

void Integrity::begin(const Look &wanted) {
  look = wanted;
  wrongSum.reset();
  noNumber.reset();
  largest.reset();
  largestSum = 0;
  hashes.clear();
  if (large > 0)
    largeBefore = large;
  reductions = large = 0;
}

void Integrity::tamperWith(int64_t largeNumber, Where where,
                           const Strided &memory) {
  if (!tamper || tamper->number != largeNumber || tamper->where != where ||
      memory.bytes() == 0)
    return;
  tamper->change(memory);
  tamper.reset();
}

Integrity::Number Integrity::beginReduction(int64_t elements) {
  if (look.hashes)
    hashes.push_back(0xcbf29ce484222325u);
  return {reductions++, elements >= kLarge ? large++ : -1};
}

void Integrity::given(int64_t number, const char *name, const Strided &slice,
                      int64_t first, heddle_rt_dtype dtype, SliceSum &sum) {
  if (look.hashes)
    hashes[size_t(number)] = hashOf(slice, hashes[size_t(number)]);
  if (!look.sums && !look.numbers)
    return;
  sum = sumOf(slice, dtype);
  if (!look.numbers || noNumber ||
      (std::isfinite(sum.magnitude) && sum.magnitude <= largestSum))
    return;
  if (std::isfinite(sum.magnitude))
    largestSum = sum.magnitude;
  forEach(slice, dtype, [&](double value, const void *at, int64_t i) {
    if (!noNumber && !std::isfinite(value))
      noNumber = Element{name, number, at, first + i, value};
    if (!largest || std::abs(value) > std::abs(largest->value))
      largest = Element{name, number, at, first + i, value};
  });
}

void Integrity::summed(int64_t number, const char *name, int place,
                       const Strided &slice, heddle_rt_dtype dtype,
                       const std::vector<SliceSum> &all, SliceSum &sum) {
  if (!look.sums)
    return;
  sum = sumOf(slice, dtype);
  SliceSum expected;
  for (const SliceSum &one : all) {
    expected.sum += one.sum;
    expected.magnitude += one.magnitude;
  }
  // Each of n - 1 additions in fp32 rounds a partial sum, which is at most the
  // sum of absolute values; then the result is rounded to its format.
  const double tolerance =
      expected.magnitude *
          (double(all.size()) * (dtype == HEDDLE_RT_F64 ? 0x1p-53 : 0x1p-24) +
           roundingOf(dtype)) +
      std::numeric_limits<float>::min();
  const double off = std::abs(sum.sum - expected.sum);
  // What is no number on one side alone was made on the way.
  // Nor is every sum a number of its format.
  const bool mayOverflow = expected.magnitude >= largestOf(dtype);
  const bool isWrong = !std::isfinite(expected.sum) ? std::isfinite(sum.sum)
                       : std::isfinite(sum.sum)     ? off > tolerance
                                                    : !mayOverflow;
  if (isWrong && !wrongSum)
    wrongSum = WrongSum{name, number, place, false, off, tolerance};
}

void Integrity::copied(int64_t number, const char *name, int place,
                       const Strided &slice, heddle_rt_dtype dtype,
                       const SliceSum &sum) {
  if (!look.sums || wrongSum)
    return;
  const SliceSum here = sumOf(slice, dtype);
  if (here.sum != sum.sum || here.magnitude != sum.magnitude) // the same bits
    if (std::isfinite(here.magnitude) || std::isfinite(sum.magnitude))
      wrongSum =
          WrongSum{name, number, place, true, std::abs(here.sum - sum.sum), 0};
}

} // namespace heddle::ranks
