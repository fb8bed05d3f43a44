#include "heddle/Cost/Kernels.h"

#include "FitTimes.h"
#include "KernelTables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr double kTile = 128 * 256, kQueries = 128;
/// Bytes of an element, by format.
constexpr double kBytes[productFormats] = {4, 2, 1, 0.5};
constexpr double kNever = std::numeric_limits<double>::infinity();
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

std::string_view heddle::peakName(ProductFormat format) {
  return kPeaks[static_cast<std::size_t>(format)];
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
  if (!device.measured && device.peak("bf16") <= 0)
    return lacks("peak in bf16", "peak_tflops: {bf16}");
  KernelTimes times;
  times.processors = static_cast<double>(device.multiprocessors);
  if (device.measured) {
    times.readMeasured(device);
    return times;
  }
  times.memoryLaunch = bf16Fit.launch;
  times.secondsPerByte = 1 / (device.memoryBytesPerSecond * memoryEfficiency);
  for (int i = 0; i < productFormats; ++i) {
    const double peak = device.peak(kPeaks[i]);
    const ProductFit &fit = fitOf(static_cast<ProductFormat>(i));
    times.products[i] = {
        1 / (peak * device.productRatio * sustainedRate * fit.efficiency),
        fit.depth, fit.floor, fit.launch, fit.quantized};
  }
  auto attention = [&](const AttentionFit &fit, double ratio) {
    return AttentionSurface{
        1 / (device.peak("bf16") * ratio * sustainedRate * fit.efficiency),
        fit.narrow,
        fit.whole,
        fit.masked,
        attentionLaunch,
        2.5 / backwardRate,
        attentionFloor};
  };
  times.best = attention(cudnnFit, device.attentionRatio);
  times.flash2 = attention(flash2Fit, device.flash2Ratio);
  return times;
}

void KernelTimes::readMeasured(const Device &device) {
  const MeasuredTimes &measured = *device.measured;
  std::tie(memoryLaunch, secondsPerByte) = fitMemory(measured.memory);
  for (int i = 0; i < productFormats; ++i) {
    const bool isThere = std::ranges::any_of(
        measured.products, [&](const MeasuredProduct &product) {
          return product.format == kPeaks[i];
        });
    products[i] = isThere ? fitProducts(measured.products, kPeaks[i],
                                        processors, secondsPerByte)
                          : ProductSurface{kNever, 0, 0, 0, 0};
  }
  best = flash2 = fitAttention(measured.attention, processors);
}

double heddle::productSeconds(const ProductSurface &surface,
                              const Product &product, double processors,
                              double secondsPerByte) {
  const auto format = static_cast<std::size_t>(product.format);
  const double wave = kTile * processors;
  const double results = product.groups * product.m * product.n;
  const double waves = hypotenuse(results / wave, surface.floor);
  const double accumulation =
      product.isGradient && product.format == ProductFormat::Fp8
          ? fullAccumulation
          : 1;
  const double compute = accumulation * waves * 2 * wave *
                         (product.k + surface.depth) * surface.secondsPerFlop;
  const double bytes =
      kBytes[format] * product.groups * product.k * (product.m + product.n) +
      product.resultBytes * results;
  double seconds = surface.launch + hypotenuse(compute, bytes * secondsPerByte);
  if (product.quantizes)
    seconds += (surface.quantized > 0 && product.quantizedBytes > 0
                    ? product.quantizedBytes
                    : surface.quantized) *
               product.groups * product.m * product.k * secondsPerByte;
  return seconds;
}

double KernelTimes::product(const Product &product) const {
  return productSeconds(products[static_cast<std::size_t>(product.format)],
                        product, processors, secondsPerByte);
}

double heddle::attentionWork(const AttentionSurface &surface,
                             const Attention &attention, double processors) {
  const double ends = surface.whole + (attention.isMasked ? surface.masked : 0);
  const double waves =
      attention.heads * attention.queries / (kQueries * processors);
  return attention.forwardFlops() * surface.secondsPerFlop *
         (1 + surface.narrow / attention.headSize) *
         (1 + ends / attention.queries) * hypotenuse(1, surface.floor / waves);
}

double KernelTimes::attentionForward(const Attention &attention) const {
  if (attention.kernel == AttentionKernel::Whole)
    return materialized(attention, false);
  const AttentionSurface &surface = surfaceOf(attention);
  const bool isTriton = attention.kernel == AttentionKernel::Triton;
  return surface.launch + (isTriton ? tritonForward : 1) *
                              attentionWork(surface, attention, processors);
}

double KernelTimes::attentionBackward(const Attention &attention) const {
  if (attention.kernel == AttentionKernel::Whole)
    return materialized(attention, true);
  const AttentionSurface &surface = surfaceOf(attention);
  const bool isTriton = attention.kernel == AttentionKernel::Triton;
  return surface.launch + (isTriton ? tritonBackward : 1) * surface.backward *
                              attentionWork(surface, attention, processors);
}

double KernelTimes::attentionScores(const Attention &attention) const {
  const double rows = attention.heads * attention.queries;
  const Product scores{rows, attention.queries, attention.headSize,
                       attention.format};
  constexpr double ofSoftmax = 4; // a kernel of its own, like dropout
  return product(scores) + memory(ofSoftmax * rows * attention.queries) +
         memory((attention.scoreBytes - ofSoftmax) * rows * attention.queries);
}

/// Products over the whole square, and kernels on its scores.
double KernelTimes::materialized(const Attention &attention,
                                 bool backward) const {
  const double rows = attention.heads * attention.queries;
  const Product values{rows, attention.headSize, attention.queries,
                       attention.format};
  if (!backward)
    return attentionScores(attention) + product(values);
  Attention gradients = attention;
  gradients.scoreBytes = attention.scoreGradBytes;
  return attentionScores(gradients) + product(values) +
         product(
             {rows, attention.queries, attention.headSize, attention.format}) +
         product(values);
}
