// SHA-256 as FIPS 180-4 has it. Manifests are short, so that plain code is
// fast enough; and an emitted folder asks for no library of cryptography.

#include "runtime/checkpoint/Checksum.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

namespace heddle::checkpoint {

namespace {

/// Section 4.2.2: of the cube roots of the first 64 primes, the fractions.
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// Section 5.3.3: of the square roots of the first eight.
constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                            0xa54ff53a, 0x510e527f, 0x9b05688c,
                                            0x1f83d9ab, 0x5be0cd19};

constexpr size_t kBlock = 64;

/// Section 6.2.2: one block of the message.
void mix(std::array<uint32_t, 8> &hash, const unsigned char *block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t)
    w[t] = uint32_t(block[4 * t]) << 24 | uint32_t(block[4 * t + 1]) << 16 |
           uint32_t(block[4 * t + 2]) << 8 | uint32_t(block[4 * t + 3]);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + w[t - 7] +
           (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t one =
        h + kRounds[t] + w[t] + ((e & f) ^ (~e & g)) +
        (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25));
    const uint32_t two =
        ((a & b) ^ (a & c) ^ (b & c)) +
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22));
    h = g, g = f, f = e, e = d + one;
    d = c, c = b, b = a, a = one + two;
  }
  const std::array<uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i)
    hash[i] += mixed[i];
}

} // namespace

std::string sha256(std::string_view bytes) {
  std::array<uint32_t, 8> hash = kStart;
  const auto *data = reinterpret_cast<const unsigned char *>(bytes.data());
  size_t left = bytes.size();
  for (; left >= kBlock; left -= kBlock, data += kBlock)
    mix(hash, data);
  // Section 5.1.1: a one, zeros, and the length in bits.
  unsigned char end[2 * kBlock] = {};
  if (left > 0)
    memcpy(end, data, left);
  end[left] = 0x80;
  const size_t padded = left + 9 <= kBlock ? kBlock : 2 * kBlock;
  const uint64_t bits = uint64_t(bytes.size()) * 8;
  for (size_t i = 0; i < 8; ++i)
    end[padded - 1 - i] = static_cast<unsigned char>(bits >> 8 * i);
  for (size_t at = 0; at < padded; at += kBlock)
    mix(hash, end + at);
  std::string text;
  for (const uint32_t word : hash)
    text += fmt::format("{:08x}", word);
  return text;
}

} // namespace heddle::checkpoint
