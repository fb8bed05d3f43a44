// Indices of buffers: the smallest free one is taken.

#ifndef HEDDLE_LIB_SCHEDULE_FREEINDICES_H
#define HEDDLE_LIB_SCHEDULE_FREEINDICES_H

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace heddle::detail {

class FreeIndices {
public:
  std::int32_t take() {
    if (returned.empty())
      return used++;
    const std::int32_t index = returned.top();
    returned.pop();
    return index;
  }
  void give(std::int32_t index) { returned.push(index); }
  /// How many different ones were taken: the most at once.
  std::int32_t count() const { return used; }

private:
  std::int32_t used = 0;
  std::priority_queue<std::int32_t, std::vector<std::int32_t>,
                      std::greater<std::int32_t>>
      returned;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_SCHEDULE_FREEINDICES_H
