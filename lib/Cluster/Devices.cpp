#include "heddle/Cluster/Cluster.h"

#include <utility>

#include <unistd.h>

using namespace heddle;

double Device::peak(std::string_view format) const {
  auto found = peakFlops.find(std::string(format));
  return found == peakFlops.end() ? 0 : found->second;
}

/// A row of the table of devices. Peaks are dense, of the data sheets; sizes of
/// memory are what is there, not what is written on the box.
struct KnownDevice {
  const char *name;
  std::int64_t memoryGib;
  double memoryBytesPerSecond;
  double tflops[5]; ///< fp32, tf32, bf16 and fp16, fp8, fp4; 0: has none
  std::int64_t multiprocessors;
  double productRatio, attentionRatio, flash2Ratio;
};

/// Ratios of products: A100 at its 400 W, 257 TFLOP/s of random numbers at
/// 8192^3 (Horace He, "Strangely, matrix multiplications on GPUs run faster
/// when given predictable data", thonking.ai), over the 696 of H100 in a step
/// of seconds there (lib/Cost/KernelTables.h x sustainedRate), as parts of the
/// peaks; B200 by the best bf16 products that mamf-finder found, 77.6 % of the
/// peak against 80.3 % (stas00/ml-engineering, compute/accelerator). Of
/// attention: FlashAttention-2 forward on A100, which is the best there, 224 of
/// 312 TFLOP/s at head size 128 and 16k tokens (arXiv 2307.08691), over cuDNN's
/// 0.565 of the peak on H100 and its own 0.378 there (lib/Cost/KernelTables.h,
/// without a mask); B200 as H100.
///
/// H100 SXM: 132 processors x 4 x 512 multiply-adds x 1.83 GHz. The PCIe card
/// has 114 at 1.62 GHz and HBM2e. H800 and A800 are H100 and A100 with slower
/// NVLink, which a cluster's links say. H200: memory alone is new.
static constexpr KnownDevice known[] = {
    {"a100-sxm-40gb",
     40,
     1.555e12,
     {19.5, 156, 312, 0, 0},
     108,
     1.17,
     1.27,
     1.9},
    {"a100-sxm-80gb",
     80,
     2.039e12,
     {19.5, 156, 312, 0, 0},
     108,
     1.17,
     1.27,
     1.9},
    {"a800-sxm-80gb",
     80,
     2.039e12,
     {19.5, 156, 312, 0, 0},
     108,
     1.17,
     1.27,
     1.9},
    {"h100-pcie-80gb", 80, 2.0e12, {51.2, 378, 756, 1513, 0}, 114, 1, 1, 1},
    {"h100-sxm-80gb",
     80,
     3.35e12,
     {66.9, 494.7, 989.4, 1978.9, 0},
     132,
     1,
     1,
     1},
    {"h200-sxm-141gb",
     140,
     4.8e12,
     {66.9, 494.7, 989.4, 1978.9, 0},
     132,
     1,
     1,
     1},
    {"h800-sxm-80gb",
     80,
     3.35e12,
     {66.9, 494.7, 989.4, 1978.9, 0},
     132,
     1,
     1,
     1},
    {"b200-sxm-180gb",
     179,
     8.0e12,
     {75, 1125, 2250, 4500, 9000},
     148,
     0.97,
     1,
     1},
};

static Device deviceOf(const KnownDevice &row) {
  Device device;
  device.name = row.name;
  device.memoryBytes = row.memoryGib << 30;
  device.memoryBytesPerSecond = row.memoryBytesPerSecond;
  for (auto [format, tflops] : {std::pair{"fp32", row.tflops[0]},
                                {"tf32", row.tflops[1]},
                                {"bf16", row.tflops[2]},
                                {"fp16", row.tflops[2]},
                                {"fp8", row.tflops[3]},
                                {"fp4", row.tflops[4]}})
    if (tflops > 0)
      device.peakFlops[format] = tflops * 1e12;
  device.multiprocessors = row.multiprocessors;
  device.productRatio = row.productRatio;
  device.attentionRatio = row.attentionRatio;
  device.flash2Ratio = row.flash2Ratio;
  return device;
}

/// Memory is asked of the system; rates are measured by `heddle calibrate`.
static Device host() {
  Device device;
  device.name = "host";
  device.isHost = true;
  device.memoryBytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       ::sysconf(_SC_PAGE_SIZE);
  return device;
}

std::optional<Device> heddle::deviceByName(std::string_view name) {
  for (const KnownDevice &row : known)
    if (name == row.name)
      return deviceOf(row);
  if (name == "host")
    return host();
  return std::nullopt;
}

std::vector<std::string> heddle::deviceNames() {
  std::vector<std::string> names;
  for (const KnownDevice &row : known)
    names.push_back(row.name);
  names.push_back("host");
  return names;
}
