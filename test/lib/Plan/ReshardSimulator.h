// Runs reshards on simulated ranks: the reference meaning of each step, written
// from the words of heddle/Plan/Reshard.h and sharing no code with the search.

#ifndef HEDDLE_TEST_LIB_PLAN_RESHARDSIMULATOR_H
#define HEDDLE_TEST_LIB_PLAN_RESHARDSIMULATOR_H

#include "heddle/Plan/Reshard.h"

#include <map>
#include <random>

namespace heddle::test {

/// What one rank holds: a row-major tile.
struct Tile {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;

  bool operator==(const Tile &) const = default;
};

using Contents = std::vector<Tile>; // per rank

class ReshardSimulator {
public:
  ReshardSimulator(ReshardMesh mesh, std::vector<std::int64_t> shape,
                   std::uint32_t seed);

  int ranks() const { return rankCount; }
  const ReshardMesh &axes() const { return mesh; }
  const std::vector<std::int64_t> &wholeShape() const { return shape; }

  /// All layouts of the tensor, partial ones as sums.
  std::vector<ReshardLayout> allLayouts() const;

  /// The tensor in \p layout: equal bits on replicas, random summands (or
  /// random smaller values for a maximum) where it is partial.
  Contents scatter(const ReshardLayout &layout);

  /// What the ranks hold after \p step; empty if the step makes no sense (sizes
  /// do not fit).
  Contents run(const ReshardStep &step, const Contents &before) const;

  /// What is wrong with \p contents as the tensor in \p layout; empty if
  /// nothing is: each tile, each sum, each replica.
  std::string fault(const ReshardLayout &layout,
                    const Contents &contents) const;

  /// Local bytes in \p layout for elements of \p elementBytes.
  std::int64_t localBytes(const ReshardLayout &layout,
                          std::int64_t elementBytes) const;

private:
  std::vector<int> coordinatesOf(int rank) const;
  std::int64_t sizeOf(const std::vector<int> &group) const;
  std::int64_t positionIn(const std::vector<int> &group, int rank) const;
  /// The ranks that differ from \p rank along \p group only, by position.
  std::vector<int> groupOf(const std::vector<int> &group, int rank) const;
  const Tile &wholeTile(const ReshardLayout &layout, int rank) const;

  ReshardMesh mesh;
  std::vector<std::int64_t> shape;
  std::mt19937 random;
  int rankCount = 1;
  std::vector<std::vector<int>> coordinates; // per rank
  Tile whole;
  mutable std::map<std::pair<std::vector<std::vector<int>>, int>, Tile>
      wholeTiles; // made when asked for
};

/// The piece \p index of \p count equal ones of \p tile along \p dim.
Tile cut(const Tile &tile, int dim, std::int64_t index, std::int64_t count);

/// The pieces one after the other along \p dim.
Tile join(const std::vector<Tile> &pieces, int dim);

} // namespace heddle::test

#endif // HEDDLE_TEST_LIB_PLAN_RESHARDSIMULATOR_H
