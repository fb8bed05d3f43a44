// Products, attention and rotations of heddle_rt.h. Checks are in common/, the
// arithmetic in cuBLASLt and the kernels.

#include "runtime/common/AttentionCall.h"
#include "runtime/common/Dtype.h"
#include "runtime/common/QuantizeCall.h"
#include "runtime/common/RopeCall.h"
#include "runtime/cuda/Kernels.h"
#include "runtime/cuda/Products.h"

using heddle::cuda::checked;
using heddle::cuda::openFor;
using heddle::cuda::watch;
using heddle::runtime::attentionName;
using heddle::runtime::AttentionPointers;
using heddle::runtime::bytesOf;
using heddle::runtime::GemmCall;
using heddle::runtime::invalid;

/// With nothing to sum, C is beta C; cuBLASLt has no such product.
static heddle_rt_status scaleOnly(heddle_rt_stream *stream,
                                  const GemmCall &gemm, void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  if (args.beta == 1.0f)
    return HEDDLE_RT_OK;
  if (args.beta != 0.0f)
    return invalid("{}: k is 0 and beta {}: expected 0 or 1", gemm.name(),
                   args.beta);
  const int64_t size = bytesOf(args.c);
  for (int64_t i = 0; i < args.batch; ++i)
    HEDDLE_RT_TRY(
        checked(cudaMemset2DAsync(
                    static_cast<std::byte *>(c) + i * args.stride_c * size,
                    size_t(args.ldc * size), 0, size_t(args.n * size),
                    size_t(args.m), stream->native),
                "{}: zeros", gemm.name()));
  return HEDDLE_RT_OK;
}

/// Of blocks, what cuBLASLt multiplies on this architecture.
static heddle_rt_status checkBlocks(const GemmCall &gemm) {
  constexpr int64_t kLength = heddle::cuda::kBlockLength;
  const heddle_rt_gemm_args &args = gemm.args;
  const bool ofRow = args.block_a == 1 || args.block_b == 1;
  const bool known = (args.block_a == 1 || args.block_a == kLength) &&
                     (args.block_b == 1 || args.block_b == kLength);
  if (args.scales != HEDDLE_RT_F32 || args.block_k != kLength || !ofRow ||
      !known)
    return invalid(
        "{}: scales in {} of blocks of {} and {} rows and {} summed "
        "numbers: on this architecture they are f32, of 1 or {} rows "
        "(not {} of both) and {} numbers; bytes are Blackwell's",
        gemm.name(), heddle::runtime::nameOf(args.scales), args.block_a,
        args.block_b, args.block_k, kLength, kLength, kLength);
  if (args.m % 4 != 0 || args.n % 4 != 0)
    return invalid("{}: m {}, n {}: with scales of blocks both are multiples "
                   "of 4 here",
                   gemm.name(), args.m, args.n);
  return HEDDLE_RT_OK;
}

heddle_rt_status heddle_rt_gemm(heddle_rt_stream *stream,
                                const heddle_rt_gemm_args *args, const void *a,
                                const void *b, void *c) {
  if (!stream || !args)
    return invalid("heddle_rt_gemm: {} is NULL", stream ? "args" : "stream");
  const GemmCall gemm(*args);
  HEDDLE_RT_TRY(gemm.check(a, b, c));
  if (gemm.hasBlocks())
    HEDDLE_RT_TRY(checkBlocks(gemm));
  // Of 8 bits cuBLASLt has one orientation on this architecture.
  if (gemm.isScaled() && (args->transpose_a || !args->transpose_b))
    return invalid("{}: products of {} sum along rows of both operands here: "
                   "transpose_a 0, transpose_b 1",
                   gemm.name(), heddle::runtime::nameOf(args->a));
  if (args->batch > INT32_MAX)
    return invalid("{}: {} products, at most {}", gemm.name(), args->batch,
                   INT32_MAX);
  if (gemm.isEmpty())
    return openFor(stream, gemm.name());
  std::vector<heddle_rt_access> accesses;
  if (stream->context->watching())
    accesses = gemm.accesses(a, b, c);
  HEDDLE_RT_TRY(watch(stream, gemm.name(), accesses));
  return stream->context->die(
      args->k == 0 ? scaleOnly(stream, gemm, c)
                   : stream->context->products->run(stream, gemm, a, b, c));
}

heddle_rt_status heddle_rt_amax(heddle_rt_stream *stream, const char *name,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, float *amax) {
  if (!stream)
    return invalid("heddle_rt_amax: stream is NULL");
  HEDDLE_RT_TRY(heddle::runtime::checkAmax(name, input, elements, dtype, amax));
  const char *label = heddle::runtime::amaxName(name);
  HEDDLE_RT_TRY(
      watch(stream, label,
            heddle::runtime::amaxAccesses(input, elements, dtype, amax)));
  return stream->context->die(checked(
      heddle::cuda::launchAmax(stream->native, dtype, input, elements, amax),
      "{}", label));
}

heddle_rt_status heddle_rt_hadamard(heddle_rt_stream *stream,
                                    const heddle_rt_hadamard_args *args,
                                    const void *input, void *output) {
  if (!stream || !args)
    return invalid("heddle_rt_hadamard: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(heddle::runtime::checkHadamard(*args, input, output));
  return invalid("{}: this backend mixes no rows",
                 heddle::runtime::hadamardName(*args));
}

heddle_rt_status heddle_rt_quantize(heddle_rt_stream *stream,
                                    const heddle_rt_quantize_args *args,
                                    const void *input, const float *amax,
                                    void *codes, void *scale) {
  if (!stream || !args)
    return invalid("heddle_rt_quantize: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(
      heddle::runtime::checkQuantize(*args, input, amax, codes, scale));
  const char *name = heddle::runtime::quantizeName(*args);
  constexpr int64_t kLength = heddle::cuda::kBlockLength;
  if (args->block_rows > 0 &&
      (args->scales != HEDDLE_RT_F32 || args->block_columns != kLength ||
       (args->block_rows != 1 && args->block_rows != kLength)))
    return invalid(
        "{}: scales in {} of blocks of {} x {}: on this architecture "
        "they are f32, of 1 x {} or {} x {}; bytes are Blackwell's",
        name, heddle::runtime::nameOf(args->scales), args->block_rows,
        args->block_columns, kLength, kLength, kLength);
  HEDDLE_RT_TRY(watch(
      stream, name,
      heddle::runtime::quantizeAccesses(*args, input, amax, codes, scale)));
  auto *scales = static_cast<float *>(scale);
  return stream->context->die(
      checked(args->block_rows > 0
                  ? heddle::cuda::launchQuantizeBlocks(stream->native, *args,
                                                       input, codes, scales)
                  : heddle::cuda::launchQuantize(stream->native, *args, input,
                                                 amax, codes, scales),
              "{}", name));
}

/// Both directions, from the checks to the launch.
static heddle_rt_status attend(heddle_rt_stream *stream,
                               const heddle_rt_attention_args *args,
                               const AttentionPointers &pointers, bool grad) {
  if (!stream || !args)
    return invalid("heddle_rt_attention{}: {} is NULL", grad ? "_grad" : "",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(heddle::runtime::checkAttentionArgs(*args));
  if (args->head_size > heddle::cuda::kMostHeadSize)
    return invalid("{}: heads of {} elements, at most {}", attentionName(*args),
                   args->head_size, heddle::cuda::kMostHeadSize);
  if (heddle::runtime::isEmptyAttention(*args, grad))
    return openFor(stream, attentionName(*args));
  HEDDLE_RT_TRY(heddle::runtime::checkAttention(*args, pointers, grad));
  std::vector<heddle_rt_access> accesses;
  if (stream->context->watching())
    accesses = heddle::runtime::attentionAccesses(*args, pointers, grad);
  HEDDLE_RT_TRY(watch(stream, attentionName(*args), accesses));
  const cudaError_t error =
      grad ? heddle::cuda::launchAttentionGrad(stream->native, *args, pointers)
           : heddle::cuda::launchAttention(stream->native, *args, pointers);
  return stream->context->die(checked(error, "{}", attentionName(*args)));
}

heddle_rt_status heddle_rt_attention(heddle_rt_stream *stream,
                                     const heddle_rt_attention_args *args,
                                     const void *q, const void *k,
                                     const void *v, void *o, float *lse) {
  return attend(stream, args, {q, k, v, o, lse}, false);
}

heddle_rt_status heddle_rt_attention_grad(heddle_rt_stream *stream,
                                          const heddle_rt_attention_args *args,
                                          const void *q, const void *k,
                                          const void *v, const void *o,
                                          const float *lse, const void *gradO,
                                          void *gradQ, void *gradK,
                                          void *gradV) {
  return attend(stream, args, {q, k, v, o, lse, gradO, gradQ, gradK, gradV},
                true);
}

heddle_rt_status heddle_rt_rope(heddle_rt_stream *stream,
                                const heddle_rt_rope_args *args,
                                const void *input, const int32_t *positions,
                                void *output) {
  if (!stream || !args)
    return invalid("heddle_rt_rope: {} is NULL", stream ? "args" : "stream");
  HEDDLE_RT_TRY(heddle::runtime::checkRope(*args, input, positions, output));
  const char *name = heddle::runtime::ropeName(*args);
  if (args->head_size > 2 * heddle::cuda::kMostFrequencies)
    return invalid("{}: heads of {} elements, at most {}", name,
                   args->head_size, 2 * heddle::cuda::kMostFrequencies);
  if (heddle::runtime::ropeElements(*args) == 0)
    return openFor(stream, name);
  HEDDLE_RT_TRY(
      watch(stream, name,
            heddle::runtime::ropeAccesses(*args, input, positions, output)));
  return stream->context->die(checked(
      heddle::cuda::launchRope(stream->native, *args, input, positions, output),
      "{}", name));
}
