#include "lib/Cost/Streams.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr int kTp = static_cast<int>(TimeAxis::Tp);
constexpr int kDp = static_cast<int>(TimeAxis::Dp);

double exposed(const StreamTiming &timing, int axis) {
  return timing.exposed[static_cast<std::size_t>(axis)];
}

} // namespace

TEST(Streams, RunOneAfterTheOther) {
  const std::vector<StreamTask> tasks = {
      {computeStream, 4}, {kTp, 2, {0, -1}}, {computeStream, 3, {1, -1}}};
  const StreamTiming timing = runStreams(tasks);
  EXPECT_EQ(timing.seconds, 9);
  EXPECT_EQ(exposed(timing, kTp), 2);
  EXPECT_EQ(timing.ended[computeStream], 9);
  EXPECT_EQ(timing.ended[kTp], 6);
}

// What is waited for is said with its axis, though it waited itself; what ends
// behind the last computation is exposed too.
TEST(Streams, TellWhatIsWaitedFor) {
  const std::vector<StreamTask> tasks = {
      {kDp, 2},
      {kTp, 1, {0, -1}},
      {computeStream, 1, {1, -1}},
      {kDp, 5, {0, -1}},
  };
  const StreamTiming timing = runStreams(tasks);
  EXPECT_EQ(timing.seconds, 7);
  EXPECT_EQ(exposed(timing, kTp), 3);
  EXPECT_EQ(exposed(timing, kDp), 3);
}

// A stream is not held up by another one.
TEST(Streams, RunBesideEachOther) {
  const std::vector<StreamTask> tasks = {
      {kDp, 3}, {computeStream, 4}, {computeStream, 1, {0, -1}}};
  const StreamTiming timing = runStreams(tasks);
  EXPECT_EQ(timing.seconds, 5);
  EXPECT_EQ(exposed(timing, kDp), 0);
}

// Shorter tasks never make the whole longer.
TEST(Streams, AreMonotone) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> length(0, 1);
  for (int run = 0; run < 2000; ++run) {
    std::vector<StreamTask> tasks(2 + random() % 20);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      StreamTask &task = tasks[i];
      task.stream = static_cast<int>(random() % numStreams);
      task.seconds = length(random);
      for (int &need : task.needs)
        if (i > 0 && random() % 2)
          need = static_cast<int>(random() % i);
    }
    const double before = runStreams(tasks).seconds;
    tasks[random() % tasks.size()].seconds *= 0.5;
    ASSERT_LE(runStreams(tasks).seconds, before);
  }
}
