// Dijkstra over the layouts of one tensor, from one source.

#ifndef HEDDLE_LIB_PLAN_RESHARDSEARCH_H
#define HEDDLE_LIB_PLAN_RESHARDSEARCH_H

#include "heddle/Plan/Reshard.h"

#include <functional>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>

namespace heddle::detail {

/// All layouts that can be reached from one source, found as far as asked for.
/// Layouts are normal (see normalLayout) and use only the given axes.
class ReshardSearch {
public:
  /// \p makeMax is the reduction that make_partial gives to a whole value.
  ReshardSearch(const ReshardMesh &mesh, std::vector<std::int64_t> shape,
                std::int64_t elementBytes, std::vector<int> axes,
                const ReshardLayout &source, bool makeMax);

  std::vector<ReshardStep> stepsTo(const ReshardLayout &target);

private:
  /// A layout that was seen, and the cheapest step known that leads to it.
  struct Node {
    ReshardLayout layout;
    std::int64_t cost = 0;
    std::int64_t localBytes = 0;
    bool settled = false;
    int parent = -1;
    ReshardStep step{};
  };
  using Entry = std::pair<std::int64_t, int>; // cost, node

  static std::string keyOf(const ReshardLayout &layout);
  std::int64_t ranksOf(const std::vector<int> &axes) const;
  std::int64_t localBytesOf(const ReshardLayout &layout) const;
  bool divides(const ReshardLayout &layout) const;
  std::vector<int> freeAxes(const ReshardLayout &layout) const;

  /// Offers the step from \p parent to what \p step.after says.
  void offer(int parent, ReshardStep step);
  void expand(int node);
  void expandWhole(int node);
  void expandPartial(int node);
  void expandSplit(int node);
  void expandPermute(int node);
  /// All layouts with as many blocks per dimension and as many summands as
  /// \p layout has: what one permute can reach.
  const std::vector<ReshardLayout> &sameTiles(const ReshardLayout &layout);
  void place(std::size_t axis, ReshardLayout &layout,
             const std::function<void(const ReshardLayout &)> &visit) const;
  /// Gives the permute that leads from \p from its group and its map.
  void setPermutation(ReshardStep &step, const ReshardLayout &from) const;

  ReshardMesh mesh;
  std::vector<std::int64_t> shape;
  std::int64_t elementBytes;
  std::vector<int> axes;
  bool makeMax;
  std::vector<Node> nodes;
  std::unordered_map<std::string, int> indexOf;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  std::map<std::vector<std::int64_t>, std::vector<ReshardLayout>> tiles;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_RESHARDSEARCH_H
