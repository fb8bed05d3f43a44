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
/// place), `runs_forward`, `runs_backward`, `runs_weight`, `last_input`,
/// `last_weight` (of the chunk). Pools of sets of
/// values, per slot which one it uses: `sets` (from F to D or W), `input_sets`
/// (from F to D or B), `kept_sets` (from B or D to W or D), `head_sets`,
/// `embedding_sets`.
class StageNumbers {
public:
  explicit StageNumbers(const stage::StageTable &stages);

  /// The rows of a table, all of one width.
  const PlaceRows &rows(llvm::StringRef name) const {
    return tables.at(name.str());
  }
  bool has(llvm::StringRef name) const { return tables.count(name.str()); }

  /// Buffers that sends of one direction take in turn; one behind them is for
  /// what goes on to a stage at the same place.
  static constexpr int64_t kOuts = 2;
  bool anyHandsOn = false;

  /// Places that a channel goes on by.
  std::vector<int64_t> channelShifts;
  /// Per place how many of each there are: `activation_landings`,
  /// `gradient_landings`, and numbers of each pool of sets.
  std::map<std::string, std::vector<int64_t>> counts;

private:
  void addSlots(int64_t place);
  void addTransfers(int64_t place);
  void addChunks();
  int64_t channelTo(int64_t from, int64_t to);
  /// A pool's numbers are taken from some kind of slot to another.
  enum class Span { ForwardToInput, ForwardToWeight, InputToWeight };
  /// Gives slots of chunks that take one the smallest free number of a pool,
  /// for the first slot alone where the chunk keeps nothing.
  void assign(int64_t place, const std::string &pool, Span span,
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
