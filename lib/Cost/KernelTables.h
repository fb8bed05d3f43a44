//===- KernelTables.h - Fitted numbers of kernels ---------------*- C++ -*-===//
//
// Written by tools/calibration/fit_gemm.py and fit_attention.py from
// validation/gemm_h100.csv (4,560 bf16 and 4,560 fp8 times of two frameworks)
// and validation/attention_h100.csv (1,486 times). Formulas: Cost/Kernels.h.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_LIB_COST_KERNELTABLES_H
#define HEDDLE_LIB_COST_KERNELTABLES_H

namespace heddle::detail {

/// Median of |error| below 3e12 operations: bf16 4 %, fp8 5 %.
struct ProductFit {
  double efficiency; ///< of the peak, in a product without ends
  double depth;      ///< of k
  double floor;      ///< waves
  double launch;     ///< seconds
  double quantized;  ///< bytes per element that is quantized
};
inline constexpr ProductFit bf16Fit = {0.8421, 96.4, 0.1148, 2.23e-6, 0};
inline constexpr ProductFit fp8Fit = {0.8122, 343.3, 0.1564, 9.09e-6, 7.762};

/// What products in fp8 that are summed in full precision take longer: 1.1 to
/// 1.2 times (pytorch/ao issue 2377).
inline constexpr double fullAccumulation = 1.15;

/// Median of |error|: FlashAttention-2 1 %, cuDNN 1 %, and of FlashAttention-3,
/// which gives cuDNN its dependence on head size, 3 %.
struct AttentionFit {
  double efficiency; ///< of the bf16 peak, in endless sequences and heads
  double narrow;     ///< of the head size
  double whole;      ///< of queries
  double masked;     ///< of queries, more where a mask is causal
};
inline constexpr AttentionFit cudnnFit = {0.8145, 55.5, 97, 165};
inline constexpr AttentionFit flash2Fit = {0.4498, 22.8, 162, 363};
inline constexpr double attentionFloor = 1.021; ///< waves
inline constexpr double attentionLaunch = 15e-6;
/// Backward's part of forward's rate: FlashAttention-2 on A100, head size 128
/// (arXiv 2307.08691: 196 of 224 TFLOP/s).
inline constexpr double backwardRate = 0.87;

/// FlashAttention-2 is faster than the version in Triton by 1.3 to 1.5 times
/// forward and about 2 times backward (the same, section 4.1).
inline constexpr double tritonForward = 1.4, tritonBackward = 2;

/// What kernels reach of the memory's rate (torchao, validation/README.md 4).
inline constexpr double memoryEfficiency = 0.92;

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_KERNELTABLES_H
