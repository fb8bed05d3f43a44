//===- Frames.h - Temporaries of the two largest functions ------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_FRAMES_H
#define HEDDLE_LIB_COST_FRAMES_H

#include "heddle/Cost/LiveMemory.h"

namespace heddle::detail {

/// Bytes of a statistic, and of an element of the optimizer's numbers.
inline constexpr std::int64_t kFloat = 4;

/// The peak of the head's temporaries; carriedBytes is the caller's.
FramePeak headFrame(const ModelConfig &model, const RankSizes &sizes);

/// The same for a block's backward.
FramePeak backwardFrame(const ModelConfig &model, const RankSizes &sizes,
                        const LayersUnder &under);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_FRAMES_H
