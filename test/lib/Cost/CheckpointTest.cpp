#include "heddle/Cost/Checkpoint.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

Cluster cluster(std::int64_t nodes) {
  Cluster made;
  made.nodes = nodes;
  made.devicesPerNode = 8;
  made.mtbfHoursPerDevice = 50700;
  return made;
}

CheckpointCost costOf(const Cluster &cluster, double parameters = 405853388800,
                      const char *recipe = "bf16") {
  return checkpointCost(parameters, cluster.devices(), {}, recipe, cluster);
}

// Llama 3 (arXiv 2407.21783): an interruption every 3.09 h of 16,384 devices.
TEST(Checkpoint, IntervalsOfSixteenThousandDevices) {
  Cluster large = cluster(2048);
  large.checkpointPauseSeconds = 60;
  CheckpointCost cost = costOf(large);
  EXPECT_NEAR(*cost.mtbfSeconds / 3600, 3.09, 0.005);
  EXPECT_NEAR(*cost.intervalSeconds / 60, 19.3, 0.05);
  EXPECT_NEAR(*cost.waste, 0.104, 0.0005);
  large.checkpointPauseSeconds = 5;
  cost = costOf(large);
  EXPECT_NEAR(*cost.intervalSeconds / 60, 5.56, 0.005);
  EXPECT_NEAR(*cost.waste, 0.030, 0.0005);
}

TEST(Checkpoint, IntervalsOfFiveHundredDevices) {
  Cluster small = cluster(64);
  small.checkpointPauseSeconds = 60;
  EXPECT_NEAR(*costOf(small).mtbfSeconds / 3600, 99.0, 0.05);
  EXPECT_NEAR(*costOf(small).intervalSeconds / 60, 109, 0.5);
  small.checkpointPauseSeconds = 5;
  EXPECT_NEAR(*costOf(small).intervalSeconds / 60, 31.5, 0.05);
}

TEST(Checkpoint, BytesAreThoseOfTheStates) {
  // Llama 3 70B: near 1 TB with 14 B a parameter, 847 GB with 12.
  EXPECT_NEAR(costOf(cluster(1), 70553706496).bytes, 987.75e9, 0.01e9);
  EXPECT_NEAR(costOf(cluster(1), 70553706496, "fp32").bytes, 846.64e9, 0.01e9);
  OptimizerSettings sgd;
  sgd.kind = OptimizerKind::Sgd;
  EXPECT_EQ(checkpointBytesPerParameter(sgd, "fp32"), 4);
}

TEST(Checkpoint, PausesFollowTheMode) {
  Cluster c = cluster(1);
  EXPECT_FALSE(costOf(c).pauseSeconds || costOf(c).intervalSeconds);
  c.hostLinkBytesPerSecond = 64e9;
  EXPECT_DOUBLE_EQ(*costOf(c, 8e9).pauseSeconds, 8e9 * 14 / 8 / 64e9);
  c.checkpoint = CheckpointMode::Sync;
  EXPECT_FALSE(costOf(c).pauseSeconds);
  c.storageBytesPerSecond = 2e9;
  EXPECT_DOUBLE_EQ(*costOf(c, 8e9).pauseSeconds, 8e9 * 14 / 2e9);
  c.mtbfHoursPerDevice.reset();
  EXPECT_FALSE(costOf(c).intervalSeconds);
}

} // namespace
} // namespace heddle
