#include "tools/heddle/Gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>

using namespace heddle;
using namespace heddle::tool;

namespace {

/// The driver's interface (docs.nvidia.com/cuda/cuda-driver-api), as far as it
/// is asked. Loaded by hand: heddle itself runs where there is no driver.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*count)(int *) = nullptr;
  int (*name)(char *, int, int) = nullptr;
  int (*attribute)(int *, int, int) = nullptr;
  int (*memory)(size_t *, int) = nullptr;

  bool load(void *library) {
    const auto find = [&](auto &function, const char *symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          dlsym(library, symbol));
      return function != nullptr;
    };
    return find(init, "cuInit") && find(count, "cuDeviceGetCount") &&
           find(name, "cuDeviceGetName") &&
           find(attribute, "cuDeviceGetAttribute") &&
           find(memory, "cuDeviceTotalMem_v2");
  }
};

constexpr int kMajor = 75, kMinor = 76; // CU_DEVICE_ATTRIBUTE_COMPUTE_...

} // namespace

std::vector<Gpu> tool::listGpus(std::string &why) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  Driver driver;
  if (!library || !driver.load(library)) {
    why = "no NVIDIA driver (libcuda.so.1)";
    return {};
  }
  int count = 0;
  int error = driver.init(0);
  if (error == 0)
    error = driver.count(&count);
  if (error != 0 || count == 0) {
    why = error == 0 ? "the driver sees none"
                     : fmt::format("the driver answers with error {}", error);
    return {};
  }
  std::vector<Gpu> gpus;
  for (int device = 0; device < count; ++device) {
    char name[256] = "";
    size_t bytes = 0;
    Gpu gpu;
    if (driver.name(name, sizeof name, device) == 0 &&
        driver.attribute(&gpu.major, kMajor, device) == 0 &&
        driver.attribute(&gpu.minor, kMinor, device) == 0 &&
        driver.memory(&bytes, device) == 0) {
      gpu.name = name;
      gpu.bytes = int64_t(bytes);
      gpus.push_back(gpu);
    }
  }
  return gpus; // the library stays: the driver's threads may be in it
}
