//===- Reshard.h - Which bytes of a checkpoint each rank reads ------------===//

#ifndef RUNTIME_CHECKPOINT_RESHARD_H
#define RUNTIME_CHECKPOINT_RESHARD_H

#include "runtime/checkpoint/Checkpoint.h"

namespace heddle::checkpoint {

/// A part of one extent that a rank wants.
struct Read {
  const Extent *extent;
  Box part;
};

/// A piece of a rank's share, and where it comes from.
struct PieceReads {
  const Piece *piece;
  std::vector<Read> reads; ///< tile the piece's box
};

/// An instance of a state on a rank. Without `source` it begins anew: a
/// gradient, or a moment before the first step.
struct Wanted {
  const runtime::State *state;
  int64_t instance; ///< of the whole model
  int64_t position; ///< among those of the rank's stage
  const Share *share;
  const StateRecord *source = nullptr;
  std::string role; ///< of the source
  std::vector<PieceReads> pieces;
};

/// All that a rank reads. Points into the tables and the manifest.
struct ReadPlan {
  std::vector<Wanted> wanted;
  std::vector<Share> shares; ///< one per state of the tables

  int64_t bytes() const; ///< that are read
};

/// Whether a program can go on from a checkpoint: all its parameters and
/// optimizer states are there, in the same shapes, and no parameter is left
/// over. A state takes what the checkpoint has of it; a master without one is
/// taken from the parameter, a parameter from the master. Before the first step
/// (an imported model) moments may be absent.
Result<void> checkFits(const Manifest &manifest, const runtime::Tables &tables);

/// Computed from both layouts: nothing is read. Only where checkFits() holds.
Result<ReadPlan> planReads(const Manifest &manifest,
                           const runtime::Tables &tables, int64_t rank);

/// Reads one instance into `stored`, what the rank stores of it: in the state's
/// own format, padding zero. `wanted` has a source.
Result<void> readWanted(const Checkpoint &checkpoint, const Wanted &wanted,
                        std::vector<std::byte> &stored);

} // namespace heddle::checkpoint

#endif
