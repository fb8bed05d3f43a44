#include "heddle/Plan/Reshard.h"

#include "ReshardSearch.h"

#include "heddle/Support/Check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace heddle {

const char *reshardKindName(ReshardKind kind) {
  switch (kind) {
  case ReshardKind::Slice:
    return "slice";
  case ReshardKind::MakePartial:
    return "make_partial";
  case ReshardKind::AllGather:
    return "all_gather";
  case ReshardKind::ReduceScatter:
    return "reduce_scatter";
  case ReshardKind::AllReduce:
    return "all_reduce";
  case ReshardKind::AllToAll:
    return "all_to_all";
  case ReshardKind::Permute:
    return "permute";
  }
  return "";
}

ReshardLayout normalLayout(const ReshardMesh &mesh, ReshardLayout layout) {
  auto isTrivial = [&](int axis) { return mesh.axes[axis].second == 1; };
  for (std::vector<int> &axes : layout.dims)
    std::erase_if(axes, isTrivial);
  std::erase_if(layout.partial, isTrivial);
  std::sort(layout.partial.begin(), layout.partial.end());
  layout.partialMax = layout.partialMax && !layout.partial.empty();
  return layout;
}

/// What the header asks of callers.
static void checkLayout(const ReshardMesh &mesh,
                        const std::vector<std::int64_t> &shape,
                        const ReshardLayout &layout) {
  HEDDLE_CHECK(layout.dims.size() == shape.size(),
               "a layout of {} dimensions for a tensor of {}",
               layout.dims.size(), shape.size());
  std::vector<bool> isUsed(mesh.axes.size());
  auto use = [&](int axis) {
    HEDDLE_CHECK(axis >= 0 && static_cast<std::size_t>(axis) < isUsed.size(),
                 "axis {} of a mesh of {}", axis, isUsed.size());
    HEDDLE_CHECK(!isUsed[axis], "axis \"{}\" stands in two places",
                 mesh.axes[axis].first);
    isUsed[axis] = true;
  };
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    std::int64_t blocks = 1;
    for (int axis : layout.dims[dim]) {
      use(axis);
      blocks *= mesh.axes[axis].second;
    }
    HEDDLE_CHECK(shape[dim] % blocks == 0,
                 "dim {} of size {} in {} equal blocks", dim, shape[dim],
                 blocks);
  }
  for (int axis : layout.partial)
    use(axis);
}

/// The axes of both layouts, in mesh order: the only ones that may move.
static std::vector<int> axesOf(const ReshardLayout &from,
                               const ReshardLayout &to) {
  std::vector<int> axes;
  for (const ReshardLayout *layout : {&from, &to}) {
    for (const std::vector<int> &dim : layout->dims)
      axes.insert(axes.end(), dim.begin(), dim.end());
    axes.insert(axes.end(), layout->partial.begin(), layout->partial.end());
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

std::vector<ReshardStep> findReshard(const ReshardMesh &mesh,
                                     const std::vector<std::int64_t> &shape,
                                     std::int64_t elementBytes,
                                     const ReshardLayout &from,
                                     const ReshardLayout &to) {
  checkLayout(mesh, shape, from);
  checkLayout(mesh, shape, to);
  ReshardLayout source = normalLayout(mesh, from);
  ReshardLayout target = normalLayout(mesh, to);
  if (source == target)
    return {};

  // One search per source answers every target; it goes on where it stopped.
  using Key = std::tuple<std::vector<std::pair<std::string, std::int64_t>>,
                         std::vector<std::int64_t>, std::int64_t,
                         std::vector<std::vector<int>>, std::vector<int>, bool,
                         std::vector<int>, bool>;
  static std::mutex mutex;
  static std::map<Key, std::unique_ptr<detail::ReshardSearch>> searches;
  std::vector<int> axes = axesOf(source, target);
  Key key{
      mesh.axes,         shape, elementBytes,     source.dims, source.partial,
      source.partialMax, axes,  target.partialMax};
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<detail::ReshardSearch> &search = searches[key];
  if (!search)
    search = std::make_unique<detail::ReshardSearch>(
        mesh, shape, elementBytes, axes, source, target.partialMax);
  return search->stepsTo(target);
}

} // namespace heddle
