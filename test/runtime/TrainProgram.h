//===- TrainProgram.h - A program as an emitter would write it, by hand ---===//

#ifndef HEDDLE_TEST_RUNTIME_TRAINPROGRAM_H
#define HEDDLE_TEST_RUNTIME_TRAINPROGRAM_H

#include "heddle/Runtime/Tables.h"

namespace heddle::test {

/// A bigram model: logits of the next token are a column of W [next, token],
/// trained by SGD. Batch over dp = 2, `next` over tp = 2, padded from 7 to 8;
/// its file form is the transposed [token, next].
inline constexpr int kVocabulary = 7, kPadded = 8, kLength = 6, kSequences = 4;
inline constexpr int kLocalNext = kPadded / 2, kLocalSequences = kSequences / 2;
inline constexpr int kLocalTokens = kLocalSequences * kLength;

/// The arena, in bytes.
enum Offset : int64_t {
  kTokens = 0,
  kLabels = kTokens + kLocalTokens * 4,
  kRate = kLabels + kLocalTokens * 4,
  kCount = kRate + 8,
  kLoss = kCount + 8,
  kWeight = kLoss + 8,
  kGradient = kWeight + kLocalNext * kVocabulary * 4,
  kMaximum = kGradient + kLocalNext * kVocabulary * 4,
  kSum = kMaximum + kLocalTokens * 4, ///< sums, then picked logits
  kBytes = kSum + 2 * kLocalTokens * 4
};

runtime::Tables bigramTables();

/// What the program does wrong on purpose.
enum class Fault { None, ReplicasDrift, LossIsNan, OneLossIsNan };
void plantFault(Fault fault);

/// How many steps the first rank has begun, over all runs.
int64_t stepsBegun();
void waitForSteps(int64_t count);

} // namespace heddle::test

#endif
