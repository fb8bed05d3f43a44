// Estimates against the formulas of what is compiled, and by hand where nothing
// is compiled yet.

#include "test/TestPlan.h"

#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/MemoryEstimate.h"
#include "heddle/Schedule/CheckStages.h"
#include "heddle/Schedule/Generate.h"
#include "heddle/Schedule/SavedSets.h"
#include "heddle/Schedule/Table.h"

#include <gmock/gmock.h>

#include <cmath>

using namespace heddle;
using heddle::test::must;

namespace {

ModelConfig publicModel(const std::string &name) {
  return must(readModelConfig(
      std::filesystem::path(HEDDLE_SOURCE_DIR "/test/cases/hf_configs") /
      (name + ".json")));
}

Cluster h100s(std::int64_t nodes) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devicesPerNode = 8;
  cluster.device = *deviceByName("h100-sxm-80gb");
  cluster.memoryReserveBytes = std::int64_t{4} << 30;
  return cluster;
}

TrainSettings adamW(std::int64_t length, std::int64_t batch) {
  TrainSettings train;
  train.sequenceLength = length;
  train.globalBatch = batch;
  train.precision = {"fp32", "fp16", "bf16", "fp8", "nvfp4"};
  train.optimizer.lr = 1e-4;
  return train;
}

/// As even as can be, the first stages having more.
PlanPoint evenly(PlanPoint point, const ModelConfig &model) {
  const std::int64_t stages = point.pp * point.chunks;
  for (std::int64_t stage = 0; stage < stages; ++stage)
    point.layers.push_back(model.layers / stages +
                           (stage < model.layers % stages));
  if (point.pp > 1 && point.schedule == PlanScheduleKind::None)
    point.schedule = PlanScheduleKind::OneFOneB;
  return point;
}

/// What is saved, in which format and where.
template <class Add>
void addSavedForms(Add add) {
  for (const auto &[recipe, scaling, length] : {std::tuple{"fp16", "", 0},
                                                {"fp8", "", 0},
                                                {"fp8", "block", 128},
                                                {"fp8", "mxfp8", 32},
                                                {"nvfp4", "", 0}})
    for (PointRecompute kind : {PointRecompute::None, PointRecompute::Full})
      add(PlanPoint{.dp = 4,
                    .tp = 2,
                    .microBatch = 4,
                    .recompute = kind,
                    .recipe = recipe,
                    .scaling = scaling,
                    .blockLength = length});
  for (const char *offloaded : {"x1", "o.up", "x1.n1.qr.v.o.n2.up.m"})
    for (std::int64_t pp : {1, 2})
      add(PlanPoint{.pp = pp,
                    .dp = 2,
                    .tp = 2,
                    .microBatch = 4,
                    .microBatches = 4,
                    .zeroStage = pp == 1 ? 1 : 0,
                    .offloadsOptimizer = true,
                    .offloaded = *readOffloaded(offloaded),
                    .recipe = "bf16"});
  add(PlanPoint{.pp = 2,
                .microBatch = 2,
                .microBatches = 4,
                .schedule = PlanScheduleKind::ZbH1,
                .offloaded = *readOffloaded("x1.m.up"),
                .recipe = "bf16"});
  add(PlanPoint{.dp = 2,
                .microBatch = 4,
                .zeroStage = 3,
                .prefetch = 1,
                .gather = PlanGather::EveryPass,
                .offloadsOptimizer = true,
                .offloaded = *readOffloaded("x1"),
                .recipe = "bf16"});
  for (PointRecompute kind :
       {PointRecompute::None, PointRecompute::Selective, PointRecompute::Full})
    for (PlanSave save : {PlanSave::Least, PlanSave::LinearInputs})
      add(PlanPoint{.dp = 2,
                    .tp = 2,
                    .microBatch = 2,
                    .recompute = kind,
                    .attention = PlanAttention::Unfused,
                    .dropoutMasks = PlanMasks::Saved,
                    .save = save,
                    .recipe = "bf16"});
}

/// Points that are compiled today, of one model.
std::vector<PlanPoint> compiledPoints(const ModelConfig &model) {
  std::vector<PlanPoint> points;
  auto add = [&](PlanPoint point) {
    point.shardGroup = point.shardGroup == 1 ? point.dp : point.shardGroup;
    points.push_back(evenly(std::move(point), model));
    if (PlanPoint &made = points.back();
        made.recompute != PointRecompute::None && made.recomputed.empty())
      made.recomputed = {model.layers};
  };
  for (const char *recipe : {"fp32", "bf16"})
    for (std::int64_t stage : {0, 1, 2, 3})
      add({.dp = 8,
           .tp = 2,
           .microBatch = 2,
           .microBatches = 2,
           .zeroStage = stage,
           .recipe = recipe});
  add({.dp = 4,
       .tp = 4,
       .sequenceParallel = true,
       .microBatches = 4,
       .recipe = "bf16"});
  add({.dp = 8,
       .microBatches = 4,
       .zeroStage = 3,
       .shardGroup = 4,
       .prefetch = 1,
       .reduce = PlanReduce::EveryMicroBatch,
       .gather = PlanGather::EveryPass,
       .recipe = "bf16"});
  add({.dp = 8,
       .microBatches = 2,
       .zeroStage = 2,
       .reduce = PlanReduce::EveryMicroBatch});
  add({.dp = 4,
       .microBatches = 1,
       .zeroStage = 3,
       .gather = PlanGather::EveryMicroBatch,
       .recipe = "bf16"});
  add({.dp = 2, .tp = 2, .recipe = "bf16", .reduceFormat = "bf16"});
  add({.pp = 4, .dp = 2, .tp = 2, .microBatches = 8});
  add({.pp = 2,
       .tp = 4,
       .sequenceParallel = true,
       .microBatches = 16,
       .zeroStage = 1});
  add({.pp = 4,
       .dp = 2,
       .microBatches = 8,
       .schedule = PlanScheduleKind::Interleaved1F1B,
       .chunks = 3,
       .zeroStage = 1});
  add({.pp = 3,
       .dp = 2,
       .microBatches = 24,
       .schedule = PlanScheduleKind::OneFOneB,
       .zeroStage = 2,
       .reduce = PlanReduce::EveryMicroBatch});
  add({.pp = 2,
       .dp = 2,
       .microBatches = 6,
       .schedule = PlanScheduleKind::GPipe});
  add({.pp = 2,
       .dp = 4,
       .microBatches = 4,
       .zeroStage = 3,
       .prefetch = 1,
       .reduce = PlanReduce::EveryMicroBatch,
       .gather = PlanGather::EveryPass,
       .recipe = "bf16"});
  for (PlanScheduleKind kind :
       {PlanScheduleKind::ZbH1, PlanScheduleKind::ZbV, PlanScheduleKind::VHalf,
        PlanScheduleKind::VMin, PlanScheduleKind::DualPipeV})
    for (PointRecompute again :
         {PointRecompute::None, PointRecompute::Selective,
          PointRecompute::Full})
      for (std::int64_t pp : {2, 5})
        add({.pp = pp,
             .tp = 2,
             .sequenceParallel = pp == 2,
             .microBatch = 4,
             .microBatches = 2 * pp,
             .schedule = kind,
             .chunks = kind == PlanScheduleKind::ZbH1 ? 1 : 2,
             .recompute = again,
             .recomputed = again == PointRecompute::None
                               ? std::vector<std::int64_t>{}
                               : std::vector<std::int64_t>(pp, 2),
             .recipe = "bf16"});
  addSavedForms(add);
  for (PointRecompute kind :
       {PointRecompute::Selective, PointRecompute::Full}) {
    // Chunks with more layers, and chunks with more that keep what they
    // computed: each value has the room of the chunk that has most of it.
    for (std::int64_t count : {1L, 5L, model.layers / 2 - 2})
      add({.pp = 2,
           .tp = 2,
           .sequenceParallel = true,
           .microBatch = 16,
           .microBatches = 2,
           .schedule = PlanScheduleKind::Interleaved1F1B,
           .chunks = 3,
           .recompute = kind,
           .recomputed = {count, count},
           .recipe = "bf16"});
    add({.dp = 4,
         .tp = 2,
         .microBatch = 4,
         .recompute = kind,
         .recomputed = {model.layers},
         .recipe = "bf16"});
    add({.dp = 4,
         .microBatch = 4,
         .recompute = kind,
         .recomputed = {model.layers / 2},
         .recipe = "bf16"});
  }
  return points;
}

/// A place by the formulas of what is compiled.
LiveMemory exactly(const ModelConfig &model, const TrainSettings &train,
                   const PlanPoint &point, std::int64_t place) {
  return liveMemory(model, train,
                    must(rankSizes(model, train, planOf(point, model), place)));
}

} // namespace

TEST(MemoryEstimate, EqualsTheFormulasOfWhatIsCompiled) {
  int compared = 0;
  for (const char *name : {"llama-3-8b", "gpt2-medium", "qwen3-0.6b",
                           "llama-3.1-405b", "llama-3.2-1b"}) {
    const ModelConfig model = publicModel(name);
    for (const PlanPoint &point : compiledPoints(model)) {
      const TrainSettings train =
          adamW(1024, point.dp * point.microBatch * point.microBatches);
      if (!notCompiledYet(point, model).empty() ||
          !rankSizes(model, train, planOf(point, model)))
        continue; // its blocks of codes, or names of its values
      MemoryEstimator estimator(model, train, h100s(2));
      for (std::int64_t place = 0; place < point.pp; ++place) {
        const LiveMemory live = exactly(model, train, point, place);
        const PlaceMemory memory = must(estimator.at(point, place));
        const double estimate = 1.0 * (memory.bytes() - memory.libraries);
        const double error = 100 * (estimate / live.peakBytes() - 1);
        EXPECT_LT(std::abs(error), 1)
            << name << " " << point.text() << " place " << place;
        const std::int64_t host = live.offloaded + live.offloadedOptimizer;
        EXPECT_NEAR(memory.hostBytes, host, 0.01 * host)
            << name << " " << point.text() << " place " << place;
        RecordProperty("compared", ++compared);
        fmt::print("{:16} {:60} place {} {:+.3f} %\n", name, point.text(),
                   place, error);
      }
    }
  }
  EXPECT_GE(compared, 500);
}

TEST(PlanPoint, StagesAreWhereSchedulesHaveThem) {
  using enum PlanScheduleKind;
  for (PlanScheduleKind kind :
       {OneFOneB, Interleaved1F1B, ZbV, VHalf, VMin, DualPipeV}) {
    const std::int64_t chunks = kind == OneFOneB ? 1 : 2;
    const Placement placement = must(Placement::of(kind, 3, chunks));
    PlanPoint point = {.pp = 3, .schedule = kind, .chunks = chunks};
    for (std::int64_t rank = 0; rank < 3; ++rank)
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
        EXPECT_EQ(point.stageOf(rank, chunk), placement.at(rank, chunk).stage)
            << scheduleWord(kind);
  }
}

// What is said to be compiled is what checkPlan and checkStages take.
// Estimates ask a schedule of fewer micro-batches; sets in flight are those of
// all of them.
TEST(MemoryEstimate, SetsDoNotGrowBeyondAFewRounds) {
  using enum PlanScheduleKind;
  const ModelConfig model = publicModel("llama-3-8b");
  const MemoryEstimator estimator(model, adamW(8192, 512), h100s(4));
  for (const auto &[kind, pp, chunks] : {std::tuple{OneFOneB, 4, 1},
                                         {Interleaved1F1B, 4, 2},
                                         {Interleaved1F1B, 8, 4},
                                         {Interleaved1F1B, 2, 5},
                                         {ZbH1, 8, 1},
                                         {ZbH2, 4, 1},
                                         {ZbV, 4, 2},
                                         {VHalf, 4, 2},
                                         {VMin, 8, 2}}) {
    const PlanPoint point = evenly({.pp = pp,
                                    .microBatches = 10 * pp,
                                    .schedule = kind,
                                    .chunks = chunks,
                                    .recipe = "bf16"},
                                   model);
    const ScheduleTable table =
        must(generateSchedule(kind, pp, chunks, 10 * pp));
    for (std::int64_t place = 0; place < pp; ++place) {
      const PlaceMemory memory = must(estimator.at(point, place));
      auto sets = [&](SetSpan span) {
        return assignSets(table, place, span,
                          [](std::int64_t) { return SetUse::Span; })
            .count;
      };
      EXPECT_EQ(memory.sets, sets(SetSpan::ForwardToWeightGrad))
          << point.text() << " place " << place;
      if (kind == OneFOneB || kind == Interleaved1F1B)
        continue;
      EXPECT_EQ(memory.inputSets, sets(SetSpan::ForwardToInputGrad))
          << point.text() << " place " << place;
      EXPECT_EQ(memory.keptSets, sets(SetSpan::InputGradToWeightGrad))
          << point.text() << " place " << place;
    }
  }
}

TEST(PlanPoint, NamesWhatIsNotCompiledYet) {
  const ModelConfig model = publicModel("llama-3-8b");
  std::vector<PlanPoint> points = compiledPoints(model);
  for (std::size_t i = points.size(); i-- > 0;)
    for (int change = 0; change < 6; ++change) {
      PlanPoint point = points[i];
      if (change == 0)
        point.cp = 2;
      if (change == 1)
        point.offloadsOptimizer = true;
      if (change == 2) {
        point.recompute = PointRecompute::Full;
        point.recomputed.assign(static_cast<std::size_t>(point.pp), 1);
      }
      if (change == 3)
        point.recipe = i % 2 ? "fp8" : "nvfp4";
      if (change == 4 && point.pp > 1)
        point.recipe = "bf16";
      if (change == 5 && point.pp > 1) {
        point.zeroStage = 3;
        point.prefetch = 1;
        point.shardGroup = point.dp;
      }
      points.push_back(point);
    }
  int compiled = 0;
  for (const PlanPoint &point : points) {
    const TrainSettings train =
        adamW(1024, point.dp * point.microBatch * point.microBatches);
    const Plan plan = planOf(point, model);
    const bool isTaken = checkPlan(plan, model, train) && checkStages(plan);
    EXPECT_EQ(notCompiledYet(point, model).empty(), isTaken)
        << point.text() << ", " << point.recipe << " " << point.scaling << ": "
        << checkPlan(plan, model, train).message();
    compiled += isTaken;
  }
  EXPECT_GE(compiled, 20);
}

TEST(PlanPoint, IsReadFromItsPlan) {
  const ModelConfig model = publicModel("llama-3-8b");
  for (PlanPoint point : compiledPoints(model)) {
    EXPECT_EQ(must(pointOf(planOf(point, model), model)), point)
        << point.text();
    point.order = {PlanAxis::Dp, PlanAxis::Pp, PlanAxis::Tp, PlanAxis::Cp};
    point.cp = 2;
    point.recompute = PointRecompute::Selective;
    point.recomputed.assign(static_cast<std::size_t>(point.pp), 0);
    for (std::int64_t rank = 0; rank < point.pp; ++rank)
      point.recomputed[static_cast<std::size_t>(rank)] =
          std::min<std::int64_t>(rank + 2, point.layersOf(rank));
    point.recipe = "fp8";
    point.scaling = "mxfp8";
    point.blockLength = 32;
    point.offloaded = *readOffloaded("x1.m");
    point.attention = PlanAttention::Unfused;
    point.dropoutMasks = PlanMasks::Saved;
    point.save = PlanSave::LinearInputs;
    EXPECT_EQ(must(pointOf(planOf(point, model), model)), point)
        << point.text();
  }
  Plan plan = planOf(compiledPoints(model).front(), model);
  plan.tensor.parameters.front().split.clear();
  EXPECT_THAT(pointOf(plan, model).message(),
              testing::HasSubstr("tensor.parameters: found other rules"));
}

// 7 layers in chunks of 3, 2, 2: those that keep most give first.
TEST(PlanPoint, RecomputesEvenlyOverChunks) {
  PlanPoint point = {.pp = 1, .chunks = 3, .layers = {3, 2, 2}};
  point.recompute = PointRecompute::Full;
  const std::vector<std::vector<std::int64_t>> expected = {
      {0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {2, 1, 0},
      {2, 1, 1}, {3, 1, 1}, {3, 2, 1}, {3, 2, 2}};
  for (std::int64_t count = 0; count <= 7; ++count) {
    point.recomputed = {count};
    EXPECT_EQ(point.recomputedOf(0), expected[static_cast<std::size_t>(count)]);
  }
}

TEST(PlanPoint, StridesFollowTheOrder) {
  PlanPoint point = {.pp = 2, .dp = 3, .cp = 5, .tp = 7};
  EXPECT_EQ(point.stride(PlanAxis::Tp), 1);
  EXPECT_EQ(point.stride(PlanAxis::Pp), 105);
  point.order = {PlanAxis::Tp, PlanAxis::Pp, PlanAxis::Dp, PlanAxis::Cp};
  EXPECT_EQ(point.stride(PlanAxis::Tp), 30);
  EXPECT_EQ(point.stride(PlanAxis::Cp), 1);
  EXPECT_EQ(point.stride(PlanAxis::Dp), 5);
}

// 12 h + 4 h kv / a + 6 f bytes per token (lib/Model's sizes; validation
// README 1), two statistics of norms and one per head of attention; nothing
// but the input where all is computed again.
TEST(MemoryEstimate, LayersOfLlamaSaveWhatTheirOpsRead) {
  const ModelConfig model = publicModel("llama-3-8b");
  const TrainSettings train = adamW(8192, 8);
  MemoryEstimator estimator(model, train, h100s(1));
  const PlanPoint point = evenly({.dp = 8, .recipe = "bf16"}, model);
  const LayerSaved saved = must(estimator.layerSaved(point, false));
  EXPECT_EQ(saved.none.all,
            8192 * (12 * 4096 + 4096 + 6 * 14336 + 2 * 4 + 32 * 4));
  EXPECT_EQ(saved.none.all - saved.selective.all,
            8192 * (2 * 2 * 4096 + 2 * 14336 + 2 * 4));
  EXPECT_EQ(saved.full.all, 8192 * 2 * 4096);
  PlanPoint half = point;
  half.cp = 2;
  half.context = PlanContext::Ring;
  EXPECT_EQ(must(estimator.layerSaved(half, false)).none.all,
            saved.none.all / 2);
}

// The case MEM-07: bytes of states with a master in fp32, gradients in fp32.
TEST(MemoryEstimate, StatesOfZeroStages) {
  const ModelConfig model = publicModel("llama-3.1-8b");
  MemoryEstimator estimator(model, adamW(8192, 8), h100s(1));
  const std::int64_t expected[] = {144544702464, 60226959360, 32121044992,
                                   18068087808};
  for (std::int64_t stage : {0, 1, 2, 3}) {
    const PlanPoint point = evenly({.dp = 8,
                                    .zeroStage = stage,
                                    .shardGroup = 8,
                                    .reduce = PlanReduce::EveryMicroBatch,
                                    .recipe = "bf16"},
                                   model);
    EXPECT_NEAR(1.0 * estimator.states(point) / expected[stage], 1, 1e-4);
  }
}

// The case MEM-03: balanced routing sends top-k x tokens rows to each rank,
// whatever ep is; only weights shrink.
TEST(MemoryEstimate, ExpertsShrinkWithEpAndTheirActivationsDoNot) {
  const ModelConfig model = publicModel("mixtral-8x7b");
  MemoryEstimator estimator(model, adamW(4096, 8), h100s(1));
  const std::int64_t others =
      46702792704 - 32LL * 8 * 3 * 4096 * 14336; // not routed
  for (std::int64_t ep : {1, 2, 4, 8}) {
    const PlanPoint point =
        evenly({.dp = 8, .ep = ep, .recipe = "bf16"}, model);
    const LayerSaved saved = must(estimator.layerSaved(point, true));
    EXPECT_EQ(saved.ofExperts, 2LL * 4096 * 2 * (2 * 4096 + 3 * 14336));
    const PlaceMemory memory = must(estimator.at(point, 0));
    EXPECT_NEAR(1.0 * memory.parameters,
                2.0 * (others + 32.0 * 8 / ep * 3 * 4096 * 14336), 1e5);
    EXPECT_EQ(memory.worstExperts, 32 * saved.ofExperts * (ep - 1));
  }
}

TEST(MemoryEstimate, LatentAttentionKeepsNarrowVectors) {
  const ModelConfig model = publicModel("deepseek-v3");
  MemoryEstimator estimator(model, adamW(4096, 1024), h100s(256));
  const PlanPoint point = evenly(
      {.pp = 16, .dp = 128, .ep = 64, .microBatches = 8, .recipe = "bf16"},
      model);
  // Per token: x1, n1, x2, n2 (7168 each), queries and keys of 128 x 192,
  // values and output of 128 x 128, low ranks before and behind their norms.
  const std::int64_t attention =
      2 * (4 * 7168 + 2 * 128 * 192 + 2 * 128 * 128 + 2 * (1536 + 512) + 64) +
      2 * 4 + 4 * 128;
  EXPECT_EQ(must(estimator.layerSaved(point, false)).none.all,
            4096LL * (attention + 6 * 18432));
  EXPECT_EQ(must(estimator.layerSaved(point, true)).none.all,
            4096LL * (attention + 4 * 256 + 6 * 2048 +
                      8 * 2 * (2 * 7168 + 3 * 2048)));
}

TEST(MemoryEstimate, RecomputesAsFewLayersAsFit) {
  const ModelConfig model = publicModel("llama-3-70b");
  MemoryEstimator estimator(model, adamW(8192, 64), h100s(4));
  const std::int64_t capacity = h100s(4).planBytesPerDevice();
  PlanPoint point =
      evenly({.pp = 4, .tp = 8, .microBatches = 64, .recipe = "bf16"}, model);
  PlanPoint none = point;
  EXPECT_FALSE(estimator.recomputeToFit(none, capacity));
  point.recompute = PointRecompute::Full;
  ASSERT_TRUE(estimator.recomputeToFit(point, capacity));
  for (std::int64_t place = 0; place < 4; ++place) {
    EXPECT_LE(must(estimator.at(point, place)).bytes(), capacity);
    PlanPoint fewer = point;
    std::int64_t &count = fewer.recomputed[static_cast<std::size_t>(place)];
    if (count-- == 0)
      continue;
    EXPECT_GT(must(estimator.at(fewer, place)).bytes(), capacity);
  }
  // The first place has most in flight.
  EXPECT_GT(point.recomputed.front(), point.recomputed.back());
}

// Its rows are there behind all micro-batches, when nothing is saved any more.
TEST(MemoryEstimate, OffloadLeavesNothingOfTheOptimizer) {
  const ModelConfig model = publicModel("llama-3-8b");
  MemoryEstimator estimator(model, adamW(8192, 8), h100s(1));
  PlanPoint point = evenly({.dp = 8, .recipe = "bf16"}, model);
  const PlaceMemory before = must(estimator.at(point, 0));
  point.offloadsOptimizer = true;
  const PlaceMemory after = must(estimator.at(point, 0));
  EXPECT_EQ(after.hostBytes, before.optimizer);
  EXPECT_EQ(after.optimizer, 0);
  EXPECT_EQ(before.bytes() - after.bytes(), before.optimizer);
  // Where little else is there: a table, and two rows of a norm's weights.
  MemoryEstimator shorter(model, adamW(64, 8), h100s(1));
  point.offloadsOptimizer = false;
  const std::int64_t all = must(shorter.at(point, 0)).bytes();
  point.offloadsOptimizer = true;
  const PlaceMemory rows = must(shorter.at(point, 0));
  EXPECT_EQ(rows.rows, 12LL * 4096 * (128256 + 2));
  EXPECT_LT(rows.bytes(), all);
}

TEST(MemoryEstimate, OnTheHostIsWhatAllLayersSave) {
  const ModelConfig model = publicModel("llama-3-8b");
  MemoryEstimator estimator(model, adamW(8192, 8), h100s(1));
  PlanPoint point = evenly({.dp = 8, .recipe = "bf16"}, model);
  const PlaceMemory before = must(estimator.at(point, 0));
  point.offloaded = *readOffloaded("gate.up");
  const PlaceMemory after = must(estimator.at(point, 0));
  const std::int64_t layer = 8192LL * 2 * 14336 * 2;
  EXPECT_EQ(after.hostBytes, 32 * layer);
  EXPECT_EQ(before.bytes() - after.bytes(), (32 - 2) * layer);
  for (const char *names : {"x2", "gate.qn_rstd"}) {
    point.offloaded = *readOffloaded(names);
    EXPECT_THAT(estimator.at(point, 0).message(),
                testing::HasSubstr("expected values that all layers save for "
                                   "backward, and that do not flow on"))
        << names;
  }
  point.recompute = PointRecompute::Full;
  point.recomputed = {8};
  point.offloaded = *readOffloaded("x1");
  EXPECT_TRUE(estimator.at(point, 0));
  point.offloaded = *readOffloaded("gate");
  EXPECT_FALSE(estimator.at(point, 0));
}

TEST(PlanPoint, NamesOfWhatIsOnTheHostAreReadAsWritten) {
  for (std::uint32_t bits = 0; bits < 1u << savedNames().size();
       bits = bits * 3 + 1)
    EXPECT_EQ(readOffloaded(offloadedText(bits)), bits);
  EXPECT_EQ(offloadedText(0), "none");
  for (const char *text : {"", "gate.", "gate..up", "gate.gate", "none.gate"})
    EXPECT_FALSE(readOffloaded(text)) << text;
}
