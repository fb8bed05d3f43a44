#include "runtime/train/Extents.h"

#include <algorithm>

namespace heddle::train {

using Mesh = std::vector<std::pair<std::string, int64_t>>;

Extents::Extents(const Mesh &mesh, int64_t rank, const runtime::Layout &layout,
                 const runtime::FileForm &file, const std::string &stageAxis) {
  const std::vector<int64_t> coordinates = runtime::coordinatesOf(mesh, rank);
  const size_t n = layout.shape.size();
  std::vector<bool> used(mesh.size(), false);
  std::vector<Dim> logical(n);
  for (size_t d = n; d-- > 0;) {
    int64_t part = 0; // which of the equal blocks of this dimension
    for (const std::string &axis : layout.dims[d])
      for (size_t a = 0; a < mesh.size(); ++a)
        if (mesh[a].first == axis) {
          part = part * mesh[a].second + coordinates[a];
          used[a] = true;
        }
    const int64_t begin = std::min(part * layout.local[d], layout.shape[d]);
    const int64_t end = std::min((part + 1) * layout.local[d], layout.shape[d]);
    logical[d] = {end - begin, begin, 0, block};
    block *= layout.local[d];
  }
  int64_t parts = 1, part = 0; // of the row
  for (const std::string &axis : layout.runs)
    for (size_t a = 0; a < mesh.size(); ++a)
      if (mesh[a].first == axis) {
        parts *= mesh[a].second;
        part = part * mesh[a].second + coordinates[a];
        used[a] = true;
      }
  isRun = parts > 1;
  storedCount = (layout.row ? layout.row : block) / parts;
  stored = part * storedCount;
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (mesh[a].first == stageAxis)
      continue;
    isFirst = isFirst && (used[a] || coordinates[a] == 0);
    shareNumber = shareNumber * mesh[a].second + (used[a] ? coordinates[a] : 0);
  }

  std::vector<size_t> inFile(n); // logical dimension of each file dimension
  for (size_t d = 0; d < n; ++d)
    inFile[file.order.empty() ? d : size_t(file.order[d])] = d;
  int64_t stride = 1;
  dims.resize(n);
  for (size_t f = n; f-- > 0;) {
    dims[f] = logical[inFile[f]];
    dims[f].fileStride = stride;
    stride *= layout.shape[inFile[f]];
  }
  // Dimensions that the rank holds whole run on into the one before them.
  outer = n;
  bool whole = true;
  while (outer > 0 && whole) {
    --outer;
    runLength *= dims[outer].count;
    whole = dims[outer].count == layout.shape[inFile[outer]];
  }
  for (size_t f = 0; f < outer; ++f)
    runs *= dims[f].count;
  if (runLength == 0)
    runs = 0;
}

int64_t Extents::runStart(int64_t run) const {
  int64_t start = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    int64_t at = dims[d].fileStart;
    if (d < outer) {
      at += run % dims[d].count;
      run /= dims[d].count;
    }
    start += at * dims[d].fileStride;
  }
  return start;
}

int64_t Extents::blockStart(int64_t run) const {
  int64_t start = 0;
  for (size_t d = outer; d-- > 0;) {
    start += run % dims[d].count * dims[d].blockStride;
    run /= dims[d].count;
  }
  return start;
}

} // namespace heddle::train
