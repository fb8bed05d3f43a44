//===- Numbers.h - numbers.bin, what the text of a program leaves out -----===//
//
// Written by the emitter, read by step.cpp when a rank is made. Offsets, sizes,
// bounds of loops and tables of schedules are there and not in the text, which
// is the same for all numbers of layers, micro-batches and ranks.
//
// The file is, in the machine's byte order, without gaps:
//
//   NumbersHeader
//   int64 counts[counts]             the same on all ranks
//   int64 places[stages][places]     one row per pipeline stage
//   int64 shapes[tables][2]          rows and width of each table
//   int32 entries[entries]           of all tables, row by row
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_NUMBERS_H
#define HEDDLE_RUNTIME_NUMBERS_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstring>
#include <vector>

namespace heddle {

inline constexpr char kNumbersMagic[] = "heddle#1";

struct NumbersHeader {
  char magic[8];
  uint64_t key; ///< of the names in step.cpp
  int64_t counts, stages, places, tables, entries;
};

/// The bytes of a numbers.bin, which must outlive it.
class Numbers {
public:
  /// \param key  what step.cpp was written with.
  /// \return HEDDLE_RT_INVALID_ARGUMENT where the bytes are no numbers.bin, or
  ///         that of another text.
  heddle_rt_status open(const void *data, int64_t bytes, uint64_t key) {
    if (!data || bytes < int64_t(sizeof header))
      return refuse("there is none, or it is cut short; it belongs beside "
                    "tables.bin");
    begin = static_cast<const char *>(data);
    std::memcpy(&header, begin, sizeof header);
    if (std::memcmp(header.magic, kNumbersMagic, sizeof header.magic) != 0)
      return refuse("these are no numbers of a program, or of another version "
                    "of heddle; compile again");
    if (header.key != key)
      return refuse("these are the numbers of another program; compile again");
    if (!fits(bytes - int64_t(sizeof header)))
      return refuse("it is cut short, or its sizes are damaged; compile again");
    return HEDDLE_RT_OK;
  }

  /// All counts.
  void readCounts(int64_t *to) const {
    copy(to, int64_t(sizeof header), header.counts);
  }
  /// The places of a stage.
  void readPlaces(int64_t stage, int64_t *to) const {
    copy(to, placesAt() + 8 * (stage * header.places), header.places);
  }
  /// The row of a table for a rank at `place` over its axis; a table without
  /// one has one row.
  std::vector<int32_t> readRow(int64_t table, int64_t place) const {
    int64_t first = 0, shape[2] = {1, 0};
    for (int64_t i = 0; i <= table; ++i) {
      first += shape[0] * shape[1];
      copy(shape, shapesAt() + 16 * i, 2);
    }
    if (shape[0] == 1)
      place = 0;
    std::vector<int32_t> row(static_cast<size_t>(shape[1]));
    copy(row.data(), entriesAt() + 4 * (first + place * shape[1]), shape[1]);
    return row;
  }

private:
  /// Whether `left` bytes behind the header are what its sizes, and those of
  /// the tables, ask for.
  bool fits(int64_t left) const {
    const auto take = [&left](int64_t count, int64_t width) {
      if (count < 0 || width < 0 || (width > 0 && count > left / width))
        return false;
      left -= count * width;
      return true;
    };
    const int64_t most = left / 8;
    if (!take(header.counts, 8) || header.places < 0 || header.places > most ||
        !take(header.stages, 8 * header.places) || !take(header.tables, 16) ||
        left % 4 != 0 || header.entries != left / 4)
      return false;
    left = header.entries;
    for (int64_t i = 0; i < header.tables; ++i) {
      int64_t shape[2];
      copy(shape, shapesAt() + 16 * i, 2);
      if (shape[0] < 1 || !take(shape[0], shape[1]))
        return false;
    }
    return left == 0;
  }

  int64_t placesAt() const {
    return int64_t(sizeof header) + 8 * header.counts;
  }
  int64_t shapesAt() const {
    // Stages without places are any number.
    return placesAt() + 8 * (header.stages * header.places);
  }
  int64_t entriesAt() const { return shapesAt() + 16 * header.tables; }

  template <class T>
  void copy(T *to, int64_t at, int64_t count) const {
    if (count > 0)
      std::memcpy(to, begin + at, size_t(count) * sizeof(T));
  }
  static heddle_rt_status refuse(const char *why) {
    heddle_rt_launch_failed("numbers.bin", why);
    return HEDDLE_RT_INVALID_ARGUMENT;
  }

  NumbersHeader header = {};
  const char *begin = nullptr;
};

} // namespace heddle

#endif
