//===- StageNumbers.h - a schedule as tables of numbers ---------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_STAGENUMBERS_H
#define HEDDLE_PASSES_LOWERING_STAGENUMBERS_H

#include "dialects/Stage/StageTable.h"
#include "heddle/Schedule/Events.h"

#include <map>

namespace heddle::lowering {

/// Per place over pp a row of numbers.
using PlaceRows = std::vector<std::vector<int64_t>>;

/// What differs between places of one program, as tables that it looks up.
///
/// Places, in order: `events` (number of a slot x 2, or of a batch of transfers
/// x 2 + 1) and `event_count`. Per batch: `batch_begins`, where its transfers
/// begin; the next one's is where they end. Per transfer: `transfers` (slot x 4
/// + 2 where it is sent + 1 where it is a gradient), `transfer_channels`. Per
/// slot: `slots` (the bits of a Slot), and indices of what it uses, 0 where it
/// uses none: `landings` (where what it needs was received), `receives` (from
/// another place), `outs` (where it leaves what it sends), `sends` (to another
/// place), `hands_on` (index + 1 of the landing of the next stage at the same
/// place), `sets` (of saved values), `head_sets`, `embedding_sets`.
class StageNumbers {
public:
  explicit StageNumbers(const stage::StageTable &stages);

  /// How many of each a place has.
  struct Counts {
    std::vector<int64_t> activationLandings, gradientLandings, sets, headSets,
        embeddingSets;
  };

  /// The rows of a table, all of one width.
  const PlaceRows &rows(llvm::StringRef name) const {
    return tables.at(name.str());
  }
  bool has(llvm::StringRef name) const { return tables.count(name.str()); }

  /// Buffers that sends of one direction take in turn.
  static constexpr int64_t kOuts = 2;

  /// Places that a channel goes on by.
  std::vector<int64_t> channelShifts;
  Counts counts;

private:
  void addSlots(int64_t place);
  void addTransfers(int64_t place);
  void addChunks();
  int64_t channelTo(int64_t from, int64_t to);
  /// Gives slots of chunks that take one the smallest free number of a pool,
  /// until D or W, or for the forward slot alone where the chunk keeps nothing.
  /// Returns how many numbers there are.
  int64_t assign(int64_t place, const std::string &table,
                 llvm::function_ref<bool(int64_t chunk)> takes,
                 llvm::function_ref<bool(int64_t chunk)> keeps);
  std::vector<int64_t> &row(const std::string &name, int64_t place);
  void pad();

  const stage::StageTable &stages;
  ScheduleEvents events;
  std::map<std::string, PlaceRows> tables;
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_STAGENUMBERS_H
