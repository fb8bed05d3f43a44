#include "heddle/Cost/StepTime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

using namespace heddle;
using testing::HasSubstr;

namespace {

ModelConfig llama(std::int64_t hidden, std::int64_t layers,
                  std::int64_t kvHeads, std::int64_t perKvHead,
                  std::int64_t ffn) {
  ModelConfig model;
  model.hidden = hidden;
  model.layers = layers;
  model.kvHeads = kvHeads;
  model.queryHeadsPerKvHead = perKvHead;
  model.headSize = 128;
  model.ffn = ffn;
  model.vocabulary = 128256;
  return model;
}

ModelConfig llama8B() { return llama(4096, 32, 8, 4, 14336); }
ModelConfig llama70B() { return llama(8192, 80, 8, 8, 28672); }

ModelConfig gpt3() {
  ModelConfig model = llama(12288, 96, 96, 1, 49152);
  model.gatedMlp = false;
  model.norm = NormKind::Layer;
  model.activation = Activation::GeluTanh;
  model.position = PositionKind::Learned;
  model.vocabulary = 51200;
  return model;
}

TrainSettings settings(std::int64_t length) {
  TrainSettings train;
  train.sequenceLength = length;
  return train;
}

Cluster h100s(std::int64_t devices) {
  Cluster cluster;
  cluster.nodes = std::max<std::int64_t>(1, devices / 8);
  cluster.devicesPerNode = cluster.nicsPerNode =
      std::min<std::int64_t>(8, devices);
  cluster.device = *deviceByName("h100-sxm-80gb");
  cluster.links = {{"node", 1, 450e9, std::nullopt, 1, true}};
  if (cluster.nodes > 1)
    cluster.links.push_back({"cluster", cluster.nodes, 50e9, 5e-6, 1, false});
  return cluster;
}

/// All layers on one place, in bf16.
PlanPoint pointOf(const ModelConfig &model) {
  PlanPoint point;
  point.layers = {model.layers};
  point.recipe = "bf16";
  point.reduceFormat = "bf16";
  return point;
}

StepTimes timesOf(const ModelConfig &model, std::int64_t length,
                  const Cluster &cluster, const Practice &practice = {}) {
  Result<StepTimes> times =
      StepTimes::of(model, settings(length), cluster, practice);
  EXPECT_TRUE(times) << times.message();
  return std::move(*times);
}

StepTime simulate(const StepTimes &times, const PlanPoint &point) {
  Result<StepTime> step = times.simulate(point);
  EXPECT_TRUE(step) << step.message();
  return step ? *step : StepTime();
}

/// Stages of equal numbers of layers, as near as can be.
void cut(PlanPoint &point, std::int64_t layers, std::int64_t pp,
         std::int64_t chunks, PlanScheduleKind schedule) {
  point.pp = pp;
  point.chunks = chunks;
  point.schedule = schedule;
  point.layers.clear();
  for (std::int64_t i = 0; i < pp * chunks; ++i)
    point.layers.push_back(layers / (pp * chunks) +
                           (i < layers % (pp * chunks)));
}

} // namespace

//===----------------------------------------------------------------------===//
// By hand
//===----------------------------------------------------------------------===//

// One device, two layers of 8B, one sequence of 4096: every kernel by itself,
// and the gaps between all but attention's.
TEST(StepTime, IsItsKernels) {
  ModelConfig model = llama8B();
  model.layers = 2;
  const PlanPoint point = pointOf(model);
  const StepTime step = simulate(timesOf(model, 4096, h100s(1)), point);
  const KernelTimes k = *KernelTimes::of(*deviceByName("h100-sxm-80gb"));
  const double t = 4096, d = 4096, f = 14336, v = 128256;
  // q, k, v; o; gate and up; down. Backward: both sides' gradients, that of the
  // weight read and written in fp32.
  double products = 0;
  auto weight = [&](double n, double width) {
    products += k.product({t, n, width}) + k.product({t, width, n}) +
                k.product({n, width, t, ProductFormat::Bf16, 1, 8});
  };
  weight(4096 + 2 * 1024, d);
  weight(d, 4096);
  weight(2 * f, d);
  weight(d, f);
  products *= 2;
  weight(v, d);
  EXPECT_NEAR(step.compute.products, kernelGaps * products, 1e-12);
  const Attention attention{32, t, t * (t + 1) / 2, 128};
  EXPECT_NEAR(
      step.compute.attention,
      2 * (k.attentionForward(attention) + k.attentionBackward(attention)),
      1e-12);
  // Bytes of a token in bf16. Norms and residuals of both parts: 2 + 3 and 6
  // times d. Rotation of 32 + 8 heads there and back. Activation: 3 f, 5 f.
  auto bytes = [&](double perToken) { return k.memory(2 * t * perToken); };
  const double layer = 2 * (bytes(2 * d) + bytes(3 * d) + bytes(6 * d)) +
                       2 * bytes(2 * 40 * 128) + bytes(3 * f) + bytes(5 * f);
  const double ends = bytes(2 * d) + bytes(3 * d) + 2 * bytes(2 * v);
  EXPECT_NEAR(step.compute.memory, kernelGaps * (2 * layer + ends), 1e-12);
  // 24 bytes of moments and master, 3 x 4 of the gradient, 2 of the parameter.
  const double elements =
      2 * (d * (4096 + 2048) + d * 4096 + 3 * d * f + 2 * d) + 2 * v * d + d;
  EXPECT_NEAR(step.optimizer, kernelGaps * k.memory(38 * elements), 1e-12);
  EXPECT_NEAR(step.seconds, step.compute.total() + step.optimizer, 1e-9);
  EXPECT_EQ(step.bubbleFraction, 0);
  EXPECT_EQ(step.modelFlops, modelFlopsPerStep(model, 1, 4096));
  EXPECT_EQ(step.hardwareFlops, step.modelFlops);
  EXPECT_NEAR(step.mfu(), step.modelFlops / step.seconds / 989.4e12, 1e-12);
  EXPECT_NEAR(step.tokensPerSecondPerDevice(), 4096 / step.seconds, 1e-9);
}

// The same with ZeRO-3 in software that copies: 4 bytes of each element of a
// layer in both passes, 6 of its gradient; and where no operation is fused,
// 32 d more in forward of each norm and 64 d in backward, rotation 5 times as
// much, the gate 10 of 6 and 18 of 10 bytes.
TEST(StepTime, FollowsThePracticeOfSoftware) {
  ModelConfig model = llama8B();
  model.layers = 2;
  PlanPoint point = pointOf(model);
  point.zeroStage = 3;
  point.dp = point.shardGroup = 8;
  point.gather = PlanGather::EveryPass;
  point.reduce = PlanReduce::EveryMicroBatch;
  Practice practice;
  auto memory = [&] {
    return simulate(timesOf(model, 4096, h100s(8), practice), point)
        .compute.memory;
  };
  const KernelTimes k = *KernelTimes::of(*deviceByName("h100-sxm-80gb"));
  auto more = [&](double bytes) { return k.memory(bytes) - k.memory(1e-9); };
  const double plain = memory(), t = 4096, d = 4096, f = 14336;
  practice.gatherCopyBytes = 4;
  practice.sumCopyBytes = 6;
  const double attention = d * (4096 + 2048) + d * 4096 + d,
               mlp = 3 * d * f + d;
  EXPECT_NEAR(memory() - plain,
              kernelGaps * 2 *
                  (2 * (k.memory(4 * attention) + k.memory(4 * mlp)) +
                   k.memory(6 * attention) + k.memory(6 * mlp)),
              1e-12);
  practice = {};
  practice.fusesKernels = false;
  EXPECT_NEAR(memory() - plain,
              kernelGaps * 2 *
                  (2 * more(t * d * (32 + 64)) + 2 * more(t * 16 * 40 * 128) +
                   more(t * f * (4 + 8))),
              1e-12);
  // Nothing of either is there where a parameter is gathered once.
  practice = {};
  practice.gatherCopyBytes = practice.sumCopyBytes = 4;
  point.gather = PlanGather::OncePerStep;
  point.reduce = PlanReduce::Last;
  EXPECT_DOUBLE_EQ(memory(), plain);
}

// Units that are gathered between two layers' backward stand in line, where
// units that are gathered ahead do not; and a layer's gathers and sums in 12
// parts take 12 latencies.
TEST(StepTime, GathersUnitsAsSoftwareDoes) {
  ModelConfig model = llama8B();
  PlanPoint point = pointOf(model);
  point.zeroStage = 3;
  point.dp = point.shardGroup = 8;
  point.gather = PlanGather::EveryPass;
  point.reduce = PlanReduce::EveryMicroBatch;
  point.prefetch = 1;
  const Cluster cluster = h100s(8);
  auto exposed = [&](const Practice &practice) {
    return simulate(timesOf(model, 8192, cluster, practice), point)
        .of(TimeAxis::Dp)
        .exposed;
  };
  const double elements =
      4096.0 * (4096 + 2048) + 4096.0 * 4096 + 3 * 4096.0 * 14336 + 2 * 4096;
  const CollectiveTimes collectives(cluster);
  const GroupOnCluster group = collectives.place({{8, 1}});
  const double gather =
      collectives.seconds(CollectiveKind::AllGather, group, 2 * elements);
  Practice practice;
  const double ahead = exposed(practice);
  practice.gathersBetweenUnits = true;
  // All layers but the first of backward, whose gather stood in line before.
  const auto layers = static_cast<double>(model.layers),
             passes = static_cast<double>(point.microBatches);
  EXPECT_NEAR(exposed(practice) - ahead, passes * (layers - 1) * gather,
              0.1 * gather);
  practice = {};
  auto seconds = [&](double parts) {
    practice.collectivesPerLayer = parts;
    return simulate(timesOf(model, 8192, cluster, practice), point)
        .of(TimeAxis::Dp)
        .seconds;
  };
  const double twelfth =
      collectives.seconds(CollectiveKind::AllGather, group, elements / 6);
  EXPECT_GT(12 * twelfth, gather);
  EXPECT_GT(seconds(12) - seconds(1), 2 * static_cast<double>(model.layers) *
                                          (12 * twelfth - gather) * (1 - 1e-9));
}

// 8 of 64 experts over 8 nodes: a token goes to 8 (1 - (7/8)^8) = 5.25 of them,
// or to 4, in 1.5 bytes a number.
TEST(StepTime, SendsTokensOnceToEachNode) {
  ModelConfig model = llama8B();
  model.layers = 2;
  model.experts = ExpertsConfig{64, 8, 2048, 0, false, false, 0, 1, {}};
  PlanPoint point = pointOf(model);
  point.dp = point.ep = 64;
  const Cluster cluster = h100s(64);
  const CollectiveTimes collectives(cluster);
  const double rows = 4096 * 8 * 4096;
  Practice practice;
  auto expect = [&](double bytes) {
    EXPECT_NEAR(simulate(timesOf(model, 4096, cluster, practice), point)
                    .of(TimeAxis::Ep)
                    .seconds,
                2 * 4 *
                    collectives.seconds(CollectiveKind::AllToAll,
                                        collectives.place({{64, 1}}), bytes),
                1e-9);
  };
  expect(2 * rows);
  practice.sendsOncePerNode = true;
  expect(2 * rows * (1 - std::pow(7.0 / 8, 8)));
  practice.nodesPerToken = 4;
  expect(2 * rows / 2);
  practice.exchangeBytes = 1.5;
  expect(1.5 * rows / 2);
}

// A forward and a backward that run interleaved hide exchanges of each other.
TEST(StepTime, JoinedSlotsHideExchanges) {
  ModelConfig model = llama8B();
  model.experts = ExpertsConfig{64, 8, 2048, 0, false, false, 0, 1, {}};
  PlanPoint point = pointOf(model);
  point.dp = point.ep = 64;
  point.microBatches = 32;
  const StepTimes times = timesOf(model, 4096, h100s(256));
  cut(point, 32, 4, 2, PlanScheduleKind::Interleaved1F1B);
  const StepTime apart = simulate(times, point);
  cut(point, 32, 4, 2, PlanScheduleKind::DualPipeV);
  const StepTime joined = simulate(times, point);
  const double exchanges = apart.of(TimeAxis::Ep).seconds;
  EXPECT_LT(joined.seconds, apart.seconds - 0.5 * exchanges);
  EXPECT_GT(joined.seconds, apart.seconds - exchanges);
}

// validation/README.md 9, rows 2 to 5: volumes of 8B over 64 and of 70B over
// tp 8, and beside the textbook's time that of NCCL.
TEST(StepTime, HasTheVolumesOfTheTextbook) {
  PlanPoint data = pointOf(llama8B());
  data.dp = 64;
  data.bucketBytes = std::int64_t{1} << 40;
  const StepTime step = simulate(timesOf(llama8B(), 8192, h100s(64)), data);
  const AxisTime &dp = step.of(TimeAxis::Dp);
  EXPECT_NEAR(dp.bytesPerRank, 31.62e9, 0.02e9);
  EXPECT_EQ(dp.slowestBytesPerSecond, 50e9);
  EXPECT_NEAR(idealSeconds(dp.bytesPerRank, dp.slowestBytesPerSecond), 0.632,
              1e-3);
  EXPECT_NEAR(dp.seconds, 0.09, 0.005);

  PlanPoint tensor = pointOf(llama70B());
  tensor.tp = 8;
  const StepTime inner = simulate(timesOf(llama70B(), 8192, h100s(64)), tensor);
  const AxisTime &tp = inner.of(TimeAxis::Tp);
  // The textbook leaves two out: embedding's and the head's.
  const double each = allReduceBytes(134217728, 8);
  EXPECT_NEAR(tp.bytesPerRank - 2 * each, 75.16e9, 0.01e9);
  EXPECT_NEAR(idealSeconds(320 * each, tp.slowestBytesPerSecond), 0.167, 1e-3);
  EXPECT_NEAR(tp.seconds - 2 * 586.4e-6, 0.188, 1e-3);
  EXPECT_NEAR(tp.exposed, tp.seconds, 1e-9);
  // One rank of each group in a node.
  tensor.dp = 8;
  tensor.order = {PlanAxis::Tp, PlanAxis::Pp, PlanAxis::Dp, PlanAxis::Cp};
  const AxisTime outer =
      simulate(timesOf(llama70B(), 8192, h100s(64)), tensor).of(TimeAxis::Tp);
  EXPECT_NEAR(idealSeconds(320 * each, outer.slowestBytesPerSecond), 1.503,
              1e-3);
  EXPECT_EQ(outer.level, 1u);
  EXPECT_GT(outer.seconds, 1.6);
}

// s/(18h) of 1 + s/(6h) + V/(12hL); (24 h^2 + 4 s h - 8 h^2) of them, and all.
TEST(StepTime, CountsWhatRunsAgain) {
  PlanPoint point = pointOf(gpt3());
  point.recomputed = {96};
  auto added = [&](PointRecompute kind, const Practice &practice) {
    point.recompute = kind;
    const StepTime step =
        simulate(timesOf(gpt3(), 2048, h100s(1), practice), point);
    return step.hardwareFlops / step.modelFlops - 1;
  };
  Practice core;
  core.selective = AgainCore;
  EXPECT_NEAR(added(PointRecompute::Selective, core), 0.0090, 5e-5);
  EXPECT_NEAR(added(PointRecompute::Full, {}), 0.224, 5e-4);
  Practice whole;
  whole.full |= AgainDown;
  EXPECT_NEAR(added(PointRecompute::Full, whole), 0.332, 5e-4);
  // Heddle's selective runs no product again.
  EXPECT_EQ(added(PointRecompute::Selective, {}), 0);
}

// Equal stages, transfers of nothing: (p - 1) / m of the time that a place
// works, less what the head takes only on the last.
TEST(StepTime, HasTheBubbleOfItsSchedule) {
  ModelConfig model = llama8B();
  model.vocabulary = 8;
  PlanPoint point = pointOf(model);
  point.microBatches = 16;
  cut(point, 32, 4, 1, PlanScheduleKind::OneFOneB);
  const StepTimes times = timesOf(model, 8192, h100s(8));
  EXPECT_NEAR(simulate(times, point).bubbleFraction, 3.0 / 19, 0.003);
  cut(point, 32, 4, 2, PlanScheduleKind::Interleaved1F1B);
  EXPECT_NEAR(simulate(times, point).bubbleFraction, 1.5 / 17.5, 0.005);
}

//===----------------------------------------------------------------------===//
// Choices
//===----------------------------------------------------------------------===//

TEST(StepTime, OverlapHidesWhatItCan) {
  PlanPoint point = pointOf(llama70B());
  point.tp = 8;
  point.sequenceParallel = true;
  auto with = [&](TensorOverlap overlap) {
    Practice practice;
    practice.tensorOverlap = overlap;
    return simulate(timesOf(llama70B(), 8192, h100s(8), practice), point);
  };
  const StepTime none = with(TensorOverlap::None),
                 backward = with(TensorOverlap::Backward),
                 pieces = with(TensorOverlap::Pieces);
  EXPECT_LT(backward.of(TimeAxis::Tp).exposed, none.of(TimeAxis::Tp).exposed);
  EXPECT_LT(pieces.of(TimeAxis::Tp).exposed,
            backward.of(TimeAxis::Tp).exposed / 2);
  EXPECT_LT(pieces.seconds, backward.seconds);
  EXPECT_LT(backward.seconds, none.seconds);
}

TEST(StepTime, StatesRunBesideComputation) {
  PlanPoint point = pointOf(llama8B());
  point.dp = 64;
  const StepTimes times = timesOf(llama8B(), 8192, h100s(64));
  const StepTime beside = simulate(times, point);
  point.overlaps = false;
  const StepTime behind = simulate(times, point);
  EXPECT_NEAR(behind.of(TimeAxis::Dp).exposed, behind.of(TimeAxis::Dp).seconds,
              1e-9);
  EXPECT_LT(beside.of(TimeAxis::Dp).exposed,
            behind.of(TimeAxis::Dp).exposed / 2);
  EXPECT_LT(beside.seconds, behind.seconds);
}

// 25 GB/s and one short sequence a device: what ZeRO-3 gathers three times over
// 512 ranks does not hide, what it gathers in a node does.
TEST(StepTime, ShardsInANodeWhereTheNetworkIsSlow) {
  Cluster cluster = h100s(512);
  cluster.links[1].bytesPerSecond = 25e9;
  const StepTimes times = timesOf(llama8B(), 2048, cluster);
  PlanPoint point = pointOf(llama8B());
  point.dp = 512;
  point.zeroStage = 3;
  point.prefetch = 1;
  point.gather = PlanGather::EveryPass;
  point.reduce = PlanReduce::Last;
  point.shardGroup = 512;
  const double all = simulate(times, point).seconds;
  point.shardGroup = 8;
  EXPECT_LT(simulate(times, point).seconds, 0.9 * all);
}

TEST(StepTime, SaysWhatItCannotTime) {
  const StepTimes times = timesOf(llama8B(), 8192, h100s(8));
  PlanPoint point = pointOf(llama8B());
  point.layers = {31};
  EXPECT_THAT(times.simulate(point).message(),
              HasSubstr("expected one each, of 32 layers"));
  point = pointOf(llama8B());
  cut(point, 32, 3, 2, PlanScheduleKind::DualPipe);
  EXPECT_FALSE(times.simulate(point));
  point = pointOf(llama8B());
  point.recipe = "nvfp4"; // an H100 has no fp4
  EXPECT_TRUE(std::isinf(simulate(times, point).seconds));
  EXPECT_TRUE(std::isinf(times.boundOfMesh(point)));
  Cluster host = h100s(8);
  host.device = *deviceByName("host");
  EXPECT_THAT(StepTimes::of(llama8B(), settings(8), host).message(),
              HasSubstr("device host has no"));
}

//===----------------------------------------------------------------------===//
// Properties
//===----------------------------------------------------------------------===//

namespace {

/// Points of small models under anything that the search may choose.
class Draw {
public:
  explicit Draw(unsigned seed) : random(seed) {}

  ModelConfig model() {
    auto model =
        llama(1024 << of(3), 8 + 4 * of(5), 8, 1 + of(4), 4096 << of(2));
    if (of(3) == 0)
      model.experts = ExpertsConfig{
          16, 2, 2048, of(2) ? 2048 : 0, false, false, of(3), 1, {}};
    if (of(4) == 0)
      model.latent = LatentConfig{512, 256, 64, 64, 128};
    model.vocabulary = 32000;
    return model;
  }

  PlanPoint point(const ModelConfig &model) {
    PlanPoint point;
    point.recipe = of(3) ? "bf16" : "fp8";
    point.reduceFormat = of(2) ? "bf16" : "fp32";
    point.tp = 1 << of(4);
    point.cp = 1 << of(2);
    point.dp = 1 << of(4);
    if (model.experts)
      point.ep = 1 << of(2);
    point.ep = std::min(point.ep, point.dp * point.cp);
    std::shuffle(point.order.begin(), point.order.end(), random);
    point.sequenceParallel = point.tp > 1 && of(2);
    if (point.cp > 1)
      point.context = std::array{PlanContext::Ring, PlanContext::AllGather,
                                 PlanContext::Ulysses}[of(3)];
    if (point.cp == 1 && !model.latent && of(4) == 0)
      point.attention = PlanAttention::Unfused;
    point.save = of(2) ? PlanSave::Least : PlanSave::LinearInputs;
    point.microBatch = 1 + of(2);
    point.microBatches = 4 * (1 + of(4));
    using enum PlanScheduleKind;
    const std::pair<PlanScheduleKind, std::int64_t> kinds[] = {
        {GPipe, 1}, {OneFOneB, 1}, {Interleaved1F1B, 2}, {ZbH1, 1},
        {ZbH2, 1},  {ZbV, 2},      {DualPipeV, 2}};
    const auto [schedule, chunks] = kinds[of(7)];
    if (schedule == DualPipeV) // two per place, at least
      point.microBatches = std::max<std::int64_t>(point.microBatches, 8);
    if (const std::int64_t pp = 1 << of(3); pp > 1)
      cut(point, model.layers, pp, chunks, schedule);
    else
      point.layers = {model.layers};
    states(point);
    return point;
  }

  /// Another choice of what boundOfSchedule leaves open, and another order.
  void states(PlanPoint &point) {
    point.zeroStage = of(4);
    point.shardGroup = point.zeroStage ? point.dp * point.cp : 1;
    point.prefetch = of(2);
    point.reduce = of(2) ? PlanReduce::Last : PlanReduce::EveryMicroBatch;
    point.gather =
        std::array{PlanGather::EveryPass, PlanGather::EveryMicroBatch,
                   PlanGather::OncePerStep}[of(3)];
    point.overlaps = of(2);
    point.recompute = static_cast<PointRecompute>(of(3));
    point.recomputed.clear();
    if (point.recompute != PointRecompute::None)
      for (std::int64_t rank = 0; rank < point.pp; ++rank)
        point.recomputed.push_back(of(point.layersOf(rank) + 1));
    point.offloadsOptimizer = of(4) == 0;
    point.offloaded = 0;
    if (of(3) == 0) // x1 is saved whatever is computed again
      point.offloaded = *readOffloaded(
          point.recompute == PointRecompute::None ? "x1.qr.v.o.up.m" : "x1");
    std::shuffle(point.order.begin(), point.order.end(), random);
  }

  std::int64_t of(std::int64_t count) {
    return static_cast<std::int64_t>(random() %
                                     static_cast<std::uint64_t>(count));
  }

private:
  std::mt19937_64 random;
};

} // namespace

TEST(StepBound, IsNeverAboveTheSimulation) {
  Draw draw(1);
  double closest = 0, closestOfSlots = 0;
  for (int run = 0; run < 300; ++run) {
    const ModelConfig model = draw.model();
    Practice practice;
    practice.tensorOverlap = static_cast<TensorOverlap>(draw.of(3));
    practice.gathersInNextStep = draw.of(2);
    const StepTimes times = timesOf(model, 4096, h100s(512), practice);
    for (int each = 0; each < 10; ++each) {
      PlanPoint point = draw.point(model);
      PlanPoint nothingAgain = point;
      nothingAgain.recompute = PointRecompute::None;
      nothingAgain.recomputed.clear();
      nothingAgain.offloaded = 0;
      const double ofSchedule = times.boundOfSchedule(nothingAgain),
                   ofMesh = times.boundOfMesh(point);
      for (int choice = 0; choice < 3; ++choice) {
        const double seconds = simulate(times, point).seconds * (1 + 1e-9);
        for (double bound : {times.bound(point), times.boundOfSlots(point),
                             times.boundOfSchedule(point), ofSchedule, ofMesh})
          ASSERT_LE(bound, seconds) << point.text();
        closest = std::max(closest, times.bound(point) / seconds);
        closestOfSlots =
            std::max(closestOfSlots, times.boundOfSlots(point) / seconds);
        draw.states(point);
        point.order = nothingAgain.order;
      }
    }
  }
  EXPECT_GT(closest, 0.95); // a bound that is 0 would hold too
  EXPECT_GT(closestOfSlots, 0.9999);
}

TEST(StepTime, BetterHardwareIsNeverSlower) {
  Draw draw(2);
  for (int run = 0; run < 400; ++run) {
    const ModelConfig model = draw.model();
    const PlanPoint point = draw.point(model);
    Cluster base = h100s(512), better = base;
    switch (draw.of(5)) {
    case 0:
      better.links[0].bytesPerSecond *= 1.5;
      break;
    case 1:
      better.links[1].bytesPerSecond *= 1.5;
      break;
    case 2:
      better.links[1].latencySeconds = 1e-6;
      break;
    case 3:
      better.device.memoryBytesPerSecond *= 1.2;
      break;
    default:
      for (auto &[format, peak] : better.device.peakFlops)
        peak *= 1.2;
    }
    const double slow = simulate(timesOf(model, 4096, base), point).seconds,
                 fast = simulate(timesOf(model, 4096, better), point).seconds;
    ASSERT_LE(fast, slow * (1 + 1e-9)) << point.text();
  }
}

TEST(StepTime, MoreWorkNeverTakesLess) {
  Draw draw(3);
  for (int run = 0; run < 200; ++run) {
    const ModelConfig model = draw.model();
    PlanPoint point = draw.point(model);
    const StepTimes times = timesOf(model, 4096, h100s(512));
    const double before = simulate(times, point).seconds;
    PlanPoint more = point;
    more.microBatches += 4;
    ASSERT_GE(simulate(times, more).seconds, before);
    PlanPoint again = point;
    again.recompute = PointRecompute::Full;
    again.recomputed.clear();
    for (std::int64_t rank = 0; rank < point.pp; ++rank)
      again.recomputed.push_back(point.layersOf(rank));
    ASSERT_GE(simulate(times, again).seconds * (1 + 1e-9), before)
        << point.text();
  }
}
