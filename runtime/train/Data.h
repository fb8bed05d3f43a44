//===- Data.h - Sequences of tokens for each step -------------------------===//

#ifndef RUNTIME_TRAIN_DATA_H
#define RUNTIME_TRAIN_DATA_H

#include "heddle/Support/Result.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace heddle::train {

/// The global batch of one step: [sequences, length], row-major, whole on every
/// rank. Absent sequences (a last short window) have tokens 0 and no counted
/// label.
struct Batch {
  std::vector<int32_t> tokens, labels, documents, positions;
  int64_t counted = 0; ///< labels of at least 0
};

struct DataShape {
  int64_t sequences, length, vocabulary;
  uint64_t seed;
  int64_t tokenBytes =
      0; ///< of a .bin: 2, 4, or 0 for what the vocabulary needs
};

/// Where sequences come from.
class Data {
public:
  /// By the name: `.bin` little-endian tokens; `.safetensors`, `.json` batches
  /// (FORMATS.md has the fields), read in order, step by step, again from the
  /// start after the last; anything else text, read as bytes. Of a stream of
  /// tokens, sequence i of step k begins where (seed, k, i) says.
  static Result<std::unique_ptr<Data>> open(const std::string &path,
                                            const DataShape &shape);
  virtual ~Data() = default;

  /// The batch of a step, from 1. An error where a token or label is not in the
  /// vocabulary.
  Result<void> fill(int64_t step, Batch &batch) const;

protected:
  Data(std::string path, const DataShape &shape)
      : path(std::move(path)), shape(shape) {}

  /// Writes sequence i of a step, or leaves it absent. Labels are given (-100
  /// and documents, positions are set before).
  struct Sequence {
    int32_t *tokens, *labels, *documents, *positions; ///< [length]
  };
  virtual Result<void> read(int64_t step, int64_t i, Sequence to) const = 0;
  Error outside(const char *what, int64_t value, int64_t sequence,
                int64_t position) const;

  std::string path;
  DataShape shape;
};

} // namespace heddle::train

#endif
