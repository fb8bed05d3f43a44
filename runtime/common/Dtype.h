//===- Dtype.h - Element types: sizes and names ---------------------------===//

#ifndef RUNTIME_COMMON_DTYPE_H
#define RUNTIME_COMMON_DTYPE_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>

namespace heddle::runtime {

/// Bytes of one element; 0 for a value that is no dtype, and for codes of 4
/// bits, which have none of their own.
int64_t bytesOf(heddle_rt_dtype dtype);
/// Bytes of so many that lie side by side.
int64_t bytesOf(heddle_rt_dtype dtype, int64_t elements);
/// Whether two elements share a byte.
bool isPacked(heddle_rt_dtype dtype);
const char *nameOf(heddle_rt_dtype dtype);
/// Whether elements are codes that belong to a scale.
bool isCode(heddle_rt_dtype dtype);

} // namespace heddle::runtime

#endif
