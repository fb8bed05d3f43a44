//===- Scales.h - The scale that codes of a narrow format belong to -------===//

#ifndef HEDDLE_RUNTIME_SCALES_H
#define HEDDLE_RUNTIME_SCALES_H

#include "heddle/Runtime/Formats.h"

namespace heddle {

/// The largest number of a format.
HEDDLE_FN float largest(f8e4m3) { return 448.0f; }
HEDDLE_FN float largest(f8e5m2) { return 57344.0f; }
HEDDLE_FN float largest(f4e2m1) { return 6.0f; }

/// What numbers are multiplied by on their way to codes whose largest is
/// \p most; heddle_rt_quantize says which. NaN where \p amax is not finite.
HEDDLE_FN float upScale(float amax, float most, bool powerOfTwo) {
  constexpr uint32_t infinity = 0x7f800000u, largestFinite = 0x7f7fffffu;
  if (math::bitsOf(amax) >= infinity)
    return math::fromBits(0x7fc00000u);
  const uint32_t up = math::bitsOf(amax == 0.0f ? 1.0f : most / amax);
  const uint32_t bounded = up < infinity ? up : largestFinite;
  return math::fromBits(powerOfTwo ? bounded & infinity : bounded);
}

/// Scales of two levels, as NVIDIA trains with nvfp4 (Pretraining Large
/// Language Models with NVFP4, arXiv:2509.25149, appendix on quantization):
/// what a tensor is multiplied by, up = 448 x 6 / amax, gives its largest block
/// the largest scale of 8 bits; that of a block is the e4m3 number nearest to
/// its amax x up / 6, and its numbers are multiplied by up / scale.
///
/// Rounding to nearest leaves the block's largest number at 6 within 1/16 where
/// the scale is normal, so that 6 is its nearest code; a block below 1/28,672
/// of the tensor's amax has scales of fewer bits, so that codes may saturate,
/// and one whose scale is 0 has codes of 0.
HEDDLE_FN float tensorUpScale(float amax, float mostOfCodes) {
  return upScale(amax, 448.0f * mostOfCodes, false);
}
/// \return what the block's numbers are multiplied by, at most the largest of
///         fp32.
HEDDLE_FN float blockScale(float amaxOfBlock, float tensorUp, float mostOfCodes,
                           f8e4m3 &scale) {
  narrow(amaxOfBlock * tensorUp / mostOfCodes, scale);
  const float wide = widen(scale);
  const float up = wide == 0.0f ? 0.0f : tensorUp / wide;
  return up > 3.40282347e38f ? 3.40282347e38f : up;
}

/// The bits of a magnitude, whose order is that of numbers, NaN above all.
HEDDLE_FN uint32_t magnitudeBits(float v) {
  return math::bitsOf(v) & 0x7fffffffu;
}

} // namespace heddle

#endif
