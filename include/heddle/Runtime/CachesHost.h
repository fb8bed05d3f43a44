//===- CachesHost.h - Past the caches, and ahead into them ----------------===//
//
// What the skeletons of SkeletonsHost.h do so that memory is busy while they
// compute: large outputs are streamed out, rows fetched ahead.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_CACHESHOST_H
#define HEDDLE_RUNTIME_CACHESHOST_H

#include "heddle/Runtime/Operands.h"

#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define HEDDLE_INLINE __attribute__((always_inline))

namespace heddle::host {

/// Elements between two looks at the operands: small enough that what is staged
/// stays in the first cache.
inline constexpr int64_t kBlock = 1024;
/// Launches that write at least this much do so past the caches: a line that is
/// written whole need not be read first, and nobody finds it in a cache anyway.
inline constexpr int64_t kStreamBytes = 16 << 20;

/// Longer rows are not fetched ahead: two of them must find room in the second
/// cache.
inline constexpr int64_t kAheadBytes = 256 << 10;

inline void fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// Copies to memory that will not be read soon.
inline void streamOut(char *to, const char *from, int64_t bytes) {
#if defined(__AVX512F__)
  const int64_t head = -reinterpret_cast<intptr_t>(to) & 63;
  if (bytes >= head + 64) {
    memcpy(to, from, size_t(head));
    int64_t i = head;
    for (; i + 64 <= bytes; i += 64)
      _mm512_stream_si512(reinterpret_cast<__m512i *>(to + i),
                          _mm512_loadu_si512(from + i));
    memcpy(to + i, from + i, size_t(bytes - i));
    return;
  }
#elif defined(__AVX2__)
  const int64_t head = -reinterpret_cast<intptr_t>(to) & 63;
  if (bytes >= head + 64) {
    memcpy(to, from, size_t(head));
    int64_t i = head;
    for (; i + 64 <= bytes; i += 64)
      for (int64_t half = i; half < i + 64; half += 32)
        _mm256_stream_si256(
            reinterpret_cast<__m256i *>(to + half),
            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + half)));
    memcpy(to + i, from + i, size_t(bytes - i));
    return;
  }
#endif
  memcpy(to, from, size_t(bytes));
}

template <class O>
using SliceOf = decltype(std::declval<const O &>().slice(0, 0, 0));
/// Stands between a loop and an operand that is only written: the loop fills
/// the buffer, which is then streamed out.
template <class O>
struct Stage {
  static constexpr bool kUsed = O::mode == Write && O::shape == Full;
  using Element = typename O::Element;
  alignas(64) Element buffer[kUsed ? kBlock : 1];

  Stage() {} // leaves the buffer as it is

  HEDDLE_INLINE SliceOf<O> redirect(SliceOf<O> s) {
    if constexpr (kUsed)
      s.data = buffer;
    return s;
  }
  HEDDLE_INLINE void flush(const SliceOf<O> &s, int64_t count) const {
    if constexpr (kUsed)
      streamOut(reinterpret_cast<char *>(s.data),
                reinterpret_cast<const char *>(buffer),
                count * int64_t(sizeof(Element)));
  }
};

template <class... O>
bool worthStreaming(int64_t rows, int64_t columns) {
  int64_t bytes = 0;
  ((bytes += Stage<O>::kUsed
                 ? rows * columns * int64_t(sizeof(typename O::Element))
                 : 0),
   ...);
  return bytes >= kStreamBytes;
}

/// The elements of the next row. A row's last pass fetches them: it finds its
/// own in the cache, where the pass before left them, and memory would idle.
template <class... O>
class Ahead {
public:
  HEDDLE_INLINE Ahead(int64_t row, int64_t rows, int64_t columns, const O &...o)
      : begin{row < rows ? beginOf(o, row, columns) : nullptr...} {}

  HEDDLE_INLINE void fetch(int64_t first, int64_t count) const {
    int k = 0;
    (fetchOne<O>(begin[k++], first, count), ...);
  }

private:
  template <class Op>
  static constexpr bool kReads = (Op::mode & Read) != 0 && Op::shape == Full &&
                                 Op::kAccesses == 1; // not an indexed row

  template <class Op>
  HEDDLE_INLINE static const char *beginOf(const Op &o, int64_t row,
                                           int64_t columns) {
    if constexpr (kReads<Op>)
      if (columns * int64_t(sizeof(typename Op::Element)) <= kAheadBytes)
        return reinterpret_cast<const char *>(o.slice(row, 0, columns).data);
    return nullptr;
  }
  template <class Op>
  HEDDLE_INLINE static void fetchOne(const char *row, int64_t first,
                                     int64_t count) {
    if constexpr (kReads<Op>) {
      constexpr int64_t kSize = sizeof(typename Op::Element);
      if (row)
        for (int64_t i = first * kSize; i < (first + count) * kSize; i += 64)
          __builtin_prefetch(row + i);
    }
  }

  const char *begin[sizeof...(O)]; ///< NULL: nothing to fetch
};

} // namespace heddle::host

#endif
