#include "runtime/common/Dtype.h"

namespace heddle::runtime {

int64_t bytesOf(heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_F32:
  case HEDDLE_RT_I32:
    return 4;
  case HEDDLE_RT_BF16:
  case HEDDLE_RT_F16:
    return 2;
  case HEDDLE_RT_I64:
  case HEDDLE_RT_F64:
    return 8;
  case HEDDLE_RT_U8:
  case HEDDLE_RT_F8E4M3:
  case HEDDLE_RT_F8E5M2:
  case HEDDLE_RT_F8E8M0:
    return 1;
  case HEDDLE_RT_F4E2M1:
    return 0;
  }
  return 0;
}

int64_t bytesOf(heddle_rt_dtype dtype, int64_t elements) {
  return isPacked(dtype) ? (elements + 1) / 2 : elements * bytesOf(dtype);
}

bool isPacked(heddle_rt_dtype dtype) { return dtype == HEDDLE_RT_F4E2M1; }

const char *nameOf(heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return "f32";
  case HEDDLE_RT_BF16:
    return "bf16";
  case HEDDLE_RT_F16:
    return "f16";
  case HEDDLE_RT_I32:
    return "i32";
  case HEDDLE_RT_I64:
    return "i64";
  case HEDDLE_RT_F64:
    return "f64";
  case HEDDLE_RT_U8:
    return "u8";
  case HEDDLE_RT_F8E4M3:
    return "f8e4m3";
  case HEDDLE_RT_F8E5M2:
    return "f8e5m2";
  case HEDDLE_RT_F8E8M0:
    return "f8e8m0";
  case HEDDLE_RT_F4E2M1:
    return "f4e2m1";
  }
  return "no dtype";
}

bool isCode(heddle_rt_dtype dtype) {
  return dtype == HEDDLE_RT_F8E4M3 || dtype == HEDDLE_RT_F8E5M2 ||
         isPacked(dtype);
}

} // namespace heddle::runtime
