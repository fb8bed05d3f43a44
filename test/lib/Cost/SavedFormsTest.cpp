// Times of what a plan saves, where, and of attention that is not one kernel.

#include "test/TestPlan.h"

#include "heddle/Cost/StepTime.h"

#include <gtest/gtest.h>

using namespace heddle;
using heddle::test::must;

namespace {

class SavedForms : public testing::Test {
protected:
  SavedForms() {
    const std::filesystem::path root = HEDDLE_SOURCE_DIR;
    model =
        must(readModelConfig(root / "test/cases/hf_configs/llama-3-8b.json"));
    cluster = must(readCluster(root / "tools/examples/clusters/8xh100.yaml"));
    train.sequenceLength = 2048;
    train.globalBatch = 8;
    train.precision = {"bf16"};
    point = {.dp = 8, .layers = {32}, .recipe = "bf16"};
  }

  StepTime step() const {
    return must(must(StepTimes::of(model, train, cluster)).simulate(point));
  }
  KernelTimes kernels() const { return must(KernelTimes::of(cluster.device)); }
  /// Scores of one layer on one rank.
  double scores() const { return 32.0 * 2048 * 2048; }
  /// What a kernel bound by memory takes between others.
  double moved(double bytes) const {
    return kernelGaps * kernels().memory(bytes);
  }
  double ofScores() const {
    return kernelGaps * kernels().product({32.0 * 2048, 2048, 128});
  }
  double ofValues() const {
    return kernelGaps * kernels().product({32.0 * 2048, 128, 2048});
  }

  ModelConfig model;
  Cluster cluster;
  TrainSettings train;
  PlanPoint point;
};

} // namespace

// Softmax reads scores and writes probabilities, 2 bytes each; backward reads
// probabilities and their gradient, and writes that of scores.
TEST_F(SavedForms, UnfusedAttentionIsProductsAndKernelsOnScores) {
  point.attention = PlanAttention::Unfused;
  const double forward = ofScores() + ofValues() + moved(4 * scores()),
               backward = 2 * (ofScores() + ofValues()) + moved(4 * scores()) +
                          moved(2 * scores());
  EXPECT_NEAR(step().compute.attention, 32 * (forward + backward), 1e-9);
}

// Dropped probabilities, and their masks where these are kept.
TEST_F(SavedForms, MasksAreMoved) {
  model.dropout.attention = 0.1;
  point.attention = PlanAttention::Unfused;
  const double drawn = step().compute.attention;
  point.dropoutMasks = PlanMasks::Saved;
  // A byte for each, written by forward and read by backward.
  const double each =
      kernels().memory(2 * scores()) - kernels().memory(scores());
  EXPECT_NEAR(step().compute.attention - drawn, 32 * kernelGaps * 2 * each,
              1e-9);
}

// Scores and probabilities, but not what values make of them.
TEST_F(SavedForms, SelectiveMakesScoresAgain) {
  point.attention = PlanAttention::Unfused;
  point.save = PlanSave::LinearInputs; // no norms, no product of the MLP
  const StepTime none = step();
  point.recompute = PointRecompute::Selective;
  point.recomputed = {32};
  const StepTime again = step();
  EXPECT_NEAR(again.compute.attention - none.compute.attention,
              32 * (ofScores() + moved(4 * scores())), 1e-9);
  EXPECT_EQ(again.compute.memory, none.compute.memory);
  EXPECT_EQ(again.compute.products, none.compute.products);
  EXPECT_EQ(again.hardwareFlops - none.hardwareFlops,
            8 * 32 * 2.0 * scores() * 128);
}

// Inputs of products are kept: with one kernel for attention there is nothing
// left to make again.
TEST_F(SavedForms, LinearInputsAreNotMadeAgain) {
  point.save = PlanSave::LinearInputs;
  const double none = step().seconds;
  point.recompute = PointRecompute::Selective;
  point.recomputed = {32};
  EXPECT_EQ(step().seconds, none);
  point.save = PlanSave::Least;
  EXPECT_GT(step().seconds, none);
}

TEST_F(SavedForms, MoreOnTheHostIsNeverFaster) {
  double last = step().seconds;
  for (const char *names :
       {"gate", "gate.up", "gate.up.m", "qr.gate.up.m", "qr.o.gate.up.m"}) {
    point.offloaded = *readOffloaded(names);
    const StepTime now = step();
    EXPECT_GE(now.seconds, last) << names;
    EXPECT_GT(now.host.exposed, 0) << names; // the first that comes back
    last = now.seconds;
  }
  // 2048 tokens of 14336, three times, and of 4096, twice.
  EXPECT_EQ(step().host.bytesEachWay, 32 * 2048.0 * 2 * (3 * 14336 + 2 * 4096));
}
