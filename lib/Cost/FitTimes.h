//===- FitTimes.h - Surfaces through measured times -------------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_FITTIMES_H
#define HEDDLE_LIB_COST_FITTIMES_H

#include "heddle/Cluster/MeasuredTimes.h"
#include "heddle/Cost/Kernels.h"

namespace heddle::detail {

/// The surfaces of Kernels.h with the least squares of logarithms. Each needs
/// the three times that readDeviceFile asks for.
ProductSurface fitProducts(const std::vector<MeasuredProduct> &times,
                           std::string_view format, double processors,
                           double secondsPerByte);
AttentionSurface fitAttention(const std::vector<MeasuredAttention> &times,
                              double processors);
/// Seconds of a launch, and of a byte.
std::pair<double, double> fitMemory(const std::vector<MeasuredMemory> &times);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_FITTIMES_H
