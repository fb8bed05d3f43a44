#include "ReshardSearch.h"

#include <algorithm>
#include <numeric>

namespace heddle::detail {

using Axes = std::vector<int>;

/// Calls \p visit with every ordered choice of one or more of \p axes.
static void forEachSequence(const Axes &axes,
                            const std::function<void(const Axes &)> &visit) {
  Axes chosen;
  auto extend = [&](auto &&self) -> void {
    for (int axis : axes) {
      if (std::find(chosen.begin(), chosen.end(), axis) != chosen.end())
        continue;
      chosen.push_back(axis);
      visit(chosen);
      self(self);
      chosen.pop_back();
    }
  };
  extend(extend);
}

static Axes without(const Axes &axes, const Axes &removed) {
  Axes rest;
  for (int axis : axes)
    if (std::find(removed.begin(), removed.end(), axis) == removed.end())
      rest.push_back(axis);
  return rest;
}

static void append(Axes &axes, const Axes &more) {
  axes.insert(axes.end(), more.begin(), more.end());
}

static std::int64_t divideUp(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

ReshardSearch::ReshardSearch(const ReshardMesh &mesh,
                             std::vector<std::int64_t> shape,
                             std::int64_t elementBytes, Axes axes,
                             const ReshardLayout &source, bool makeMax)
    : mesh(mesh), shape(std::move(shape)), elementBytes(elementBytes),
      axes(std::move(axes)), makeMax(makeMax) {
  nodes.push_back({source, 0, localBytesOf(source)});
  indexOf.emplace(keyOf(source), 0);
  open.push({0, 0});
}

std::vector<ReshardStep> ReshardSearch::stepsTo(const ReshardLayout &target) {
  std::string wanted = keyOf(target);
  auto found = indexOf.find(wanted);
  while (found == indexOf.end() || !nodes[found->second].settled) {
    // Every legal target is reached: gather and reduce everything, then cut.
    if (open.empty())
      return {};
    Entry entry = open.top();
    open.pop();
    Node &node = nodes[entry.second];
    if (node.settled)
      continue;
    node.settled = true;
    expand(entry.second);
    found = indexOf.find(wanted);
  }
  std::vector<ReshardStep> steps;
  for (int node = found->second; nodes[node].parent >= 0;
       node = nodes[node].parent) {
    ReshardStep step = nodes[node].step;
    if (step.kind == ReshardKind::Permute)
      setPermutation(step, nodes[nodes[node].parent].layout);
    steps.push_back(std::move(step));
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

std::string ReshardSearch::keyOf(const ReshardLayout &layout) {
  std::string key;
  for (const Axes &dim : layout.dims) {
    for (int axis : dim)
      key.push_back(static_cast<char>('0' + axis));
    key.push_back('|');
  }
  for (int axis : layout.partial)
    key.push_back(static_cast<char>('0' + axis));
  if (layout.partialMax)
    key.push_back('^');
  return key;
}

std::int64_t ReshardSearch::ranksOf(const Axes &group) const {
  std::int64_t ranks = 1;
  for (int axis : group)
    ranks *= mesh.axes[axis].second;
  return ranks;
}

std::int64_t ReshardSearch::localBytesOf(const ReshardLayout &layout) const {
  std::int64_t bytes = elementBytes;
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    bytes *= shape[dim] / ranksOf(layout.dims[dim]);
  return bytes;
}

bool ReshardSearch::divides(const ReshardLayout &layout) const {
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] % ranksOf(layout.dims[dim]) != 0)
      return false;
  return true;
}

Axes ReshardSearch::freeAxes(const ReshardLayout &layout) const {
  Axes rest = without(axes, layout.partial);
  for (const Axes &dim : layout.dims)
    rest = without(rest, dim);
  return rest;
}

void ReshardSearch::offer(int parent, ReshardStep step) {
  ReshardLayout &after = step.after;
  std::sort(after.partial.begin(), after.partial.end());
  after.partialMax = after.partialMax && !after.partial.empty();
  if (!divides(after))
    return;
  bool moves =
      step.kind != ReshardKind::Slice && step.kind != ReshardKind::MakePartial;
  std::int64_t cost = nodes[parent].cost + step.bytes +
                      (moves ? reshardMovingStepBytes : reshardLocalStepBytes);
  auto [place, isNew] =
      indexOf.emplace(keyOf(after), static_cast<int>(nodes.size()));
  if (isNew)
    nodes.push_back({after, cost, localBytesOf(after)});
  Node &node = nodes[place->second];
  if (!isNew && (node.settled || node.cost <= cost))
    return;
  node.cost = cost;
  node.parent = parent;
  node.step = std::move(step);
  open.push({cost, place->second});
}

void ReshardSearch::expand(int node) {
  expandWhole(node);
  expandPartial(node);
  expandSplit(node);
  expandPermute(node);
}

void ReshardSearch::expandWhole(int node) {
  const ReshardLayout layout = nodes[node].layout;
  forEachSequence(freeAxes(layout), [&](const Axes &group) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      ReshardStep step{ReshardKind::Slice, group};
      step.dim = static_cast<int>(dim);
      step.after = layout;
      append(step.after.dims[dim], group);
      offer(node, std::move(step));
    }
    if (!std::is_sorted(group.begin(), group.end()))
      return; // a set of axes, not a sequence
    ReshardStep step{ReshardKind::MakePartial, group};
    step.reduceMax = layout.partial.empty() ? makeMax : layout.partialMax;
    step.after = layout;
    step.after.partialMax = step.reduceMax;
    append(step.after.partial, group);
    offer(node, std::move(step));
  });
}

void ReshardSearch::expandPartial(int node) {
  const ReshardLayout layout = nodes[node].layout;
  const std::int64_t in = nodes[node].localBytes;
  forEachSequence(layout.partial, [&](const Axes &group) {
    const std::int64_t ranks = ranksOf(group);
    ReshardStep step{ReshardKind::ReduceScatter, group};
    step.reduceMax = layout.partialMax;
    step.after = layout;
    step.after.partial = without(layout.partial, group);
    step.bytes = divideUp((ranks - 1) * in, ranks);
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      ReshardStep onto = step;
      onto.dim = static_cast<int>(dim);
      append(onto.after.dims[dim], group);
      offer(node, std::move(onto));
    }
    if (!std::is_sorted(group.begin(), group.end()))
      return; // a set of axes, not a sequence
    step.kind = ReshardKind::AllReduce;
    step.bytes = divideUp(2 * (ranks - 1) * in, ranks);
    offer(node, std::move(step));
  });
}

void ReshardSearch::expandSplit(int node) {
  const ReshardLayout layout = nodes[node].layout;
  const std::int64_t in = nodes[node].localBytes;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const Axes &cut = layout.dims[dim];
    for (std::size_t first = 0; first < cut.size(); ++first) {
      // Cutting is nested: only the pieces of the last axes lie side by side.
      ReshardStep step{ReshardKind::AllGather,
                       Axes(cut.begin() + static_cast<long>(first), cut.end())};
      const std::int64_t ranks = ranksOf(step.axes);
      step.dim = static_cast<int>(dim);
      step.after = layout;
      step.after.dims[dim].resize(first);
      for (std::size_t other = 0; other < shape.size(); ++other) {
        if (other == dim)
          continue;
        ReshardStep move = step;
        move.kind = ReshardKind::AllToAll;
        move.toDim = static_cast<int>(other);
        append(move.after.dims[other], step.axes);
        move.bytes = divideUp((ranks - 1) * in, ranks);
        offer(node, std::move(move));
      }
      step.bytes = (ranks - 1) * in;
      offer(node, std::move(step));
    }
  }
}

void ReshardSearch::expandPermute(int node) {
  const ReshardLayout layout = nodes[node].layout;
  for (const ReshardLayout &other : sameTiles(layout)) {
    // Axes and map are made when the step is asked for.
    ReshardStep step{ReshardKind::Permute};
    step.reduceMax = other.partialMax;
    step.after = other;
    step.bytes = nodes[node].localBytes;
    offer(node, std::move(step));
  }
}

/// Puts axes[axis] and those after it everywhere they can stand.
void ReshardSearch::place(
    std::size_t axis, ReshardLayout &layout,
    const std::function<void(const ReshardLayout &)> &visit) const {
  if (axis == axes.size())
    return visit(layout);
  place(axis + 1, layout, visit);
  layout.partial.push_back(axes[axis]);
  place(axis + 1, layout, visit);
  layout.partial.pop_back();
  for (Axes &dim : layout.dims)
    for (std::size_t at = 0; at <= dim.size(); ++at) {
      dim.insert(dim.begin() + static_cast<long>(at), axes[axis]);
      place(axis + 1, layout, visit);
      dim.erase(dim.begin() + static_cast<long>(at));
    }
}

const std::vector<ReshardLayout> &
ReshardSearch::sameTiles(const ReshardLayout &layout) {
  auto countsOf = [&](const ReshardLayout &of) {
    std::vector<std::int64_t> counts;
    for (const Axes &dim : of.dims)
      counts.push_back(ranksOf(dim));
    counts.push_back(ranksOf(of.partial) * (of.partialMax ? -1 : 1));
    return counts;
  };
  if (tiles.empty()) {
    // Both reductions, since partial values of both may be on the way.
    ReshardLayout empty{std::vector<Axes>(shape.size()), {}, false};
    place(0, empty, [&](const ReshardLayout &found) {
      tiles[countsOf(found)].push_back(found);
      if (found.partial.empty())
        return;
      ReshardLayout asMax = found;
      asMax.partialMax = true;
      tiles[countsOf(asMax)].push_back(asMax);
    });
  }
  return tiles[countsOf(layout)];
}

/// Where an axis stands and by how much one step along it moves the tile:
/// (place, stride in blocks); place -1 for an axis that stands nowhere.
static std::pair<int, std::int64_t>
digitOf(const ReshardMesh &mesh, const ReshardLayout &layout, int axis) {
  auto strideIn = [&](const Axes &cut) -> std::int64_t {
    std::int64_t stride = 1;
    for (auto at = cut.rbegin(); at != cut.rend(); ++at) {
      if (*at == axis)
        return stride;
      stride *= mesh.axes[*at].second;
    }
    return 0;
  };
  const int rank = static_cast<int>(layout.dims.size());
  for (int dim = 0; dim < rank; ++dim)
    if (std::int64_t stride = strideIn(layout.dims[dim]))
      return {dim, stride};
  if (std::int64_t stride = strideIn(layout.partial))
    return {rank, stride};
  return {-1, 0};
}

/// The tile that each position of \p group holds, the digits of all other axes
/// being zero: block per dimension, then the number of the summand.
static std::vector<std::vector<std::int64_t>>
tilesOf(const ReshardMesh &mesh, const ReshardLayout &layout, const Axes &group,
        std::int64_t ranks) {
  std::vector<std::vector<std::int64_t>> held;
  for (std::int64_t position = 0; position < ranks; ++position) {
    std::vector<std::int64_t> tile(layout.dims.size() + 1, 0);
    std::int64_t rest = position;
    for (auto axis = group.rbegin(); axis != group.rend(); ++axis) {
      auto [place, stride] = digitOf(mesh, layout, *axis);
      if (place >= 0)
        tile[place] += rest % mesh.axes[*axis].second * stride;
      rest /= mesh.axes[*axis].second;
    }
    held.push_back(std::move(tile));
  }
  return held;
}

void ReshardSearch::setPermutation(ReshardStep &step,
                                   const ReshardLayout &from) const {
  // An axis that adds the same to the tile before and after stays out of the
  // group: the map is then the same at each of its positions.
  for (int axis : axes)
    if (digitOf(mesh, from, axis) != digitOf(mesh, step.after, axis))
      step.axes.push_back(axis);
  const std::int64_t ranks = ranksOf(step.axes);
  auto held = tilesOf(mesh, from, step.axes, ranks);
  auto wanted = tilesOf(mesh, step.after, step.axes, ranks);

  // Who has its tile keeps it; every other tile has as many holders as takers.
  step.sources.assign(static_cast<std::size_t>(ranks), -1);
  std::map<std::vector<std::int64_t>, std::vector<int>> holders;
  for (int position = static_cast<int>(ranks) - 1; position >= 0; --position) {
    if (held[position] == wanted[position])
      step.sources[position] = position;
    else
      holders[held[position]].push_back(position);
  }
  for (int position = 0; position < static_cast<int>(ranks); ++position) {
    if (step.sources[position] >= 0)
      continue;
    std::vector<int> &left = holders[wanted[position]];
    step.sources[position] = left.back();
    left.pop_back();
  }
}

} // namespace heddle::detail
