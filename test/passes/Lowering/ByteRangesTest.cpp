// ByteRanges against an array with an entry per byte.

#include "passes/Lowering/ByteRanges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

using heddle::lowering::ByteRanges;

namespace {

struct Value {
  int64_t end;
  int mark;
};

class Trial {
public:
  explicit Trial(unsigned seed) : random(seed), marks(kBytes, kNothing) {}

  /// Marks what has a mark with a new one, and fills gaps.
  void fill(int64_t from, int64_t to, int mark) {
    int64_t at = from;
    for (auto it = ranges.cut(from, to); at < to; at = (it++)->second.end) {
      const int64_t next =
          it == ranges.end() ? to : std::min(to, int64_t(it->first));
      if (at < next)
        it = ranges.add(it, at, {next, 0});
      it->second.mark = mark;
    }
    std::fill(marks.begin() + from, marks.begin() + to, mark);
  }
  void replace(int64_t from, int64_t to, int mark) {
    ranges.replace(ranges.cut(from, to), from, {to, mark});
    std::fill(marks.begin() + from, marks.begin() + to, mark);
  }
  void step(int mark) {
    // Few places, so that ranges are met again.
    int64_t from = draw(), to = draw();
    if (from == to)
      return;
    if (from > to)
      std::swap(from, to);
    random() % 2 ? fill(from, to, mark) : replace(from, to, mark);
  }
  void check() {
    std::vector<int> found(kBytes, kNothing);
    int64_t last = 0;
    for (const auto &[begin, value] : ranges) {
      ASSERT_LE(last, begin);
      ASSERT_LT(begin, value.end);
      std::fill(found.begin() + begin, found.begin() + value.end, value.mark);
      last = value.end;
    }
    ASSERT_EQ(found, marks);
  }

private:
  static constexpr int64_t kBytes = 64, kNothing = -1;

  int64_t draw() {
    return int64_t(random() % (random() % 4 ? 9 : kBytes + 1)) % (kBytes + 1);
  }

  std::mt19937 random;
  ByteRanges<Value> ranges;
  std::vector<int> marks;
};

TEST(ByteRanges, AreAnArrayOfBytes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    Trial trial(seed);
    for (int mark = 0; mark < 60; ++mark) {
      trial.step(mark);
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", step " << mark);
      ASSERT_NO_FATAL_FAILURE(trial.check());
    }
  }
}

} // namespace
