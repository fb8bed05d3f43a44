// Matrix products by oneDNN: fp32 through its sgemm, bf16 through matmul
// primitives, which it caches by shape itself, where the CPU has them; what is
// narrower or not there as floats, in which products of codes are exact.

#include "heddle/Runtime/Formats.h"
#include "runtime/common/Dtype.h"
#include "runtime/common/GemmCall.h"
#include "runtime/host/Context.h"

#include <dnnl.hpp>

#include <cstring>

using heddle::runtime::bytesOf;
using heddle::runtime::fail;
using heddle::runtime::GemmCall;
using heddle::runtime::invalid;
using heddle::runtime::Matrix;

namespace {

const std::byte *at(const void *base, const Matrix &matrix, int64_t product) {
  return static_cast<const std::byte *>(base) +
         product * matrix.stride * bytesOf(matrix.dtype);
}

/// What the sum of products is multiplied by.
float alphaOf(const GemmCall &gemm) {
  const heddle_rt_gemm_args &args = gemm.args;
  if (gemm.hasTwoLevels())
    return args.alpha * (*args.tensor_scale_a * *args.tensor_scale_b);
  if (!gemm.isScaled() || gemm.hasBlocks())
    return args.alpha;
  return args.alpha * (*static_cast<const float *>(args.scale_a) *
                       *static_cast<const float *>(args.scale_b));
}

/// One product of floats, whose rows are so many elements apart.
heddle_rt_status multiply(const GemmCall &gemm, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float *c, int64_t ldc) {
  const heddle_rt_gemm_args &args = gemm.args;
  const dnnl_status_t status = dnnl_sgemm(
      args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.m,
      args.n, args.k, alphaOf(gemm), a, lda, b, ldb, args.beta, c, ldc);
  if (status != dnnl_success)
    return fail(HEDDLE_RT_DEVICE_ERROR, "{}: oneDNN sgemm: status {}",
                gemm.name(), int(status));
  return HEDDLE_RT_OK;
}

heddle_rt_status runFloat(const GemmCall &gemm, const void *a, const void *b,
                          void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  for (int64_t i = 0; i < args.batch; ++i)
    HEDDLE_RT_TRY(multiply(
        gemm, reinterpret_cast<const float *>(at(a, gemm.a, i)), args.lda,
        reinterpret_cast<const float *>(at(b, gemm.b, i)), args.ldb,
        reinterpret_cast<float *>(const_cast<std::byte *>(at(c, gemm.c, i))),
        args.ldc));
  return HEDDLE_RT_OK;
}

/// A matrix of narrow numbers as dense floats, and back.
template <class T>
void widenFrom(const Matrix &matrix, const std::byte *data,
               std::vector<float> &to) {
  const auto *from = reinterpret_cast<const T *>(data);
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t column = 0; column < matrix.columns; ++column)
      to[size_t(row * matrix.columns + column)] =
          widen(from[row * matrix.leading + column]);
}
/// The same of codes two of which share a byte, without gaps.
void unpackFrom(const std::byte *data, std::vector<float> &to) {
  for (size_t i = 0; i < to.size(); ++i) {
    const auto both = std::to_integer<unsigned>(data[i / 2]);
    to[i] =
        widen(heddle::f4e2m1{uint8_t(i % 2 == 0 ? both & 0xfu : both >> 4)});
  }
}
std::vector<float> widened(const Matrix &matrix, const std::byte *data) {
  std::vector<float> to(size_t(matrix.rows * matrix.columns));
  switch (matrix.dtype) {
  case HEDDLE_RT_BF16:
    widenFrom<heddle::bf16>(matrix, data, to);
    break;
  case HEDDLE_RT_F8E4M3:
    widenFrom<heddle::f8e4m3>(matrix, data, to);
    break;
  case HEDDLE_RT_F8E5M2:
    widenFrom<heddle::f8e5m2>(matrix, data, to);
    break;
  case HEDDLE_RT_F4E2M1:
    unpackFrom(data, to);
    break;
  default:
    widenFrom<heddle::f16>(matrix, data, to);
  }
  return to;
}

/// Numbers times the scales of their blocks of so many rows and columns.
template <class Scale>
void scaleBlocks(std::vector<float> &values, int64_t columns,
                 const void *scales, int64_t blockRows, int64_t blockColumns) {
  const int64_t perRow = heddle::runtime::countBlocks(columns, blockColumns);
  for (int64_t i = 0; i < int64_t(values.size()); ++i)
    values[size_t(i)] *= heddle::widen(static_cast<const Scale *>(
        scales)[i / columns / blockRows * perRow + i % columns / blockColumns]);
}

/// An operand as floats; codes of blocks times their scales.
std::vector<float> operand(const GemmCall &gemm, const Matrix &matrix,
                           const std::byte *data, const void *scales,
                           int64_t blockRows) {
  std::vector<float> values = widened(matrix, data);
  if (!gemm.hasBlocks())
    return values;
  if (gemm.args.scales == HEDDLE_RT_F8E8M0)
    scaleBlocks<heddle::f8e8m0>(values, matrix.columns, scales, blockRows,
                                gemm.args.block_k);
  else if (gemm.hasTwoLevels())
    scaleBlocks<heddle::f8e4m3>(values, matrix.columns, scales, blockRows,
                                gemm.args.block_k);
  else
    scaleBlocks<float>(values, matrix.columns, scales, blockRows,
                       gemm.args.block_k);
  return values;
}

template <class T>
void narrowInto(const Matrix &matrix, const std::vector<float> &from,
                std::byte *data) {
  auto *to = reinterpret_cast<T *>(data);
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t column = 0; column < matrix.columns; ++column)
      narrow(from[size_t(row * matrix.columns + column)],
             to[row * matrix.leading + column]);
}

/// Few CPUs multiply narrow formats, and oneDNN only on those: as floats,
/// rounded once.
heddle_rt_status runWide(const GemmCall &gemm, const void *a, const void *b,
                         void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  for (int64_t i = 0; i < args.batch; ++i) {
    const std::vector<float> wideA = operand(gemm, gemm.a, at(a, gemm.a, i),
                                             args.scale_a, args.block_a),
                             wideB = operand(gemm, gemm.b, at(b, gemm.b, i),
                                             args.scale_b, args.block_b);
    auto *out = const_cast<std::byte *>(at(c, gemm.c, i));
    if (args.c == HEDDLE_RT_F32) {
      HEDDLE_RT_TRY(multiply(gemm, wideA.data(), gemm.a.columns, wideB.data(),
                             gemm.b.columns, reinterpret_cast<float *>(out),
                             args.ldc));
      continue;
    }
    std::vector<float> wideC(size_t(args.m * args.n));
    if (args.beta != 0)
      wideC = widened(gemm.c, out);
    HEDDLE_RT_TRY(multiply(gemm, wideA.data(), gemm.a.columns, wideB.data(),
                           gemm.b.columns, wideC.data(), args.n));
    if (args.c == HEDDLE_RT_BF16)
      narrowInto<heddle::bf16>(gemm.c, wideC, out);
    else
      narrowInto<heddle::f16>(gemm.c, wideC, out);
  }
  return HEDDLE_RT_OK;
}

/// oneDNN multiplies bf16 where a CPU has AVX-512.
bool multipliesBf16() {
  static const unsigned needed = dnnl_cpu_isa_avx512_core;
  return (unsigned(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

dnnl::memory::desc describe(const Matrix &matrix, bool transposed) {
  const auto type = matrix.dtype == HEDDLE_RT_F32
                        ? dnnl::memory::data_type::f32
                        : dnnl::memory::data_type::bf16;
  if (transposed)
    return {{matrix.columns, matrix.rows}, type, {1, matrix.leading}};
  return {{matrix.rows, matrix.columns}, type, {matrix.leading, 1}};
}

heddle_rt_status runBf16(const GemmCall &gemm, const void *a, const void *b,
                         void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  try {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    dnnl::primitive_attr attributes;
    if (args.alpha != 1.0f)
      attributes.set_output_scales(0, {args.alpha});
    if (args.beta != 0.0f) {
      dnnl::post_ops sum;
      sum.append_sum(args.beta);
      attributes.set_post_ops(sum);
    }
    const auto da = describe(gemm.a, args.transpose_a);
    const auto db = describe(gemm.b, args.transpose_b);
    const auto dc = describe(gemm.c, false);
    const dnnl::matmul matmul(
        dnnl::matmul::primitive_desc({da, db, dc}, attributes, engine));
    const auto memory = [&](const dnnl::memory::desc &desc,
                            const std::byte *data) {
      return dnnl::memory(desc, engine, const_cast<std::byte *>(data));
    };
    for (int64_t i = 0; i < args.batch; ++i)
      matmul.execute(stream, {{DNNL_ARG_SRC, memory(da, at(a, gemm.a, i))},
                              {DNNL_ARG_WEIGHTS, memory(db, at(b, gemm.b, i))},
                              {DNNL_ARG_DST, memory(dc, at(c, gemm.c, i))}});
    stream.wait();
  } catch (const dnnl::error &error) {
    return fail(HEDDLE_RT_DEVICE_ERROR, "{}: oneDNN: {}", gemm.name(),
                error.what());
  }
  return HEDDLE_RT_OK;
}

/// With nothing to sum, C is beta C: the library leaves that case open.
heddle_rt_status scaleOnly(const GemmCall &gemm, void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  if (args.beta == 1.0f)
    return HEDDLE_RT_OK;
  if (args.beta != 0.0f)
    return invalid("{}: k is 0 and beta {}: expected 0 or 1", gemm.name(),
                   args.beta);
  for (int64_t i = 0; i < args.batch; ++i)
    for (int64_t row = 0; row < args.m; ++row)
      std::memset(const_cast<std::byte *>(at(c, gemm.c, i)) +
                      row * args.ldc * bytesOf(args.c),
                  0, size_t(args.n * bytesOf(args.c)));
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status heddle_rt_gemm(heddle_rt_stream *stream,
                                const heddle_rt_gemm_args *args, const void *a,
                                const void *b, void *c) {
  if (!stream || !args)
    return invalid("heddle_rt_gemm: {} is NULL", stream ? "args" : "stream");
  const GemmCall gemm(*args);
  HEDDLE_RT_TRY(gemm.check(a, b, c));
  if (gemm.isEmpty())
    return heddle::host::openFor(stream, gemm.name());
  std::vector<heddle_rt_access> accesses;
  if (stream->context->watching())
    accesses = gemm.accesses(a, b, c);
  const double flops = gemm.flops();
  const heddle::runtime::Trace::Call call{"gemm", gemm.name(), stream->late, -1,
                                          0,      args->c,     flops,        0};
  return heddle::host::queueWork(stream, call, accesses, [=] {
    if (gemm.args.k == 0)
      return scaleOnly(gemm, c);
    const bool isBf16 = gemm.args.a == HEDDLE_RT_BF16 && multipliesBf16();
    return gemm.args.a == HEDDLE_RT_F32 ? runFloat(gemm, a, b, c)
           : isBf16                     ? runBf16(gemm, a, b, c)
                                        : runWide(gemm, a, b, c);
  });
}
