// heddle_rt_rope against rotations in fp64.

#include "OnDevice.h"

#include "heddle/Runtime/Formats.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using heddle::bf16;

namespace {

constexpr int64_t kHeads = 3, kSize = 6;
const std::vector<double> kFrequencies = {1, 0.1, 1e-3};
const std::vector<int32_t> kPositions = {0, 1, 77, 30000};

double valueAt(size_t i) { return std::sin(double(i) * 1.7) * 3; }

template <class T>
heddle::ranks::RunResult rotate(std::vector<T> &values, bool inverse,
                                heddle_rt_dtype dtype) {
  return heddle::ranks::runRanks(1, {}, [&](heddle_rt_context *context) {
    heddle_rt_stream *stream = nullptr;
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
    heddle_rt_rope_args args{};
    args.name = "test rope";
    args.positions = int64_t(kPositions.size());
    args.heads = kHeads, args.head_size = kSize;
    args.frequencies = kFrequencies.data();
    args.inverse = inverse;
    args.dtype = dtype;
    heddle::test::OnDevice<T> x(context, stream, values);
    heddle::test::OnDevice<int32_t> positions(context, stream, kPositions);
    HEDDLE_RT_TRY(
        heddle_rt_rope(stream, &args, x.data(), positions.data(), x.data()));
    values = x.read();
    return HEDDLE_RT_OK;
  });
}

/// In place, forward and back. `unit`: what one rounding may be off by.
template <class T>
void check(heddle_rt_dtype dtype, double unit) {
  std::vector<T> values(kPositions.size() * kHeads * kSize);
  std::vector<double> before(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    heddle::narrow(float(valueAt(i)), values[i]);
    before[i] = heddle::widen(values[i]);
  }
  auto result = rotate(values, false, dtype);
  ASSERT_EQ(result.status, HEDDLE_RT_OK) << result.message;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t half = kSize / 2, c = i % kSize, pair = c % half;
    const double angle =
        double(kPositions[i / (kHeads * kSize)]) * kFrequencies[pair];
    const double other = before[c < half ? i + half : i - half];
    const double wanted = before[i] * std::cos(angle) +
                          (c < half ? -1 : 1) * other * std::sin(angle);
    ASSERT_NEAR(heddle::widen(values[i]), wanted,
                unit * std::abs(wanted) + 2e-6)
        << "at " << i;
  }
  result = rotate(values, true, dtype);
  ASSERT_EQ(result.status, HEDDLE_RT_OK) << result.message;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(heddle::widen(values[i]), before[i], 10 * unit + 4e-6)
        << "at " << i;
}

TEST(Rope, TurnsPairsAndTurnsThemBack) {
  check<float>(HEDDLE_RT_F32, 1e-7);
  check<bf16>(HEDDLE_RT_BF16, 1.0 / 256);
  check<heddle::f16>(HEDDLE_RT_F16, 1.0 / 2048);
}

TEST(Rope, RefusesOtherFormats) {
  std::vector<int32_t> values(kPositions.size() * kHeads * kSize);
  const auto result = rotate(values, false, HEDDLE_RT_I32);
  EXPECT_EQ(result.status, HEDDLE_RT_INVALID_ARGUMENT);
  EXPECT_THAT(
      result.message,
      testing::HasSubstr("test rope: rotates f32, bf16 or f16, got i32"));
}

} // namespace
