// What readPlan asks of the words that `tensor` may be.

#ifndef HEDDLE_LIB_PLAN_TENSORFORMS_H
#define HEDDLE_LIB_PLAN_TENSORFORMS_H

#include "heddle/Plan/TensorForms.h"

namespace heddle::detail {

/// By word.
const std::map<std::string, TensorForm> &tensorForms();

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_TENSORFORMS_H
