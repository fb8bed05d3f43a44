//===- HeldBy.cpp - which layers and states a stage holds -----------------===//

#include "heddle/Runtime/Tables.h"

#include <algorithm>
#include <numeric>

namespace heddle::runtime {

std::string State::instanceName(int64_t i) const {
  const size_t at = name.find("{}");
  if (at == std::string::npos)
    return name;
  return name.substr(0, at) + std::to_string(i) + name.substr(at + 2);
}

int64_t Tables::numStages() const {
  return stages.axis.empty() ? 1 : int64_t(stages.layers.size());
}

int64_t Tables::stageOf(int64_t rank) const {
  for (size_t i = mesh.size(); i-- > 0;) {
    if (mesh[i].first == stages.axis)
      return rank % mesh[i].second;
    rank /= mesh[i].second;
  }
  return 0;
}

std::vector<int64_t> Tables::layersAt(int64_t stage, int64_t layers) const {
  if (!stages.axis.empty())
    return stages.layers[size_t(stage)];
  std::vector<int64_t> all(static_cast<size_t>(layers));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int64_t> Tables::instancesAt(const State &state,
                                         int64_t stage) const {
  if (state.isByLayer())
    return layersAt(stage, state.layers);
  return std::vector<int64_t>(size_t(numInstancesAt(state, stage)));
}

int64_t Tables::numInstancesAt(const State &state, int64_t stage) const {
  if (state.isByLayer())
    return stages.axis.empty() ? state.layers
                               : int64_t(stages.layers[size_t(stage)].size());
  const std::vector<int64_t> &held = state.heldBy;
  return held.empty() ||
         std::find(held.begin(), held.end(), stage) != held.end();
}

int64_t Tables::ranks() const {
  int64_t n = 1;
  for (const auto &[axis, size] : mesh)
    n *= size;
  return n;
}

} // namespace heddle::runtime
