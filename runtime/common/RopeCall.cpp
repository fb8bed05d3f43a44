#include "runtime/common/RopeCall.h"

#include "runtime/common/Dtype.h"

namespace heddle::runtime {

const char *ropeName(const heddle_rt_rope_args &args) {
  return orUnnamed(args.name, "rope");
}

int64_t ropeElements(const heddle_rt_rope_args &args) {
  return args.positions * args.heads * args.head_size;
}

heddle_rt_status checkRope(const heddle_rt_rope_args &args, const void *input,
                           const int32_t *positions, const void *output) {
  if (args.positions < 0 || args.heads < 0 || args.head_size < 0 ||
      args.head_size % 2 != 0)
    return invalid("{}: positions {}, heads {}, head_size {}: expected none "
                   "negative and an even head_size",
                   ropeName(args), args.positions, args.heads, args.head_size);
  if (ropeElements(args) == 0)
    return HEDDLE_RT_OK;
  if (!input || !positions || !output || !args.frequencies)
    return invalid("{}: input, positions, output or frequencies is NULL",
                   ropeName(args));
  if (args.dtype != HEDDLE_RT_F32 && args.dtype != HEDDLE_RT_BF16 &&
      args.dtype != HEDDLE_RT_F16)
    return invalid("{}: rotates f32, bf16 or f16, got {}", ropeName(args),
                   nameOf(args.dtype));
  return HEDDLE_RT_OK;
}

std::vector<heddle_rt_access> ropeAccesses(const heddle_rt_rope_args &args,
                                           const void *input,
                                           const int32_t *positions,
                                           const void *output) {
  const int64_t bytes = ropeElements(args) * bytesOf(args.dtype);
  return {{input, bytes, 0},
          {positions, args.positions * 4, 0},
          {output, bytes, 1}};
}

} // namespace heddle::runtime
