//===- QuantizeCall.h - Checked calls about formats with a scale ----------===//

#ifndef RUNTIME_COMMON_QUANTIZECALL_H
#define RUNTIME_COMMON_QUANTIZECALL_H

#include "runtime/common/Status.h"

#include <vector>

namespace heddle::runtime {

const char *amaxName(const char *name);
heddle_rt_status checkAmax(const char *name, const void *input,
                           int64_t elements, heddle_rt_dtype dtype,
                           const float *amax);
std::vector<heddle_rt_access> amaxAccesses(const void *input, int64_t elements,
                                           heddle_rt_dtype dtype,
                                           const float *amax);

const char *hadamardName(const heddle_rt_hadamard_args &args);
/// What heddle_rt_hadamard says.
heddle_rt_status checkHadamard(const heddle_rt_hadamard_args &args,
                               const void *input, const void *output);
std::vector<heddle_rt_access>
hadamardAccesses(const heddle_rt_hadamard_args &args, const void *input,
                 const void *output);

const char *quantizeName(const heddle_rt_quantize_args &args);
/// Sizes, formats and pointers; what heddle_rt_quantize says.
heddle_rt_status checkQuantize(const heddle_rt_quantize_args &args,
                               const void *input, const float *amax,
                               const void *codes, const void *scale);
std::vector<heddle_rt_access>
quantizeAccesses(const heddle_rt_quantize_args &args, const void *input,
                 const float *amax, const void *codes, const void *scale);

} // namespace heddle::runtime

#endif
