//===- Scales.h - The scale that codes of a narrow format belong to -------===//

#ifndef HEDDLE_RUNTIME_SCALES_H
#define HEDDLE_RUNTIME_SCALES_H

#include "heddle/Runtime/Formats.h"

namespace heddle {

/// The largest number of a format.
HEDDLE_FN float largest(f8e4m3) { return 448.0f; }
HEDDLE_FN float largest(f8e5m2) { return 57344.0f; }

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

/// The bits of a magnitude, whose order is that of numbers, NaN above all.
HEDDLE_FN uint32_t magnitudeBits(float v) {
  return math::bitsOf(v) & 0x7fffffffu;
}

} // namespace heddle

#endif
