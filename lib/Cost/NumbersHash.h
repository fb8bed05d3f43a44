//===- NumbersHash.h - Keys of a few numbers --------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_NUMBERSHASH_H
#define HEDDLE_LIB_COST_NUMBERSHASH_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::detail {

/// Of numbers of a point that decide something: they are looked up often.
struct NumbersHash {
  template <std::size_t size>
  std::size_t operator()(const std::array<std::int64_t, size> &key) const {
    std::uint64_t hash = 0;
    for (std::int64_t number : key)
      hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
  }
};

/// Formats as numbers: fp32, fp16, fp8, bf16, nvfp4. They are compared often.
inline std::int64_t formatBits(std::string_view format) {
  return format[0] == 'f'   ? format[2] == '3'   ? 0
                              : format[2] == '1' ? 1
                                                 : 2
         : format[0] == 'b' ? 3
                            : 4;
}

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_NUMBERSHASH_H
