//===- MathTest.cpp - Functions, random numbers and formats of kernels ----===//

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/Random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

using namespace heddle;

namespace {

/// Worst error over samples of [low, high], in units of the last place of the
/// true result; results that are not normal numbers are left out.
template <class Function, class Truth>
double worstUlp(Function function, Truth truth, float low, float high) {
  double worst = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    float x = low + (high - low) * random::uniformAt(7, 0, i);
    if (i % 4 == 1)
      x *= 1e-3f;
    const double expected = truth(double(x));
    const float nearest = std::fabs(float(expected));
    if (nearest < 1.1754944e-38f || std::isinf(nearest))
      continue;
    const double ulp = double(std::nextafter(nearest, INFINITY)) - nearest;
    const double error = std::fabs(function(x) - expected) / ulp;
    if (!(error <= worst))
      worst = error;
  }
  return worst;
}

#define WORST(name, low, high)                                                 \
  worstUlp([](float x) { return math::name(x); },                              \
           [](double x) { return std::name(x); }, low, high)

TEST(Math, WithinTwoUlpOfLibm) {
  EXPECT_LE(WORST(exp, -87.33f, 88.72f), 1);
  EXPECT_LE(WORST(log, 0.0f, 10.0f), 2);
  EXPECT_LE(WORST(log, 0.0f, 3e38f), 2);
  EXPECT_LE(WORST(tanh, -10.0f, 10.0f), 2);
  EXPECT_LE(WORST(erf, -5.0f, 5.0f), 2);
  EXPECT_LE(WORST(sin, -100.0f, 100.0f), 2);
  EXPECT_LE(WORST(cos, -100.0f, 100.0f), 2);
  EXPECT_LE(WORST(sin, -1e9f, 1e9f), 2);
  EXPECT_LE(WORST(cos, -1e9f, 1e9f), 2);
}

TEST(Math, SpecialValues) {
  EXPECT_EQ(math::exp(-INFINITY), 0);
  EXPECT_EQ(math::exp(-1000.0f), 0);
  EXPECT_EQ(math::exp(0.0f), 1);
  EXPECT_EQ(math::exp(INFINITY), INFINITY);
  EXPECT_EQ(math::exp(1000.0f), INFINITY);
  EXPECT_TRUE(std::isfinite(math::exp(88.722f)));
  EXPECT_EQ(math::log(0.0f), -INFINITY);
  EXPECT_EQ(math::log(-0.0f), -INFINITY);
  EXPECT_EQ(math::log(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_NEAR(math::log(1e-42f), -96.70857, 1e-3); // a denormal, as it is
  for (float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(math::tanh(sign * INFINITY), sign);
    EXPECT_EQ(math::erf(sign * INFINITY), sign);
    EXPECT_EQ(math::tanh(sign * 1e-40f), sign * 1e-40f);
  }
  EXPECT_TRUE(std::isnan(math::sin(INFINITY)));
  EXPECT_EQ(math::rsqrt(4.0f), 0.5f);
}

TEST(Math, NanStaysNan) {
  for (uint32_t bits : {0x7fc00000u, 0xffc00001u, 0x7f800001u, 0x7fffffffu}) {
    const float x = math::fromBits(bits);
    for (float y : {math::exp(x), math::log(x), math::tanh(x), math::erf(x),
                    math::sin(x), math::cos(x), math::rsqrt(x)})
      EXPECT_TRUE(std::isnan(y)) << std::hex << bits;
  }
}

TEST(Random, PhiloxKnownAnswers) {
  // The test vectors published with the generator.
  struct {
    random::Block counter;
    uint32_t key0, key1;
    random::Block expected;
  } const known[] = {{{{0, 0, 0, 0}},
                      0,
                      0,
                      {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
                     {{{~0u, ~0u, ~0u, ~0u}},
                      ~0u,
                      ~0u,
                      {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
                     {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                      0xa4093822,
                      0x299f31d0,
                      {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}}};
  for (const auto &k : known) {
    const random::Block got = random::philox(k.counter, k.key0, k.key1);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(got.words[i], k.expected.words[i]);
  }
}

TEST(Random, FillIsTheFunctionOfIndex) {
  const uint64_t stream = random::nameHash(std::string("model.norm.weight"));
  for (uint64_t first : {0ull, 1ull, 2ull, 3ull, 1000001ull, 1ull << 40})
    for (int64_t count : {0, 1, 3, 4, 5, 130}) {
      std::vector<float> filled(size_t(count) + 1, -7);
      random::normalFill(3, stream, first, count, filled.data());
      for (int64_t i = 0; i < count; ++i)
        EXPECT_EQ(filled[i], random::normalAt(3, stream, first + uint64_t(i)));
      EXPECT_EQ(filled.back(), -7);
    }
}

TEST(Random, DropoutWordIsAWordOfItsBlock) {
  for (uint32_t column = 0; column < 20; ++column) {
    const random::Block block =
        random::dropoutBlock(~0ull, 3, 7, 9, column / 4);
    EXPECT_EQ(random::dropoutWord(~0ull, 3, 7, 9, column),
              block.words[column % 4]);
  }
}

TEST(Random, DropoutSeedsDifferByStepAndLayer) {
  std::set<uint64_t> seeds;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (int64_t step : {int64_t(0), int64_t(1), int64_t(1) << 32})
      for (int64_t layer : {-1, 0, 1, 125})
        seeds.insert(random::dropoutSeed(seed, step, layer));
  EXPECT_EQ(seeds.size(), 36u);
}

TEST(Random, DropoutThresholdsAreInWords) {
  EXPECT_EQ(random::dropoutThreshold(0), 0u);
  EXPECT_EQ(random::dropoutThreshold(0.25), 1u << 30);
  EXPECT_EQ(random::dropoutThreshold(std::nextafter(1.0, 0.0)), ~0u);
}

TEST(Random, MomentsOfNormals) {
  const int n = 200000;
  std::vector<float> x(n);
  random::normalFill(1, 2, 0, n, x.data());
  double mean = 0, square = 0, fourth = 0, neighbours = 0;
  for (int i = 0; i < n; ++i) {
    mean += x[i] / n;
    square += double(x[i]) * x[i] / n;
    fourth += std::pow(x[i], 4) / n;
    neighbours += double(x[i]) * x[(i + 1) % n] / n;
  }
  EXPECT_NEAR(mean, 0, 0.01);
  EXPECT_NEAR(square, 1, 0.015);
  EXPECT_NEAR(fourth, 3, 0.12);
  EXPECT_NEAR(neighbours, 0, 0.01);
}

TEST(Random, SeedsAndNamesAreDifferentStreams) {
  EXPECT_NE(random::wordAt(1, 5, 9), random::wordAt(2, 5, 9));
  EXPECT_NE(random::wordAt(1, 5, 9), random::wordAt(1, 6, 9));
  EXPECT_NE(random::nameHash(std::string("layers.1")),
            random::nameHash(std::string("layers.2")));
}

/// The nearest value of a format with `mantissa` stored bits, smallest exponent
/// `lowest`, by way of double arithmetic.
double rounded(double x, int mantissa, int lowest) {
  if (x == 0 || std::isinf(x))
    return x;
  const int exponent = std::max(std::ilogb(x), lowest);
  return std::ldexp(std::nearbyint(std::ldexp(x, mantissa - exponent)),
                    exponent - mantissa);
}

TEST(Formats, NarrowRoundsToNearestEven) {
  for (uint64_t i = 0; i < 400000; ++i) {
    const float x = math::fromBits(random::wordAt(1, 2, i));
    bf16 b;
    f16 h;
    narrow(x, b);
    narrow(x, h);
    if (std::isnan(x)) {
      EXPECT_EQ(b.bits, 0x7fff);
      EXPECT_EQ(h.bits, 0x7fff);
      continue;
    }
    const double nearB = rounded(x, 7, -126), nearH = rounded(x, 10, -14);
    EXPECT_EQ(widen(b), std::fabs(nearB) > 3.3961e38
                            ? std::copysign(INFINITY, x)
                            : float(nearB))
        << x;
    EXPECT_EQ(widen(h), std::fabs(nearH) > 65504 ? std::copysign(INFINITY, x)
                                                 : float(nearH))
        << x;
  }
}

TEST(Formats, EveryHalfSurvivesWideningAndNarrowing) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bf16 b;
    f16 h;
    narrow(widen(bf16{uint16_t(bits)}), b);
    narrow(widen(f16{uint16_t(bits)}), h);
    EXPECT_EQ(b.bits, (bits & 0x7fff) > 0x7f80 ? 0x7fff : bits);
    EXPECT_EQ(h.bits, (bits & 0x7fff) > 0x7c00 ? 0x7fff : bits);
  }
}

TEST(Formats, DenormalsOfF16) {
  f16 h;
  narrow(5.9604645e-8f, h);
  EXPECT_EQ(h.bits, 1);
  narrow(2.9802322e-8f, h); // half of the smallest: a tie, to even
  EXPECT_EQ(h.bits, 0);
  narrow(8.9406967e-8f, h); // one and a half: a tie, to even
  EXPECT_EQ(h.bits, 2);
}

} // namespace
