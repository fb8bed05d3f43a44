//===- Formats.h - Element formats and their exact conversions ------------===//
//
// Kernels compute in fp32; memory may hold narrower formats. widen() is exact;
// narrow() rounds to nearest even, keeps denormals and makes every NaN the one
// NaN (0x7fff, 0x7f) that a GPU's conversion gives. Formats of 8 and 4 bits
// saturate, as a GPU's conversions do by default (cvt.rn.satfinite): what is
// larger than their largest number, infinity too, becomes that. Integer
// arithmetic only, so that the loops vectorise and both sides agree bit by bit.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_FORMATS_H
#define HEDDLE_RUNTIME_FORMATS_H

#include "heddle/Runtime/Math.h"

#include <type_traits>

namespace heddle {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
/// OCP's 8-bit formats (OFP8, 2023): e4m3 has no infinity and one NaN per sign,
/// e5m2 is f16 without its last 8 bits.
struct f8e4m3 {
  uint8_t bits;
};
struct f8e5m2 {
  uint8_t bits;
};
/// OCP's 4-bit format (MX, 2023), in the low bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
struct f4e2m1 {
  uint8_t bits;
};
/// OCP's format of scales (MX, 2023): 2^(bits - 127); 255 is NaN.
struct f8e8m0 {
  uint8_t bits;
};

template <class T>
struct WideOf {
  using type = T; ///< float, double and integers are used as they are
};
template <>
struct WideOf<int8_t> {
  using type = int32_t; ///< what flags are computed with
};
template <>
struct WideOf<bf16> {
  using type = float;
};
template <>
struct WideOf<f16> {
  using type = float;
};
template <>
struct WideOf<f8e4m3> {
  using type = float;
};
template <>
struct WideOf<f8e5m2> {
  using type = float;
};
/// The type in which a kernel sees an element of format T.
template <class T>
using wide = typename WideOf<std::remove_const_t<T>>::type;

template <class T>
HEDDLE_FN T widen(T v) {
  return v;
}
HEDDLE_FN int32_t widen(int8_t v) { return v; }
HEDDLE_FN float widen(bf16 v) { return math::fromBits(uint32_t(v.bits) << 16); }
HEDDLE_FN float widen(f16 v) {
  const uint32_t sign = uint32_t(v.bits & 0x8000u) << 16;
  const uint32_t a = v.bits & 0x7fffu;
  const uint32_t normal =
      (a << 13) + (a >= 0x7c00u ? 0x70000000u : 0x38000000u);
  const uint32_t tiny =
      math::bitsOf(float(int32_t(a)) * 5.9604644775390625e-8f);
  return math::fromBits(sign | (a < 0x400u ? tiny : normal));
}

HEDDLE_FN float widen(f8e5m2 v) {
  return widen(f16{uint16_t(uint32_t(v.bits) << 8)});
}
HEDDLE_FN float widen(f8e4m3 v) {
  const uint32_t sign = uint32_t(v.bits & 0x80u) << 24;
  const uint32_t a = v.bits & 0x7fu;
  const uint32_t normal = a == 0x7fu ? 0x7fc00000u : (a << 20) + 0x3c000000u;
  const uint32_t tiny = math::bitsOf(float(int32_t(a)) * 0.001953125f);
  return math::fromBits(sign | (a < 0x8u ? tiny : normal));
}
HEDDLE_FN float widen(f4e2m1 v) {
  const uint32_t sign = uint32_t(v.bits & 0x8u) << 28;
  const uint32_t a = v.bits & 0x7u;
  const uint32_t tiny = math::bitsOf(float(int32_t(a)) * 0.5f);
  return math::fromBits(sign | (a < 0x2u ? tiny : (a << 22) + 0x3f000000u));
}
HEDDLE_FN float widen(f8e8m0 v) {
  const uint32_t normal = v.bits == 0 ? 0x00400000u : uint32_t(v.bits) << 23;
  return math::fromBits(v.bits == 0xffu ? 0x7fc00000u : normal);
}

template <class T>
HEDDLE_FN void narrow(T v, T &to) {
  to = v;
}
HEDDLE_FN void narrow(int32_t v, int8_t &to) { to = int8_t(v); }
HEDDLE_FN void narrow(float v, bf16 &to) {
  const uint32_t u = math::bitsOf(v);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  to.bits = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}
HEDDLE_FN void narrow(float v, f16 &to) {
  const uint32_t u = math::bitsOf(v);
  const uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  const uint32_t normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
  // One unit in the last place of 0.5f is one f16 denormal: the sum rounds.
  const uint32_t tiny = math::bitsOf(math::fromBits(a) + 0.5f) - 0x3f000000u;
  const uint32_t finite = a < 0x38800000u ? tiny : normal;
  const uint32_t bounded = a >= 0x477ff000u ? 0x7c00u : finite;
  to.bits = uint16_t(a > 0x7f800000u ? 0x7fffu : (sign | bounded));
}

namespace detail {
/// The magnitude \p a (bits of a float, no NaN) in a format with \p mantissa
/// bits and exponents from \p bias on, at most \p largest. \p half is the power
/// of two whose last place is one denormal: the sum with it rounds.
HEDDLE_FN uint32_t roundMagnitude(uint32_t a, uint32_t mantissa, uint32_t bias,
                                  float half, uint32_t largest) {
  const uint32_t drop = 23u - mantissa;
  const uint32_t lowest = (128u - bias) << 23; // the least normal number
  const uint32_t odd = (a >> drop) & 1u;
  const uint32_t normal =
      (a - (lowest - 0x00800000u) + ((1u << (drop - 1u)) - 1u) + odd) >> drop;
  const uint32_t tiny =
      math::bitsOf(math::fromBits(a) + half) - math::bitsOf(half);
  const uint32_t rounded = a < lowest ? tiny : normal;
  return rounded < largest ? rounded : largest;
}
} // namespace detail

HEDDLE_FN void narrow(float v, f8e4m3 &to) {
  const uint32_t u = math::bitsOf(v), a = u & 0x7fffffffu;
  const uint32_t bounded = detail::roundMagnitude(a, 3, 7, 16384.0f, 0x7eu);
  to.bits = uint8_t(a > 0x7f800000u ? 0x7fu : ((u >> 24) & 0x80u) | bounded);
}
HEDDLE_FN void narrow(float v, f8e5m2 &to) {
  const uint32_t u = math::bitsOf(v), a = u & 0x7fffffffu;
  const uint32_t bounded = detail::roundMagnitude(a, 2, 15, 128.0f, 0x7bu);
  to.bits = uint8_t(a > 0x7f800000u ? 0x7fu : ((u >> 24) & 0x80u) | bounded);
}
/// Without a NaN of its own: one becomes 6, as a GPU has it.
HEDDLE_FN void narrow(float v, f4e2m1 &to) {
  const uint32_t u = math::bitsOf(v), a = u & 0x7fffffffu;
  const uint32_t bounded = detail::roundMagnitude(a, 1, 1, 4194304.0f, 0x7u);
  to.bits = uint8_t(a > 0x7f800000u ? 0x7u : ((u >> 28) & 0x8u) | bounded);
}
/// To the number below or above, the nearer the likelier, so that the mean is
/// \p v: up where what lies below it, in parts of 2^-22 of the distance of both
/// and cut off there, reaches 1 with the upper 22 bits of \p word. Beyond 6 and
/// of NaN as above.
HEDDLE_FN void narrowAtRandom(float v, uint32_t word, f4e2m1 &to) {
  const uint32_t u = math::bitsOf(v), a = u & 0x7fffffffu;
  const uint32_t added = word >> 10;
  // Below 1 numbers are 0.5 apart: 22 bits of a fixed-point number.
  const uint32_t isTiny = a < 0x3f800000u ? 1u : 0u;
  const uint32_t fixed =
      uint32_t(int32_t(isTiny ? math::fromBits(a) * 8388608.0f : 0.0f));
  const uint32_t normal = a - 0x3f000000u; // of the exponent that 0.5 has
  const uint32_t code = ((isTiny                 ? fixed
                          : normal < 0x40000000u ? normal
                                                 : 0x40000000u) +
                         added) >>
                        22;
  const uint32_t bounded = code < 0x7u ? code : 0x7u;
  to.bits = uint8_t(a > 0x7f800000u ? 0x7u : ((u >> 28) & 0x8u) | bounded);
}
/// To the nearest power of two, ties up; what is negative, 0, infinite or no
/// number has none and becomes NaN.
HEDDLE_FN void narrow(float v, f8e8m0 &to) {
  const uint32_t u = math::bitsOf(v);
  const uint32_t exponent = (u + 0x00400000u) >> 23;
  const uint32_t denormal = u > 0x00600000u ? 1u : 0u;
  const uint32_t rounded = u < 0x00800000u ? denormal : exponent;
  to.bits = uint8_t(u == 0 || u >= 0x7f400000u ? 0xffu : rounded);
}

} // namespace heddle

#endif
