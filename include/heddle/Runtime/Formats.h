//===- Formats.h - Element formats and their exact conversions ------------===//
//
// Kernels compute in fp32; memory may hold narrower formats. widen() is exact;
// narrow() rounds to nearest even, keeps denormals and makes every NaN the one
// NaN (0x7fff) that a GPU's conversion gives. Integer arithmetic only, so that
// the loops vectorise and both sides agree bit by bit.
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

template <class T>
struct WideOf {
  using type = T; ///< float, double and integers are used as they are
};
template <>
struct WideOf<bf16> {
  using type = float;
};
template <>
struct WideOf<f16> {
  using type = float;
};
/// The type in which a kernel sees an element of format T.
template <class T>
using wide = typename WideOf<std::remove_const_t<T>>::type;

template <class T>
HEDDLE_FN T widen(T v) {
  return v;
}
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

template <class T>
HEDDLE_FN void narrow(T v, T &to) {
  to = v;
}
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

} // namespace heddle

#endif
