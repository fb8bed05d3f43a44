// heddle_rt_gemm against plain loops: transposes, leading dimensions, batches.

#include "OnDevice.h"

#include "heddle/Runtime/Formats.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using heddle::bf16;
using heddle::f16;
using testing::HasSubstr;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Place {
  heddle_rt_context *context;
  heddle_rt_stream *stream;
  template <class T>
  heddle::test::OnDevice<T> on(const std::vector<T> &values) const {
    return {context, stream, values};
  }
};

/// Runs `body` with one rank's stream.
template <class Body>
void withStream(Body body) {
  const auto result =
      heddle::ranks::runRanks(1, {}, [&](heddle_rt_context *context) {
        heddle_rt_stream *stream = nullptr;
        HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
        body(Place{context, stream});
        return HEDDLE_RT_OK;
      });
  EXPECT_TRUE(result) << result.message;
}

template <class T>
std::vector<T> randomValues(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(n));
  for (T &value : values)
    heddle::narrow(uniform(random), value);
  return values;
}

/// Sizes with gaps between rows and products.
heddle_rt_gemm_args argsOf(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  heddle_rt_gemm_args args{};
  args.name = "test gemm";
  args.m = m, args.n = n, args.k = k;
  args.transpose_a = ta, args.transpose_b = tb;
  args.lda = (ta ? m : k) + 3;
  args.ldb = (tb ? n > 0 ? k : 0 : n) + 1;
  args.ldc = n + 2;
  args.alpha = 1;
  args.batch = 1;
  return args;
}

template <class T>
double elementOf(const std::vector<T> &x, bool transposed, int64_t row,
                 int64_t column, int64_t leading, int64_t offset) {
  return double(
      heddle::widen(x[size_t(offset + (transposed ? column * leading + row
                                                  : row * leading + column))]));
}

/// \param unit  what rounding to C may add, relative.
template <class T, class C = float>
void check(Place place, heddle_rt_gemm_args args, double tolerance,
           double unit = 0) {
  const int64_t rowsA = args.transpose_a ? args.k : args.m;
  const int64_t rowsB = args.transpose_b ? args.n : args.k;
  if (args.stride_a == 0)
    args.stride_a = rowsA * args.lda + 5;
  args.stride_b = 0; // shared
  if (args.stride_c == 0)
    args.stride_c = args.m * args.ldc + 7;
  const auto a = randomValues<T>(args.batch * args.stride_a, 1);
  const auto b = randomValues<T>(rowsB * args.ldb, 2);
  auto c = randomValues<C>(args.batch * args.stride_c, 3);
  const auto before = c;
  if (args.beta == 0) // must not be read
    for (int64_t p = 0; p < args.batch; ++p)
      for (int64_t i = 0; i < args.m; ++i)
        for (int64_t j = 0; j < args.n; ++j)
          heddle::narrow(kNan, c[size_t(p * args.stride_c + i * args.ldc + j)]);
  auto x = place.on(a), y = place.on(b);
  auto z = place.on(c);
  ASSERT_EQ(heddle_rt_gemm(place.stream, &args, x.data(), y.data(), z.data()),
            HEDDLE_RT_OK)
      << heddle_rt_last_error();
  c = z.read();
  std::vector<bool> written(c.size());
  for (int64_t p = 0; p < args.batch; ++p)
    for (int64_t i = 0; i < args.m; ++i)
      for (int64_t j = 0; j < args.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < args.k; ++l)
          sum += elementOf(a, args.transpose_a, i, l, args.lda,
                           p * args.stride_a) *
                 elementOf(b, args.transpose_b, l, j, args.ldb, 0);
        const auto at = size_t(p * args.stride_c + i * args.ldc + j);
        sum = args.alpha * sum +
              (args.beta != 0 ? args.beta * double(heddle::widen(before[at]))
                              : 0);
        written[at] = true;
        ASSERT_NEAR(heddle::widen(c[at]), sum,
                    tolerance * (1 + std::sqrt(double(args.k))) +
                        unit * std::abs(sum))
            << "product " << p << " row " << i << " column " << j;
      }
  for (size_t i = 0; i < c.size(); ++i)
    ASSERT_TRUE(written[i] || heddle::widen(c[i]) == heddle::widen(before[i]))
        << "wrote into a gap";
}

// A backend may keep what it made for a product: never for another one.
TEST(Gemm, ProductsThatDifferInOneNumberAreNotTakenForEachOther) {
  withStream([](Place place) {
    for (const int repeat : {0, 1})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (const int64_t more : {0, 2, 4})
            for (const int which : {0, 1, 2}) {
              heddle_rt_gemm_args args = argsOf(8, 8, 8, ta, tb);
              args.lda = args.ldb = args.ldc = 8;
              (which == 0   ? args.lda
               : which == 1 ? args.ldb
                            : args.ldc) += more;
              args.stride_a = args.stride_c = 128;
              SCOPED_TRACE(testing::Message() << repeat << ta << tb << " "
                                              << which << " " << more);
              check<float>(place, args, 1e-6);
            }
  });
}

TEST(Gemm, EqualsLoopsForAllTransposesAndStrides) {
  withStream([](Place place) {
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const int64_t size : {1, 5, 33})
          for (const float beta : {0.0f, 1.0f, -0.5f}) {
            auto args = argsOf(size, 2 * size + 1, size + 16, ta, tb);
            args.batch = size == 5 ? 3 : 1;
            args.alpha = beta == 1 ? 1.0f : 0.75f;
            args.beta = beta;
            SCOPED_TRACE(testing::Message()
                         << ta << tb << " " << size << " " << beta);
            check<float>(place, args, 1e-6);
          }
  });
}

TEST(Gemm, NarrowFormatsAreSummedInFp32) {
  withStream([](Place place) {
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        auto args = argsOf(17, 32, 256, ta, tb);
        args.a = args.b = HEDDLE_RT_BF16;
        args.batch = 2;
        args.beta = 1;
        SCOPED_TRACE(testing::Message() << ta << tb);
        check<bf16>(place, args, 1e-6);
        args.a = args.b = HEDDLE_RT_F16;
        check<f16>(place, args, 1e-6);
        // Rounded to f16 once, also what is added to.
        args.c = HEDDLE_RT_F16;
        check<f16, f16>(place, args, 1e-6, 1.0 / 2048);
        args.beta = 0;
        check<f16, f16>(place, args, 1e-6, 1.0 / 2048);
      }
  });
}

TEST(Gemm, WithNothingToSumCIsBetaC) {
  withStream([](Place place) {
    auto c = place.on(std::vector<float>(6, 2.0f));
    auto args = argsOf(2, 2, 0, false, false);
    args.ldc = 3;
    args.beta = 1;
    EXPECT_EQ(heddle_rt_gemm(place.stream, &args, nullptr, nullptr, c.data()),
              HEDDLE_RT_OK);
    EXPECT_EQ(c.read(), std::vector<float>(6, 2.0f));
    args.beta = 0;
    EXPECT_EQ(heddle_rt_gemm(place.stream, &args, nullptr, nullptr, c.data()),
              HEDDLE_RT_OK);
    EXPECT_EQ(c.read(), (std::vector<float>{0, 0, 2, 0, 0, 2}));
  });
}

TEST(Gemm, RefusesWhatItCannotDo) {
  withStream([](Place place) {
    auto x = place.on(std::vector<float>(64));
    const auto expect = [&](heddle_rt_gemm_args args, const void *a, void *c,
                            const char *sentence) {
      EXPECT_EQ(heddle_rt_gemm(place.stream, &args, a, x.data() + 32, c),
                HEDDLE_RT_INVALID_ARGUMENT);
      EXPECT_THAT(heddle_rt_last_error(), HasSubstr(sentence));
    };
    const auto good = argsOf(2, 2, 2, false, false);
    float *a = x.data(), *c = x.data() + 16;
    auto bad = good;
    bad.lda = 1;
    expect(bad, a, c,
           "rows of a have 2 elements, but its leading dimension is 1");
    bad = good;
    bad.m = -1;
    expect(bad, a, c, "a size is negative");
    bad = good;
    bad.c = HEDDLE_RT_BF16;
    expect(bad, a, c, "f32 x f32 -> bf16 is no product there is");
    bad = good;
    bad.batch = 2;
    bad.stride_c = 1;
    expect(bad, a, c, "products of c overlap");
    expect(good, nullptr, c, "a is NULL");
    expect(good, a, a + 1, "c overlaps an input");
  });
}

TEST(Gemm, OperandsMayBeColumnsOfOneMatrix) {
  withStream([](Place place) {
    // Rows of 6: a is columns 0-1, b columns 2-3, c columns 4-5.
    auto x = place.on(std::vector<float>{1, 2, 1, 0, 9, 9, 3, 4, 0, 1, 9, 9});
    auto args = argsOf(2, 2, 2, false, false);
    args.lda = args.ldb = args.ldc = 6;
    EXPECT_EQ(heddle_rt_gemm(place.stream, &args, x.data(), x.data() + 2,
                             x.data() + 4),
              HEDDLE_RT_OK)
        << heddle_rt_last_error();
    EXPECT_EQ(x.read(),
              (std::vector<float>{1, 2, 1, 0, 1, 2, 3, 4, 0, 1, 3, 4}));
  });
}

} // namespace
