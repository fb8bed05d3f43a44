// Codes of 4 bits with scales of two levels, each against its meaning in plain
// fp64.

#include "Codes.h"

#include "runtime/common/Status.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

using heddle::f4e2m1;
using heddle::f8e4m3;
using heddle::test::hasBlocks;
using heddle::test::ProductOfCodes;
using heddle::test::valuesOf;
using heddle::test::withStream;
using testing::HasSubstr;

namespace {

/// Codes of 4 bits, two a byte, and their scales of two levels.
struct Fours {
  std::vector<uint8_t> bytes;
  std::vector<f8e4m3> scales;
  float tensorScale = -1;

  float code(int64_t i) const {
    const unsigned both = bytes[size_t(i / 2)];
    return heddle::widen(f4e2m1{uint8_t(i % 2 ? both >> 4 : both & 0xfu)});
  }
};

Fours quantizeFours(const std::vector<float> &values, int64_t rows,
                    int64_t blockRows, int64_t blockColumns, bool transposed,
                    float amax) {
  Fours result;
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    heddle_rt_quantize_args args{};
    args.name = "fours";
    args.rows = rows;
    args.columns = int64_t(values.size()) / rows;
    args.transposed = transposed;
    args.input = HEDDLE_RT_F32, args.codes = HEDDLE_RT_F4E2M1;
    args.scales = HEDDLE_RT_F8E4M3;
    args.block_rows = blockRows, args.block_columns = blockColumns;
    const int64_t down = transposed ? args.columns : args.rows,
                  across = transposed ? args.rows : args.columns;
    heddle::test::OnDevice<float> x(context, stream, values);
    // All bits set: what is written is all that is there.
    heddle::test::OnDevice<uint8_t> codes(
        context, stream, std::vector<uint8_t>((values.size() + 1) / 2, 0xffu));
    heddle::test::OnDevice<f8e4m3> scales(
        context, stream,
        std::vector<f8e4m3>(
            size_t((down + blockRows - 1) / blockRows *
                   ((across + blockColumns - 1) / blockColumns))));
    heddle::test::OnDevice<float> numbers(context, stream, {amax, -1});
    args.tensor_scale = numbers.data() + 1;
    ASSERT_EQ(heddle_rt_quantize(stream, &args, x.data(), numbers.data(),
                                 codes.data(), scales.data()),
              HEDDLE_RT_OK)
        << heddle_rt_last_error();
    result.bytes = codes.read();
    result.scales = scales.read();
    result.tensorScale = numbers.read()[1];
  });
  return result;
}

/// The nearest of a format's numbers, ties to the even code, by search.
template <class T>
double nearestOf(double value, int codes) {
  double best = 0, distance = std::abs(value);
  int bestCode = 0;
  for (int code = 0; code < codes; ++code) {
    T each;
    each.bits = uint8_t(code);
    const double number = heddle::widen(each);
    if (!std::isfinite(number))
      continue;
    const double far = std::abs(number - value);
    if (far < distance || (far == distance && code % 2 < bestCode % 2))
      best = number, distance = far, bestCode = code;
  }
  return best;
}

void checkFours(int64_t inRows, int64_t inColumns, int64_t blockRows,
                int64_t blockColumns, bool transposed) {
  const int64_t rows = transposed ? inColumns : inRows,
                columns = transposed ? inRows : inColumns;
  auto values = valuesOf<float>(inRows * inColumns, 3, 5);
  for (int64_t i = 0; i < 20; ++i) // far apart in size
    values[size_t(i)] *= i < 10 ? 1e-3f : 1e-7f;
  float amax = 0;
  for (float value : values)
    amax = std::max(amax, std::fabs(value));
  amax *= 1.25f; // some other rank's
  const Fours got =
      quantizeFours(values, inRows, blockRows, blockColumns, transposed, amax);
  const auto at = [&](int64_t row, int64_t column) {
    return values[size_t(transposed ? column * inColumns + row
                                    : row * inColumns + column)];
  };
  const float up = 448 * 6 / amax;
  EXPECT_EQ(got.tensorScale, 1 / up);
  const int64_t across = (columns + blockColumns - 1) / blockColumns;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t top = row / blockRows * blockRows,
                    left = column / blockColumns * blockColumns;
      float most = 0;
      for (int64_t r = top; r < std::min(top + blockRows, rows); ++r)
        for (int64_t c = left; c < std::min(left + blockColumns, columns); ++c)
          most = std::max(most, std::fabs(at(r, c)));
      const float scale = heddle::widen(
          got.scales[size_t(top / blockRows * across + left / blockColumns)]);
      ASSERT_EQ(scale, nearestOf<f8e4m3>(most * up / 6, 128));
      const float scaled = at(row, column) * (scale == 0 ? 0 : up / scale);
      ASSERT_EQ(got.code(row * columns + column), nearestOf<f4e2m1>(scaled, 16))
          << scaled;
      // Nothing that a block's scale has all bits for is cut off.
      if (scale >= 0.015625f) {
        ASSERT_LE(std::fabs(scaled), 6.4f);
      }
    }
}

TEST(Quantize, ScalesOfTwoLevels) {
  if (!hasBlocks())
    GTEST_SKIP() << "a backend without blocks";
  for (const bool transposed : {false, true}) {
    checkFours(7, 40, 1, 16, transposed);
    checkFours(33, 35, 16, 16, transposed); // odd rows share bytes
    checkFours(6, 9, 1, 4, transposed);
  }
  const Fours none = quantizeFours({0, 0, 0, -0.0f}, 1, 1, 4, false, 0);
  EXPECT_EQ(none.tensorScale, 1);
  EXPECT_EQ(heddle::widen(none.scales[0]), 0);
  EXPECT_EQ(none.bytes, std::vector<uint8_t>({0x00, 0x80}));
  // The largest fp32 that a tensor can be multiplied by.
  const Fours tiny = quantizeFours({1e-38f, 0}, 1, 1, 2, false, 1e-38f);
  EXPECT_TRUE(std::isfinite(tiny.tensorScale) && std::isfinite(tiny.code(0)));
  for (float amax : {std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_TRUE(
        std::isnan(quantizeFours({1, 2}, 1, 1, 2, false, amax).tensorScale));
}

// The same 16 x 16 blocks both ways: a number of a weight has one value.
TEST(Quantize, SquareBlocksTurnedHaveTheSameValues) {
  if (!hasBlocks())
    GTEST_SKIP() << "a backend without blocks";
  const int64_t rows = 40, columns = 50;
  const auto values = valuesOf<float>(rows * columns, 3, 9);
  const Fours plain = quantizeFours(values, rows, 16, 16, false, 3),
              turned = quantizeFours(values, rows, 16, 16, true, 3);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      ASSERT_EQ(plain.code(row * columns + column),
                turned.code(column * rows + row));
      ASSERT_EQ(plain.scales[size_t(row / 16 * 4 + column / 16)].bits,
                turned.scales[size_t(column / 16 * 3 + row / 16)].bits);
    }
}

TEST(Quantize, ProductsOfFoursAreExactButForTheSum) {
  if (!hasBlocks())
    GTEST_SKIP() << "a backend without blocks";
  const int64_t m = 5, n = 7, k = 39, length = 16, rowsOfB = 3;
  const auto a = valuesOf<float>(m * k, 2, 3),
             b = valuesOf<float>(n * k, 40, 4);
  const Fours x = quantizeFours(a, m, 1, length, false, 2.5f),
              y = quantizeFours(b, n, rowsOfB, length, false, 50);
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    ProductOfCodes<uint8_t, uint8_t> product("of fours", m, n, k, context,
                                             stream, x.bytes, y.bytes);
    heddle_rt_gemm_args &args = product.args;
    args.a = args.b = HEDDLE_RT_F4E2M1;
    args.scales = HEDDLE_RT_F8E4M3;
    args.block_a = 1, args.block_b = rowsOfB, args.block_k = length;
    heddle::test::OnDevice<f8e4m3> ofA(context, stream, x.scales),
        ofB(context, stream, y.scales);
    heddle::test::OnDevice<float> whole(context, stream,
                                        {x.tensorScale, y.tensorScale});
    args.scale_a = ofA.data(), args.scale_b = ofB.data();
    args.tensor_scale_a = whole.data(), args.tensor_scale_b = whole.data() + 1;
    ASSERT_EQ(product.run(), HEDDLE_RT_OK) << heddle_rt_last_error();
    const std::vector<float> got = product.c.read();
    const int64_t across = (k + length - 1) / length;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double each =
              double(x.code(i * k + l)) * y.code(j * k + l) *
              heddle::widen(x.scales[size_t(i * across + l / length)]) *
              heddle::widen(
                  y.scales[size_t(j / rowsOfB * across + l / length)]);
          sum += each, size += std::abs(each);
        }
        const double scale = double(x.tensorScale) * y.tensorScale;
        ASSERT_NEAR(got[size_t(i * n + j)], 0.5 + scale * sum,
                    1e-6 * (1 + scale * size));
      }
    args.tensor_scale_b = nullptr;
    EXPECT_EQ(product.run(), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(heddle_rt_last_error(), HasSubstr("scales of tensors belong"));
    args.tensor_scale_b = whole.data() + 1;
    args.lda = k + 1;
    EXPECT_EQ(product.run(), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(heddle_rt_last_error(), HasSubstr("lie without gaps"));
  });
}

} // namespace
