//===- Kernels.h - How long kernels of one device take ----------*- C++ -*-===//
//
// Smooth surfaces of few numbers (lib/Cost/KernelTables.h), fitted to times of
// an H100 by tools/calibration. Each is monotone: more work never takes less
// time, a faster device never more.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_KERNELS_H
#define HEDDLE_COST_KERNELS_H

#include "heddle/Cluster/Cluster.h"

#include <optional>
#include <string_view>

namespace heddle {

/// What the operands of a product are in. fp16 is as fast as bf16.
enum class ProductFormat { Fp32, Bf16, Fp8, Fp4 };
inline constexpr int productFormats = 4;

/// "fp32", "bf16", "fp16", "fp8", "fp4", "nvfp4"; none for other words.
std::optional<ProductFormat> productFormat(std::string_view word);
std::string_view peakName(ProductFormat format); ///< of Device::peakFlops

/// C [m, n] = A [m, k] B [k, n], or several of that shape in one kernel.
struct Product {
  double m = 0, n = 0, k = 0;
  ProductFormat format = ProductFormat::Bf16;
  double groups = 1;
  /// Read and written per element of C: 2 for a bf16 result, 8 for one that is
  /// added to a sum in fp32.
  double resultBytes = 2;
  /// Whether A comes in bf16 and is quantized on its way (fp8, fp4).
  bool quantizes = true;
  /// Moved per element that is quantized; 0: as by the kernels that were
  /// measured, which find a scale first.
  double quantizedBytes = 0;
  /// Backward's products in fp8 are summed in full precision (the default of
  /// Transformer Engine and torchao), forward's not.
  bool isGradient = false;

  double flops() const { return 2 * groups * m * n * k; }
};

enum class AttentionKernel {
  Best,   ///< cuDNN's on Hopper and later
  Flash2, ///< FlashAttention-2, written for Ampere and no faster on Hopper
  Triton, ///< FlashAttention in Triton, as of 2023
  Whole,  ///< scores go to memory and back
};

/// Attention of `heads` heads, each of its own sequence: batch x heads of one
/// rank. One query sees `pairs` / `queries` keys.
struct Attention {
  double heads = 0;
  double queries = 0; ///< of one head
  double pairs = 0;   ///< of a query and a key that it sees, of one head
  double headSize = 0;
  bool isMasked = true; ///< causal: tiles on the diagonal are half empty
  AttentionKernel kernel = AttentionKernel::Best;
  // Of `Whole`: what its products are in, and what its kernels on scores read
  // and write of each, forward and backward. Here softmax (4 and 6), and
  // dropout with a mask that is kept (5 and 5), in 2 bytes each.
  ProductFormat format = ProductFormat::Bf16;
  double scoreBytes = 9, scoreGradBytes = 11;

  /// Products of scores and of values; backward has 2.5 times as many.
  double forwardFlops() const { return 4 * heads * pairs * headSize; }
};

/// What of the rate of short bursts, in which kernels are measured, is left in
/// a step of seconds: the power limit lowers the clock. Of the products that
/// last long enough to run into it (1e14 operations, 0.2 s and more), in the
/// framework that shows it, against the surface fitted to short ones
/// (tools/calibration/fit_gemm.py: 0.847 in bf16, 0.833 in fp8).
inline constexpr double sustainedRate = 0.845;

/// Numbers of the surface of products in one format.
struct ProductSurface {
  double secondsPerFlop = 0; ///< of a product without ends
  double depth = 0;          ///< of k
  double floor = 0;          ///< waves
  double launch = 0;         ///< seconds
  double quantized = 0;      ///< bytes per element that is quantized
};

/// Numbers of the surface of an attention kernel.
struct AttentionSurface {
  double secondsPerFlop = 0; ///< in endless sequences and heads
  double narrow = 0;         ///< of the head size
  double whole = 0;          ///< of queries
  double masked = 0;         ///< of queries, more where a mask is causal
  double launch = 0;         ///< seconds
  double backward = 0;       ///< over forward, without the launch
  double floor = 0;          ///< waves
};

/// waves = hypot(groups m n / (128 x 256 x processors), floor): a wave of
/// tiles; few tiles are cut along k, so that a product never costs a whole
/// wave. compute = waves x 2 x 128 x 256 x processors x (k + depth) x seconds
/// per operation: a tile fills and drains its pipeline in the time of `depth`.
/// seconds = launch + hypot(compute, bytes moved) + quantized m k.
double productSeconds(const ProductSurface &surface, const Product &product,
                      double processors, double secondsPerByte);

/// Of one forward without its launch: operations x (1 + narrow / head size):
/// softmax is per score and its products per element; x (1 + (whole + masked) /
/// queries): tiles at both ends; x hypot(1, floor / waves) of 128 queries each.
double attentionWork(const AttentionSurface &surface,
                     const Attention &attention, double processors);

/// Times, in seconds, of one device: of an H100's surfaces by its peaks and
/// rates, or of what was measured on it (Device::measured).
class KernelTimes {
public:
  /// An error names the number that the device has none of.
  static Result<KernelTimes> of(const Device &device);

  /// productSeconds; infinite in a format that the device does not have.
  double product(const Product &product) const;

  /// launch + attentionWork.
  double attentionForward(const Attention &attention) const;
  /// Of `Whole`, forward without the product with the values.
  double attentionScores(const Attention &attention) const;
  /// 2.5 times the operations at 0.87 of the rate (fit_attention.py).
  double attentionBackward(const Attention &attention) const;

  /// A kernel that is bound by memory: launch + bytes / bandwidth.
  double memory(double bytes) const {
    return bytes > 0 ? memoryLaunch + bytes * secondsPerByte : 0;
  }

private:
  void readMeasured(const Device &device);
  const AttentionSurface &surfaceOf(const Attention &attention) const {
    return attention.kernel == AttentionKernel::Best ? best : flash2;
  }
  double materialized(const Attention &attention, bool backward) const;

  double processors = 0;
  double memoryLaunch = 0;
  double secondsPerByte = 0;               ///< what kernels reach
  ProductSurface products[productFormats]; ///< infinite: has no such format
  AttentionSurface best, flash2;
};

} // namespace heddle

#endif // HEDDLE_COST_KERNELS_H
