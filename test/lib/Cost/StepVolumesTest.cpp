// Bytes of every axis against the volumes that papers give, and products of
// experts and latent attention by hand.

#include "heddle/Cost/StepTime.h"

#include <gtest/gtest.h>

using namespace heddle;

namespace {

constexpr double b = 1, s = 8192, h = 4096, L = 32, m = 4;

ModelConfig llama8B() {
  ModelConfig model;
  model.hidden = 4096;
  model.layers = 32;
  model.kvHeads = 8;
  model.queryHeadsPerKvHead = 4;
  model.headSize = 128;
  model.ffn = 14336;
  model.vocabulary = 8; // the ends of the model weigh nothing
  return model;
}

PlanPoint pointOf(const ModelConfig &model) {
  PlanPoint point;
  point.layers = {model.layers};
  point.recipe = "bf16";
  point.reduceFormat = "bf16";
  point.microBatches = 4;
  return point;
}

Cluster h100s() {
  Cluster cluster;
  cluster.nodes = 64;
  cluster.devicesPerNode = cluster.nicsPerNode = 8;
  cluster.device = *deviceByName("h100-sxm-80gb");
  cluster.links = {{"node", 1, 450e9, std::nullopt, 1, true},
                   {"cluster", 64, 50e9, 5e-6, 1, false}};
  cluster.hostLinkBytesPerSecond = 64e9;
  return cluster;
}

StepTime stepOf(const ModelConfig &model, const PlanPoint &point) {
  TrainSettings train;
  train.sequenceLength = 8192;
  Result<StepTimes> times = StepTimes::of(model, train, h100s());
  EXPECT_TRUE(times) << times.message();
  Result<StepTime> step = times->simulate(point);
  EXPECT_TRUE(step) << step.message();
  return step ? *step : StepTime();
}

double bytesOf(const PlanPoint &point, TimeAxis axis,
               const ModelConfig &model = llama8B()) {
  return stepOf(model, point).of(axis).bytesPerRank;
}

/// Parameters of all layers; of the embedding, and of the head with its norm.
constexpr double kElements =
    L * (h * (h + 2 * 1024) + h * h + 3 * h * 14336 + 2 * h);
constexpr double kEnds = 2 * 8 * h + h;

} // namespace

// 16 b s h (t - 1) / t a layer and micro-batch, and two all-reduces of the
// ends; with sequences cut as much.
TEST(Volumes, OfTensorParallelism) {
  PlanPoint point = pointOf(llama8B());
  point.tp = 8;
  const double layer = 16 * b * s * h * 7 / 8;
  const double ends = 2 * 2 * 7.0 / 8 * 2 * b * s * h;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Tp), m * (L * layer + ends), 1);
  point.sequenceParallel = true;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Tp), m * (L * layer + 0.75 * ends), 1);
}

// (c - 1) / c x 4 b s h kv / (a t) forward, twice that backward.
TEST(Volumes, OfContextParallelism) {
  PlanPoint point = pointOf(llama8B());
  point.cp = 4;
  point.tp = 2;
  point.context = PlanContext::Ring;
  const double forward = 3.0 / 4 * 4 * b * s * h * 8 / (32 * 2);
  EXPECT_NEAR(bytesOf(point, TimeAxis::Cp), m * L * 3 * forward, 1);
  point.context = PlanContext::AllGather;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Cp), m * L * 3 * forward, 1);
  // Ulysses: queries, keys, values and what comes out, there and back.
  point.context = PlanContext::Ulysses;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Cp),
              m * L * 4 * 3.0 / 4 * 2 * b * s / 4 * (2 * 2048 + 2 * 512), 1);
}

// A step of a ring takes as long as attention over its keys or as their way to
// the next rank; one move of gradients has nothing beside it. Ranks of one
// node, and one rank of each node, whose links are so slow that they are
// longer.
TEST(Ring, HidesMovesBesideItsSteps) {
  ModelConfig model = llama8B();
  model.layers = 1;
  PlanPoint point = pointOf(model);
  point.cp = 4;
  point.context = PlanContext::Ring;
  const KernelTimes k = *KernelTimes::of(*deviceByName("h100-sxm-80gb"));
  const double tokens = s / 4, queries = h, keys = 1024;
  const Attention step{32, tokens, s * (s + 1) / 2 / 16, 128};
  // Sums in fp32 read and written, and what is added to them.
  const double added = 10 * tokens * queries,
               addedBack = 10 * tokens * (queries + 2 * keys);
  const double forward =
      4 * k.attentionForward(step) + 3 * kernelGaps * k.memory(added);
  const double backward =
      4 * k.attentionBackward(step) + 3 * kernelGaps * k.memory(addedBack);
  const double pair = 2 * 2 * tokens * keys;
  TrainSettings train;
  train.sequenceLength = 8192;
  for (const bool crosses : {false, true}) {
    Cluster cluster = h100s();
    cluster.links.back().bytesPerSecond = 1e9;
    if (crosses) {
      cluster.devicesPerNode = cluster.nicsPerNode = 1;
      cluster.links.front().bytesPerSecond = 450e9;
    }
    const CollectiveTimes moves(cluster);
    const GroupOnCluster group = moves.place({{4, 1}});
    const double one = moves.seconds(CollectiveKind::Send, group, pair),
                 two = moves.seconds(CollectiveKind::Send, group, 2 * pair);
    EXPECT_EQ(one > forward / 4, crosses);
    const double longer = 3 * std::max(0.0, one - forward / 4) +
                          3 * std::max(0.0, two - backward / 4);
    Result<StepTimes> times = StepTimes::of(model, train, cluster);
    ASSERT_TRUE(times) << times.message();
    Result<StepTime> of = times->simulate(point);
    ASSERT_TRUE(of) << of.message();
    EXPECT_NEAR(of->of(TimeAxis::Cp).exposed, m * (longer + one), 1e-9);
    EXPECT_NEAR(of->of(TimeAxis::Cp).seconds, m * 3 * (one + two), 1e-9);
    EXPECT_NEAR(of->compute.attention, m * (forward + backward), 1e-9);
    // What is computed again goes round again.
    point.recompute = PointRecompute::Full;
    point.recomputed = {1};
    Result<StepTime> again = times->simulate(point);
    ASSERT_TRUE(again) << again.message();
    EXPECT_NEAR(again->of(TimeAxis::Cp).seconds, m * 3 * (2 * one + two), 1e-9);
    point.recompute = PointRecompute::None;
    point.recomputed = {};
  }
}

// 2 b s h a boundary, micro-batch and direction; cut over tp where sequences
// are, or where each rank sends a part.
TEST(Volumes, OfStages) {
  PlanPoint point = pointOf(llama8B());
  point.pp = 4;
  point.schedule = PlanScheduleKind::OneFOneB;
  point.layers = {8, 8, 8, 8};
  EXPECT_NEAR(bytesOf(point, TimeAxis::Pp), m * 2 * 2 * b * s * h, 1);
  point.tp = 2;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Pp), m * 2 * 2 * b * s * h / 2, 1);
  point.sequenceParallel = true;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Pp), m * 2 * 2 * b * s * h / 2, 1);
}

// All-reduce 2 (d - 1) / d g N; ZeRO-1 and 2 (d - 1) / d (g + 2) N; ZeRO-3 in
// every pass (d - 1) / d (2 + 2 + g) N, times m where no micro-batch is spared.
TEST(Volumes, OfStates) {
  PlanPoint point = pointOf(llama8B());
  point.dp = 16;
  const double part = 15.0 / 16, N = kElements + kEnds, room = 1;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp), 2 * part * 2 * N, room);
  point.zeroStage = 1;
  point.shardGroup = 16;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp), part * (2 + 2) * N, room);
  point.reduceFormat = "fp32";
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp), part * (4 + 2) * N, room);
  // Of the ends, one pass reads each.
  point.zeroStage = 3;
  point.gather = PlanGather::EveryPass;
  const double gathered = m * 2 * (2 * kElements + kEnds);
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp), part * (gathered + 4 * N), room);
  point.reduce = PlanReduce::EveryMicroBatch;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp), part * (gathered + m * 4 * N),
              room);
  point.gather = PlanGather::EveryMicroBatch;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp), part * m * (2 + 4) * N, room);
  // Shards of 4: what each has is summed over the 4 copies.
  point.reduce = PlanReduce::Last;
  point.gather = PlanGather::OncePerStep;
  point.shardGroup = 4;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp),
              (0.75 * (4 + 2) + 2 * 0.75 * 4 / 4) * N, room);
}

namespace {

/// 8 experts of 7168, 2 for each token, in every second layer.
ModelConfig sparse() {
  ModelConfig model = llama8B();
  model.experts = ExpertsConfig{8, 2, 7168, 0, false, false, 0, 2, {}};
  return model;
}

} // namespace

// 2 all-to-alls forward and 2 backward of top-k x 2 b s h, times (e - 1) / e,
// divided by t where sequences are cut; in half of the layers.
TEST(Volumes, OfExperts) {
  PlanPoint point = pointOf(sparse());
  point.dp = 8;
  point.ep = 4;
  const double each = 2 * 2 * b * s * h * 3 / 4;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Ep, sparse()), m * L / 2 * 4 * each, 1);
  point.tp = 2;
  point.sequenceParallel = true;
  EXPECT_NEAR(bytesOf(point, TimeAxis::Ep, sparse()), m * L / 2 * 2 * each, 1);
  // Experts have copies on 2 ranks of dp, the rest on 8.
  point.tp = 1;
  point.sequenceParallel = false;
  const double experts = L / 2 * 8 * 3 * h * 7168 / 4;
  const double dense =
      kElements + kEnds - L / 2 * 3 * h * 14336 + L / 2 * 8 * h; // the router
  EXPECT_NEAR(bytesOf(point, TimeAxis::Dp, sparse()),
              2 * 7.0 / 8 * 2 * dense + 2 * 1.0 / 2 * 2 * experts, 1);
}

// A rank with 2 of 8 experts has 2 x 8192 rows, 8192 for each, in one kernel.
TEST(Experts, AreGroupsOfProducts) {
  ModelConfig model = sparse();
  model.layers = 2;
  PlanPoint point = pointOf(model);
  point.microBatches = 1;
  point.dp = 4;
  point.ep = 4;
  const double with = stepOf(model, point).compute.products;
  model.experts.reset();
  const double plain = stepOf(model, point).compute.products;
  const KernelTimes k = *KernelTimes::of(*deviceByName("h100-sxm-80gb"));
  auto weight = [&](double rows, double n, double width, double groups) {
    using enum ProductFormat;
    return k.product({rows, n, width, Bf16, groups}) +
           k.product({rows, width, n, Bf16, groups}) +
           k.product({n, width, rows, Bf16, groups, 8});
  };
  const double experts = weight(8192, 2 * 7168, h, 2) +
                         weight(8192, h, 7168, 2) + weight(8192, 8, h, 1);
  const double mlp = weight(8192, 2 * 14336, h, 1) + weight(8192, h, 14336, 1);
  EXPECT_NEAR(with - plain, kernelGaps * (experts - mlp), 1e-9);
}

// DeepSeek's: queries over 512, keys and values over 256 + 64, heads of 64 + 64
// and 128; their operations, and attention over heads of (128 + 128) / 2.
TEST(Latent, ProjectsThroughNarrowVectors) {
  ModelConfig model = llama8B();
  model.layers = 1;
  PlanPoint point = pointOf(model);
  point.microBatches = 1;
  const StepTime plain = stepOf(model, point);
  model.latent = LatentConfig{512, 256, 64, 64, 128};
  const StepTime narrow = stepOf(model, point);
  const KernelTimes k = *KernelTimes::of(*deviceByName("h100-sxm-80gb"));
  auto weight = [&](double n, double width) {
    using enum ProductFormat;
    return k.product({s, n, width}) + k.product({s, width, n}) +
           k.product({n, width, s, Bf16, 1, 8});
  };
  const double latent = weight(512, h) + weight(32 * 128, 512) +
                        weight(256 + 64, h) + weight(32 * (64 + 128), 256) +
                        weight(h, 32 * 128);
  EXPECT_NEAR(narrow.compute.products - plain.compute.products,
              kernelGaps * (latent - weight(h + 2 * 1024, h) - weight(h, h)),
              1e-9);
  EXPECT_NEAR(narrow.compute.attention, plain.compute.attention, 1e-12);
}

// Offloaded: master and two moments come and go, 24 bytes of both ways over a
// host link of 64 GB/s, which moves 1.125 times that both ways at once.
TEST(Optimizer, OfTheHostIsBoundByItsLink) {
  PlanPoint point = pointOf(llama8B());
  point.offloadsOptimizer = true;
  const double elements = kElements + kEnds;
  EXPECT_NEAR(stepOf(llama8B(), point).optimizer,
              24 * elements / (1.125 * 64e9), 1e-4);
}
