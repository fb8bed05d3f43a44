//===- Checksum.h - CRC-32C and SHA-256 -----------------------------------===//

#ifndef RUNTIME_CHECKPOINT_CHECKSUM_H
#define RUNTIME_CHECKPOINT_CHECKSUM_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heddle::checkpoint {

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4); `before` is that of the bytes
/// that stand before these.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

/// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

} // namespace heddle::checkpoint

#endif
