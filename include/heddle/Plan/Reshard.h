// The cheapest way from one layout of a tensor to another, found by search.
//
// A layout says, per mesh axis, whether the ranks along it hold the same bits
// (the axis stands nowhere), equal blocks of one dimension, or values whose sum
// or maximum is the tensor. Nothing here knows of IR.

#ifndef HEDDLE_PLAN_RESHARD_H
#define HEDDLE_PLAN_RESHARD_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

/// Named axes with their sizes, outermost first. Rank numbers are row-major:
/// the last axis is the fastest.
struct ReshardMesh {
  std::vector<std::pair<std::string, std::int64_t>> axes;

  bool operator==(const ReshardMesh &) const = default;
};

/// Where each mesh axis of a tensor stands; axes are indices into the mesh.
struct ReshardLayout {
  /// Per dimension the axes that cut it, outermost first. An axis stands in one
  /// place only.
  std::vector<std::vector<int>> dims;
  /// Axes over which the value still has to be reduced, in any order.
  std::vector<int> partial;
  /// The reduction of `partial`: false a sum, true a maximum. Means nothing
  /// where `partial` is empty.
  bool partialMax = false;

  bool operator==(const ReshardLayout &) const = default;
};

enum class ReshardKind {
  Slice,         ///< keep one block of `dim`: whole -> split, innermost
  MakePartial,   ///< whole -> partial: a sum is kept at position 0 of the axes
                 ///< and zero elsewhere, a maximum is kept everywhere
  AllGather,     ///< the last axes of `dim`: split -> whole
  ReduceScatter, ///< partial -> split of `dim`, innermost
  AllReduce,     ///< partial -> whole
  AllToAll,      ///< the last axes of `dim` go to the end of `toDim`
  Permute,       ///< each rank receives one tile
};

/// The mnemonic of a step: `all_gather`, ...
const char *reshardKindName(ReshardKind kind);

/// One step of a reshard.
struct ReshardStep {
  ReshardKind kind;
  /// The axes of the group, in order: positions in the group are numbered with
  /// the last one fastest, and blocks are dealt in that order.
  std::vector<int> axes{};
  /// The dimension that is cut, gathered or, for an all_to_all, given up; -1
  /// where the step has none.
  int dim = -1;
  /// The dimension that an all_to_all cuts instead; else -1.
  int toDim = -1;
  /// What the step reduces or makes partial is a maximum, not a sum.
  bool reduceMax = false;
  /// The layout that the step leaves.
  ReshardLayout after{};
  /// Bytes that one rank sends (IR_TOUR's formulas: `in` = bytes of the local
  /// input, n = ranks of the group; all_gather (n-1) in, reduce_scatter and
  /// all_to_all (n-1)/n in, all_reduce 2 (n-1)/n in, permute in, else 0),
  /// rounded up.
  std::int64_t bytes = 0;
  /// Permute only: `sources[p]` is the position in the group whose tile the
  /// rank at position p receives; a permutation.
  std::vector<int> sources{};
};

/// `layout` without axes of size 1 and with `partial` sorted: two layouts mean
/// the same exactly when their normal forms are equal.
ReshardLayout normalLayout(const ReshardMesh &mesh, ReshardLayout layout);

/// The sequence of steps with the least bytes, each moving step counting
/// `reshardMovingStepBytes` more and each local one `reshardLocalStepBytes`.
/// Empty if the layouts mean the same. `after` of the last step is
/// `normalLayout(mesh, to)`.
///
/// \p shape is the whole (padded) tensor's; in both layouts each size must be
/// divisible by the product of its axes, axes must be of the mesh and stand in
/// one place only (checked: anything else is an internal error). A value that
/// is partial as a maximum becomes one that is partial as a sum, or the other
/// way, only by being reduced first. Axes that stand in neither layout take no
/// part: ranks along them may hold unrelated values (other pipeline stages),
/// and no group grows beyond what the value asks for. Results are remembered;
/// thread-safe; the same call always gives the same steps.
std::vector<ReshardStep> findReshard(const ReshardMesh &mesh,
                                     const std::vector<std::int64_t> &shape,
                                     std::int64_t elementBytes,
                                     const ReshardLayout &from,
                                     const ReshardLayout &to);

/// What a step costs besides its bytes, in bytes: about what a link moves in
/// the time that a collective takes to start, and a kernel to be launched.
inline constexpr std::int64_t reshardMovingStepBytes = 64 * 1024;
inline constexpr std::int64_t reshardLocalStepBytes = 1024;

} // namespace heddle

#endif // HEDDLE_PLAN_RESHARD_H
