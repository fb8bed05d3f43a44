//===- Frames.h - Temporaries of functions ----------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_FRAMES_H
#define HEDDLE_LIB_COST_FRAMES_H

#include "BlockForward.h"

#include "heddle/Cost/LiveMemory.h"

namespace heddle::detail {

/// The most bytes that ops have for values of their own at once. Those of
/// \p outside, and what they only read, have their places of the caller.
FramePeak framePeak(const std::string &function,
                    const std::vector<BlockOp> &ops,
                    const std::set<std::string> &outside);

/// The head: norm, loss, and backward of both, in one function.
FramePeak headFrame(const ModelConfig &model, const RankSizes &sizes);

/// A function of a block's backward: the only one, or one of two halves.
FramePeak backwardFrame(const LayersUnder &under, const RankSizes &sizes,
                        std::size_t half = 0);

/// What the first of two halves makes and the second reads.
std::vector<BlockValue> keptValues(const LayersUnder &under);

FramePeak forwardFrame(const ModelConfig &model, const RankSizes &sizes,
                       const LayersUnder &under);

FramePeak embeddingFrame(const ModelConfig &model, const RankSizes &sizes,
                         bool isBackward);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_FRAMES_H
