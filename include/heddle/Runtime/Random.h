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

//===----------------------------------------------------------------------===//
// Dropout. Whether an element is dropped follows from the seed of its layer and
// from where it stands in the whole tensor, so backward draws the mask of
// forward again and nobody keeps it. A seed is 64 bits; the counter holds the
// column (in fours), the row (the token's number in the batch), the plane (a
// head of attention, else 0) and the site: which of the layer's dropouts.
//===----------------------------------------------------------------------===//

/// The seed of one layer's masks in one step; layer -1 is what stands outside
/// the layers.
constexpr uint32_t kDropoutStream = 0x64726f70u; // none of the data's steps
inline uint64_t dropoutSeed(uint64_t seed, int64_t step, int64_t layer) {
  const Block drawn = philox({{uint32_t(step), uint32_t(uint64_t(step) >> 32),
                               uint32_t(layer + 1), kDropoutStream}},
                             uint32_t(seed), uint32_t(seed >> 32));
  return uint64_t(drawn.words[1]) << 32 | drawn.words[0];
}

/// Elements whose word is below it are dropped; `rate` is in [0, 1).
constexpr uint32_t dropoutThreshold(double rate) {
  return uint32_t(rate * 4294967296.0);
}

/// Gradients that are rounded at random draw words as masks do, at sites of
/// their own: what is rounded has a name, and those of dropout are few.
constexpr uint32_t roundingSite(uint64_t hash) {
  return 0x80000000u | uint32_t(hash ^ (hash >> 32));
}

/// The words of columns 4 * quad to 4 * quad + 3.
HEDDLE_FN Block dropoutBlock(uint64_t seed, uint32_t site, uint32_t plane,
                             uint32_t row, uint32_t quad) {
  return philox({{quad, row, plane, site}}, uint32_t(seed),
                uint32_t(seed >> 32));
}

/// Chosen by selects, not by an index: a block stays in registers.
HEDDLE_FN uint32_t dropoutWord(uint64_t seed, uint32_t site, uint32_t plane,
                               uint32_t row, uint32_t column) {
  const Block block = dropoutBlock(seed, site, plane, row, column / 4);
  const uint32_t low = column & 1u ? block.words[1] : block.words[0];
  const uint32_t high = column & 1u ? block.words[3] : block.words[2];
  return column & 2u ? high : low;
}

} // namespace heddle::random

#endif
