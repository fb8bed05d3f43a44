//===- Keys.h - Keys of a config.json that are not read ---------*- C++ -*-===//

#ifndef HEDDLE_LIB_MODEL_KEYS_H
#define HEDDLE_LIB_MODEL_KEYS_H

#include "heddle/Model/ModelConfig.h"

namespace heddle::detail {

/// Makes neutral keys known, and refuses fixed keys (those that change the
/// arithmetic unless they have one value) with another value.
void checkUnreadKeys(MapReader &reader, Family family);

} // namespace heddle::detail

#endif
