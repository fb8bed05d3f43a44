#include "runtime/common/Runs.h"

#include <cstddef>

namespace heddle::runtime {

void appendRuns(std::vector<heddle_rt_access> &accesses, const void *base,
                int64_t elementBytes, std::vector<Extent> extents,
                int32_t writes) {
  int64_t run = 1;
  while (!extents.empty()) {
    const Extent inner = extents.back();
    if (inner.count == 0)
      return;
    if (inner.count != 1 && inner.stride != run && inner.stride != 0)
      break;
    run *= inner.stride == 0 ? 1 : inner.count;
    extents.pop_back();
  }
  std::erase_if(extents,
                [](const Extent &e) { return e.count == 1 || e.stride == 0; });
  int64_t runs = 1;
  for (const Extent &extent : extents)
    runs *= extent.count;
  for (int64_t i = 0; i < runs; ++i) {
    int64_t rest = i, offset = 0;
    for (size_t e = extents.size(); e-- > 0;) {
      offset += rest % extents[e].count * extents[e].stride;
      rest /= extents[e].count;
    }
    accesses.push_back(
        {static_cast<const std::byte *>(base) + offset * elementBytes,
         run * elementBytes, writes});
  }
}

} // namespace heddle::runtime
