// What a plan's `zero` and `overlap` ask for and do not get.

#ifndef HEDDLE_LIB_PLAN_ZEROWARNINGS_H
#define HEDDLE_LIB_PLAN_ZEROWARNINGS_H

#include "heddle/Plan/Plan.h"

namespace heddle::detail {

/// Of a plan whose parameters have layouts.
std::vector<PlanWarning> zeroWarnings(const Plan &plan,
                                      const ModelConfig &model);

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_ZEROWARNINGS_H
