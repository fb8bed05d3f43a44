// GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2019, 2021), ZB-H1 and
// ZB-H2 (Qi et al., Zero Bubble Pipeline Parallelism, 2024).

#include "Generators.h"

#include <algorithm>

namespace heddle::detail {

SlotRow gpipeRow(std::int64_t microBatches) {
  SlotRow row;
  for (std::int64_t j = 0; j < microBatches; ++j)
    row.push_back(forwardSlot(0, j));
  for (std::int64_t j = 0; j < microBatches; ++j)
    row.push_back(backwardSlot(0, j));
  row.push_back(optimizerSlot());
  return row;
}

SlotRow oneFOneBRow(std::int64_t warmUp, std::int64_t microBatches) {
  SlotRow row;
  std::int64_t forwards = 0;
  for (; forwards < std::min(warmUp, microBatches); ++forwards)
    row.push_back(forwardSlot(0, forwards));
  for (std::int64_t j = 0; j < microBatches; ++j) {
    if (forwards < microBatches)
      row.push_back(forwardSlot(0, forwards++));
    row.push_back(backwardSlot(0, j));
  }
  row.push_back(optimizerSlot());
  return row;
}

SlotRow zeroBubbleRow(std::int64_t warmUp, std::int64_t delay,
                      std::int64_t microBatches) {
  SlotRow row;
  std::int64_t forwards = 0, weights = 0;
  for (; forwards < std::min(warmUp, microBatches); ++forwards)
    row.push_back(forwardSlot(0, forwards));
  for (std::int64_t j = 0; j < microBatches; ++j) {
    if (forwards < microBatches)
      row.push_back(forwardSlot(0, forwards++));
    row.push_back(inputGradSlot(0, j));
    if (j >= delay)
      row.push_back(weightGradSlot(0, weights++));
  }
  while (weights < microBatches)
    row.push_back(weightGradSlot(0, weights++));
  row.push_back(optimizerSlot());
  return row;
}

} // namespace heddle::detail
