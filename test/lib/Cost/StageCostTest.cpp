#include "SmallLlama.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/StageTimes.h"
#include "heddle/Cost/Traffic.h"
#include "heddle/Schedule/Generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

using namespace heddle;
using test::must;
using test::planOf;
using test::PlanSizes;
using test::settings;
using test::smallLlama;
using test::stagesOf;
using testing::HasSubstr;

namespace {

constexpr const char *kUneven = R"([["0..1"], ["2"]])";

ModelConfig threeLayers(bool isTied = false) {
  ModelConfig model = smallLlama();
  model.layers = 3;
  model.tiedEmbeddings = isTied;
  return model;
}

/// Two stages, of two layers and one, dp 2, tp 2: 3 micro-batches of one
/// sequence of 4 tokens.
std::vector<RankSizes> unevenStages(bool isTied = false,
                                    const std::string &members = "") {
  ModelConfig model = threeLayers(isTied);
  return must(placeSizes(model, settings(4, 6),
                         planOf(model, PlanSizes{2, 2, 2, 1, 3},
                                stagesOf(kUneven, "one_f_one_b") + members)));
}

std::int64_t sendsOf(const RankSizes &sizes, std::string_view cause,
                     std::int64_t &elements) {
  std::int64_t calls = 0;
  for (const StepCollective &each : stepCollectives(sizes))
    if (each.kind == CollectiveKind::Send && each.cause.starts_with(cause)) {
      calls += each.calls;
      elements = each.elements;
    }
  return calls;
}

double bytesOf(const RankSizes &sizes, std::string_view cause) {
  double bytes = 0;
  for (const StepCollective &each : stepCollectives(sizes))
    if (each.cause.starts_with(cause))
      bytes += each.bytes;
  return bytes;
}

// Multiply-adds of a token on one rank: 240 in a layer, 64 in the head (see
// CountsProductsAndAttention).
TEST(StageFlops, AreThoseOfItsLayersAndTheHead) {
  const ModelConfig model = threeLayers();
  const std::vector<RankSizes> places = unevenStages();
  ASSERT_EQ(places.size(), 2u);
  const FlopCount first = stepFlops(model, places[0]),
                  last = stepFlops(model, places[1]);
  EXPECT_EQ(first.products, 2 * 240 * 6 * 3 * 4);
  EXPECT_EQ(last.products, (240 + 64) * 6 * 3 * 4);
  EXPECT_EQ(first.attention, 2 * 10 * 4 * 7 * 2 * 3);
  EXPECT_EQ(last.attention, 10 * 4 * 7 * 2 * 3);
}

// A layer's norms have 16 numbers, q and o 32 each, k and v 16, three matrices
// of 48; the embedding's part 64, the head's 64 and 8.
TEST(StageStates, AreThoseOfItsPlace) {
  const TrainSettings train = settings(4, 6);
  const std::vector<RankSizes> places = unevenStages();
  const LiveMemory first = liveMemory(threeLayers(), train, places[0]),
                   last = liveMemory(threeLayers(), train, places[1]);
  // Every norm's 32 bytes fill 64.
  EXPECT_EQ(first.parameters, (64 + 2 * 256) * 4 + 2 * 2 * 32);
  EXPECT_EQ(last.parameters, (256 + 8 + 64) * 4 + 3 * 32);
}

// A set has room for the layers of its stage. Bytes of one: x1, n1, n2 128
// each, statistics of two norms 64 (of 16), queries and output 64, keys and
// values 64 (of 32), lse 64 (of 32), three of the MLP 128 (of 96); x2 128 and
// once more. Nothing is behind the last one. The first stage has two
// micro-batches in flight, the last one, and there x and delta of its last
// block for the head. Beside it: two buffers to send from and one to receive in
// of 64 bytes each, the gradient that goes through the layers, the loss.
TEST(StageMemory, AddsUpWhatIsInFlight) {
  const TrainSettings train = settings(4, 6);
  const std::vector<RankSizes> places = unevenStages();
  const LiveMemory first = liveMemory(threeLayers(), train, places[0]),
                   last = liveMemory(threeLayers(), train, places[1]);
  const std::int64_t layer = 3 * 128 + 2 * 64 + 2 * 64 + 2 * 64 + 64 + 3 * 128;
  const std::int64_t behind = 2 * 48 + 2 * 32 + 32 + 3 * 32;
  EXPECT_EQ(first.saved, 2 * (2 * layer + 3 * 128) - behind);
  EXPECT_EQ(last.saved, layer + 2 * 128 - behind + 2 * 128);
  EXPECT_EQ(first.passing, 3 * 64);
  EXPECT_EQ(last.passing, 3 * 64);
  ASSERT_EQ(first.frames.size(), 4u); // both ways of the embedding, of a block
  EXPECT_EQ(first.peak().function, "block_bwd");
  EXPECT_EQ(first.peak().carriedBytes, 3 * 64 + 128 + 4);
  ASSERT_EQ(last.frames.size(), 3u);
  EXPECT_EQ(last.peak().function, "head");
  EXPECT_EQ(last.peak().carriedBytes, 3 * 64 + 128 + 2 * 4);
}

// Two ranks on each axis, so that each all-reduce sends what it reduces. A
// stage sends each rank's half of 4 x 8 numbers; the other gathers the halves.
TEST(StageTraffic, PassesHalvesAndGathersThem) {
  const std::vector<RankSizes> places = unevenStages();
  std::int64_t elements = 0;
  EXPECT_EQ(sendsOf(places[0], "activation", elements), 3);
  EXPECT_EQ(elements, 16);
  EXPECT_EQ(sendsOf(places[0], "gradient", elements), 0);
  EXPECT_EQ(sendsOf(places[1], "gradient", elements), 3);
  EXPECT_EQ(elements, 16);
  auto first = trafficByAxes(stepCollectives(places[0])),
       last = trafficByAxes(stepCollectives(places[1]));
  // Sends, the loss in 4 bytes, the norm in 8.
  for (const auto &traffic : {first, last}) {
    EXPECT_EQ(traffic.at({"pp"}).calls, 3 + 2);
    EXPECT_EQ(traffic.at({"pp"}).bytes, 3 * 16 * 4 + 4 + 8);
  }
  // Embedding, four of each of two layers, half of what comes back.
  EXPECT_EQ(first[{"tp"}].calls, 3 * (1 + 8 + 1) + 1);
  EXPECT_EQ(first[{"tp"}].bytes, 3 * (9 * 32 + 16) * 4 + 8);
  // Half of what comes, four of a layer, one and three rows of the head.
  EXPECT_EQ(last[{"tp"}].calls, 3 * (1 + 4 + 4) + 1);
  EXPECT_EQ(last[{"tp"}].bytes, 3 * (16 + 5 * 32 + 3 * 4) * 4 + 8);
  // A bucket for each layer, and each of the rest for itself; a layer's norms
  // of 8 numbers fill 64 bytes each. Loss and count.
  EXPECT_EQ(first[{"dp"}].calls, 3 + 2);
  EXPECT_EQ(first[{"dp"}].bytes, (2 * (256 + 16) + 64) * 4 + 12);
  EXPECT_EQ(last[{"dp"}].calls, 3 + 2);
  EXPECT_EQ(last[{"dp"}].bytes, (256 + 16 + 8 + 8 + 64) * 4 + 12);
}

TEST(StageTraffic, CutSequencesAreSentAsTheyAre) {
  const std::vector<RankSizes> places =
      unevenStages(false, R"(, "sequence_parallel": true)");
  std::int64_t elements = 0;
  EXPECT_EQ(sendsOf(places[0], "activation", elements), 3);
  EXPECT_EQ(elements, 16);
  EXPECT_EQ(bytesOf(places[1], "activation"), 0);
}

// 3 tokens of one sequence do not divide, hidden size 8 does; 7 would not, and
// then all is sent.
TEST(StageTraffic, TheFirstDimensionThatDividesIsCut) {
  RankSizes sizes = unevenStages().front();
  sizes.s = 3;
  EXPECT_EQ(sizes.sentElements(), 12);
  sizes.d = 7;
  EXPECT_EQ(sizes.sentElements(), 21);
  EXPECT_TRUE(sizes.sentInParts().empty());
  sizes.b = 2;
  EXPECT_EQ(sizes.sentElements(), 21);
}

// Both ends have the table's half, 64 numbers, and send its gradient once.
TEST(StageTraffic, TiedTablesSwapTheirGradients) {
  const std::vector<RankSizes> places = unevenStages(true);
  for (const RankSizes &sizes : places) {
    EXPECT_NE(sizes.find(Segment::Embedding, "embed"), nullptr);
    EXPECT_EQ(bytesOf(sizes, "gradient of the tied table"), 64 * 4);
  }
  // In shards over dp each sends its run of 32.
  for (const RankSizes &sizes :
       unevenStages(true, R"(, "zero": {"stage": 2, "shard_group": 2,
                               "reduce": "every_micro_batch"})"))
    EXPECT_EQ(bytesOf(sizes, "gradient of the tied table"), 32 * 4);
}

// Rank 0 has stages 0 and 2 of four, or, forth and back, 0 and 3.
TEST(StageTraffic, StagesOfOneRankPassNothingBetweenRanks) {
  ModelConfig model = threeLayers();
  model.layers = 4;
  auto sends = [&](const char *schedule, const char *layers, const char *more,
                   const char *cause) {
    std::vector<std::int64_t> calls;
    std::int64_t elements = 0;
    for (const RankSizes &sizes :
         must(placeSizes(model, settings(4, 4),
                         planOf(model, PlanSizes{2, 1, 1, 1, 4},
                                stagesOf(layers, schedule, more)))))
      calls.push_back(sendsOf(sizes, cause, elements));
    return calls;
  };
  const char *cyclic = R"([["0", "2"], ["1", "3"]])",
             *back = R"([["0", "3"], ["1", "2"]])",
             *headAtFirst = R"(, "head": [0, 1])";
  using List = std::vector<std::int64_t>;
  EXPECT_EQ(sends("interleaved_1f1b", cyclic, "", "activation"), (List{8, 4}));
  EXPECT_EQ(sends("interleaved_1f1b", cyclic, "", "gradient"), (List{4, 8}));
  EXPECT_EQ(sends("zb_v", back, headAtFirst, "activation"), (List{4, 4}));
  EXPECT_EQ(sends("zb_v", back, headAtFirst, "gradient"), (List{4, 4}));
}

// Each of two copies runs half of the micro-batches: as much work as one copy,
// twice the states, and a place has both ends.
TEST(StageSizes, TwoCopiesOfTheModel) {
  ModelConfig model = threeLayers();
  model.layers = 2;
  const TrainSettings train = settings(4, 4);
  const auto sizesOf = [&](const std::string &stages) {
    return must(placeSizes(model, train,
                           planOf(model, PlanSizes{2, 1, 1, 1, 4}, stages)));
  };
  const std::vector<RankSizes> one = sizesOf(stagesOf(R"([["0"], ["1"]])",
                                                      "one_f_one_b")),
                               two = sizesOf(stagesOf(
                                   R"([["0", "1"], ["1", "0"]])", "dualpipe"));
  double ofOne = 0;
  for (const RankSizes &sizes : one)
    ofOne += stepFlops(model, sizes).total();
  for (const RankSizes &sizes : two) {
    EXPECT_DOUBLE_EQ(2 * stepFlops(model, sizes).total(), ofOne);
    EXPECT_EQ(liveMemory(model, train, sizes).parameters,
              liveMemory(model, train, one[0]).parameters +
                  liveMemory(model, train, one[1]).parameters);
    // Of 4 micro-batches 2 go each way.
    const std::map<AxisList, AxisTraffic> traffic =
        trafficByAxes(stepCollectives(sizes, Messages::Gradients));
    std::int64_t elements = 0;
    for (const RankParameter &parameter : sizes.parameters)
      elements += parameter.family.layers * parameter.elements();
    EXPECT_DOUBLE_EQ(traffic.at({"pp.mirror"}).bytes,
                     allReduceBytes(4.0 * static_cast<double>(elements), 2));
  }
}

StageBubbles bubblesOf(const char *schedule, std::int64_t ranks,
                       std::int64_t microBatches) {
  const std::map<std::string, PlanScheduleKind> kinds = {
      {"one_f_one_b", PlanScheduleKind::OneFOneB},
      {"zb_h2", PlanScheduleKind::ZbH2}};
  const ScheduleTable table =
      must(generateSchedule(kinds.at(schedule), ranks, 1, microBatches));
  return bubblesOf(
      simulateSchedule(table, ScheduleTimes::equal(table.placement)));
}

// (p - 1) / m, whether ranks wait for each other or not: the first one has all
// of it between its slots. ZB-H2 has none between them.
TEST(StageBubbles, AreThoseOfThePapers) {
  EXPECT_DOUBLE_EQ(bubblesOf("one_f_one_b", 4, 12).joined, 0.25);
  EXPECT_DOUBLE_EQ(bubblesOf("one_f_one_b", 4, 12).running, 0.25);
  EXPECT_GT(bubblesOf("zb_h2", 4, 12).joined, 0.05);
  EXPECT_NEAR(bubblesOf("zb_h2", 4, 12).running, 0, 1e-12);
}

// F of two layers, then of one; backward of the last one has all of the head.
TEST(StageTimes, AreInTheRatioOfOperations) {
  const ModelConfig model = threeLayers();
  const Plan plan =
      planOf(model, PlanSizes{2, 2, 2, 1, 3}, stagesOf(kUneven, "one_f_one_b"));
  const ScheduleTable table = must(scheduleOfPlan(plan));
  const ScheduleTimes times =
      timesOfFlops(model, plan, unevenStages(), table.placement, 2 * 4);
  // Of one token: 240 multiply-adds of a layer and 10 of each of attention's
  // products (10 pairs, 4 tokens, 4 numbers of queries), 64 of the head.
  EXPECT_DOUBLE_EQ(times.chunks[0][0].forward, 2 * (240 + 2 * 10));
  EXPECT_DOUBLE_EQ(times.chunks[0][0].inputGrad, 2 * (240 + 5 * 10));
  EXPECT_DOUBLE_EQ(times.chunks[0][0].weightGrad, 2 * 240);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].forward, 240 + 2 * 10);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].inputGrad, 240 + 5 * 10 + 2 * 64);
  EXPECT_DOUBLE_EQ(times.chunks[1][0].weightGrad, 240 + 64);
}

// Backward repeats forward, but not the product that makes the MLP's output,
// of 6 x 8, which it does not read.
TEST(StageTimes, CountWhatIsComputedAgain) {
  const ModelConfig model = threeLayers();
  const std::string stages = stagesOf(kUneven, "one_f_one_b");
  const Plan plan = planOf(model, PlanSizes{2, 2, 2, 1, 3}, stages);
  const ScheduleTable table = must(scheduleOfPlan(plan));
  auto timesOf = [&](const std::string &members) {
    return timesOfFlops(model, plan, unevenStages(false, members),
                        table.placement, 2 * 4);
  };
  const ScheduleTimes plain = timesOf(""), again = timesOf(R"(, "recompute":
                        [{"layers": "0", "values": ["m"]}, {"layers": "1..2", "full": true}])");
  for (const std::size_t place : {0, 1}) { // each has one of these layers
    const ChunkTimes &before = plain.chunks[place][0],
                     &with = again.chunks[place][0];
    EXPECT_DOUBLE_EQ(with.forward, before.forward);
    EXPECT_DOUBLE_EQ(with.inputGrad, before.inputGrad + 240 + 2 * 10 - 48);
    EXPECT_DOUBLE_EQ(with.weightGrad, before.weightGrad);
  }
}

class Llama405B : public testing::Test {
protected:
  Llama405B() {
    // The cut and the schedule of the published run, without its recomputing.
    plan.recompute.clear();
    places = must(placeSizes(model, train, plan));
  }

  const std::filesystem::path root = HEDDLE_SOURCE_DIR;
  const ModelConfig model =
      must(readModelConfig(root / "test/cases/hf_configs/llama-3.1-405b.json"));
  const TrainSettings train =
      must(readTrainSettings(root / "tools/examples/train/llama3-405b.yaml"));
  Plan plan = must(readPlan(
      root / "tools/examples/plans/llama-3.1-405b-16384.json", &model));
  std::vector<RankSizes> places;
  const double d = 16384, s = 8192, t = 8, K = 128, m = 16, B = 2048,
               vocabulary = 128256,
               // q and o, k and v of 8 heads of 128, three of the MLP, norms.
      layer = 2 * d * d + 2 * d * 1024 + 3 * d * 53248 + 2 * d;
};

// 6 N per token, N without the embedding's table, which is only looked up, and
// norms; 12 L s^2 d per sequence for attention, of which causal is half and 7
// products instead of 6.
TEST_F(Llama405B, OperationsOfAllRanksAreThoseOfTheModel) {
  FlopCount all;
  for (const RankSizes &sizes : places)
    all += stepFlops(model, sizes);
  const double ranks = K * t, N = 126 * (layer - 2 * d) + vocabulary * d;
  EXPECT_EQ(all.products * ranks, 6 * N * B * s);
  EXPECT_DOUBLE_EQ(all.attention * ranks,
                   12 * 126 * s * s * d * B * 7 / 6 * (s + 1) / (2 * s));
}

// The published run computes the norms' results and the middle of the MLP
// again: parts of sequences, of heads and of the ffn, in bf16; no product is
// repeated.
TEST_F(Llama405B, ListedValuesAreNotSaved) {
  const Plan listed = must(readPlan(
      root / "tools/examples/plans/llama-3.1-405b-16384.json", &model));
  const std::vector<RankSizes> again = must(placeSizes(model, train, listed));
  const double freed = 2 * (s * d / t * 2 + s / t * 4) + s * 53248 / t * 2;
  for (std::size_t place = 0; place < 16; ++place) {
    const RankSizes &sizes = again[place];
    const LiveMemory memory = liveMemory(model, train, sizes),
                     before = liveMemory(model, train, places[place]);
    EXPECT_EQ(stepFlops(model, sizes).total(),
              stepFlops(model, places[place]).total());
    EXPECT_EQ(double(before.saved - memory.saved),
              freed *
                  double(sizes.stages.sets *
                         *std::max_element(sizes.stages.chunkLayers.begin(),
                                           sizes.stages.chunkLayers.end())));
    EXPECT_LT(memory.peakBytes(), before.peakBytes()) << place;
  }
}

// Seven layers at both ends, eight between them; norms are whole on each rank.
// Parameters in bf16, sums of gradients, two moments and the master in fp32.
TEST_F(Llama405B, StatesOfStagesAreThoseOfTheirLayers) {
  const double norms = 2 * d, perLayer = (layer - norms) / t + norms,
               table = vocabulary * d / t;
  double elements = 0;
  for (std::size_t place = 0; place < 16; ++place) {
    const LiveMemory memory = liveMemory(model, train, places[place]);
    const double own = place == 0    ? 7 * perLayer + table
                       : place == 15 ? 7 * perLayer + table + d
                                     : 8 * perLayer;
    EXPECT_EQ(double(memory.parameters), 2 * own) << place;
    EXPECT_EQ(double(memory.gradients), 4 * own) << place;
    EXPECT_EQ(double(memory.optimizer), (2 + 1) * 4 * own / K) << place;
    elements +=
        own * t - (t - 1) * (place == 15 ? 15 : places[place].layers * 2) * d;
  }
  EXPECT_EQ(elements, 405853388800.);
}

// Per micro-batch and stage b s d / t numbers each way; per layer and
// micro-batch 4 all-gathers and 4 reduce-scatters of b s d, and 2 that bring
// the saved shards of norms' outputs together again; gradients once and
// parameters once over the 128 ranks of ZeRO-1.
TEST_F(Llama405B, VolumesAreThePublishedForms) {
  for (std::size_t place = 0; place < 16; ++place) {
    const std::vector<StepCollective> list = stepCollectives(places[place]);
    const double stagesAfter = place == 15 ? 7 : 8,
                 stagesBefore = place == 0 ? 7 : 8,
                 layers = places[place].layers;
    std::int64_t elements = 0;
    EXPECT_EQ(sendsOf(places[place], "activation", elements), m * stagesAfter);
    EXPECT_EQ(elements, s * d / t);
    EXPECT_EQ(sendsOf(places[place], "gradient", elements), m * stagesBefore);
    EXPECT_EQ(elements, s * d / t);
    double states = 0, hidden = 0;
    for (const StepCollective &each : list) {
      const bool isOfLayer =
          each.cause.find("attention") != std::string::npos ||
          each.cause.find("MLP") != std::string::npos;
      if (each.isOfStates)
        states += each.axes == AxisList{"dp"} ? each.bytes : 0;
      else if (isOfLayer)
        hidden += each.bytes;
    }
    const LiveMemory memory = liveMemory(model, train, places[place]);
    EXPECT_DOUBLE_EQ(states,
                     (K - 1) / K * double(memory.gradients + memory.parameters))
        << place;
    EXPECT_DOUBLE_EQ(hidden, layers * m * 10 * s * d * 2 * (t - 1) / t)
        << place;
  }
}

} // namespace
