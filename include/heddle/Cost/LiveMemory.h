//===- LiveMemory.h - Bytes that one rank needs at the peak -----*- C++ -*-===//
//
// Live bytes, not arena bytes: what must be kept at one moment, without the
// holes that packing leaves.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_LIVEMEMORY_H
#define HEDDLE_COST_LIVEMEMORY_H

#include "heddle/Cost/RankSizes.h"

#include <string>
#include <vector>

namespace heddle {

/// The moment of a step at which most bytes are live, within one function.
struct FramePeak {
  /// "head", "block_bwd"; "step" at a place that only passes on.
  std::string function;
  std::string moment;            ///< "gradient of logits"
  std::int64_t frameBytes = 0;   ///< temporaries of the function
  std::int64_t carriedBytes = 0; ///< what the step keeps around the call
  /// Whole copies of parameters that are stored in runs.
  std::int64_t gatheredBytes = 0;
  /// Gradients that a call made and that are reduced before they are added, and
  /// those of the largest bucket where they are cast to be reduced.
  std::int64_t bucketBytes = 0;
  std::int64_t savedBytes = 0; ///< of what is saved, what is live then

  std::int64_t bytes() const {
    return frameBytes + carriedBytes + gatheredBytes + bucketBytes + savedBytes;
  }
};

struct LiveMemory {
  // From step to step.
  std::int64_t parameters = 0;
  std::int64_t gradients = 0; ///< sums over micro-batches, reduced in place
  std::int64_t optimizer = 0; ///< its numbers, and masters
  std::int64_t masters = 0;   ///< of these
  std::int64_t inputs = 0;    ///< of all micro-batches, and three numbers
  std::int64_t outputs = 0;   ///< loss, count, gradient norm
  // Within a micro-batch.
  std::vector<SavedValue> savedValues;
  std::int64_t saved = 0;
  // On the host, of no peak.
  std::int64_t offloaded = 0; ///< of what is saved
  std::int64_t offloadedOptimizer = 0;
  /// Of that, what is on the device at a time, behind all micro-batches.
  std::int64_t rows = 0;
  std::int64_t passed =
      0; ///< of that: a place without layers only passes it on
  /// Buffers of what stages pass to each other; a part of carriedBytes.
  std::int64_t passing = 0;
  /// Each has stacks of what it saves; those of one are live at a time. 2 where
  /// the last micro-batch, in which gradients are reduced, is one of its own.
  std::int64_t microBatchLoops = 1;
  std::vector<FramePeak> frames; ///< the candidates, one per function

  /// The candidate with most bytes.
  const FramePeak &peak() const;
  /// Bytes live at the peak.
  std::int64_t peakBytes() const;
};

/// Bytes of \p entries entries that each begin at a multiple of 64 bytes.
std::int64_t stackBytes(std::int64_t bytes, std::int64_t entries);

/// What forward of one block saves.
std::vector<SavedValue> savedPerLayer(const ModelConfig &model,
                                      const RankSizes &sizes);

/// The masks of dropout that are in no memory: backward draws them again. With
/// the bytes that they would take at one byte per element.
std::vector<SavedValue> masksDrawnAgain(const ModelConfig &model,
                                        const RankSizes &sizes);

/// Live bytes of one optimizer step on one rank: at the peak of one of the
/// functions that it calls.
LiveMemory liveMemory(const ModelConfig &model, const TrainSettings &train,
                      const RankSizes &sizes);

} // namespace heddle

#endif // HEDDLE_COST_LIVEMEMORY_H
