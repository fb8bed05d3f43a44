// Matrix products by oneDNN: fp32 through its sgemm, bf16 through matmul
// primitives, which it caches by shape itself.

#include "runtime/common/Dtype.h"
#include "runtime/host/Context.h"

#include <dnnl.hpp>

#include <cstring>

using heddle::host::Extent;
using heddle::runtime::bytesOf;
using heddle::runtime::fail;
using heddle::runtime::invalid;
using heddle::runtime::nameOf;
using heddle::runtime::orUnnamed;

namespace {

/// An operand as it lies in memory.
struct Matrix {
  const char *name;
  int64_t rows, columns, leading, stride;
  heddle_rt_dtype dtype;
};

struct Gemm {
  heddle_rt_gemm_args args;
  Matrix a, b, c;
  explicit Gemm(const heddle_rt_gemm_args &given) : args(given) {
    const auto &[name, m, n, k, lda, ldb, ldc, ta, tb, alpha, beta, da, db, dc,
                 batch, sa, sb, sc] = given;
    a = {"a", ta ? k : m, ta ? m : k, lda, sa, da};
    b = {"b", tb ? n : k, tb ? k : n, ldb, sb, db};
    c = {"c", m, n, ldc, sc, dc};
  }
  const char *name() const { return orUnnamed(args.name, "gemm"); }
};

heddle_rt_status checkMatrix(const Gemm &gemm, const Matrix &matrix,
                             const void *data) {
  if (!data && matrix.rows > 0 && matrix.columns > 0)
    return invalid("{}: {} is NULL", gemm.name(), matrix.name);
  if (matrix.leading < matrix.columns)
    return invalid("{}: rows of {} have {} elements, but its leading dimension "
                   "is {}",
                   gemm.name(), matrix.name, matrix.columns, matrix.leading);
  if (matrix.stride < 0)
    return invalid("{}: products of {} are {} elements apart", gemm.name(),
                   matrix.name, matrix.stride);
  return HEDDLE_RT_OK;
}

/// Elements from the first to the end of the last.
int64_t span(const Matrix &matrix, int64_t batch) {
  if (matrix.rows == 0 || matrix.columns == 0)
    return 0;
  return (batch - 1) * matrix.stride + (matrix.rows - 1) * matrix.leading +
         matrix.columns;
}

/// Products of C must not touch each other: either they lie one after the
/// other, or side by side within the same rows.
bool overlapsItself(const Matrix &c, int64_t batch) {
  return batch > 1 && c.stride < span(c, 1) &&
         (c.stride < c.columns ||
          (batch - 1) * c.stride + c.columns > c.leading);
}

/// Elements of a row that a matrix occupies, with products that lie side by
/// side.
int64_t width(const Matrix &matrix, int64_t batch) {
  return matrix.stride < matrix.leading
             ? (batch - 1) * matrix.stride + matrix.columns
             : matrix.columns;
}

/// Two blocks of columns of one larger matrix may interleave; all else that
/// lies within each other's ends is taken to overlap.
bool overlap(const Matrix &c, const void *out, const Matrix &x, const void *in,
             int64_t batch) {
  const int64_t size = bytesOf(c.dtype);
  const auto o = int64_t(reinterpret_cast<uintptr_t>(out));
  const auto i = int64_t(reinterpret_cast<uintptr_t>(in));
  if (o >= i + span(x, batch) * bytesOf(x.dtype) ||
      i >= o + span(c, batch) * size)
    return false;
  if (c.dtype != x.dtype || c.leading != x.leading || (o - i) % size != 0)
    return true;
  const int64_t L = c.leading, shift = ((o - i) / size % L + L) % L;
  return shift < width(x, batch) || shift + width(c, batch) > L;
}

heddle_rt_status check(const Gemm &gemm, const void *a, const void *b,
                       const void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  if (args.m < 0 || args.n < 0 || args.k < 0 || args.batch < 0)
    return invalid("{}: m {}, n {}, k {}, batch {}: a size is negative",
                   gemm.name(), args.m, args.n, args.k, args.batch);
  const bool f32 = args.a == HEDDLE_RT_F32 && args.b == HEDDLE_RT_F32 &&
                   args.c == HEDDLE_RT_F32;
  const bool bf16 = args.a == HEDDLE_RT_BF16 && args.b == HEDDLE_RT_BF16 &&
                    (args.c == HEDDLE_RT_BF16 || args.c == HEDDLE_RT_F32);
  if (!f32 && !bf16)
    return invalid("{}: {} x {} -> {} is no product the host has; f32 x f32 -> "
                   "f32, bf16 x bf16 -> bf16 or f32 are",
                   gemm.name(), nameOf(args.a), nameOf(args.b), nameOf(args.c));
  HEDDLE_RT_TRY(checkMatrix(gemm, gemm.a, a));
  HEDDLE_RT_TRY(checkMatrix(gemm, gemm.b, b));
  HEDDLE_RT_TRY(checkMatrix(gemm, gemm.c, c));
  if (overlapsItself(gemm.c, args.batch))
    return invalid("{}: products of c overlap: {} rows of {} at distance {}, "
                   "products {} apart",
                   gemm.name(), args.m, args.n, args.ldc, args.stride_c);
  if (overlap(gemm.c, c, gemm.a, a, args.batch) ||
      overlap(gemm.c, c, gemm.b, b, args.batch))
    return invalid("{}: c overlaps an input", gemm.name());
  return HEDDLE_RT_OK;
}

void declare(std::vector<heddle_rt_access> &accesses, const Matrix &matrix,
             const void *data, int64_t batch, int32_t writes) {
  const std::vector<Extent> extents = {{batch, matrix.stride},
                                       {matrix.rows, matrix.leading},
                                       {matrix.columns, 1}};
  heddle::host::appendRuns(accesses, data, bytesOf(matrix.dtype), extents,
                           writes);
}

const std::byte *at(const void *base, const Matrix &matrix, int64_t product) {
  return static_cast<const std::byte *>(base) +
         product * matrix.stride * bytesOf(matrix.dtype);
}

heddle_rt_status runFloat(const Gemm &gemm, const void *a, const void *b,
                          void *c) {
  const heddle_rt_gemm_args &args = gemm.args;
  for (int64_t i = 0; i < args.batch; ++i) {
    const dnnl_status_t status = dnnl_sgemm(
        args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.m,
        args.n, args.k, args.alpha,
        reinterpret_cast<const float *>(at(a, gemm.a, i)), args.lda,
        reinterpret_cast<const float *>(at(b, gemm.b, i)), args.ldb, args.beta,
        reinterpret_cast<float *>(const_cast<std::byte *>(at(c, gemm.c, i))),
        args.ldc);
    if (status != dnnl_success)
      return fail(HEDDLE_RT_DEVICE_ERROR, "{}: oneDNN sgemm: status {}",
                  gemm.name(), int(status));
  }
  return HEDDLE_RT_OK;
}

dnnl::memory::desc describe(const Matrix &matrix, bool transposed) {
  const auto type = matrix.dtype == HEDDLE_RT_F32
                        ? dnnl::memory::data_type::f32
                        : dnnl::memory::data_type::bf16;
  if (transposed)
    return {{matrix.columns, matrix.rows}, type, {1, matrix.leading}};
  return {{matrix.rows, matrix.columns}, type, {matrix.leading, 1}};
}

heddle_rt_status runBf16(const Gemm &gemm, const void *a, const void *b,
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
heddle_rt_status scaleOnly(const Gemm &gemm, void *c) {
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
  const Gemm gemm(*args);
  HEDDLE_RT_TRY(check(gemm, a, b, c));
  if (args->batch == 0 || args->m == 0 || args->n == 0)
    return heddle::host::openFor(stream, gemm.name());
  std::vector<heddle_rt_access> accesses;
  if (stream->context->watching()) {
    declare(accesses, gemm.a, a, args->batch, 0);
    declare(accesses, gemm.b, b, args->batch, 0);
    declare(accesses, gemm.c, c, args->batch, args->beta == 0 ? 1 : 2);
  }
  const double flops = 2.0 * double(args->m) * double(args->n) *
                       double(args->k) * double(args->batch);
  const heddle::runtime::Trace::Call call{"gemm", gemm.name(), stream->late, -1,
                                          0,      args->c,     flops,        0};
  return heddle::host::queueWork(stream, call, accesses, [=] {
    if (gemm.args.k == 0)
      return scaleOnly(gemm, c);
    return gemm.args.a == HEDDLE_RT_F32 ? runFloat(gemm, a, b, c)
                                        : runBf16(gemm, a, b, c);
  });
}
