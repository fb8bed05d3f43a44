// Conversions of heddle/Runtime/Formats.h against tables of an independent
// library (make_format_tables.py): every code, what lies halfway between two,
// and the floats beside that.

#include "FormatTables.h"

#include "heddle/Runtime/Formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

using namespace heddle;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Inputs as make_format_tables.py says, of numbers in order.
std::vector<float> inputsOf(const std::vector<float> &numbers, bool isSigned) {
  std::vector<float> inputs;
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    const auto middle =
        float((double(numbers[i]) + double(numbers[i + 1])) / 2);
    for (float input : {numbers[i], middle, std::nextafter(middle, -kInfinity),
                        std::nextafter(middle, kInfinity)})
      inputs.push_back(input);
  }
  const size_t count = inputs.size();
  for (size_t i = 0; isSigned && i < count; ++i)
    inputs.push_back(-inputs[i]);
  return inputs;
}

template <class T>
auto codeOf(float value) {
  T to;
  narrow(value, to);
  return to.bits;
}

template <class T>
void expectTable(std::span<const uint32_t> values,
                 std::span<const uint8_t> rounded, size_t firstCode,
                 bool isSigned) {
  std::vector<float> numbers;
  for (size_t code = 0; code < values.size(); ++code) {
    const float found = widen(T{uint8_t(code)});
    if (values[code] == 0x7fc00000u) {
      EXPECT_TRUE(std::isnan(found)) << code;
      continue;
    }
    EXPECT_EQ(math::bitsOf(found), values[code]) << code;
    if (std::isinf(found))
      continue;
    EXPECT_EQ(codeOf<T>(found), code);
    if (code >= firstCode && (!isSigned || code < values.size() / 2))
      numbers.push_back(found);
  }
  const std::vector<float> inputs = inputsOf(numbers, isSigned);
  ASSERT_EQ(inputs.size(), rounded.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_EQ(codeOf<T>(inputs[i]), rounded[i]) << inputs[i];
}

uint64_t hashOf(std::span<const uint16_t> words) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint16_t word : words)
    for (int shift : {0, 8})
      hash = (hash ^ ((word >> shift) & 0xffu)) * 0x100000001b3u;
  return hash;
}

template <class T>
void expectHashes(std::span<const uint64_t> hashes, uint64_t ofValues) {
  std::vector<float> numbers;
  std::vector<uint16_t> bits, codes;
  for (uint32_t code = 0; code <= 0xffffu; ++code) {
    const float value = widen(T{uint16_t(code)});
    if (!std::isfinite(value))
      continue;
    bits.push_back(uint16_t(math::bitsOf(value)));
    bits.push_back(uint16_t(math::bitsOf(value) >> 16));
    if (code < 0x8000u)
      numbers.push_back(value);
  }
  EXPECT_EQ(hashOf(bits), ofValues);
  for (float input : inputsOf(numbers, true))
    codes.push_back(codeOf<T>(input));
  constexpr size_t kStep = 1024;
  ASSERT_EQ((codes.size() + kStep - 1) / kStep, hashes.size());
  for (size_t i = 0; i < hashes.size(); ++i)
    EXPECT_EQ(hashOf(std::span(codes).subspan(
                  i * kStep, std::min(kStep, codes.size() - i * kStep))),
              hashes[i])
        << "from pair " << i * kStep / 4;
}

} // namespace

TEST(Formats, EightAndFourBitsAreThoseOfAnIndependentLibrary) {
  expectTable<f8e4m3>(test::kE4m3Values, test::kE4m3Rounded, 0, true);
  expectTable<f8e5m2>(test::kE5m2Values, test::kE5m2Rounded, 0, true);
  expectTable<f4e2m1>(test::kE2m1Values, test::kE2m1Rounded, 0, true);
  expectTable<f8e8m0>(test::kE8m0Values, test::kE8m0Rounded, 1, false);
}

TEST(Formats, SixteenBitsAreThoseOfAnIndependentLibrary) {
  expectHashes<bf16>(test::kBf16Hashes, test::kBf16Values);
  expectHashes<f16>(test::kF16Hashes, test::kF16Values);
}

TEST(Formats, FewBitsSaturateAndKeepNaN) {
  for (float large : {449.0f, 464.0f, 465.0f, 480.0f, 1e9f, kInfinity}) {
    EXPECT_EQ(codeOf<f8e4m3>(large), 0x7e) << large;
    EXPECT_EQ(codeOf<f8e4m3>(-large), 0xfe) << large;
  }
  for (float large : {61439.0f, 61440.0f, 65536.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(codeOf<f8e5m2>(large), 0x7b) << large;
    EXPECT_EQ(codeOf<f8e5m2>(-large), 0xfb) << large;
  }
  for (float large : {6.5f, 7.0f, 100.0f, kInfinity}) {
    EXPECT_EQ(codeOf<f4e2m1>(large), 0x7) << large;
    EXPECT_EQ(codeOf<f4e2m1>(-large), 0xf) << large;
  }
  for (float none : {kNaN, -kNaN}) {
    EXPECT_EQ(codeOf<f8e4m3>(none), 0x7f);
    EXPECT_EQ(codeOf<f8e5m2>(none), 0x7f);
    EXPECT_EQ(codeOf<f4e2m1>(none), 0x7);
    EXPECT_EQ(codeOf<f8e8m0>(none), 0xff);
  }
  for (float none : {0.0f, -0.0f, -1.0f, kInfinity})
    EXPECT_EQ(codeOf<f8e8m0>(none), 0xff) << none;
  EXPECT_TRUE(std::isnan(widen(f8e4m3{0xff})));
  EXPECT_TRUE(std::isinf(widen(f8e5m2{0x7c})));
}
