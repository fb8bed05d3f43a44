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
  std::string function;          ///< "head", "block_bwd"
  std::string moment;            ///< "gradient of logits"
  std::int64_t frameBytes = 0;   ///< temporaries of the function
  std::int64_t carriedBytes = 0; ///< what the step keeps around the call
  /// Whole copies of parameters that are stored in runs.
  std::int64_t gatheredBytes = 0;
  /// Gradients that a call made and that are reduced before they are added, and
  /// those of the largest bucket where they are cast to be reduced.
  std::int64_t bucketBytes = 0;

  std::int64_t bytes() const {
    return frameBytes + carriedBytes + gatheredBytes + bucketBytes;
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
  /// Buffers of what stages pass to each other; a part of carriedBytes.
  std::int64_t passing = 0;
  /// Each has stacks of what it saves; those of one are live at a time. 2 where
  /// the last micro-batch, in which gradients are reduced, is one of its own.
  std::int64_t microBatchLoops = 1;
  std::vector<FramePeak> frames; ///< the candidates, one per function
  /// Not with stages where W slots run apart from B, which share saved values
  /// between them, where whole copies of parameters outlive a pass, where all
  /// of forward is repeated on cut sequences or with biases behind the MLP, and
  /// where a place has neither
  /// layers nor the head.
  bool isPeakKnown = true;

  /// The candidate with most bytes.
  const FramePeak &peak() const;
  /// Bytes live at the peak; 0 where it is not known.
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

/// Live bytes of one optimizer step on one rank, nothing recomputed. The
/// peak is in the head or in a block's backward: then all layers' saved values
/// are there, and both have larger temporaries than the functions of forward
/// (but in models so small that what forward gathers, or the largest bucket of
/// gradients behind the last micro-batch, is larger than both).
LiveMemory liveMemory(const ModelConfig &model, const TrainSettings &train,
                      const RankSizes &sizes);

} // namespace heddle

#endif // HEDDLE_COST_LIVEMEMORY_H
