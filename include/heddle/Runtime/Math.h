//===- Math.h - fp32 functions with one arithmetic on host and device -----===//
//
// Emitted kernels call these instead of libm: no calls, so that loops over them
// vectorise under g++ and clang, and no operation whose result a compiler
// chooses. A product that meets a sum is an explicit fmaf, nothing depends on
// contraction, fast-math or flush-to-zero, so the host and a GPU agree bit by
// bit. Worst errors (test/runtime/MathTest.cpp holds them there, in units of
// the last place of the true result): exp 1, log 2, tanh 2, erf 2, sin, cos 2.
// NaN gives NaN; payloads are not kept.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_MATH_H
#define HEDDLE_RUNTIME_MATH_H

#include <cmath>
#include <cstdint>
#include <cstring>

/// Marks everything that runs inside a kernel: inlined always, since a call
/// ends vectorisation, and callable on both sides under nvcc.
#ifdef __CUDACC__
#define HEDDLE_FN __host__ __device__ __forceinline__
#else
#define HEDDLE_FN inline __attribute__((always_inline))
#endif

// Before a loop whose iterations are independent, whatever its pointers look
// like. (`omp simd` says so too, but makes g++ keep local arrays in memory.)
#if defined(__CUDACC__)
#define HEDDLE_SIMD
#elif defined(__clang__)
#define HEDDLE_SIMD _Pragma("clang loop vectorize(assume_safety)")
#else
#define HEDDLE_SIMD _Pragma("GCC ivdep")
#endif

namespace heddle::math {

HEDDLE_FN uint32_t bitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
HEDDLE_FN float fromBits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

inline constexpr float kInfinity = __builtin_inff();

HEDDLE_FN float sqrt(float x) { return ::sqrtf(x); }
HEDDLE_FN float rsqrt(float x) { return 1.0f / ::sqrtf(x); }

/// e^x. Below -87.33654 (a result under 2^-126) it is 0, so that a masked
/// logit of -infinity adds nothing and no denormal slows a row down.
HEDDLE_FN float exp(float x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  const float shifter = 12582912.0f;
  const float shifted = ::fmaf(x, 1.44269504f, shifter);
  const float n = shifted - shifter;
  const float r = ::fmaf(n, 1.90465429e-9f, ::fmaf(n, -0.693147182f, x));
  float p = 1.392625083e-3f;
  p = ::fmaf(p, r, 8.363232884e-3f);
  p = ::fmaf(p, r, 4.166655421e-2f);
  p = ::fmaf(p, r, 0.1666657667f);
  p = ::fmaf(p, r, 0.5f);
  p = ::fmaf(p, r, 1.0f);
  p = ::fmaf(p, r, 1.0f);
  // p is in [0.7, 1.42] and the limits below keep the exponent's sum normal.
  const float y = fromBits(bitsOf(p) + (bitsOf(shifted) << 23));
  // One comparison for what is too large and for NaN.
  const float high = !(x <= 88.72283f) ? x + kInfinity : y;
  return x < -87.33654f ? 0.0f : high;
}

/// Natural logarithm. 0 gives -infinity, a negative number NaN; denormals are
/// read as what they are.
HEDDLE_FN float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  // Cut at sqrt(1/2): x = 2^e * (1 + f), f in [-0.293, 0.415).
  const uint32_t bits = bitsOf(scaled) - 0x3f3504f3u;
  const int32_t exponent = int32_t(bits) >> 23;
  const float f = fromBits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float e = float(exponent) - (tiny ? 23.0f : 0.0f);
  float p = 6.971611471e-2f;
  p = ::fmaf(p, f, -0.1147973385f);
  p = ::fmaf(p, f, 0.1168541992f);
  p = ::fmaf(p, f, -0.1242568733f);
  p = ::fmaf(p, f, 0.1424905765f);
  p = ::fmaf(p, f, -0.1666780232f);
  p = ::fmaf(p, f, 0.2000071575f);
  p = ::fmaf(p, f, -0.2499999696f);
  p = ::fmaf(p, f, 0.3333333118f);
  const float square = f * f;
  const float tail = ::fmaf(p * f, square, e * -2.12194440e-4f);
  const float sum = ::fmaf(square, -0.5f, tail) + f;
  const float y = ::fmaf(e, 0.693359375f, sum);
  const float finite = x < kInfinity ? y : x; // +infinity and NaN pass
  const float zero = x == 0.0f ? -kInfinity : finite;
  return x < 0.0f ? __builtin_nanf("") : zero;
}

HEDDLE_FN float tanh(float x) {
  const float a = ::fabsf(x);
  const float z = x * x;
  float p = -6.096714166e-3f;
  p = ::fmaf(p, z, 2.0997179e-2f);
  p = ::fmaf(p, z, -5.385090958e-2f);
  p = ::fmaf(p, z, 0.1333276974f);
  p = ::fmaf(p, z, -0.3333332894f);
  const float near = ::fmaf(p * z, x, x);
  const float far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const float y = a < 0.625f ? near : ::copysignf(far, x);
  return x != x ? x : y;
}

HEDDLE_FN float erf(float x) {
  const float a = ::fabsf(x);
  const float z = x * x;
  float p = -5.967310878e-4f;
  p = ::fmaf(p, z, 4.988906025e-3f);
  p = ::fmaf(p, z, -2.676399514e-2f);
  p = ::fmaf(p, z, 0.1128175413f);
  p = ::fmaf(p, z, -0.3761248904f);
  p = ::fmaf(p, z, 0.1283791491f);
  const float near = ::fmaf(p, x, x);
  // -log(erfc(t)) / t, a polynomial for t in [0.92, 4]; 1 beyond.
  const float t = a < 4.0f ? a : 4.0f;
  float q = 1.653977877e-5f;
  q = ::fmaf(q, t, -3.727074941e-4f);
  q = ::fmaf(q, t, 3.827122777e-3f);
  q = ::fmaf(q, t, -2.410253504e-2f);
  q = ::fmaf(q, t, 0.1065612878f);
  q = ::fmaf(q, t, 0.635004287f);
  q = ::fmaf(q, t, 0.128671588f);
  const float far = 1.0f - exp(-::fmaf(q, t, t));
  const float y = a < 0.92f ? near : ::copysignf(far, x);
  return x != x ? x : y;
}

/// Angle, quarter turns: x = quarter * pi / 2 + angle, |angle| <= pi / 4. The
/// reduction is in double, so that the angle is right up to |x| = 2^30.
HEDDLE_FN float reduceAngle(double x, uint32_t &quarter) {
  const double shifter = 6755399441055744.0; // 1.5 * 2^52
  const double shifted = ::fma(x, 0.63661977236758134, shifter);
  const double n = shifted - shifter;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  quarter = uint32_t(bits);
  const double r = ::fma(n, -1.5707963267948966, x);
  return float(::fma(n, -6.123233995736766e-17, r));
}
HEDDLE_FN float sineOrCosine(float r, uint32_t quarter) {
  const float z = r * r;
  float s = -1.958738707e-4f;
  s = ::fmaf(s, z, 8.332745936e-3f);
  s = ::fmaf(s, z, -0.1666666465f);
  s = ::fmaf(s * z, r, r);
  float c = 2.454743721e-5f;
  c = ::fmaf(c, z, -1.38883007e-3f);
  c = ::fmaf(c, z, 4.166666465e-2f);
  c = ::fmaf(c * z, z, ::fmaf(z, -0.5f, 1.0f));
  const float y = quarter & 1u ? c : s;
  return fromBits(bitsOf(y) ^ ((quarter & 2u) << 30));
}
HEDDLE_FN float sin(float x) {
  uint32_t quarter;
  const float r = reduceAngle(double(x), quarter);
  return sineOrCosine(r, quarter);
}
HEDDLE_FN float cos(float x) {
  uint32_t quarter;
  const float r = reduceAngle(double(x), quarter);
  return sineOrCosine(r, quarter + 1u);
}

} // namespace heddle::math

#endif
