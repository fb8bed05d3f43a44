// heddle_rt_amax, heddle_rt_quantize and products of codes, each against its
// meaning in plain fp64.

#include "Codes.h"

#include "runtime/common/Status.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

using heddle::bf16;
using heddle::f8e4m3;
using heddle::f8e5m2;
using heddle::f8e8m0;
using heddle::test::dtypeOf;
using heddle::test::hasBlocks;
using heddle::test::ProductOfCodes;
using heddle::test::valuesOf;
using heddle::test::withStream;
using testing::HasSubstr;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
float amaxOf(const std::vector<T> &values) {
  float amax = -1;
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    heddle::test::OnDevice<T> x(context, stream, values);
    // What is there before is no part of it.
    heddle::test::OnDevice<float> most(context, stream, {1e30f});
    ASSERT_EQ(heddle_rt_amax(stream, "amax", x.data(), int64_t(values.size()),
                             dtypeOf<T>(), most.data()),
              HEDDLE_RT_OK)
        << heddle_rt_last_error();
    amax = most.read()[0];
  });
  return amax;
}

TEST(Amax, IsTheLargestMagnitudeAndANanWins) {
  EXPECT_EQ(amaxOf<float>({1, -3.5f, 2}), 3.5f);
  EXPECT_EQ(amaxOf<float>({0, -0.0f}), 0.0f);
  EXPECT_EQ(amaxOf<float>({-kInfinity, 1}), kInfinity);
  EXPECT_TRUE(std::isnan(amaxOf<float>({1, std::nanf(""), kInfinity})));
  const auto values = valuesOf<bf16>(10007, 5, 1);
  float most = 0;
  for (bf16 value : values)
    most = std::max(most, std::fabs(heddle::widen(value)));
  EXPECT_EQ(amaxOf(values), most);
}

template <class Code>
struct Quantized {
  std::vector<Code> codes;
  float scale = -1;
};

template <class T, class Code>
Quantized<Code> quantize(const std::vector<T> &values, int64_t rows, float amax,
                         bool transposed = false, bool powerOfTwo = false) {
  Quantized<Code> result;
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    heddle_rt_quantize_args args{};
    args.name = "quantize";
    args.rows = rows;
    args.columns = int64_t(values.size()) / rows;
    args.transposed = transposed, args.power_of_two = powerOfTwo;
    args.input = dtypeOf<T>(), args.codes = dtypeOf<Code>();
    heddle::test::OnDevice<T> x(context, stream, values);
    heddle::test::OnDevice<float> numbers(context, stream, {amax, -1});
    heddle::test::OnDevice<Code> codes(context, stream,
                                       std::vector<Code>(values.size()));
    ASSERT_EQ(heddle_rt_quantize(stream, &args, x.data(), numbers.data(),
                                 codes.data(), numbers.data() + 1),
              HEDDLE_RT_OK)
        << heddle_rt_last_error();
    result.codes = codes.read();
    result.scale = numbers.read()[1];
  });
  return result;
}

/// Each code is the nearest of all 256 to the scaled value.
template <class Code>
void expectNearest(float value, float up, Code code) {
  const double scaled = double(value * up);
  const double got = heddle::widen(code);
  for (int bits = 0; bits < 256; ++bits) {
    Code other;
    other.bits = uint8_t(bits);
    const double number = heddle::widen(other);
    if (std::isfinite(number)) {
      ASSERT_LE(std::abs(got - scaled), std::abs(number - scaled))
          << value << " x " << up << " became " << got;
    }
  }
}

template <class Code>
void checkCodes(float largest, bool transposed) {
  const int64_t rows = 5, columns = 7;
  const auto values = valuesOf<bf16>(rows * columns, 3, 2);
  const float amax = amaxOf(values);
  const auto [codes, scale] =
      quantize<bf16, Code>(values, rows, amax, transposed);
  EXPECT_EQ(scale, 1 / (largest / amax));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      expectNearest(heddle::widen(values[size_t(row * columns + column)]),
                    largest / amax,
                    codes[size_t(transposed ? column * rows + row
                                            : row * columns + column)]);
}

TEST(Quantize, GivesTheNearestCodesOfTheWholeRange) {
  for (const bool transposed : {false, true}) {
    checkCodes<f8e4m3>(448, transposed);
    checkCodes<f8e5m2>(57344, transposed);
  }
}

// More than a block takes at a time, in both directions and with tails.
template <class T>
void checkTurned(int64_t rows, int64_t columns) {
  const auto values = valuesOf<T>(rows * columns, 3, 5);
  const float amax = amaxOf(values);
  const auto plain = quantize<T, f8e4m3>(values, rows, amax);
  const auto turned = quantize<T, f8e4m3>(values, rows, amax, true);
  EXPECT_EQ(plain.scale, turned.scale);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const auto at = size_t(row * columns + column);
      f8e4m3 own;
      heddle::narrow(heddle::widen(values[at]) * (448 / amax), own);
      ASSERT_EQ(plain.codes[at].bits, own.bits) << row << ", " << column;
      ASSERT_EQ(turned.codes[size_t(column * rows + row)].bits, own.bits)
          << row << ", " << column;
    }
}

TEST(Quantize, TurnedCodesAreTheSame) {
  checkTurned<bf16>(130, 70);
  checkTurned<float>(67, 129);
  checkTurned<bf16>(1, 1);
}

TEST(Quantize, HasScalesForAllAmaxes) {
  const std::vector<float> values = {1, -2, 0.5f, 0};
  // 0: as they are. 448 / 3 is between 2^7 and 2^8.
  EXPECT_EQ((quantize<float, f8e4m3>(values, 1, 0).scale), 1.0f);
  EXPECT_EQ((quantize<float, f8e4m3>(values, 1, 3, false, true).scale),
            1.0f / 128);
  EXPECT_EQ((quantize<float, f8e4m3>(values, 1, 448, false, true).scale), 1.0f);
  // Smaller than 448 / the largest number of fp32: as large as it has it.
  const auto tiny = quantize<float, f8e4m3>({1e-38f}, 1, 1e-38f);
  EXPECT_EQ(tiny.scale, 1 / std::numeric_limits<float>::max());
  // What is beyond amax has the largest code, not infinity and not NaN.
  EXPECT_EQ(heddle::widen(quantize<float, f8e4m3>({9}, 1, 1).codes[0]), 448);
  EXPECT_EQ(heddle::widen(quantize<float, f8e5m2>({-9}, 1, 1).codes[0]),
            -57344);
  // A fault of the input stays one.
  for (const float amax : {kInfinity, std::nanf("")})
    EXPECT_TRUE(std::isnan(quantize<float, f8e4m3>(values, 1, amax).scale));
}

TEST(Quantize, ProductsOfCodesAreExactButForTheSum) {
  const int64_t m = 9, n = 8, k = 144; // as GPUs want them: 16 bytes
  const auto a = valuesOf<bf16>(m * k, 2, 3), b = valuesOf<bf16>(n * k, 40, 4);
  const auto x = quantize<bf16, f8e4m3>(a, m, amaxOf(a));
  const auto y = quantize<bf16, f8e5m2>(b, n, amaxOf(b));
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    ProductOfCodes<f8e4m3, f8e5m2> product("of codes", m, n, k, context, stream,
                                           x.codes, y.codes);
    heddle::test::OnDevice<float> scales(context, stream, {x.scale, y.scale});
    product.args.scale_a = scales.data();
    product.args.scale_b = scales.data() + 1;
    ASSERT_EQ(product.run(), HEDDLE_RT_OK) << heddle_rt_last_error();
    const std::vector<float> got = product.c.read();
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double each =
              double(heddle::widen(x.codes[size_t(i * k + l)])) *
              heddle::widen(y.codes[size_t(j * k + l)]);
          sum += each, size += std::abs(each);
        }
        const double scale = double(x.scale) * y.scale;
        ASSERT_NEAR(got[size_t(i * n + j)], 0.5 + scale * sum,
                    1e-6 * (1 + scale * size));
      }
    // The same product with other scales, as of another layer.
    heddle::test::OnDevice<float> others(context, stream,
                                         {2 * x.scale, y.scale});
    ProductOfCodes<f8e4m3, f8e5m2> other("of others", m, n, k, context, stream,
                                         x.codes, y.codes, 0);
    other.args.scale_a = others.data(), other.args.scale_b = others.data() + 1;
    ASSERT_EQ(other.run(), HEDDLE_RT_OK) << heddle_rt_last_error();
    const std::vector<float> twice = other.c.read();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(twice[i], 2 * (got[i] - 0.5f),
                  1e-4f * (1 + std::abs(got[i])));
    product.args.scale_b = nullptr;
    EXPECT_EQ(product.run(), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(
        heddle_rt_last_error(),
        HasSubstr("of codes: operands that are codes have a scale each"));
  });
}

/// Scales of the blocks, in codes of `Scale`, and what they stand for.
template <class Code, class Scale>
struct Blocks {
  std::vector<Code> codes;
  std::vector<Scale> scales;
};

template <class Code, class Scale>
Blocks<Code, Scale>
quantizeBlocks(const std::vector<bf16> &values, int64_t rows, int64_t blockRows,
               int64_t blockColumns, bool transposed, bool powerOfTwo) {
  Blocks<Code, Scale> result;
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    heddle_rt_quantize_args args{};
    args.name = "blocks";
    args.rows = rows;
    args.columns = int64_t(values.size()) / rows;
    const int64_t down = transposed ? args.columns : args.rows,
                  across = transposed ? args.rows : args.columns;
    args.transposed = transposed;
    args.power_of_two = powerOfTwo;
    args.input = HEDDLE_RT_BF16, args.codes = dtypeOf<Code>();
    args.scales = dtypeOf<Scale>();
    args.block_rows = blockRows, args.block_columns = blockColumns;
    const auto count = [](int64_t n, int64_t block) {
      return (n + block - 1) / block;
    };
    heddle::test::OnDevice<bf16> x(context, stream, values);
    heddle::test::OnDevice<Code> codes(context, stream,
                                       std::vector<Code>(values.size()));
    heddle::test::OnDevice<Scale> scales(
        context, stream,
        std::vector<Scale>(
            size_t(count(down, blockRows) * count(across, blockColumns))));
    ASSERT_EQ(heddle_rt_quantize(stream, &args, x.data(), nullptr, codes.data(),
                                 scales.data()),
              HEDDLE_RT_OK)
        << heddle_rt_last_error();
    result.codes = codes.read();
    result.scales = scales.read();
  });
  return result;
}

/// Each block by itself: its largest magnitude makes the scale, which is a
/// power of two where it is a byte, and all its codes are the nearest.
template <class Code, class Scale>
void checkBlocks(int64_t blockRows, int64_t blockColumns, bool transposed,
                 int64_t inRows = 7, int64_t inColumns = 11,
                 bool powerOfTwo = std::is_same_v<Scale, f8e8m0>) {
  const int64_t rows = transposed ? inColumns : inRows,
                columns = transposed ? inRows : inColumns;
  auto values = valuesOf<bf16>(inRows * inColumns, 3, 5);
  for (int64_t i = 0; i < 20; ++i) // far apart in size
    heddle::narrow(heddle::widen(values[size_t(i)]) * 1e-20f,
                   values[size_t(i)]);
  const auto got = quantizeBlocks<Code, Scale>(
      values, inRows, blockRows, blockColumns, transposed, powerOfTwo);
  const auto at = [&](int64_t row, int64_t column) {
    return heddle::widen(values[size_t(transposed ? column * inColumns + row
                                                  : row * inColumns + column)]);
  };
  const float largest = heddle::largest(Code());
  const int64_t across = (columns + blockColumns - 1) / blockColumns;
  for (int64_t top = 0; top < rows; top += blockRows)
    for (int64_t left = 0; left < columns; left += blockColumns) {
      const int64_t bottom = std::min(top + blockRows, rows),
                    right = std::min(left + blockColumns, columns);
      float amax = 0;
      for (int64_t row = top; row < bottom; ++row)
        for (int64_t column = left; column < right; ++column)
          amax = std::max(amax, std::fabs(at(row, column)));
      float up = largest / amax;
      if (powerOfTwo)
        up = std::ldexp(1.0f, std::ilogb(up));
      const Scale scale =
          got.scales[size_t(top / blockRows * across + left / blockColumns)];
      ASSERT_EQ(heddle::widen(scale), 1 / up);
      for (int64_t row = top; row < bottom; ++row)
        for (int64_t column = left; column < right; ++column)
          expectNearest(at(row, column), up,
                        got.codes[size_t(row * columns + column)]);
    }
}

TEST(Quantize, BlocksHaveScalesOfTheirOwn) {
  const bool all = hasBlocks();
  for (const bool transposed : {false, true}) {
    // More than one in both directions, tails, sizes that have none.
    checkBlocks<f8e4m3, float>(1, 128, transposed, 131, 300);
    checkBlocks<f8e4m3, float>(128, 128, transposed, 131, 300);
    checkBlocks<f8e5m2, float>(1, 128, transposed, 256, 33);
    checkBlocks<f8e4m3, float>(128, 128, transposed, 3, 5);
    checkBlocks<f8e4m3, float>(1, 128, transposed, 9, 130, true);
    checkBlocks<f8e4m3, float>(128, 128, transposed, 9, 130, true);
    if (!all)
      continue;
    checkBlocks<f8e4m3, float>(1, 4, transposed);
    checkBlocks<f8e4m3, float>(4, 4, transposed);
    checkBlocks<f8e5m2, float>(3, 100, transposed);
    checkBlocks<f8e4m3, f8e8m0>(1, 4, transposed);
    checkBlocks<f8e4m3, f8e8m0>(1, 11, transposed);
  }
}

/// The last block of the sum is smaller.
template <class Scale>
void checkProductOfBlocks(int64_t m, int64_t n, int64_t k, int64_t rowsOfA,
                          int64_t rowsOfB, int64_t length) {
  constexpr bool power = std::is_same_v<Scale, f8e8m0>;
  const auto a = valuesOf<bf16>(m * k, 2, 3), b = valuesOf<bf16>(n * k, 40, 4);
  const auto x =
      quantizeBlocks<f8e4m3, Scale>(a, m, rowsOfA, length, false, power);
  const auto y =
      quantizeBlocks<f8e4m3, Scale>(b, n, rowsOfB, length, false, power);
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    ProductOfCodes<f8e4m3, f8e4m3> product("of blocks", m, n, k, context,
                                           stream, x.codes, y.codes);
    heddle_rt_gemm_args &args = product.args;
    args.scales = dtypeOf<Scale>();
    args.block_a = rowsOfA, args.block_b = rowsOfB, args.block_k = length;
    heddle::test::OnDevice<Scale> ofA(context, stream, x.scales);
    heddle::test::OnDevice<Scale> ofB(context, stream, y.scales);
    args.scale_a = ofA.data(), args.scale_b = ofB.data();
    ASSERT_EQ(product.run(), HEDDLE_RT_OK) << heddle_rt_last_error();
    const std::vector<float> got = product.c.read();
    const int64_t across = (k + length - 1) / length;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0.5, size = 0.5;
        for (int64_t l = 0; l < k; ++l) {
          const double each =
              double(heddle::widen(x.codes[size_t(i * k + l)])) *
              heddle::widen(y.codes[size_t(j * k + l)]) *
              heddle::widen(
                  x.scales[size_t(i / rowsOfA * across + l / length)]) *
              heddle::widen(
                  y.scales[size_t(j / rowsOfB * across + l / length)]);
          sum += each, size += std::abs(each);
        }
        ASSERT_NEAR(got[size_t(i * n + j)], sum, 1e-6 * size);
      }
    args.transpose_b = 0;
    args.ldb = n;
    EXPECT_EQ(product.run(), HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(heddle_rt_last_error(), HasSubstr("belong to one product"));
  });
}

TEST(Quantize, ProductsOfBlocksAreExactButForTheSum) {
  // Of activations and weights, both ways round, and of two of activations.
  checkProductOfBlocks<float>(8, 136, 272, 1, 128, 128);
  checkProductOfBlocks<float>(136, 8, 272, 128, 1, 128);
  checkProductOfBlocks<float>(12, 16, 144, 1, 1, 128);
  checkProductOfBlocks<float>(132, 260, 640, 1, 128, 128);
  if (!hasBlocks())
    return;
  checkProductOfBlocks<float>(5, 7, 130, 1, 3, 32);
  checkProductOfBlocks<f8e8m0>(5, 7, 130, 1, 3, 32);
}

// What GPUs have no product of.
TEST(Quantize, ProductsOfOtherBlocksAreRefusedWhereThereAreNone) {
  if (hasBlocks())
    GTEST_SKIP() << "a backend with all blocks";
  withStream([](heddle_rt_context *context, heddle_rt_stream *stream) {
    const std::vector<f8e4m3> codes(16 * 128);
    ProductOfCodes<f8e4m3, f8e4m3> product("of blocks", 16, 16, 128, context,
                                           stream, codes, codes);
    heddle::test::OnDevice<float> scales(context, stream,
                                         std::vector<float>(64));
    heddle_rt_gemm_args &args = product.args;
    args.scale_a = args.scale_b = scales.data();
    const auto expect = [&](int64_t a, int64_t b, int64_t k,
                            heddle_rt_dtype dtype, const char *sentence) {
      args.block_a = a, args.block_b = b, args.block_k = k;
      args.scales = dtype;
      EXPECT_EQ(product.run(), HEDDLE_RT_INVALID_ARGUMENT);
      EXPECT_THAT(heddle_rt_last_error(), HasSubstr(sentence));
    };
    expect(128, 128, 128, HEDDLE_RT_F32,
           "of blocks: scales in f32 of blocks of 128 and 128 rows");
    expect(1, 64, 128, HEDDLE_RT_F32, "blocks of 1 and 64 rows");
    expect(1, 128, 64, HEDDLE_RT_F32, "and 64 summed numbers");
    expect(1, 1, 128, HEDDLE_RT_F8E8M0, "scales in f8e8m0 of blocks");
    // Those that there are have algorithms of their own.
    args.scales = HEDDLE_RT_F32, args.block_k = 128;
    for (const auto &[ofA, ofB] : {std::pair(1, 1), {1, 128}, {128, 1}}) {
      args.block_a = ofA, args.block_b = ofB;
      EXPECT_EQ(product.run(), HEDDLE_RT_OK) << heddle_rt_last_error();
    }
    args.n = 10;
    expect(1, 1, 128, HEDDLE_RT_F32, "n 10: with scales of blocks");
  });
}

TEST(Quantize, RefusesWhatItCannotDo) {
  withStream([](heddle_rt_context *context, heddle_rt_stream *stream) {
    heddle::test::OnDevice<float> x(context, stream, std::vector<float>(64));
    float *in = x.data(), *out = x.data() + 32, *number = x.data() + 60;
    heddle_rt_quantize_args good{};
    good.name = "q";
    good.rows = 4, good.columns = 4;
    good.input = HEDDLE_RT_F32, good.codes = HEDDLE_RT_F8E4M3;
    const auto expect = [&](heddle_rt_quantize_args args, void *codes,
                            const char *sentence) {
      EXPECT_EQ(
          heddle_rt_quantize(stream, &args, in, number, codes, number + 1),
          HEDDLE_RT_INVALID_ARGUMENT);
      EXPECT_THAT(heddle_rt_last_error(), HasSubstr(sentence));
    };
    auto bad = good;
    bad.codes = HEDDLE_RT_BF16;
    expect(bad, out,
           "q: makes f8e4m3, f8e5m2 or f4e2m1 of f32, bf16 or f16, got bf16");
    bad = good;
    bad.rows = -1;
    expect(bad, out, "q: rows -1, columns 4: a size is negative");
    expect(good, nullptr, "q: input, amax, codes or scale is NULL");
    expect(good, in + 3, "q: codes overlap the input");
    bad = good;
    bad.block_rows = 1;
    expect(bad, out,
           "q: blocks of 1 x 0: expected two sizes above 0, or 0 for "
           "one scale");
    bad.block_columns = 4;
    expect(bad, out,
           "q: blocks have largest magnitudes of their own, but amax");
    bad = good;
    bad.scales = HEDDLE_RT_F8E8M0;
    expect(bad, out, "q: scales are f32, or of blocks, powers of two, f8e8m0");
    bad = good;
    bad.codes = HEDDLE_RT_F4E2M1;
    expect(bad, out,
           "q: scales are f32, or of blocks, powers of two, f8e8m0, "
           "or of blocks of f4e2m1, f8e4m3; got f32 of f4e2m1");
    bad.scales = HEDDLE_RT_F8E4M3;
    bad.block_rows = bad.block_columns = 1;
    expect(bad, out, "q: tensor_scale belongs to scales of f8e4m3, got f8e4m3");
    EXPECT_EQ(heddle_rt_amax(stream, "m", in, 4, HEDDLE_RT_I32, number),
              HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(heddle_rt_last_error(),
                HasSubstr("m: has the largest of f32, bf16 or f16, got i32"));
    EXPECT_EQ(heddle_rt_amax(stream, "m", in, -4, HEDDLE_RT_F32, number),
              HEDDLE_RT_INVALID_ARGUMENT);
  });
}

} // namespace
