//===- StageNumbers.h - a schedule as tables of numbers ---------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_STAGENUMBERS_H
#define HEDDLE_PASSES_LOWERING_STAGENUMBERS_H

#include "dialects/Stage/StageTable.h"
#include "heddle/Schedule/Events.h"
#include "heddle/Schedule/SavedSets.h"

#include <map>

namespace heddle::lowering {

/// Per place over pp a row of numbers.
using PlaceRows = std::vector<std::vector<int64_t>>;

/// One of the numbers in an entry of a table, entry / divisor % modulus: so a
/// slot takes few entries. The last one in an entry has what is left of 31
/// bits.
struct PackedNumber {
  llvm::StringLiteral table, name;
  int64_t divisor, modulus;

  constexpr bool isLast() const {
    return divisor * modulus == int64_t(1) << 31;
  }
};

/// What differs between places of one program, as tables that it looks up.
///
/// Places, in order: `events` (a slot, or a batch of transfers) and
/// `event_count`. Per transfer: `transfers`. Per slot: `slots` (the bits of a
/// Slot) and `uses`, indices of what it uses, 0 where it uses none;
/// `handed_landings` (the landing of the next stage at the same place). Pools
/// of sets of values, per slot which one it uses: `sets` (from F to D or W),
/// `input_sets` (from F to D or B), `kept_sets` (from B or D to W or D),
/// `head_sets`, `embedding_sets`; two of them are in one table.
class StageNumbers {
public:
  explicit StageNumbers(const stage::StageTable &stages);

  /// The rows of a table, all of one width.
  const PlaceRows &rows(llvm::StringRef name) const {
    return tables.at(name.str());
  }

  /// Makes tables of how many layers of each chunk are gathered before the
  /// first computes, at most `depth`, and how many are behind these:
  /// `<name>_ahead`, `<name>_rest`.
  void addAhead(const std::string &name, int64_t depth);

  /// Of `events`.
  static constexpr PackedNumber kIsBatch{"events", "", 1, 2},
      kEventSlot{"events", "slot", 2, int64_t(1) << 30},
      kBatchSize{"events", "count", 2, 1 << 7},
      kBatchBegin{"events", "begin", 1 << 8, 1 << 23};
  /// Of `transfers`: + 2 where it is sent + 1 where it is a gradient.
  static constexpr PackedNumber kTransferType{"transfers", "", 1, 4},
      kTransferChannel{"transfers", "channel", 4, 16},
      kTransferSlot{"transfers", "slot", 1 << 6, 1 << 25};
  /// Of `slots`.
  static constexpr PackedNumber kChunk{"slots", "chunk", 16, Slot::maxChunks},
      kMicroBatch{"slots", "micro_batch", 16 * Slot::maxChunks,
                  (1 << 27) / Slot::maxChunks};
  /// Of `uses`: where what a slot needs was received, from another place;
  /// where it leaves what it sends, to another place or the next stage here;
  /// whether it is the last of its chunk.
  static constexpr PackedNumber kForward{"uses", "", 1, 2},
      kBackward{"uses", "", 2, 2}, kWeight{"uses", "", 4, 2},
      kReceives{"uses", "", 8, 2}, kSends{"uses", "", 16, 2},
      kHandsOn{"uses", "", 32, 2}, kLastInput{"uses", "", 64, 2},
      kLastWeight{"uses", "", 1 << 7, 2}, kOut{"uses", "sent", 1 << 8, 4},
      kLanding{"uses", "landing", 1 << 10, 1 << 21};
  static PackedNumber pool(llvm::StringRef name);

  /// Buffers that sends of one direction take in turn; one behind them is for
  /// what goes on to a stage at the same place.
  static constexpr int64_t kOuts = 2;
  bool anyHandsOn = false;

  /// How many places each channel goes on by, less than 0 for back.
  std::vector<int64_t> channelShifts;
  /// From a place to another, the shorter way round. Of two places, each is on
  /// both sides of the other: a chain that goes on there with another chunk has
  /// gone `round` the end.
  int64_t shiftTo(int64_t from, int64_t to, bool round) const;
  /// What does not fit into its part of an entry, "" where all does.
  std::string fault;
  /// Per place how many of each there are: `activation_landings` and
  /// `gradient_landings`, `activation_outs` and `gradient_outs` (buffers of
  /// what goes on), and numbers of each pool of sets.
  std::map<std::string, std::vector<int64_t>> counts;

private:
  void addSlots(int64_t place);
  void addTransfers(int64_t place);
  void addChunks();
  int64_t channelOf(int64_t place, const ScheduleEvent &event);
  /// A number as a part of an entry.
  int64_t packed(const PackedNumber &number, int64_t value);
  void addPools(int64_t place);
  void addPool(int64_t place, const std::string &pool, SetSpan span,
               const std::function<SetUse(int64_t chunk)> &useOf);
  std::vector<int64_t> &row(const std::string &name, int64_t place);
  void pad();

  const stage::StageTable &stages;
  ScheduleEvents events;
  std::map<std::string, PlaceRows> tables;
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_STAGENUMBERS_H
