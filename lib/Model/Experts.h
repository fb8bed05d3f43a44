//===- Experts.h - Keys of models with experts ------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_MODEL_EXPERTS_H
#define HEDDLE_LIB_MODEL_EXPERTS_H

#include "heddle/Model/ModelConfig.h"

namespace heddle::detail {

// Far above any model, and low enough that no product of sizes overflows.
inline constexpr IntegerRange widthRange = {1, std::int64_t{1} << 24};
inline constexpr IntegerRange countRange = {1, std::int64_t{1} << 20};
inline constexpr IntegerRange indexRange = {1, (std::int64_t{1} << 31) - 1};

/// Reads the experts of a family that has them; layers are known already.
void readExperts(MapReader &reader, ModelConfig &config);

/// Reads the heads of deepseek_v3.
void readLatent(MapReader &reader, ModelConfig &config);

} // namespace heddle::detail

#endif
