//===- Products.h - Matrix products by cuBLASLt ---------------------------===//

#ifndef RUNTIME_CUDA_PRODUCTS_H
#define RUNTIME_CUDA_PRODUCTS_H

#include "runtime/common/GemmCall.h"
#include "runtime/cuda/Context.h"

#include <array>
#include <map>
#include <memory>

namespace heddle::cuda {

/// Descriptors and the algorithm of every product that was asked for, made at
/// its first call and kept: later calls ask cuBLASLt nothing.
class Products {
public:
  explicit Products(cublasLtHandle_t handle) : handle(handle) {}

  /// Queues a checked product that has elements and k > 0.
  heddle_rt_status run(heddle_rt_stream *stream, const runtime::GemmCall &gemm,
                       const void *a, const void *b, void *c);

  /// Bytes of the workspace that each stream with products has.
  static constexpr size_t kWorkspaceBytes = size_t(32) << 20;

private:
  /// All that an algorithm is chosen by.
  using Key = std::array<int64_t, 21>;
  struct Product {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulHeuristicResult_t choice = {};

    Product() = default;
    ~Product();
    Product(const Product &) = delete;
    Product &operator=(const Product &) = delete;
  };
  static Key keyOf(const runtime::GemmCall &gemm, const void *a, const void *b,
                   const void *c);
  /// Scales of cuBLASLt's A and B.
  struct Scales {
    const void *a, *b;
  };
  /// Where they are: those of blocks as cuBLASLt wants them, in scratch memory.
  heddle_rt_status placeScales(heddle_rt_stream *stream,
                               const runtime::GemmCall &gemm, Scales &scales);
  static heddle_rt_status setScales(const runtime::GemmCall &gemm,
                                    cublasLtMatmulDesc_t operation,
                                    const Scales &scales);
  heddle_rt_status make(const runtime::GemmCall &gemm, const Key &key,
                        const Scales &scales, Product &product);
  heddle_rt_status choose(const runtime::GemmCall &gemm, const Key &key,
                          Product &product);

  cublasLtHandle_t handle;
  std::map<Key, std::unique_ptr<Product>> products;
};

} // namespace heddle::cuda

#endif
