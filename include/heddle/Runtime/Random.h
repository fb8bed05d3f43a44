//===- Random.h - counter-based random numbers ----------------------------===//
//
// A number is a pure function of (seed, stream, index): it does not depend on
// what was drawn before, on the layout of a tensor, on ranks or on threads.
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random
// numbers: as easy as 1, 2, 3; SC 2011). One block of four words serves four
// neighbouring indices. Normals use Math.h, so they have the same bits on
// every machine.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_RANDOM_H
#define HEDDLE_RUNTIME_RANDOM_H

#include "heddle/Runtime/Math.h"

#include <cstddef>
#include <cstdint>

namespace heddle::random {

struct Block {
  uint32_t words[4];
};

/// Philox4x32 with ten rounds: the block of `counter` under `key`.
HEDDLE_FN Block philox(Block counter, uint32_t key0, uint32_t key1) {
  uint32_t c0 = counter.words[0], c1 = counter.words[1], c2 = counter.words[2],
           c3 = counter.words[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t(0xD2511F53u) * c0;
    const uint64_t odd = uint64_t(0xCD9E8D57u) * c2;
    const uint32_t next0 = uint32_t(odd >> 32) ^ c1 ^ key0;
    const uint32_t next2 = uint32_t(even >> 32) ^ c3 ^ key1;
    c0 = next0;
    c1 = uint32_t(odd);
    c2 = next2;
    c3 = uint32_t(even);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The stream of a name (FNV-1a, 64 bits), e.g. of a parameter's full HF name.
constexpr uint64_t nameHash(const char *name, size_t length) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < length; ++i)
    hash = (hash ^ uint64_t(uint8_t(name[i]))) * 0x100000001b3ull;
  return hash;
}
/// Takes std::string, std::string_view and the like.
template <class Text>
constexpr uint64_t nameHash(const Text &name) {
  return nameHash(name.data(), name.size());
}

/// The block that holds indices 4 * quad to 4 * quad + 3 of a stream.
HEDDLE_FN Block blockAt(uint64_t seed, uint64_t stream, uint64_t quad) {
  return philox({{uint32_t(quad), uint32_t(quad >> 32), uint32_t(stream),
                  uint32_t(stream >> 32)}},
                uint32_t(seed), uint32_t(seed >> 32));
}

HEDDLE_FN uint32_t wordAt(uint64_t seed, uint64_t stream, uint64_t index) {
  return blockAt(seed, stream, index / 4).words[index % 4];
}

/// In [0, 1), a multiple of 2^-24.
HEDDLE_FN float uniformOf(uint32_t word) {
  return float(word >> 8) * 5.9604644775390625e-8f;
}
HEDDLE_FN float uniformAt(uint64_t seed, uint64_t stream, uint64_t index) {
  return uniformOf(wordAt(seed, stream, index));
}

/// Box and Muller: two words to two independent normals; |n| < 5.8.
HEDDLE_FN void normalsOf(uint32_t word0, uint32_t word1, float &first,
                         float &second) {
  const float radius =
      math::sqrt(-2.0f * math::log(1.0f - uniformOf(word0))); // log of (0, 1]
  const float angle = 6.28318531f * uniformOf(word1);
  first = radius * math::cos(angle);
  second = radius * math::sin(angle);
}

/// Standard normal number `index` of a stream.
HEDDLE_FN float normalAt(uint64_t seed, uint64_t stream, uint64_t index) {
  const Block block = blockAt(seed, stream, index / 4);
  const int pair = index % 4 < 2 ? 0 : 2;
  float first, second;
  normalsOf(block.words[pair], block.words[pair + 1], first, second);
  return index % 2 == 0 ? first : second;
}

/// out[i] = normalAt(seed, stream, first + i), several times faster.
inline void normalFill(uint64_t seed, uint64_t stream, uint64_t first,
                       int64_t count, float *out) {
  int64_t i = 0;
  for (; i < count && (first + uint64_t(i)) % 4 != 0; ++i)
    out[i] = normalAt(seed, stream, first + uint64_t(i));
  const int64_t quads = (count - i) / 4;
  const uint64_t firstQuad = (first + uint64_t(i)) / 4;
  float *whole = out + i;
  for (int64_t q = 0; q < quads; ++q) {
    const Block block = blockAt(seed, stream, firstQuad + uint64_t(q));
    float n0, n1, n2, n3;
    normalsOf(block.words[0], block.words[1], n0, n1);
    normalsOf(block.words[2], block.words[3], n2, n3);
    whole[4 * q] = n0;
    whole[4 * q + 1] = n1;
    whole[4 * q + 2] = n2;
    whole[4 * q + 3] = n3;
  }
  for (i += quads * 4; i < count; ++i)
    out[i] = normalAt(seed, stream, first + uint64_t(i));
}

} // namespace heddle::random

#endif
