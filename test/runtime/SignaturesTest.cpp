// Functions.def says of every entry point what heddle_rt.h says.

#include "heddle/Runtime/Program.h"
#include "heddle/Runtime/heddle_rt.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace {

using Context = heddle_rt_context *;
using ConstContext = const heddle_rt_context *;
using Comm = heddle_rt_comm *;
using ConstComm = const heddle_rt_comm *;
using CommOut = heddle_rt_comm **;
using Stream = heddle_rt_stream *;
using StreamOut = heddle_rt_stream **;
using Event = heddle_rt_event *;
using EventOut = heddle_rt_event **;
using Ptr = void *;
using ConstPtr = const void *;
using PtrOut = void **;
using F32Ptr = float *;
using ConstF32Ptr = const float *;
using ConstI32Ptr = const int32_t *;
using ConstI64Ptr = const int64_t *;
using I32Out = int32_t *;
using CString = const char *;
using I32 = int32_t;
using I64 = int64_t;
using DType = heddle_rt_dtype;
using Reduction = heddle_rt_reduction;
using MemoryClass = heddle_rt_memory_class;
using GraphPart = heddle_rt_graph_part;
using GraphBody = heddle_rt_graph_body;
using GemmArgs = const heddle_rt_gemm_args *;
using HadamardArgs = const heddle_rt_hadamard_args *;
using QuantizeArgs = const heddle_rt_quantize_args *;
using AttentionArgs = const heddle_rt_attention_args *;
using RopeArgs = const heddle_rt_rope_args *;
using AllToAllShape = const heddle_rt_all_to_all_shape *;

template <class... Parameters>
using Function = heddle_rt_status (*)(Parameters...);

#define HEDDLE_RT_FUNCTION(NAME, ...)                                          \
  static_assert(std::is_same_v<decltype(&NAME), Function<__VA_ARGS__>>,        \
                #NAME " differs from Functions.def");
#include "heddle/Runtime/Functions.def"

// Numbers that emitted programs and tables.bin contain.
static_assert(HEDDLE_RT_F32 == 0 && HEDDLE_RT_BF16 == 1 && HEDDLE_RT_F16 == 2 &&
              HEDDLE_RT_I32 == 3 && HEDDLE_RT_I64 == 4 && HEDDLE_RT_F64 == 5 &&
              HEDDLE_RT_U8 == 6 && HEDDLE_RT_F8E4M3 == 7 &&
              HEDDLE_RT_F8E5M2 == 8 && HEDDLE_RT_F8E8M0 == 9 &&
              HEDDLE_RT_F4E2M1 == 10);
static_assert(HEDDLE_RT_SUM == 0 && HEDDLE_RT_MAX == 1);

TEST(Functions, AreListedOnce) {
  const char *names[] = {
#define HEDDLE_RT_FUNCTION(NAME, ...) #NAME,
#include "heddle/Runtime/Functions.def"
  };
  for (const char *&one : names)
    for (const char *&other : names)
      EXPECT_TRUE(&one == &other || std::string(one) != other) << one;
}

} // namespace
