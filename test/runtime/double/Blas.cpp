// cuBLASLt: descriptors are checked as its document says, products are oneDNN's
// in fp32.

#include "Device.h"

#include "heddle/Runtime/Formats.h"

#include <cublasLt.h>
#include <dnnl.hpp>

#include <cstring>

using namespace heddle::gpu;

struct cublasLtContext {
  int device;
};

namespace {

struct Description {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  const float *scaleA = nullptr, *scaleB = nullptr; ///< on the device
  int32_t modeA = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, modeB = modeA;

  bool hasBlocks() const {
    return modeA != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
};

/// Scales of blocks of an operand of `k` by `outer` numbers: where they lie
/// [CUBLAS, 128-element 1D and 128x128 2D Block Scaling: Scaling factors
/// layouts].
struct BlockScales {
  static constexpr int64_t kLength = 128;
  int32_t mode;
  int64_t k, outer;

  bool isOfRows() const {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  }
  int64_t down() const { return (k + kLength - 1) / kLength; }
  int64_t pitch() const { return (down() + 3) / 4 * 4; }
  size_t bytes() const {
    return size_t(isOfRows() ? down() * outer
                             : (outer + kLength - 1) / kLength * pitch()) *
           sizeof(float);
  }
  int64_t at(int64_t l, int64_t i) const {
    return isOfRows() ? l / kLength * outer + i
                      : i / kLength * pitch() + l / kLength;
  }
};
struct Layout {
  cudaDataType type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t stride = 0;

  bool isCodes() const {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
  }
  int64_t size() const { return type == CUDA_R_32F ? 4 : isCodes() ? 1 : 2; }
  int64_t span() const {
    return ((batch - 1) * stride + (columns - 1) * leading + rows) * size();
  }
};
struct Preference {
  size_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256}; ///< A, B, C, D
};
/// What an algorithm promised to be used with.
struct Algorithm {
  static constexpr uint64_t kMark = 0x68656464616c676fu;
  uint64_t mark, workspace;
  uint32_t alignment[4];
  int64_t m, n, k;
  int32_t modeA, modeB; ///< of scales
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

Description *as(cublasLtMatmulDesc_t x) {
  return reinterpret_cast<Description *>(x);
}
Layout *as(cublasLtMatrixLayout_t x) { return reinterpret_cast<Layout *>(x); }
Preference *as(cublasLtMatmulPreference_t x) {
  return reinterpret_cast<Preference *>(x);
}

cublasStatus_t invalid(std::string why) {
  return refuse(CUBLAS_STATUS_INVALID_VALUE, std::move(why));
}

/// "sizeInBytes must match the attribute's type" [CUBLAS,
/// cublasLtMatmulDescSetAttribute].
template <class Value>
cublasStatus_t take(Value &to, const void *from, size_t bytes) {
  if (!from || bytes != sizeof to)
    return invalid("an attribute of " + std::to_string(sizeof to) +
                   " bytes is set with " + std::to_string(bytes) +
                   " [CUBLAS, ...SetAttribute]");
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool was(const char *function, cublasStatus_t &status) {
  int code = 0;
  if (!injected(function, code))
    return false;
  status = cublasStatus_t(code);
  return true;
}

/// A product's sizes, or why there is none.
struct Shape {
  int64_t m, n, k;
};
/// "To use FP8 kernels, the following set of requirements must be satisfied"
/// [CUBLAS, cublasLtMatmul].
cublasStatus_t checkCodes(const Description &op, const Layout &a,
                          const Layout &b, const Layout &d, int64_t k) {
  const auto unsupported = [](const char *why) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  std::string("a product of 8 bits: ") + why +
                      " [CUBLAS, cublasLtMatmul]");
  };
  if (op.a != CUBLAS_OP_T || op.b != CUBLAS_OP_N)
    return unsupported("A must be transposed and B not");
  if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2)
    return unsupported("both operands are E5M2");
  if (d.type != CUDA_R_16BF && d.type != CUDA_R_32F)
    return unsupported("D is neither BF16 nor FP32 here");
  for (const Layout *x : {&a, &b, &d})
    if (x->leading * x->size() % 16 != 0)
      return unsupported("a leading dimension is no multiple of 16 bytes");
  // [CUBLAS, 128-element 1D and 128x128 2D Block Scaling For FP8 Data Types]
  constexpr int32_t kSquare = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const auto isOfBlocks = [](int32_t mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || mode == kSquare;
  };
  if (isOfBlocks(op.modeA) != isOfBlocks(op.modeB))
    return unsupported("one operand has scales of blocks, the other has not");
  if (op.hasBlocks() && !isOfBlocks(op.modeA))
    return unsupported("its scales are of no kind of this architecture");
  if (op.modeA == kSquare && op.modeB == kSquare)
    return unsupported("both operands have scales of 128x128");
  if (op.hasBlocks() && (d.rows % 4 != 0 || d.columns % 4 != 0))
    return unsupported("m and n of scales of blocks are multiples of 4");
  return k % 16 == 0 ? CUBLAS_STATUS_SUCCESS
                     : unsupported("k is no multiple of 16");
}

cublasStatus_t shapeOf(const Description &op, const Layout &a, const Layout &b,
                       const Layout &d, Shape &shape) {
  const int64_t m = op.a == CUBLAS_OP_T ? a.columns : a.rows;
  const int64_t k = op.a == CUBLAS_OP_T ? a.rows : a.columns;
  const int64_t kb = op.b == CUBLAS_OP_T ? b.columns : b.rows;
  const int64_t n = op.b == CUBLAS_OP_T ? b.rows : b.columns;
  if (d.rows != m || d.columns != n || kb != k)
    return invalid("the shapes of a product do not fit");
  for (const Layout *x : {&a, &b, &d})
    if (x->leading < x->rows || x->batch != d.batch)
      return invalid("a leading dimension below the rows, or other batches");
  // [CUBLAS, cublasLtMatmul: supported types of CUBLAS_COMPUTE_32F]
  const bool floats =
      a.type == CUDA_R_32F && b.type == CUDA_R_32F && d.type == CUDA_R_32F;
  const bool narrow = a.type != CUDA_R_32F && !a.isCodes() && b.type == a.type;
  if (a.isCodes() && b.isCodes()) {
    const cublasStatus_t status = checkCodes(op, a, b, d, k);
    if (status != CUBLAS_STATUS_SUCCESS)
      return status;
  } else if (!floats && !narrow)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no product of these types");
  shape = {m, n, k};
  return m > 0 && n > 0 && k > 0 ? CUBLAS_STATUS_SUCCESS
                                 : invalid("an empty product");
}

float read(const std::byte *data, cudaDataType type, int64_t at) {
  if (type == CUDA_R_8F_E4M3)
    return widen(heddle::f8e4m3{uint8_t(data[at])});
  if (type == CUDA_R_8F_E5M2)
    return widen(heddle::f8e5m2{uint8_t(data[at])});
  if (type == CUDA_R_32F) {
    float value;
    std::memcpy(&value, data + at * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + at * 2, 2);
  if (type == CUDA_R_16F)
    return widen(heddle::f16{bits});
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
void write(std::byte *data, cudaDataType type, int64_t at, float value) {
  if (type == CUDA_R_32F) {
    std::memcpy(data + at * 4, &value, 4);
    return;
  }
  if (type == CUDA_R_16F) {
    heddle::f16 half;
    narrow(value, half);
    std::memcpy(data + at * 2, &half.bits, 2);
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const auto narrow =
      uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
  std::memcpy(data + at * 2, &narrow, 2);
}

/// One matrix, dense and column major, in fp32.
std::vector<float> gather(const Layout &x, const void *data, int64_t product) {
  std::vector<float> all(static_cast<size_t>(x.rows * x.columns));
  for (int64_t c = 0; c < x.columns; ++c)
    for (int64_t r = 0; r < x.rows; ++r)
      all[size_t(c * x.rows + r)] =
          read(static_cast<const std::byte *>(data), x.type,
               product * x.stride + c * x.leading + r);
  return all;
}

struct Call {
  Description op;
  Layout a, b, d;
  Shape shape;
  float alpha, beta;
  const void *aData, *bData;
  void *dData;

  /// What the sum is multiplied by: scales are read when the product runs.
  float factor() const {
    return op.scaleA && !op.hasBlocks() ? alpha * (*op.scaleB * *op.scaleA)
                                        : alpha;
  }
  BlockScales scalesOfA() const { return {op.modeA, shape.k, shape.m}; }
  BlockScales scalesOfB() const { return {op.modeB, shape.k, shape.n}; }
  /// Numbers of an operand, k by outer, times the scales of their blocks.
  void scale(std::vector<float> &numbers, const BlockScales &of,
             const float *scales) const {
    for (int64_t i = 0; op.hasBlocks() && i < of.outer; ++i)
      for (int64_t l = 0; l < of.k; ++l)
        numbers[size_t(i * of.k + l)] *= scales[of.at(l, i)];
  }

  std::string run() const {
    for (int64_t i = 0; i < d.batch; ++i) {
      std::vector<float> x = gather(a, aData, i), y = gather(b, bData, i);
      scale(x, scalesOfA(), op.scaleA);
      scale(y, scalesOfB(), op.scaleB);
      std::vector<float> z(static_cast<size_t>(shape.m * shape.n), 0.0f);
      if (beta != 0)
        z = gather(d, dData, i);
      // Column major: the transposed product of row-major operands.
      if (dnnl_sgemm(op.b == CUBLAS_OP_T ? 'T' : 'N',
                     op.a == CUBLAS_OP_T ? 'T' : 'N', shape.n, shape.m, shape.k,
                     factor(), y.data(), b.rows, x.data(), a.rows, beta,
                     z.data(), shape.m) != dnnl_success)
        return "oneDNN refused a product";
      for (int64_t c = 0; c < shape.n; ++c)
        for (int64_t r = 0; r < shape.m; ++r)
          write(static_cast<std::byte *>(dData), d.type,
                i * d.stride + c * d.leading + r, z[size_t(c * shape.m + r)]);
    }
    return "";
  }
};

} // namespace

const char *cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "CUBLAS_STATUS_EXECUTION_FAILED";
  default:
    return "CUBLAS_STATUS_NOT_INITIALIZED";
  }
}
const char *cublasLtGetStatusString(cublasStatus_t status) {
  return lastRefusal().empty() ? cublasLtGetStatusName(status)
                               : lastRefusal().c_str();
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  cublasStatus_t status;
  if (was("cublasLtCreate", status))
    return status;
  *handle = new cublasLtContext{current().number};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *to,
                                        cublasComputeType_t, cudaDataType_t) {
  cublasStatus_t status;
  if (was("cublasLtMatmulDescCreate", status))
    return status;
  *to = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) {
  delete as(x);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
  cublasStatus_t status;
  if (was("cublasLtMatmulDescSetAttribute", status))
    return status;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    return take(as(x)->scaleA, value, bytes);
  case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
    return take(as(x)->scaleB, value, bytes);
  case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
    return take(as(x)->modeA, value, bytes);
  case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
    return take(as(x)->modeB, value, bytes);
  default:
    return take(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? as(x)->a : as(x)->b,
                value, bytes);
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *to,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  cublasStatus_t status;
  if (was("cublasLtMatrixLayoutCreate", status))
    return status;
  *to = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, int64_t(rows), int64_t(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) {
  delete as(x);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t x,
                                 cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t bytes) {
  cublasStatus_t status;
  if (was("cublasLtMatrixLayoutSetAttribute", status))
    return status;
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
             ? take(as(x)->batch, value, bytes)
             : take(as(x)->stride, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *to) {
  cublasStatus_t status;
  if (was("cublasLtMatmulPreferenceCreate", status))
    return status;
  *to = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) {
  delete as(x);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t x,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  cublasStatus_t status;
  if (was("cublasLtMatmulPreferenceSetAttribute", status))
    return status;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return take(as(x)->workspace, value, bytes);
  return take(
      as(x)->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
      value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
    int requested, cublasLtMatmulHeuristicResult_t results[], int *found) {
  cublasStatus_t status;
  // Where there is no algorithm it may also succeed, and give none [CUBLAS,
  // cublasLtMatmulAlgoGetHeuristic].
  *found = 0;
  if (was("cublasLtMatmulAlgoGetHeuristic", status))
    return status;
  Shape shape;
  status = shapeOf(*as(operation), *as(a), *as(b), *as(d), shape);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (requested < 1 || as(c)->type != as(d)->type)
    return invalid("no algorithm is requested, or C and D differ in type");
  Algorithm algorithm{Algorithm::kMark,
                      std::min<size_t>(as(preference)->workspace, 1 << 20),
                      {},
                      shape.m,
                      shape.n,
                      shape.k,
                      as(operation)->modeA,
                      as(operation)->modeB};
  std::memcpy(algorithm.alignment, as(preference)->alignment,
              sizeof algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

/// What the chosen algorithm was promised [CUBLAS,
/// CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], and memory.
static cublasStatus_t checkCall(const Algorithm &algorithm, const Call &call,
                                const void *workspace, size_t bytes) {
  if (algorithm.mark != Algorithm::kMark || algorithm.m != call.shape.m ||
      algorithm.n != call.shape.n || algorithm.k != call.shape.k ||
      algorithm.modeA != call.op.modeA || algorithm.modeB != call.op.modeB)
    return invalid("the algorithm was chosen for another product");
  const auto aligned = [](const void *at, uint32_t alignment) {
    return reinterpret_cast<uintptr_t>(at) % alignment == 0;
  };
  if (!aligned(call.aData, algorithm.alignment[0]) ||
      !aligned(call.bData, algorithm.alignment[1]) ||
      !aligned(call.dData, algorithm.alignment[3]))
    return invalid(
        "an operand is less aligned than its algorithm was promised");
  if (bytes < algorithm.workspace || !aligned(workspace, 256))
    return invalid("the workspace is too small, or not aligned to 256 bytes "
                   "[CUBLAS, cublasLtMatmul]");
  const int device = current().number;
  if (call.a.isCodes()) {
    if (!aligned(call.aData, 16) || !aligned(call.bData, 16) ||
        !aligned(call.dData, 16))
      return invalid("an operand of 8 bits is not aligned to 16 bytes [CUBLAS, "
                     "cublasLtMatmul]");
    for (const auto &[scale, of] :
         {std::pair(call.op.scaleA, call.scalesOfA()),
          std::pair(call.op.scaleB, call.scalesOfB())}) {
      const bool blocks = call.op.hasBlocks();
      std::string why =
          memory().check(scale, blocks ? of.bytes() : sizeof *scale, device);
      if (blocks && !aligned(scale, 16))
        why = "it is not aligned to 16 bytes [CUBLAS, Scaling factors layouts]";
      if (!why.empty())
        return invalid("cublasLtMatmul: a scale: " + why);
    }
  }
  for (const std::string &why :
       {memory().check(workspace, algorithm.workspace, device),
        memory().check(call.aData, size_t(call.a.span()), device),
        memory().check(call.bData, size_t(call.b.span()), device),
        memory().check(call.dData, size_t(call.d.span()), device)})
    if (!why.empty())
      return invalid("cublasLtMatmul: " + why);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
               const void *alpha, const void *a, cublasLtMatrixLayout_t aLayout,
               const void *b, cublasLtMatrixLayout_t bLayout, const void *beta,
               const void *c, cublasLtMatrixLayout_t cLayout, void *d,
               cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t workspaceBytes, cudaStream_t stream) {
  cublasStatus_t status;
  if (was("cublasLtMatmul", status))
    return status;
  if (checkStream("cublasLtMatmul", stream) != cudaSuccess)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (handle->device != current().number || c != d || cLayout != dLayout)
    return invalid("a handle of another device, or C that is not D");
  Call call{*as(operation),
            *as(aLayout),
            *as(bLayout),
            *as(dLayout),
            {},
            0,
            0,
            a,
            b,
            d};
  status = shapeOf(call.op, call.a, call.b, call.d, call.shape);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  std::memcpy(&call.alpha, alpha, 4);
  std::memcpy(&call.beta, beta, 4);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  status = checkCall(algorithm, call, workspace, workspaceBytes);
  if (status != CUBLAS_STATUS_SUCCESS)
    return status;
  Item item;
  item.work = [=, bytes = algorithm.workspace] {
    std::memset(workspace, 0xff, bytes); // it is the library's
    return call.run();
  };
  current().push(stream, std::move(item));
  return CUBLAS_STATUS_SUCCESS;
}
