// One generator per family of schedules. Each gets numbers for which its
// schedule is defined (Generate.cpp asks) and gives the rows.

#ifndef HEDDLE_LIB_SCHEDULE_GENERATORS_H
#define HEDDLE_LIB_SCHEDULE_GENERATORS_H

#include "heddle/Schedule/Generate.h"

namespace heddle::detail {

using SlotRow = std::vector<Slot>;

inline Slot forwardSlot(std::int64_t chunk, std::int64_t microBatch) {
  return {SlotKind::Forward, chunk, microBatch};
}
inline Slot backwardSlot(std::int64_t chunk, std::int64_t microBatch) {
  return {SlotKind::Backward, chunk, microBatch};
}
inline Slot inputGradSlot(std::int64_t chunk, std::int64_t microBatch) {
  return {SlotKind::InputGrad, chunk, microBatch};
}
inline Slot weightGradSlot(std::int64_t chunk, std::int64_t microBatch) {
  return {SlotKind::WeightGrad, chunk, microBatch};
}
inline Slot optimizerSlot() { return {SlotKind::Optimizer, 0, 0}; }

/// All forwards, then all backwards.
SlotRow gpipeRow(std::int64_t microBatches);
/// `warmUp` forwards, then a forward and a backward by turns.
SlotRow oneFOneBRow(std::int64_t warmUp, std::int64_t microBatches);
/// The same with W apart from B: W of a micro-batch comes `delay` micro-batches
/// after its B.
SlotRow zeroBubbleRow(std::int64_t warmUp, std::int64_t delay,
                      std::int64_t microBatches);
/// Interleaved 1F1B of any numbers.
std::vector<SlotRow> interleavedRows(const Placement &placement,
                                     std::int64_t microBatches);
/// ZB-V, V-Half or V-Min, by kind.
std::vector<SlotRow> backAndForthRows(PlanScheduleKind kind,
                                      const Placement &placement,
                                      std::int64_t microBatches);
/// A row of DualPipe or DualPipeV: rank `near` of `ranks` counted from the end
/// where chunk `first` enters; micro-batch j of a chunk is chunk's `begin` + j.
struct TwoStreams {
  std::int64_t ranks;        ///< that one stream passes before it meets itself
  std::int64_t near;         ///< this rank among them
  std::int64_t microBatches; ///< of each chunk
  std::int64_t chunk[2];     ///< the one that this rank runs first, the other
  std::int64_t begin[2];     ///< first micro-batch of each of them
};
SlotRow twoStreamRow(const TwoStreams &streams);

} // namespace heddle::detail

#endif // HEDDLE_LIB_SCHEDULE_GENERATORS_H
