// ZB-V (Qi et al., Zero Bubble Pipeline Parallelism, 2024), V-Half and V-Min
// (Qi et al., Pipeline Parallelism with Controllable Memory, 2024). Two chunks
// per rank, the second on the way back, so that the last stage is on the first
// rank and gradients start where forwards do. Here is the order of F and B; W
// fills what is idle (FillWithW.h), within the number in flight that a schedule
// has.

#include "FillWithW.h"

#include <algorithm>

namespace heddle::detail {

namespace {

/// Deals the next micro-batch of each chunk, up to a number.
class Order {
public:
  explicit Order(std::int64_t microBatches) : microBatches(microBatches) {}

  void forward(std::int64_t chunk) { add(SlotKind::Forward, chunk, forwards); }
  void inputGrad(std::int64_t chunk) {
    add(SlotKind::InputGrad, chunk, inputGrads);
  }
  std::int64_t forwardsOf(std::int64_t chunk) const { return forwards[chunk]; }
  std::int64_t inputGradsOf(std::int64_t chunk) const {
    return inputGrads[chunk];
  }

  SlotRow row;

private:
  void add(SlotKind kind, std::int64_t chunk, std::int64_t (&counts)[2]) {
    if (const std::int64_t j = counts[chunk]++; j < microBatches)
      row.emplace_back(kind, chunk, j);
  }

  const std::int64_t microBatches;
  std::int64_t forwards[2] = {0, 0}, inputGrads[2] = {0, 0};
};

/// With slots of one length nothing idles from 2 ranks - 1 micro-batches on.
/// Fewer run as the first of so many.
SlotRow zeroBubbleOrder(std::int64_t rank, std::int64_t ranks,
                        std::int64_t microBatches) {
  const std::int64_t all = std::max(microBatches, 2 * ranks - 1);
  const std::int64_t toTurn = ranks - rank;
  Order order(microBatches);
  // Until micro-batch 0 is back from the turn; then by turns, until all ranks
  // have run 2 ranks forwards, which is when its gradient comes.
  for (std::int64_t i = 0; i < 2 * toTurn - 1; ++i)
    order.forward(0);
  for (std::int64_t i = 0; i < rank; ++i) {
    order.forward(1);
    order.forward(0);
  }
  // Until that gradient is back from the turn as well.
  for (std::int64_t i = 0; i < toTurn; ++i) {
    order.forward(1);
    order.inputGrad(1);
  }
  while (order.forwardsOf(1) < all) {
    order.forward(0);
    order.inputGrad(0);
    order.forward(1);
    order.inputGrad(1);
  }
  while (order.inputGradsOf(0) < all) {
    order.inputGrad(0);
    if (order.inputGradsOf(1) < all)
      order.inputGrad(1);
  }
  return std::move(order.row);
}

/// When a micro-batch meets a rank: one block of slots, of length one, which is
/// repeated every six for the next micro-batch without two ever meeting. Which
/// delays from rank to rank do that decides how long a micro-batch lives, and
/// so how many are in flight.
struct Block {
  std::int64_t start[4];
};
constexpr std::int64_t blockPeriod = 6; ///< F, B and W of two chunks
constexpr SlotKind blockKinds[4] = {SlotKind::Forward, SlotKind::Forward,
                                    SlotKind::InputGrad, SlotKind::InputGrad};
constexpr std::int64_t blockChunks[4] = {0, 1, 1, 0};

/// One slot from rank to rank everywhere: the shortest life. Where three
/// divides the ranks, F of chunk 0 would meet B of chunk 1.
Block shortestBlock(std::int64_t rank, std::int64_t ranks) {
  const std::int64_t gap = ranks % 3 == 0 ? 2 : 0;
  return {{rank, 2 * ranks - 1 - rank, 2 * ranks + gap + rank,
           4 * ranks + gap - 1 - rank}};
}

/// Two slots from rank to rank on the way forth, one on the way back, so that F
/// and B of a rank keep their distance on all ranks.
Block halfBlock(std::int64_t rank, std::int64_t ranks) {
  const std::int64_t gap = ranks % 2 == 0 ? 3 : 0;
  return {{2 * rank, 3 * ranks - 2 - rank, 3 * ranks - 1 + gap + 2 * rank,
           6 * ranks - 2 + gap - rank}};
}

/// The blocks of all micro-batches, by time.
SlotRow blockOrder(const Block &block, std::int64_t microBatches) {
  struct Timed {
    std::int64_t time;
    Slot slot;
  };
  std::vector<Timed> slots;
  for (std::int64_t j = 0; j < microBatches; ++j)
    for (int i = 0; i < 4; ++i)
      slots.push_back({block.start[i] + j * blockPeriod,
                       Slot(blockKinds[i], blockChunks[i], j)});
  std::ranges::sort(slots, {}, &Timed::time);
  SlotRow row;
  for (const Timed &timed : slots)
    row.push_back(timed.slot);
  return row;
}

} // namespace

std::int64_t mostInFlight(PlanScheduleKind kind, std::int64_t ranks) {
  switch (kind) {
  case PlanScheduleKind::VHalf:
    return (ranks + 2) / 2 * 2;
  case PlanScheduleKind::VMin:
    return (ranks + 4) / 3 * 2;
  default:
    return 2 * ranks;
  }
}

std::vector<SlotRow> backAndForthRows(PlanScheduleKind kind,
                                      const Placement &placement,
                                      std::int64_t microBatches) {
  const std::int64_t ranks = placement.ranks();
  std::vector<SlotRow> orders;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    orders.push_back(kind == PlanScheduleKind::ZbV
                         ? zeroBubbleOrder(rank, ranks, microBatches)
                         : blockOrder(kind == PlanScheduleKind::VMin
                                          ? shortestBlock(rank, ranks)
                                          : halfBlock(rank, ranks),
                                      microBatches));
  return fillWithW(placement, microBatches, std::move(orders),
                   mostInFlight(kind, ranks));
}

} // namespace heddle::detail
