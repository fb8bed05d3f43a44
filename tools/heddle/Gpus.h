//===- Gpus.h - GPUs that this machine has ----------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_GPUS_H
#define HEDDLE_TOOLS_GPUS_H

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tool {

struct Gpu {
  std::string name;
  int major = 0, minor = 0; ///< compute capability
  int64_t bytes = 0;        ///< of memory
};

/// Asks NVIDIA's driver, which is looked for when this is called. Where there
/// is none, or it does not answer, `why` says so.
std::vector<Gpu> listGpus(std::string &why);

} // namespace heddle::tool

#endif
