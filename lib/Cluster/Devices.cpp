#include "heddle/Cluster/Cluster.h"

#include <unistd.h>

using namespace heddle;

double Device::peak(std::string_view format) const {
  auto found = peakFlops.find(std::string(format));
  return found == peakFlops.end() ? 0 : found->second;
}

/// Dense rates of the data sheet: 132 SMs at 1.83 GHz; 80 GB as sold are
/// 80 GiB.
static Device h100() {
  Device device;
  device.name = "h100-sxm-80gb";
  device.memoryBytes = std::int64_t{80} << 30;
  device.memoryBytesPerSecond = 3.35e12;
  device.peakFlops = {{"fp32", 66.9e12},
                      {"tf32", 494.7e12},
                      {"bf16", 989.4e12},
                      {"fp16", 989.4e12},
                      {"fp8", 1978.9e12}};
  device.multiprocessors = 132;
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
  if (name == "h100-sxm-80gb")
    return h100();
  if (name == "host")
    return host();
  return std::nullopt;
}

std::vector<std::string> heddle::deviceNames() {
  return {"h100-sxm-80gb", "host"};
}
