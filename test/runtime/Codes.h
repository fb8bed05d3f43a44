//===- Codes.h - what tests of codes have in common -------------*- C++ -*-===//

#ifndef TEST_RUNTIME_CODES_H
#define TEST_RUNTIME_CODES_H

#include "OnDevice.h"

#include "heddle/Runtime/Scales.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace heddle::test {

/// Runs `body` with one rank's context and stream.
template <class Body>
void withStream(Body body) {
  const auto result = ranks::runRanks(1, {}, [&](heddle_rt_context *context) {
    heddle_rt_stream *stream = nullptr;
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
    body(context, stream);
    return HEDDLE_RT_OK;
  });
  EXPECT_TRUE(result) << result.message;
}

template <class T>
heddle_rt_dtype dtypeOf() {
  return std::is_same_v<T, float>     ? HEDDLE_RT_F32
         : std::is_same_v<T, uint8_t> ? HEDDLE_RT_U8
         : std::is_same_v<T, bf16>    ? HEDDLE_RT_BF16
         : std::is_same_v<T, f8e4m3>  ? HEDDLE_RT_F8E4M3
         : std::is_same_v<T, f8e8m0>  ? HEDDLE_RT_F8E8M0
                                      : HEDDLE_RT_F8E5M2;
}

template <class T>
std::vector<T> valuesOf(int64_t n, float largest, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, largest / 4);
  std::vector<T> values(static_cast<size_t>(n));
  for (T &value : values)
    narrow(normal(random), value);
  return values;
}

/// A product of codes over the last dimension of both, added to fp32 numbers.
template <class A, class B>
struct ProductOfCodes {
  ProductOfCodes(const char *name, int64_t m, int64_t n, int64_t k,
                 heddle_rt_context *context, heddle_rt_stream *stream,
                 const std::vector<A> &a, const std::vector<B> &b,
                 float before = 0.5f)
      : stream(stream), left(context, stream, a), right(context, stream, b),
        c(context, stream, std::vector<float>(size_t(m * n), before)) {
    args.name = name;
    args.m = m, args.n = n, args.k = k;
    args.lda = args.ldb = k, args.ldc = n;
    args.transpose_b = 1;
    args.alpha = 1, args.beta = 1, args.batch = 1;
    args.a = dtypeOf<A>(), args.b = dtypeOf<B>(), args.c = HEDDLE_RT_F32;
  }

  heddle_rt_status run() {
    return heddle_rt_gemm(stream, &args, left.data(), right.data(), c.data());
  }

  heddle_rt_gemm_args args{};
  heddle_rt_stream *stream;
  OnDevice<A> left;
  OnDevice<B> right;
  OnDevice<float> c;
};

/// Whether there are blocks of all sizes and scales. GPUs have those of 128
/// numbers with scales in f32, and say so.
inline bool hasBlocks() {
  bool has = true;
  withStream([&](heddle_rt_context *context, heddle_rt_stream *stream) {
    heddle_rt_quantize_args args{};
    args.name = "probe";
    args.rows = args.columns = args.block_rows = args.block_columns = 1;
    args.codes = HEDDLE_RT_F8E4M3;
    OnDevice<float> x(context, stream, std::vector<float>(32));
    if (heddle_rt_quantize(stream, &args, x.data(), nullptr, x.data() + 8,
                           x.data() + 16) == HEDDLE_RT_OK)
      return;
    has = false;
    EXPECT_STREQ(heddle_rt_last_error(),
                 "probe: scales in f32 of blocks of 1 x 1: on this "
                 "architecture they are f32, of 1 x 128 or 128 x 128; bytes "
                 "are Blackwell's");
  });
  return has;
}

} // namespace heddle::test

#endif // TEST_RUNTIME_CODES_H
