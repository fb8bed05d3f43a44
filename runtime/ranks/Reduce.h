//===- Reduce.h - Sums and maxima in rank order ---------------------------===//

#ifndef RUNTIME_RANKS_REDUCE_H
#define RUNTIME_RANKS_REDUCE_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>
#include <vector>

namespace heddle::ranks {

/// output[i] = parts[0][i] op parts[1][i] op ..., from the left. f32, bf16, f16
/// in fp32, rounded once; f64 in f64; integers exactly, modulo 2^bits. `output`
/// may be one of the parts.
void reduce(void *output, const std::vector<const void *> &parts,
            int64_t elements, heddle_rt_dtype dtype,
            heddle_rt_reduction reduction);

} // namespace heddle::ranks

#endif
