//===- Batch.h - Batch files (FORMATS 3) ------------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_BATCH_H
#define HEDDLE_TOOLS_BATCH_H

#include "heddle/Support/Result.h"
#include "passes/Interpret/Values.h"

#include <string>

namespace heddle::tool {

/// Sequences as the reader of a batch file understands them: labels, mask and
/// positions settled. Tensors are [sequences, length].
struct BatchFile {
  int64_t sequences = 0, length = 0;
  interpret::Batch whole;

  /// Steps of `globalBatch` sequences; the last may be short.
  int64_t steps(int64_t globalBatch) const;
  /// The sequences of step `step`, from 1. Absent ones have no counted label.
  interpret::Batch step(int64_t step, int64_t globalBatch) const;
};

/// Reads `.safetensors`, or `.json` lists.
Result<BatchFile> readBatch(const std::string &path);

/// Labels that count.
int64_t countLabels(const interpret::Batch &batch);

/// Writes the batch as a `.safetensors` that readBatch and `run --data` read.
Result<void> writeBatch(const interpret::Batch &batch, const std::string &path);

/// An error that names the first token or label that is no word of the
/// vocabulary.
Result<void> checkBatch(const BatchFile &batch, int64_t vocabulary,
                        const std::string &path);

} // namespace heddle::tool

#endif
