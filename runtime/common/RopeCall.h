//===- RopeCall.h - A checked rotation of positions -----------------------===//

#ifndef RUNTIME_COMMON_ROPECALL_H
#define RUNTIME_COMMON_ROPECALL_H

#include "runtime/common/Status.h"

#include <vector>

namespace heddle::runtime {

const char *ropeName(const heddle_rt_rope_args &args);
int64_t ropeElements(const heddle_rt_rope_args &args);
/// Sizes; and pointers and format, where there are elements.
heddle_rt_status checkRope(const heddle_rt_rope_args &args, const void *input,
                           const int32_t *positions, const void *output);
std::vector<heddle_rt_access> ropeAccesses(const heddle_rt_rope_args &args,
                                           const void *input,
                                           const int32_t *positions,
                                           const void *output);

} // namespace heddle::runtime

#endif
