// DualPipe (DeepSeek-AI, DeepSeek-V3 Technical Report, 2024) and DualPipeV, the
// same cut in half at the middle of the ranks (Sea AI Lab, 2025). In both a
// rank runs two chunks whose streams of micro-batches cross: where one comes
// early the other comes late. What follows is one rank's row for either.

#include "Generators.h"

namespace heddle::detail {

namespace {

/// Deals the next micro-batch of each chunk and direction.
class Dealer {
public:
  explicit Dealer(const TwoStreams &streams) : streams(streams) {}

  void forward(int which) { row.push_back(nextForward(which)); }
  void backward(int which) {
    row.push_back(backwardSlot(streams.chunk[which], next(which, backwards)));
  }
  /// B now, its W when weightGrad() is called.
  void inputGrad(int which) {
    const std::int64_t j = next(which, backwards);
    row.push_back(inputGradSlot(streams.chunk[which], j));
    owed.push_back(weightGradSlot(streams.chunk[which], j));
  }
  void weightGrad() { row.push_back(owed[paid++]); }
  /// F of one chunk interleaved with D of the other.
  void pair(int forwardOf, int backwardOf) {
    row.push_back(nextForward(forwardOf).withJoined(true));
    backward(backwardOf);
  }
  SlotRow finish() {
    while (paid < owed.size())
      weightGrad();
    row.push_back(optimizerSlot());
    return std::move(row);
  }

private:
  Slot nextForward(int which) {
    return forwardSlot(streams.chunk[which], next(which, forwards));
  }
  std::int64_t next(int which, std::int64_t (&counts)[2]) {
    return streams.begin[which] + counts[which]++;
  }

  const TwoStreams &streams;
  std::int64_t forwards[2] = {0, 0}, backwards[2] = {0, 0};
  SlotRow row, owed;
  std::size_t paid = 0;
};

} // namespace

SlotRow twoStreamRow(const TwoStreams &streams) {
  // Ranks between this one and the place where the streams meet or turn.
  const std::int64_t toTurn = streams.ranks - 1 - streams.near;
  const std::int64_t toEntry = streams.near + 1;
  Dealer deal(streams);
  for (std::int64_t i = 0; i < 2 * toTurn; ++i)
    deal.forward(0);
  for (std::int64_t i = 0; i < toEntry; ++i) {
    deal.forward(0);
    deal.forward(1);
  }
  // The second stream's gradients come first; W fills what would be idle.
  for (std::int64_t i = 0; i < toTurn; ++i) {
    deal.inputGrad(1);
    deal.weightGrad();
    deal.forward(1);
  }
  const std::int64_t steady =
      streams.microBatches - 2 * streams.ranks + toEntry;
  for (std::int64_t i = 0; i < steady; ++i) {
    if (i == 0 && toTurn == 0) {
      // At the turn nothing has come yet that could run beside the first one.
      deal.forward(0);
      deal.backward(1);
    } else {
      deal.pair(0, 1);
    }
    deal.pair(1, 0);
  }
  for (std::int64_t i = 0; i < toTurn; ++i) {
    deal.backward(1);
    deal.pair(1, 0);
  }
  // From the middle of the last gradients on, W waits until the end.
  for (std::int64_t i = 0; i < toEntry; ++i) {
    const auto last = [&](int which, std::int64_t half) {
      2 * i + half < toEntry ? deal.backward(which) : deal.inputGrad(which);
    };
    last(1, 0);
    last(0, 1);
  }
  for (std::int64_t i = 0; i < toTurn; ++i) {
    deal.weightGrad();
    deal.inputGrad(0);
  }
  return deal.finish();
}

} // namespace heddle::detail
