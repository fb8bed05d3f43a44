//===- OffloadTest.cpp - whether saved values on the host pay -------------===//

#include "heddle/Cost/Offload.h"

#include "heddle/Cost/RankSizes.h"
#include "test/TestPlan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace heddle;
using heddle::test::must;

namespace {

class Offload : public testing::Test {
protected:
  Offload() {
    const std::filesystem::path root = HEDDLE_SOURCE_DIR;
    model =
        must(readModelConfig(root / "test/cases/hf_configs/llama-3-8b.json"));
    cluster = must(readCluster(root / "tools/examples/clusters/8xh100.yaml"));
    train.sequenceLength = 8192;
    train.globalBatch = 8;
    train.precision = {"bf16"};
  }

  Plan planOf(const std::string &offload) const {
    return test::planOf(model, 1, 8, 1, 8,
                        R"(, "tensor": "megatron", "precision": "bf16",
                             "offload": {"saved": [)" +
                            offload + "]}");
  }
  OffloadTime timeOf(const std::string &offload) const {
    return must(offloadTime(model, train, cluster, planOf(offload)));
  }

  ModelConfig model;
  Cluster cluster;
  TrainSettings train;
};

// gate of 14336 / 8 columns, bf16, 8192 tokens; 32 layers, 8 micro-batches.
TEST_F(Offload, MovesEachLayersBytesOnceEachWay) {
  const OffloadTime time = timeOf(R"("gate")");
  EXPECT_EQ(time.layerBytes, 8192.0 * 14336 / 8 * 2);
  EXPECT_EQ(time.bytesEachWay, 8 * 32 * time.layerBytes);
  EXPECT_EQ(time.bytesPerSecond, 64e9);
  EXPECT_DOUBLE_EQ(time.copySeconds, time.layerBytes / (0.87 * 64e9));
  EXPECT_TRUE(time.isHidden());
  // The first that comes back, of each micro-batch.
  EXPECT_NEAR(time.exposedSeconds, 8 * time.copySeconds, 1e-12);
}

TEST_F(Offload, WhatIsLongerThanALayerShows) {
  cluster.hostLinkBytesPerSecond = 1e9;
  const OffloadTime time = timeOf(R"("gate", "up", "m")");
  EXPECT_FALSE(time.isHidden());
  EXPECT_GT(time.copySeconds, time.backwardSeconds);
  // The embedding's forward, and the sums that run on behind the last layer,
  // are beside copies too.
  EXPECT_NEAR(time.exposedSeconds /
                  (8 * (time.copySeconds +
                        32 * (time.copySeconds - time.forwardSeconds) +
                        31 * (time.copySeconds - time.backwardSeconds))),
              1, 1e-3);
}

TEST_F(Offload, NamesAreOfWhatAllLayersSave) {
  for (const char *name : {"x2", "a", "nothing"}) {
    Result<RankSizes> sizes =
        rankSizes(model, train, planOf('"' + std::string(name) + '"'));
    ASSERT_FALSE(sizes) << name;
    EXPECT_THAT(sizes.message(),
                testing::HasSubstr("offload.saved: found \"" +
                                   std::string(name) + "\", expected values"));
    EXPECT_THAT(sizes.message(), testing::HasSubstr("gate, up, m"));
  }
}

// As many rows as layers, however many a plan wants ahead.
TEST_F(Offload, RowsAreNoMoreThanLayers) {
  for (const auto &[prefetch, rows] :
       {std::pair{0, 2}, {1, 2}, {3, 4}, {31, 32}, {1000000, 32}}) {
    const Plan plan =
        test::planOf(model, 1, 8, 1, 8,
                     fmt::format(R"(, "tensor": "megatron", "precision": "bf16",
                        "offload": {{"optimizer": true}},
                        "overlap": {{"memory_bytes": 1000000}},
                        "zero": {{"stage": 3, "prefetch": {}}})",
                                 prefetch));
    EXPECT_EQ(must(rankSizes(model, train, plan)).hostRows, rows) << prefetch;
  }
}

} // namespace
