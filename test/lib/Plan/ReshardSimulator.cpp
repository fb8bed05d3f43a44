#include "ReshardSimulator.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace heddle::test {

static std::int64_t product(const std::vector<std::int64_t> &sizes,
                            std::size_t first, std::size_t last) {
  std::int64_t result = 1;
  for (std::size_t i = first; i < last; ++i)
    result *= sizes[i];
  return result;
}

Tile cut(const Tile &tile, int dim, std::int64_t index, std::int64_t count) {
  const auto at = static_cast<std::size_t>(dim);
  const std::int64_t outer = product(tile.shape, 0, at);
  const std::int64_t inner = product(tile.shape, at + 1, tile.shape.size());
  const std::int64_t row = tile.shape[at] * inner;
  const std::int64_t part = row / count;
  Tile result{tile.shape, {}};
  result.shape[at] /= count;
  result.values.reserve(static_cast<std::size_t>(outer * part));
  for (std::int64_t o = 0; o < outer; ++o) {
    auto first = tile.values.begin() + o * row + index * part;
    result.values.insert(result.values.end(), first, first + part);
  }
  return result;
}

Tile join(const std::vector<Tile> &pieces, int dim) {
  const auto at = static_cast<std::size_t>(dim);
  const std::vector<std::int64_t> &shape = pieces.front().shape;
  const std::int64_t outer = product(shape, 0, at);
  const std::int64_t row = product(shape, at, shape.size());
  Tile result{shape, {}};
  result.shape[at] *= static_cast<std::int64_t>(pieces.size());
  for (std::int64_t o = 0; o < outer; ++o)
    for (const Tile &piece : pieces) {
      auto first = piece.values.begin() + o * row;
      result.values.insert(result.values.end(), first, first + row);
    }
  return result;
}

ReshardSimulator::ReshardSimulator(ReshardMesh mesh,
                                   std::vector<std::int64_t> shape,
                                   std::uint32_t seed)
    : mesh(std::move(mesh)), shape(std::move(shape)), random(seed) {
  for (const auto &[name, size] : this->mesh.axes)
    rankCount *= static_cast<int>(size);
  for (int rank = 0; rank < rankCount; ++rank)
    coordinates.push_back(coordinatesOf(rank));
  whole.shape = this->shape;
  whole.values.resize(
      static_cast<std::size_t>(product(this->shape, 0, this->shape.size())));
  for (std::int64_t &value : whole.values)
    value = static_cast<std::int64_t>(random() % 1000003) - 500000;
}

std::vector<ReshardLayout> ReshardSimulator::allLayouts() const {
  std::vector<ReshardLayout> layouts{
      {std::vector<std::vector<int>>(shape.size()), {}, false}};
  for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis) {
    std::vector<ReshardLayout> longer;
    for (const ReshardLayout &layout : layouts) {
      longer.push_back(layout);
      longer.push_back(layout);
      longer.back().partial.push_back(axis);
      for (std::size_t dim = 0; dim < shape.size(); ++dim)
        for (std::size_t at = 0; at <= layout.dims[dim].size(); ++at) {
          longer.push_back(layout);
          std::vector<int> &axes = longer.back().dims[dim];
          axes.insert(axes.begin() + static_cast<long>(at), axis);
        }
    }
    layouts = std::move(longer);
  }
  std::erase_if(layouts, [&](const ReshardLayout &layout) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      if (shape[dim] % sizeOf(layout.dims[dim]) != 0)
        return true;
    return false;
  });
  return layouts;
}

std::vector<int> ReshardSimulator::coordinatesOf(int rank) const {
  std::vector<int> result(mesh.axes.size());
  for (std::size_t axis = mesh.axes.size(); axis-- > 0;) {
    result[axis] = rank % static_cast<int>(mesh.axes[axis].second);
    rank /= static_cast<int>(mesh.axes[axis].second);
  }
  return result;
}

std::int64_t ReshardSimulator::sizeOf(const std::vector<int> &group) const {
  std::int64_t size = 1;
  for (int axis : group)
    size *= mesh.axes[static_cast<std::size_t>(axis)].second;
  return size;
}

std::int64_t ReshardSimulator::positionIn(const std::vector<int> &group,
                                          int rank) const {
  const std::vector<int> &at = coordinates[static_cast<std::size_t>(rank)];
  std::int64_t position = 0;
  for (int axis : group)
    position = position * mesh.axes[static_cast<std::size_t>(axis)].second +
               at[static_cast<std::size_t>(axis)];
  return position;
}

std::vector<int> ReshardSimulator::groupOf(const std::vector<int> &group,
                                           int rank) const {
  const std::vector<int> &mine = coordinates[static_cast<std::size_t>(rank)];
  std::vector<bool> isFree(mesh.axes.size());
  for (int axis : group)
    isFree[static_cast<std::size_t>(axis)] = true;
  std::vector<int> members(static_cast<std::size_t>(sizeOf(group)), -1);
  for (int other = 0; other < rankCount; ++other) {
    const std::vector<int> &theirs =
        coordinates[static_cast<std::size_t>(other)];
    bool isMember = true;
    for (std::size_t axis = 0; axis < isFree.size(); ++axis)
      isMember = isMember && (isFree[axis] || theirs[axis] == mine[axis]);
    if (isMember)
      members[static_cast<std::size_t>(positionIn(group, other))] = other;
  }
  return members;
}

const Tile &ReshardSimulator::wholeTile(const ReshardLayout &layout,
                                        int rank) const {
  auto [place, isNew] = wholeTiles.try_emplace({layout.dims, rank});
  if (!isNew)
    return place->second;
  Tile tile = whole;
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    for (int axis : layout.dims[dim])
      tile = cut(tile, static_cast<int>(dim), positionIn({axis}, rank),
                 sizeOf({axis}));
  return place->second = std::move(tile);
}

Contents ReshardSimulator::scatter(const ReshardLayout &layout) {
  Contents contents;
  for (int rank = 0; rank < rankCount; ++rank)
    contents.push_back(wholeTile(layout, rank));
  if (layout.partial.empty())
    return contents;
  // Summands are drawn once per (tile, position), so that replicas stay equal;
  // the last one makes the sum right. For a maximum, one position drawn per
  // element holds it and the others hold something smaller.
  const std::int64_t count = sizeOf(layout.partial);
  std::vector<int> cutters;
  for (const std::vector<int> &axes : layout.dims)
    cutters.insert(cutters.end(), axes.begin(), axes.end());
  std::vector<std::vector<Tile>> parts(
      static_cast<std::size_t>(sizeOf(cutters)));
  for (int rank = 0; rank < rankCount; ++rank) {
    std::vector<Tile> &mine =
        parts[static_cast<std::size_t>(positionIn(cutters, rank))];
    const Tile total = contents[static_cast<std::size_t>(rank)];
    if (mine.empty()) {
      mine.assign(static_cast<std::size_t>(count), total);
      for (std::size_t i = 0; i < total.values.size(); ++i) {
        const std::size_t holder = random() % static_cast<std::size_t>(count);
        for (std::size_t part = 0; part < mine.size(); ++part) {
          const auto drawn = static_cast<std::int64_t>(random() % 100000);
          if (part == holder)
            continue;
          if (layout.partialMax) {
            mine[part].values[i] -= drawn;
          } else {
            mine[part].values[i] = drawn;
            mine[holder].values[i] -= drawn;
          }
        }
      }
    }
    contents[static_cast<std::size_t>(rank)] =
        mine[static_cast<std::size_t>(positionIn(layout.partial, rank))];
  }
  return contents;
}

static Tile reduce(const std::vector<Tile> &parts, bool max) {
  Tile result = parts.front();
  for (std::size_t part = 1; part < parts.size(); ++part)
    for (std::size_t i = 0; i < result.values.size(); ++i) {
      const std::int64_t value = parts[part].values[i];
      result.values[i] =
          max ? std::max(result.values[i], value) : result.values[i] + value;
    }
  return result;
}

/// What the member at \p position of a group that holds \p parts gets.
static Tile memberAfter(const ReshardStep &step, const std::vector<Tile> &parts,
                        std::int64_t position) {
  const auto count = static_cast<std::int64_t>(parts.size());
  const Tile &own = parts[static_cast<std::size_t>(position)];
  switch (step.kind) {
  case ReshardKind::Slice:
    return cut(own, step.dim, position, count);
  case ReshardKind::MakePartial: {
    Tile kept = own;
    if (!step.reduceMax && position != 0)
      std::fill(kept.values.begin(), kept.values.end(), 0);
    return kept;
  }
  case ReshardKind::AllGather:
    return join(parts, step.dim);
  case ReshardKind::ReduceScatter:
    return cut(reduce(parts, step.reduceMax), step.dim, position, count);
  case ReshardKind::AllReduce:
    return reduce(parts, step.reduceMax);
  case ReshardKind::AllToAll: {
    std::vector<Tile> pieces;
    for (const Tile &part : parts)
      pieces.push_back(cut(part, step.toDim, position, count));
    return join(pieces, step.dim);
  }
  case ReshardKind::Permute:
    return parts[static_cast<std::size_t>(
        step.sources[static_cast<std::size_t>(position)])];
  }
  return {};
}

Contents ReshardSimulator::run(const ReshardStep &step,
                               const Contents &before) const {
  const std::int64_t count = sizeOf(step.axes);
  const bool cuts = step.kind == ReshardKind::Slice ||
                    step.kind == ReshardKind::ReduceScatter ||
                    step.kind == ReshardKind::AllToAll;
  const int cutDim = step.kind == ReshardKind::AllToAll ? step.toDim : step.dim;
  if (cuts &&
      (cutDim < 0 ||
       before.front().shape[static_cast<std::size_t>(cutDim)] % count != 0))
    return {};
  Contents after(before.size());
  for (int rank = 0; rank < rankCount; ++rank) {
    if (positionIn(step.axes, rank) != 0)
      continue;
    std::vector<int> members = groupOf(step.axes, rank);
    std::vector<Tile> parts;
    for (int member : members)
      parts.push_back(before[static_cast<std::size_t>(member)]);
    for (std::int64_t position = 0; position < count; ++position)
      after[static_cast<std::size_t>(
          members[static_cast<std::size_t>(position)])] =
          memberAfter(step, parts, position);
  }
  return after;
}

std::string ReshardSimulator::fault(const ReshardLayout &layout,
                                    const Contents &contents) const {
  if (contents.size() != static_cast<std::size_t>(rankCount))
    return "a step could not be run";
  std::vector<int> idle;
  for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis) {
    bool used = std::count(layout.partial.begin(), layout.partial.end(), axis);
    for (const std::vector<int> &axes : layout.dims)
      used = used || std::count(axes.begin(), axes.end(), axis);
    if (!used)
      idle.push_back(axis);
  }
  for (int rank = 0; rank < rankCount; ++rank) {
    const Tile &tile = contents[static_cast<std::size_t>(rank)];
    std::vector<int> replicas = groupOf(idle, rank);
    if (tile != contents[static_cast<std::size_t>(replicas.front())])
      return fmt::format("ranks {} and {} are not replicas", rank,
                         replicas.front());
    if (positionIn(layout.partial, rank) != 0 && !layout.partial.empty())
      continue;
    std::vector<Tile> parts;
    for (int member : groupOf(layout.partial, rank))
      parts.push_back(contents[static_cast<std::size_t>(member)]);
    const Tile &expected = wholeTile(layout, rank);
    for (const Tile &part : parts)
      if (part.shape != expected.shape)
        return fmt::format("rank {} has a tile of another shape", rank);
    if (reduce(parts, layout.partialMax) != expected)
      return fmt::format("rank {} has a wrong tile", rank);
  }
  return "";
}

std::int64_t ReshardSimulator::localBytes(const ReshardLayout &layout,
                                          std::int64_t elementBytes) const {
  std::int64_t bytes = elementBytes;
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    bytes *= shape[dim] / sizeOf(layout.dims[dim]);
  return bytes;
}

} // namespace heddle::test
