#include "runtime/checkpoint/Checksum.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace heddle::checkpoint {

namespace {

// Debian 12 has no library of it, zlib's CRC is another one.
constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

uint32_t byTable(const std::byte *bytes, size_t count, uint32_t crc) {
  for (size_t i = 0; i < count; ++i)
    crc = crc >> 8 ^ kTable[(crc ^ uint32_t(bytes[i])) & 0xff];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
uint32_t byInstruction(const std::byte *bytes, size_t count, uint32_t crc) {
  uint64_t wide = crc;
  for (; count >= 8; bytes += 8, count -= 8) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  return byTable(bytes, count, uint32_t(wide));
}
#endif

} // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2"))
    return ~byInstruction(bytes.data(), bytes.size(), ~before);
#endif
  return ~byTable(bytes.data(), bytes.size(), ~before);
}

} // namespace heddle::checkpoint
