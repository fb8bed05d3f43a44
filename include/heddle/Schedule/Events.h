// What each rank does in order: its slots, and the sends and receives that the
// slots imply.

#ifndef HEDDLE_SCHEDULE_EVENTS_H
#define HEDDLE_SCHEDULE_EVENTS_H

#include "heddle/Schedule/Simulate.h"

#include <cstdint>
#include <string>
#include <vector>

namespace heddle {

enum class EventKind : std::uint8_t { Compute, Send, Receive };

struct ScheduleEvent {
  EventKind kind = EventKind::Compute;
  /// Of a transfer: the gradient of a stage's input, to the stage before; else
  /// a stage's output, to the stage after.
  bool isGradient = false;
  /// Index in the rank's row: the slot to run, the one whose result is sent, or
  /// the one that needs what is received.
  std::int32_t slot = 0;
  std::int32_t peer = -1; ///< the other rank of a transfer
  /// Transfers of one number, always between the same two ranks, are launched
  /// as one group: only those of one direction wait for each other. Counts up
  /// over the table.
  std::int32_t batch = -1;
  std::int32_t microBatch = 0;
  StageAt stage; ///< that runs the slot; of a transfer, that it comes from

  bool operator==(const ScheduleEvent &) const = default;
};

/// Events per rank, in order.
struct ScheduleEvents {
  std::vector<std::vector<ScheduleEvent>> rows;
  /// [rank][index in row]: which landing buffer holds what the slot needs from
  /// the neighbouring stage; -1 where it needs nothing. Buffers are apart per
  /// rank, chunk and direction. One is taken where the receive stands, or,
  /// where the neighbouring stage is on the same rank, by the slot that makes
  /// the value; it is free again after the slot that needs it.
  std::vector<std::vector<std::int32_t>> landings;
  struct Counts {
    std::int32_t activations = 0, gradients = 0;

    bool operator==(const Counts &) const = default;
  };
  std::vector<std::vector<Counts>> landingCounts; ///< [rank][chunk]
};

/// The events of a table that findScheduleFault accepts: each dependence
/// between two ranks is one send and one receive.
///
/// All ranks' rows follow one order of time, that of the slots' ends under
/// `times`. So they are legal under rendezvous even where each event blocks the
/// rank until its peer has come to it; with streams for transfers they wait for
/// less. What two ranks send each other at one time is one batch. Joined slots
/// run in turn here: what the first sends goes while the second runs, and what
/// the second needs may come while the first does.
ScheduleEvents deriveEvents(const ScheduleTable &table,
                            const ScheduleTimes &times);
/// Under equal times.
ScheduleEvents deriveEvents(const ScheduleTable &table);

/// Whether events, from wherever they come, are those of the table and can run:
/// all slots in the table's order, each transfer sent
/// and received once by the right ranks, after the slot that makes and before
/// the one that needs it; per ordered pair of ranks, sends and receives in one
/// order (each pair is a FIFO); the same batches on both sides; and under
/// rendezvous, where a batch completes when both ranks have come to it, no
/// circle of ranks that wait. The message names the first fault, or a shortest
/// circle.
Result<void> verifyEvents(const ScheduleTable &table,
                          const ScheduleEvents &events);

/// "F3" for a slot, "s:F3>1" for a send of its result to rank 1, "r:D0<1" for
/// the receive of what the peer's D0 made: the stage that it comes from runs
/// it.
std::string eventText(const ScheduleTable &table, std::int64_t rank,
                      const ScheduleEvent &event);

} // namespace heddle

#endif // HEDDLE_SCHEDULE_EVENTS_H
