// A schedule of stages as a value: per rank of pp a row of compute slots, and
// which stage each chunk of a rank holds. Generators make it, or a user writes
// it; everything else (verifier, transfers, saved sets, times) only reads it.

#ifndef HEDDLE_SCHEDULE_TABLE_H
#define HEDDLE_SCHEDULE_TABLE_H

#include "heddle/Plan/Plan.h"
#include "heddle/Support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// What a slot computes. Numbered for the emitted tables: never renumber.
enum class SlotKind : std::uint8_t {
  Forward = 0,    ///< F
  InputGrad = 1,  ///< B: the gradient of the chunk's input
  WeightGrad = 2, ///< W: the gradients of its parameters
  Backward = 3,   ///< D: B and W in one
  Optimizer = 4,  ///< O: the rank's update, after all else
};

/// F, B, W, D or O; '?' for a kind that is none.
char letterOf(SlotKind kind);

/// One compute slot in four bytes: kind (3 bits), joined (1), chunk (8),
/// micro-batch (20), lowest bits first. A joined slot runs interleaved with the
/// slot after it.
class Slot {
public:
  static constexpr std::int64_t maxChunks = 1 << 8;
  static constexpr std::int64_t maxMicroBatches = 1 << 20;

  /// Both numbers must be within the two limits.
  constexpr Slot(SlotKind kind, std::int64_t chunk, std::int64_t microBatch,
                 bool joined = false)
      : packed(static_cast<std::uint32_t>(kind) |
               static_cast<std::uint32_t>(joined) << 3 |
               static_cast<std::uint32_t>(chunk) << 4 |
               static_cast<std::uint32_t>(microBatch) << 12) {}
  /// Any 32 bits; verifySchedule refuses those that mean nothing.
  static constexpr Slot fromBits(std::uint32_t bits) {
    Slot slot(SlotKind::Forward, 0, 0);
    slot.packed = bits;
    return slot;
  }

  constexpr SlotKind kind() const { return static_cast<SlotKind>(packed & 7); }
  constexpr bool joined() const { return packed >> 3 & 1; }
  constexpr std::int64_t chunk() const { return packed >> 4 & 0xff; }
  constexpr std::int64_t microBatch() const { return packed >> 12; }
  constexpr std::uint32_t bits() const { return packed; }
  /// B or D: what gives the stage before its gradient.
  constexpr bool givesInputGrad() const {
    return kind() == SlotKind::InputGrad || kind() == SlotKind::Backward;
  }
  /// W or D: what ends the life of the micro-batch on this chunk.
  constexpr bool endsMicroBatch() const {
    return kind() == SlotKind::WeightGrad || kind() == SlotKind::Backward;
  }
  constexpr Slot withJoined(bool joined) const {
    return fromBits((packed & ~8u) | static_cast<std::uint32_t>(joined) << 3);
  }
  bool operator==(const Slot &) const = default;

private:
  std::uint32_t packed;
};
static_assert(sizeof(Slot) == 4);

/// What one chunk of one rank holds: a stage of one path.
struct StageAt {
  std::int64_t path = 0;
  std::int64_t stage = 0;

  bool operator==(const StageAt &) const = default;
};

/// Where stages are. A path is one copy of the model as a chain of (rank,
/// chunk); micro-batches are divided among the paths in equal runs. One path
/// but for DualPipe, whose second copy runs in the opposite direction.
class Placement {
public:
  /// Most ranks, and most places (ranks x chunks), that any placement has.
  static constexpr std::int64_t maxRanks = 1 << 12;
  static constexpr std::int64_t maxPlaces = 1 << 20;

  /// Chunk c of rank r holds stage c ranks + r.
  static Result<Placement> cyclic(std::int64_t ranks, std::int64_t chunks);
  /// Forth and back: odd chunks run from the last rank to the first, so that
  /// two stages that meet at a turn are on one rank.
  static Result<Placement> backAndForth(std::int64_t ranks,
                                        std::int64_t chunks);
  /// Two paths: rank r holds stage r of path 0 and stage ranks - 1 - r of
  /// path 1, in which micro-batches run from the last rank to the first.
  static Result<Placement> twoWays(std::int64_t ranks);
  /// The placement that a schedule of that kind uses; cyclic for a table.
  static Result<Placement> of(PlanScheduleKind kind, std::int64_t ranks,
                              std::int64_t chunks);
  /// Any map [rank][chunk]. Each path must have as many stages as the others,
  /// each stage once.
  static Result<Placement>
  of(const std::vector<std::vector<StageAt>> &stageOfPlace);

  std::int64_t ranks() const { return numRanks; }
  std::int64_t chunks() const { return numChunks; }
  std::int64_t numPaths() const {
    return static_cast<std::int64_t>(paths.size());
  }
  /// Stages of a path.
  std::int64_t stages() const {
    return static_cast<std::int64_t>(paths.front().size());
  }
  StageAt at(std::int64_t rank, std::int64_t chunk) const {
    return stageOfPlace[static_cast<std::size_t>(rank * numChunks + chunk)];
  }
  PlanPlace placeOf(StageAt stage) const {
    return paths[static_cast<std::size_t>(stage.path)]
                [static_cast<std::size_t>(stage.stage)];
  }
  bool isCyclic() const;
  /// Whether there are two paths, each stage of one as far from the last rank
  /// as that of the other is from the first: two ranks equally far from both
  /// ends then hold the same layers.
  bool isMirrored() const;
  bool operator==(const Placement &) const = default;

private:
  Placement() = default;

  std::int64_t numRanks = 0;
  std::int64_t numChunks = 0;
  std::vector<StageAt> stageOfPlace;         ///< [rank * chunks + chunk]
  std::vector<std::vector<PlanPlace>> paths; ///< [path][stage]
};

/// The schedule of one step. A value that may still be wrong: verifySchedule
/// (Verify.h) says whether it can run.
struct ScheduleTable {
  /// Most slots of all ranks together.
  static constexpr std::int64_t maxSlots = 1 << 24;

  Placement placement;
  std::int64_t microBatches = 1;
  std::vector<std::vector<Slot>> rows; ///< one per rank

  std::int64_t ranks() const { return placement.ranks(); }
  std::int64_t chunks() const { return placement.chunks(); }
  /// The path that carries a micro-batch.
  std::int64_t pathOf(std::int64_t microBatch) const {
    return microBatch * placement.numPaths() / microBatches;
  }
  /// Whether a micro-batch runs through that chunk of that rank.
  bool runsThrough(std::int64_t rank, std::int64_t chunk,
                   std::int64_t microBatch) const {
    return placement.at(rank, chunk).path == pathOf(microBatch);
  }
  /// Whether the placement is mirrored and so are rows: two ranks equally far
  /// from both ends run the same kinds of slots of the same stages in one
  /// order, one of the k-th micro-batch of a path where the other runs that of
  /// the k-th of the other path.
  bool isMirrored() const;
  bool operator==(const ScheduleTable &) const = default;
};

/// "F3", "D1/1", "O". Says nothing of joining.
std::string slotText(Slot slot);

/// The rows as text. Tokens in order, apart by spaces: `F` forward, `B` input
/// gradient, `W` weight gradient, `D` both, with the micro-batch and, for other
/// chunks than 0, `/chunk`; `O`; `F0..7` for a run of micro-batches; `F3+D1/1`
/// for two slots that run interleaved. Where the placement is not cyclic a row
/// begins with the stages of its chunks: `@0,7`, and with `'` those of the
/// second path: `@0,3'`.
std::vector<std::string> writeRows(const ScheduleTable &table);

/// Reads rows. `placement` holds where they do not say one; cyclic if none is
/// given. Refused, with row and token: text that is no token,
/// micro-batches and chunks out of range, more than two joined slots, rows of
/// different placements, too many slots. Whether the table can run is
/// verifySchedule's question.
Result<ScheduleTable> readRows(const std::vector<std::string> &rows,
                               std::int64_t chunks, std::int64_t microBatches);
Result<ScheduleTable> readRows(const std::vector<std::string> &rows,
                               Placement placement, std::int64_t microBatches);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_TABLE_H
