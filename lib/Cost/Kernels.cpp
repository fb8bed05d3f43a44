#include "heddle/Cost/Kernels.h"

#include "KernelTables.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr double kTile = 128 * 256, kQueries = 128;
/// Bytes of an element, by format.
constexpr double kBytes[productFormats] = {4, 2, 1, 0.5};
constexpr const char *kPeaks[productFormats] = {"fp32", "bf16", "fp8", "fp4"};

/// fp32 has bf16's surface below its own peak, fp4 that of fp8.
const ProductFit &fitOf(ProductFormat format) {
  return format == ProductFormat::Fp8 || format == ProductFormat::Fp4 ? fp8Fit
                                                                      : bf16Fit;
}

/// std::hypot guards against overflow that cannot happen here, at ten times
/// the price.
double hypotenuse(double a, double b) { return std::sqrt(a * a + b * b); }

} // namespace

std::optional<ProductFormat> heddle::productFormat(std::string_view word) {
  if (word == "fp32")
    return ProductFormat::Fp32;
  if (word == "bf16" || word == "fp16")
    return ProductFormat::Bf16;
  if (word == "fp8")
    return ProductFormat::Fp8;
  if (word == "fp4" || word == "nvfp4")
    return ProductFormat::Fp4;
  return std::nullopt;
}

Result<KernelTimes> KernelTimes::of(const Device &device) {
  auto lacks = [&](const char *what, const char *key) {
    return Error{fmt::format(
        "device {} has no {}, without which no time can be computed; give the "
        "device's numbers in cluster.yaml (device: {{{}, ...}})",
        device.name, what, key)};
  };
  if (device.memoryBytesPerSecond <= 0)
    return lacks("rate of memory", "memory_gbytes_per_s");
  if (device.multiprocessors <= 0)
    return lacks("number of processors", "multiprocessors");
  if (device.peak("bf16") <= 0)
    return lacks("peak in bf16", "peak_tflops: {bf16}");
  KernelTimes times;
  times.processors = static_cast<double>(device.multiprocessors);
  times.launch = bf16Fit.launch;
  times.secondsPerByte = 1 / (device.memoryBytesPerSecond * memoryEfficiency);
  for (int i = 0; i < productFormats; ++i) {
    const double peak = device.peak(kPeaks[i]);
    times.secondsPerFlop[i] =
        peak > 0 ? 1 / (peak * device.productRatio * sustainedRate)
                 : std::numeric_limits<double>::infinity();
  }
  times.attentionPerFlop =
      1 / (device.peak("bf16") * device.attentionRatio * sustainedRate);
  times.flash2PerFlop =
      1 / (device.peak("bf16") * device.flash2Ratio * sustainedRate);
  return times;
}

double KernelTimes::product(const Product &product) const {
  const auto format = static_cast<std::size_t>(product.format);
  const ProductFit &fit = fitOf(product.format);
  const double wave = kTile * processors;
  const double results = product.groups * product.m * product.n;
  const double waves = hypotenuse(results / wave, fit.floor);
  const double compute = waves * 2 * wave * (product.k + fit.depth) *
                         secondsPerFlop[format] / fit.efficiency;
  const double bytes =
      kBytes[format] * product.groups * product.k * (product.m + product.n) +
      product.resultBytes * results;
  double seconds = fit.launch + hypotenuse(compute, bytes * secondsPerByte);
  if (product.quantizes)
    seconds += (fit.quantized > 0 && product.quantizedBytes > 0
                    ? product.quantizedBytes
                    : fit.quantized) *
               product.groups * product.m * product.k * secondsPerByte;
  return seconds;
}

/// Of one forward, without its launch.
double KernelTimes::forwardWork(const Attention &attention) const {
  const bool isBest = attention.kernel == AttentionKernel::Best;
  const AttentionFit &fit = isBest ? cudnnFit : flash2Fit;
  const double ends = fit.whole + (attention.isMasked ? fit.masked : 0);
  const double waves =
      attention.heads * attention.queries / (kQueries * processors);
  return attention.forwardFlops() *
         (isBest ? attentionPerFlop : flash2PerFlop) / fit.efficiency *
         (1 + fit.narrow / attention.headSize) *
         (1 + ends / attention.queries) * hypotenuse(1, attentionFloor / waves);
}

double KernelTimes::attentionForward(const Attention &attention) const {
  if (attention.kernel == AttentionKernel::Whole)
    return materialized(attention, false);
  const bool isTriton = attention.kernel == AttentionKernel::Triton;
  return attentionLaunch +
         (isTriton ? tritonForward : 1) * forwardWork(attention);
}

double KernelTimes::attentionBackward(const Attention &attention) const {
  if (attention.kernel == AttentionKernel::Whole)
    return materialized(attention, true);
  const bool isTriton = attention.kernel == AttentionKernel::Triton;
  return attentionLaunch + (isTriton ? tritonBackward : 1) * 2.5 /
                               backwardRate * forwardWork(attention);
}

/// Products over the whole square, and kernels on its scores: forward writes
/// masked probabilities (4 bytes read and written), dropout reads and writes
/// them with a mask (5); backward reads and writes in dropout (5) and softmax
/// (6).
double KernelTimes::materialized(const Attention &attention,
                                 bool backward) const {
  const double rows = attention.heads * attention.queries;
  Product scores{rows, attention.queries, attention.headSize};
  Product values{rows, attention.headSize, attention.queries};
  const double squares = rows * attention.queries;
  const double products = product(scores) + product(values);
  return (backward ? 2 : 1) * products + memory(4 * squares) +
         memory((backward ? 7 : 5) * squares);
}
