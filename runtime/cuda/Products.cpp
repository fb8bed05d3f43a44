#include "runtime/cuda/Products.h"

#include "runtime/common/Dtype.h"
#include "runtime/cuda/Kernels.h"

#include <algorithm>
#include <utility>

namespace heddle::cuda {

using runtime::GemmCall;
using runtime::Matrix;

namespace {

/// What cuBLASLt may assume of a pointer; more than 256 it never asks for.
int64_t alignmentOf(const void *pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  return int64_t(std::min<uintptr_t>(at & (~at + 1), 256));
}

cudaDataType typeOf(heddle_rt_dtype dtype) {
  return dtype == HEDDLE_RT_F32      ? CUDA_R_32F
         : dtype == HEDDLE_RT_F16    ? CUDA_R_16F
         : dtype == HEDDLE_RT_F8E4M3 ? CUDA_R_8F_E4M3
         : dtype == HEDDLE_RT_F8E5M2 ? CUDA_R_8F_E5M2
                                     : CUDA_R_16BF;
}

/// Of an operand with `rows` rows and a block of `blockRows`.
int32_t scaleModeOf(int64_t blockRows) {
  return blockRows == 0   ? CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
         : blockRows == 1 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                          : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

/// Scales of blocks, ours a row-major matrix with a row for each row of blocks:
/// of blocks of one row cuBLASLt has the rows side by side, of others a row
/// begins at a multiple of four [docs.nvidia.com/cuda/cublas, Scaling factors
/// layouts].
heddle_rt_status layOut(heddle_rt_stream *stream, const GemmCall &gemm,
                        int64_t rows, int64_t blockRows, const void *&scales) {
  const int64_t down = runtime::countBlocks(rows, blockRows),
                across = runtime::countBlocks(gemm.args.k, kBlockLength);
  const int64_t pitch = blockRows == 1 ? across : (across + 3) / 4 * 4;
  void *to = nullptr;
  HEDDLE_RT_TRY(
      takeScratch(stream, down * pitch * int64_t(sizeof(float)), &to));
  const auto *from = static_cast<const float *>(std::exchange(scales, to));
  return checked(blockRows == 1
                     ? launchTurnScales(stream->native, from, down, across,
                                        static_cast<float *>(to))
                     : cudaMemcpy2DAsync(to, size_t(pitch) * sizeof(float),
                                         from, size_t(across) * sizeof(float),
                                         size_t(across) * sizeof(float),
                                         size_t(down), cudaMemcpyDefault,
                                         stream->native),
                 "{}: scales of blocks", gemm.name());
}

/// A row-major matrix is a column-major one with rows and columns exchanged.
heddle_rt_status makeLayout(const GemmCall &gemm, const Matrix &matrix,
                            cublasLtMatrixLayout_t *layout) {
  HEDDLE_RT_TRY(
      checked(cublasLtMatrixLayoutCreate(layout, typeOf(matrix.dtype),
                                         uint64_t(matrix.columns),
                                         uint64_t(matrix.rows), matrix.leading),
              "{}: layout of {}", gemm.name(), matrix.name));
  if (gemm.args.batch == 1)
    return HEDDLE_RT_OK;
  const auto batch = int32_t(gemm.args.batch);
  HEDDLE_RT_TRY(checked(
      cublasLtMatrixLayoutSetAttribute(
          *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
      "{}: {} products", gemm.name(), batch));
  return checked(cublasLtMatrixLayoutSetAttribute(
                     *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                     &matrix.stride, sizeof matrix.stride),
                 "{}: {} elements between products of {}", gemm.name(),
                 matrix.stride, matrix.name);
}

} // namespace

heddle_rt_status Products::placeScales(heddle_rt_stream *stream,
                                       const GemmCall &gemm, Scales &scales) {
  scales = {gemm.args.scale_b, gemm.args.scale_a}; // its A is our b
  if (!gemm.hasBlocks())
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(layOut(stream, gemm, gemm.args.n, gemm.args.block_b, scales.a));
  return layOut(stream, gemm, gemm.args.m, gemm.args.block_a, scales.b);
}

heddle_rt_status Products::setScales(const GemmCall &gemm,
                                     cublasLtMatmulDesc_t operation,
                                     const Scales &scales) {
  if (!gemm.isScaled())
    return HEDDLE_RT_OK;
  const std::pair<cublasLtMatmulDescAttributes_t, const void *> places[] = {
      {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.a},
      {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.b}};
  for (const auto &[attribute, place] : places)
    HEDDLE_RT_TRY(checked(cublasLtMatmulDescSetAttribute(operation, attribute,
                                                         &place, sizeof place),
                          "{}: a scale", gemm.name()));
  const std::pair<cublasLtMatmulDescAttributes_t, int32_t> modes[] = {
      {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scaleModeOf(gemm.args.block_b)},
      {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scaleModeOf(gemm.args.block_a)}};
  for (const auto &[attribute, mode] : modes)
    HEDDLE_RT_TRY(checked(cublasLtMatmulDescSetAttribute(operation, attribute,
                                                         &mode, sizeof mode),
                          "{}: what a scale is for", gemm.name()));
  return HEDDLE_RT_OK;
}

Products::Product::~Product() {
  for (cublasLtMatrixLayout_t layout : {a, b, c})
    if (layout)
      cublasLtMatrixLayoutDestroy(layout);
  if (operation)
    cublasLtMatmulDescDestroy(operation);
}

Products::Key Products::keyOf(const GemmCall &gemm, const void *a,
                              const void *b, const void *c) {
  const heddle_rt_gemm_args &x = gemm.args;
  return {x.m,
          x.n,
          x.k,
          x.lda,
          x.ldb,
          x.ldc,
          x.batch,
          x.stride_a,
          x.stride_b,
          x.stride_c,
          x.a,
          x.b,
          x.c,
          x.beta == 0,
          alignmentOf(a),
          alignmentOf(b),
          alignmentOf(c),
          x.transpose_a != 0,
          x.transpose_b != 0,
          x.block_a,
          x.block_b};
}

heddle_rt_status Products::make(const GemmCall &gemm, const Key &key,
                                const Scales &scales, Product &product) {
  HEDDLE_RT_TRY(checked(cublasLtMatmulDescCreate(
                            &product.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                        "{}: descriptor", gemm.name()));
  // C^T = op(B)^T op(A)^T: the operands change places.
  const cublasOperation_t first =
      gemm.args.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second =
      gemm.args.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  HEDDLE_RT_TRY(checked(
      cublasLtMatmulDescSetAttribute(
          product.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
      "{}: transpose of b", gemm.name()));
  HEDDLE_RT_TRY(checked(cublasLtMatmulDescSetAttribute(
                            product.operation, CUBLASLT_MATMUL_DESC_TRANSB,
                            &second, sizeof second),
                        "{}: transpose of a", gemm.name()));
  HEDDLE_RT_TRY(setScales(gemm, product.operation, scales));
  HEDDLE_RT_TRY(makeLayout(gemm, gemm.a, &product.a));
  HEDDLE_RT_TRY(makeLayout(gemm, gemm.b, &product.b));
  HEDDLE_RT_TRY(makeLayout(gemm, gemm.c, &product.c));
  return choose(gemm, key, product);
}

heddle_rt_status Products::choose(const GemmCall &gemm, const Key &key,
                                  Product &product) {
  cublasLtMatmulPreference_t preference = nullptr;
  HEDDLE_RT_TRY(checked(cublasLtMatmulPreferenceCreate(&preference),
                        "{}: preferences", gemm.name()));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        cublasStatus_t (*)(cublasLtMatmulPreference_t)>
      owner(preference, cublasLtMatmulPreferenceDestroy);
  const size_t most = kWorkspaceBytes;
  HEDDLE_RT_TRY(
      checked(cublasLtMatmulPreferenceSetAttribute(
                  preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                  sizeof most),
              "{}: workspace", gemm.name()));
  // As cuBLASLt sees them: its A is our b.
  const std::pair<cublasLtMatmulPreferenceAttributes_t, int64_t> alignments[] =
      {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key[15]},
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key[14]},
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key[16]},
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key[16]}};
  for (const auto &[attribute, bytes] : alignments) {
    const auto value = uint32_t(bytes);
    HEDDLE_RT_TRY(checked(cublasLtMatmulPreferenceSetAttribute(
                              preference, attribute, &value, sizeof value),
                          "{}: alignment {}", gemm.name(), value));
  }
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, product.operation, product.b, product.a, product.c, product.c,
      preference, 1, &product.choice, &found);
  const heddle_rt_gemm_args &x = gemm.args;
  const bool none = found == 0 || product.choice.state != CUBLAS_STATUS_SUCCESS;
  return checked(
      status == CUBLAS_STATUS_SUCCESS && none ? CUBLAS_STATUS_NOT_SUPPORTED
                                              : status,
      "{}: no algorithm for m {}, n {}, k {} of {} to {}", gemm.name(), x.m,
      x.n, x.k, runtime::nameOf(x.a), runtime::nameOf(x.c));
}

heddle_rt_status Products::run(heddle_rt_stream *stream, const GemmCall &gemm,
                               const void *a, const void *b, void *c) {
  const Key key = keyOf(gemm, a, b, c);
  Scales scales;
  HEDDLE_RT_TRY(placeScales(stream, gemm, scales));
  std::unique_ptr<Product> &known = products[key];
  if (!known) {
    auto made = std::make_unique<Product>();
    HEDDLE_RT_TRY(make(gemm, key, scales, *made));
    known = std::move(made);
  }
  const Product &product = *known;
  // Each layer's are its own.
  HEDDLE_RT_TRY(setScales(gemm, product.operation, scales));
  giveBackScratch(stream); // what comes next on the stream may have it
  if (!stream->workspace && product.choice.workspaceSize > 0)
    HEDDLE_RT_TRY(checked(cudaMalloc(&stream->workspace, kWorkspaceBytes),
                          "{}: workspace of {} bytes for stream {}",
                          gemm.name(), kWorkspaceBytes, stream->name));
  return checked(cublasLtMatmul(handle, product.operation, &gemm.args.alpha, b,
                                product.b, a, product.a, &gemm.args.beta, c,
                                product.c, c, product.c, &product.choice.algo,
                                stream->workspace, product.choice.workspaceSize,
                                stream->native),
                 "{}: cublasLtMatmul", gemm.name());
}

} // namespace heddle::cuda
