#include "runtime/common/GemmCall.h"

#include "runtime/common/Dtype.h"
#include "runtime/common/Runs.h"

namespace heddle::runtime {

GemmCall::GemmCall(const heddle_rt_gemm_args &given) : args(given) {
  const auto &[name, m, n, k, lda, ldb, ldc, ta, tb, alpha, beta, da, db, dc,
               batch, sa, sb, sc, scaleA, scaleB, scales, blockA, blockB,
               blockK, tensorA, tensorB] = given;
  a = {"a", ta ? k : m, ta ? m : k, lda, sa, da};
  b = {"b", tb ? n : k, tb ? k : n, ldb, sb, db};
  c = {"c", m, n, ldc, sc, dc};
}

namespace {

heddle_rt_status checkMatrix(const GemmCall &gemm, const Matrix &matrix,
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
  if (o >= i + bytesOf(x.dtype, span(x, batch)) ||
      i >= o + span(c, batch) * size)
    return false;
  if (c.dtype != x.dtype || c.leading != x.leading || (o - i) % size != 0)
    return true;
  const int64_t L = c.leading, shift = ((o - i) / size % L + L) % L;
  return shift < width(x, batch) || shift + width(c, batch) > L;
}

void declare(std::vector<heddle_rt_access> &accesses, const Matrix &matrix,
             const void *data, int64_t batch, int32_t writes) {
  if (isPacked(matrix.dtype)) { // without gaps
    accesses.push_back(
        {data, bytesOf(matrix.dtype, span(matrix, batch)), writes});
    return;
  }
  const std::vector<Extent> extents = {{batch, matrix.stride},
                                       {matrix.rows, matrix.leading},
                                       {matrix.columns, 1}};
  appendRuns(accesses, data, bytesOf(matrix.dtype), extents, writes);
}

/// Codes that share bytes have no gaps between them.
bool isDense(const Matrix &matrix) {
  return !runtime::isPacked(matrix.dtype) || matrix.leading == matrix.columns;
}

heddle_rt_status checkScales(const GemmCall &gemm, bool isOfCodes) {
  const heddle_rt_gemm_args &args = gemm.args;
  if ((args.scale_a != nullptr) != isOfCodes ||
      (args.scale_b != nullptr) != isOfCodes)
    return invalid("{}: operands that are codes have a scale each, others have "
                   "none",
                   gemm.name());
  const bool hasAny = args.block_a || args.block_b || args.block_k;
  const bool hasAll = args.block_a > 0 && args.block_b > 0 && args.block_k > 0;
  if (hasAny && (!hasAll || !isOfCodes || args.transpose_a ||
                 !args.transpose_b || args.batch > 1))
    return invalid("{}: blocks of {} and {} rows and {} summed numbers: three "
                   "sizes above 0 belong to one product of codes in which B is "
                   "transposed and A is not",
                   gemm.name(), args.block_a, args.block_b, args.block_k);
  const bool isOfTwo = gemm.hasTwoLevels();
  if (isOfTwo
          ? !hasAny || !isPacked(args.a)
          : isPacked(args.a) || (args.scales != HEDDLE_RT_F32 &&
                                 !(hasAny && args.scales == HEDDLE_RT_F8E8M0)))
    return invalid("{}: scales are f32, or of blocks f8e8m0, or of blocks of "
                   "f4e2m1, f8e4m3; got {} of {}",
                   gemm.name(), nameOf(args.scales), nameOf(args.a));
  if (isOfTwo != (args.tensor_scale_a != nullptr) ||
      isOfTwo != (args.tensor_scale_b != nullptr))
    return invalid("{}: scales of tensors belong to those of blocks of f8e4m3, "
                   "got {}",
                   gemm.name(), nameOf(args.scales));
  if (!isDense(gemm.a) || !isDense(gemm.b))
    return invalid(
        "{}: codes of 4 bits lie without gaps, but rows of {} and {} "
        "are {} and {} apart",
        gemm.name(), gemm.a.columns, gemm.b.columns, gemm.a.leading,
        gemm.b.leading);
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status GemmCall::check(const void *a, const void *b,
                                 const void *c) const {
  const GemmCall &gemm = *this;
  if (args.m < 0 || args.n < 0 || args.k < 0 || args.batch < 0)
    return invalid("{}: m {}, n {}, k {}, batch {}: a size is negative",
                   gemm.name(), args.m, args.n, args.k, args.batch);
  const bool known = args.a == HEDDLE_RT_F32 || args.a == HEDDLE_RT_BF16 ||
                     args.a == HEDDLE_RT_F16;
  const bool isPlain = known && args.b == args.a &&
                       (args.c == args.a || args.c == HEDDLE_RT_F32);
  const bool isOfCodes = isScaled() && isCode(args.b) &&
                         isPacked(args.a) == isPacked(args.b) &&
                         (args.c == HEDDLE_RT_BF16 || args.c == HEDDLE_RT_F32);
  if (!isPlain && !isOfCodes)
    return invalid("{}: {} x {} -> {} is no product there is; f32 x f32 -> "
                   "f32, bf16 x bf16 -> bf16 or f32, f16 x f16 -> f16 or f32, "
                   "and formats of 8 bits, or of 4, -> bf16 or f32 are",
                   gemm.name(), nameOf(args.a), nameOf(args.b), nameOf(args.c));
  HEDDLE_RT_TRY(checkScales(gemm, isOfCodes));
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

bool GemmCall::isScaled() const { return isCode(args.a); }

int64_t GemmCall::scalesOf(int64_t rows, int64_t blockRows) const {
  return args.block_k == 0
             ? 1
             : countBlocks(rows, blockRows) * countBlocks(args.k, args.block_k);
}

std::vector<heddle_rt_access> GemmCall::accesses(const void *a, const void *b,
                                                 const void *c) const {
  std::vector<heddle_rt_access> all;
  declare(all, this->a, a, args.batch, 0);
  declare(all, this->b, b, args.batch, 0);
  declare(all, this->c, c, args.batch, args.beta == 0 ? 1 : 2);
  if (isScaled())
    for (const auto &[scales, count] :
         {std::pair(args.scale_a, scalesOf(args.m, args.block_a)),
          std::pair(args.scale_b, scalesOf(args.n, args.block_b))})
      all.push_back({scales, count * bytesOf(args.scales), 0});
  for (const float *scale : {args.tensor_scale_a, args.tensor_scale_b})
    if (scale)
      all.push_back({scale, sizeof *scale, 0});
  return all;
}

} // namespace heddle::runtime
