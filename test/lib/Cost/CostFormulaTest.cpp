#include "SmallLlama.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

using namespace heddle;
using test::planOf;
using test::settings;
using test::smallLlama;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// dp 2, tp 2: 3 micro-batches of one sequence of 4 tokens on each rank.
RankSizes sizesOfSmall() {
  ModelConfig model = smallLlama();
  Result<RankSizes> sizes =
      rankSizes(model, settings(4, 6), planOf(model, 2, 2, 1, 3));
  EXPECT_TRUE(sizes) << sizes.message();
  return *sizes;
}

TEST(RankSizes, DividesWhatThePlanSplits) {
  RankSizes sizes = sizesOfSmall();
  EXPECT_EQ(sizes.b, 1);
  EXPECT_EQ(sizes.g, 1);
  EXPECT_EQ(sizes.r, 2);
  EXPECT_EQ(sizes.f, 6);
  EXPECT_EQ(sizes.embeddingRows, 8);
  EXPECT_EQ(sizes.heads, AxisList{"tp"});
  EXPECT_EQ(sizes.copies, AxisList{});
  EXPECT_EQ(sizes.data, AxisList{"dp"});
  EXPECT_EQ(sizes.find(Segment::Block, "wq")->elements(), 1 * 2 * 2 * 8);
}

// 2 KV heads over tp 4: two ranks share each, one query head on each rank. 13
// words over 4 ranks are stored as 16, ffn 10 as 12.
TEST(RankSizes, CopiesKvHeadsAndPads) {
  ModelConfig model = smallLlama();
  model.ffn = 10;
  model.vocabulary = 13;
  Result<RankSizes> sizes =
      rankSizes(model, settings(4, 1), planOf(model, 1, 4, 1, 1));
  ASSERT_TRUE(sizes) << sizes.message();
  EXPECT_EQ(sizes->heads, (AxisList{"tp.kv", "tp.copy"}));
  EXPECT_EQ(sizes->copies, AxisList{"tp.copy"});
  EXPECT_EQ(sizes->g, 1);
  EXPECT_EQ(sizes->r, 1);
  EXPECT_EQ(sizes->f, 3);
  EXPECT_EQ(sizes->headRows, 4);
  EXPECT_EQ(sizes->find(Segment::Block, "wk")->elements(), 1 * 2 * 8);
}

TEST(RankSizes, RefusesLayoutsOfAnotherForm) {
  ModelConfig model = smallLlama();
  const std::string rules = R"({"parameters": [
      {"match": "*", "split": {}},
      {"match": "*.gate_proj.weight", "split": {"f": ["tp"]}}],
      "values": [{"match": "block.x", "split": {"b": ["dp"]}},
                 {"match": "block.delta", "split": {"b": ["dp"]}}],
      "saved": []})";
  Result<RankSizes> sizes =
      rankSizes(model, settings(4, 2),
                planOf(model, 1, 2, 1, 2, ", \"tensor\": " + rules));
  ASSERT_FALSE(sizes);
  EXPECT_THAT(sizes.message(), HasSubstr("mlp.gate_proj.weight\" has its "
                                         "factor f over [tp], expected []"));
}

TEST(Flops, CountsPairsThatAttentionSees) {
  EXPECT_EQ(attentionPairs(4, {}), 1 + 2 + 3 + 4);
  EXPECT_EQ(attentionPairs(5, 2), 1 + 2 + 2 + 2 + 2);
  EXPECT_EQ(attentionPairs(3, 8), 1 + 2 + 3);
}

// Multiply-adds of a token on one rank: q and o 8 x 4, k and v 8 x 2, gate, up
// and down 8 x 6, logits 8 x 8: 64 + 32 + 144 + 64 = 304. Forward and backward
// 6 operations each, 3 micro-batches of 4 tokens. Attention: 10 pairs, 4
// numbers of queries, 7 products.
TEST(Flops, CountsProductsAndAttention) {
  FlopCount count = stepFlops(smallLlama(), sizesOfSmall());
  EXPECT_EQ(count.products, 304 * 6 * 3 * 4);
  EXPECT_EQ(count.attention, 10 * 4 * 7 * 2 * 3);
  EXPECT_EQ(count.total(), count.products + count.attention);
}

TEST(Traffic, AllReduceSendsTwoPartsOfEach) {
  EXPECT_EQ(allReduceBytes(800, 4), 1200);
  EXPECT_EQ(allReduceBytes(800, 1), 0);
}

// Two ranks on each axis, so that each all-reduce sends what it reduces.
// dp: 392 numbers of gradients (embedding and head 64 each, three norms of 8,
// q and o 32, k and v 16, three matrices of 48), the loss, the count in 8
// bytes. tp: per micro-batch 6 of 4 x 8 numbers (embedding, block 2 + 2, head)
// and 3 of 4 (loss); the norm in 8 bytes.
TEST(Traffic, CountsReductionsOfAStep) {
  auto traffic = trafficByAxes(stepCollectives(sizesOfSmall()));
  ASSERT_EQ(traffic.size(), 2u);
  // One bucket of the layer and one of the rest; three norms of 8 numbers fill
  // 64 bytes each.
  EXPECT_EQ(traffic[{"dp"}].calls, 2 + 1 + 1);
  EXPECT_EQ(traffic[{"dp"}].bytes, (392 + 3 * 8) * 4 + 4 + 8);
  EXPECT_EQ(traffic[{"tp"}].calls, 3 * (6 + 3) + 1);
  EXPECT_EQ(traffic[{"tp"}].bytes, 3 * (6 * 32 + 3 * 4) * 4 + 8);
}

/// The same with sequences cut over tp.
RankSizes sizesOfCut(bool isSavedGathered) {
  ModelConfig model = smallLlama();
  Plan plan = planOf(model, 2, 2, 1, 3);
  for (PlanRule &rule : plan.tensor.values)
    rule.split["s"] = {"tp"};
  if (isSavedGathered)
    plan.tensor.saved = {{"block.n[12]", {{"b", {"dp"}}}}};
  Result<RankSizes> sizes = rankSizes(model, settings(4, 6), plan);
  EXPECT_TRUE(sizes) << sizes.message();
  return *sizes;
}

// Of 4 x 8 numbers each moves half. Embedding, block 4, head 2; backward of
// the block 6 (the incoming gradient, n2 again, to n2, the one between, n1
// again, to n1), of the embedding 1: 14 per micro-batch, beside the loss's 3
// of 4 numbers. Norms, 3 x 8 numbers in 64 bytes each, are reduced over tp and
// then over dp: the layer's and the last one in two buckets of their own.
TEST(Traffic, CutSequencesAreGatheredAndScattered) {
  for (bool isGathered : {false, true}) {
    auto traffic = trafficByAxes(stepCollectives(sizesOfCut(isGathered)));
    const std::int64_t moved = isGathered ? 12 : 14;
    ASSERT_EQ(traffic.size(), 2u);
    EXPECT_EQ(traffic[{"tp"}].calls, 3 * (moved + 3) + 1 + 2);
    EXPECT_EQ(traffic[{"tp"}].bytes, 3 * (moved * 16 + 3 * 4) * 4 + 8 + 3 * 64);
    EXPECT_EQ(traffic[{"dp"}].calls, 4 + 1 + 1);
    EXPECT_EQ(traffic[{"dp"}].bytes, (392 + 3 * 8) * 4 + 4 + 8);
  }
}

// x1, x2 twice and both norms' statistics are cut, and so are n1 and n2 unless
// they are saved gathered. Head: logits' gradient with the gathered input.
TEST(LiveMemory, CutSequencesSaveParts) {
  for (bool isGathered : {false, true}) {
    LiveMemory memory =
        liveMemory(smallLlama(), settings(4, 6), sizesOfCut(isGathered));
    const std::int64_t normed = isGathered ? 128 : 64;
    EXPECT_EQ(memory.saved,
              3 * 64 + 2 * normed + 2 * 8 + 2 * 64 + 2 * 32 + 32 + 3 * 96);
    EXPECT_EQ(memory.peak().moment, "gradient of logits");
    EXPECT_EQ(memory.peak().frameBytes, 64 + 8 + 128 + 2 * 128 + 2 * 16);
    EXPECT_EQ(memory.peak().carriedBytes, 8 + 2 * 64);
  }
}

TEST(RankSizesOfPlan, OtherFormsAreRefusedByName) {
  ModelConfig model = smallLlama();
  auto refusal = [&](auto change, std::int64_t tp) {
    Plan plan = planOf(model, 2, tp, 1, 3);
    for (PlanRule &rule : plan.tensor.values)
      rule.split["s"] = {"tp"};
    change(plan);
    Result<RankSizes> sizes = rankSizes(model, settings(4, 6), plan);
    return sizes ? "" : sizes.message();
  };
  EXPECT_EQ(refusal([](Plan &) {}, 4), "");
  EXPECT_THAT(
      refusal([](Plan &plan) { plan.tensor.values.push_back({"block.q", {}}); },
              2),
      HasSubstr("\"block.q\""));
  EXPECT_THAT(refusal(
                  [](Plan &plan) {
                    plan.tensor.saved = {{"block.m", {{"f", {"tp"}}}}};
                  },
                  2),
              HasSubstr("tensor.saved"));
  EXPECT_THAT(
      refusal([](Plan &plan) { plan.tensor.values.back().split.erase("s"); },
              2),
      HasSubstr("both or none along s"));
  EXPECT_THAT(
      refusal(
          [](Plan &plan) { plan.tensor.parameters.push_back({"*mlp*", {}}); },
          2),
      HasSubstr("split over all of tp"));
  model.kvHeads = 1;
  model.queryHeadsPerKvHead = 4;
  EXPECT_THAT(refusal([](Plan &) {}, 2), HasSubstr("1 KV head for tp = 2"));
}

TEST(Traffic, OneRankSendsNothing) {
  ModelConfig model = smallLlama();
  Result<RankSizes> sizes =
      rankSizes(model, settings(4, 2), planOf(model, 1, 1, 1, 2));
  ASSERT_TRUE(sizes) << sizes.message();
  EXPECT_TRUE(stepCollectives(*sizes).empty());
}

// tp 4 on 2 KV heads: gradients of keys and values, 4 tokens of 2 numbers, are
// summed over the two ranks that share a head.
TEST(Traffic, CopiesOfKvHeadsReduceTheirGradients) {
  ModelConfig model = smallLlama();
  Result<RankSizes> sizes =
      rankSizes(model, settings(4, 1), planOf(model, 1, 4, 1, 1));
  ASSERT_TRUE(sizes) << sizes.message();
  auto traffic = trafficByAxes(stepCollectives(*sizes));
  EXPECT_EQ(traffic[{"tp.copy"}].calls, 2);
  EXPECT_EQ(traffic[{"tp.copy"}].bytes, 2 * 4 * 2 * 4);
}

// Heads of 6: values are 12 wide, more than the 8 of the hidden size, so their
// gradient is left in parts. Keys' 16 tokens of 6 numbers, and once a step the
// projection's 6 x 8.
TEST(Traffic, WideValuesAreReducedInTheirWeight) {
  ModelConfig model = smallLlama();
  model.headSize = 6;
  Result<RankSizes> sizes =
      rankSizes(model, settings(16, 3), planOf(model, 1, 4, 1, 3));
  ASSERT_TRUE(sizes) << sizes.message();
  EXPECT_TRUE(sizes->valuesStayPartial());
  auto traffic = trafficByAxes(stepCollectives(*sizes));
  EXPECT_EQ(traffic[{"tp.copy"}].calls, 3 + 1);
  EXPECT_EQ(traffic[{"tp.copy"}].bytes, (3 * 16 * 6 + 6 * 8) * 4);
}

TEST(LiveMemory, EntriesOfAStackBeginAtMultiplesOf64) {
  EXPECT_EQ(stackBytes(100, 3), 2 * 128 + 100);
  EXPECT_EQ(stackBytes(100, 1), 100);
}

// Bytes: a number per token 16, hidden 128, f 96, queries 64, keys 32.
// Saved: x1, n1, n2 128 each, x2 twice, two norms' statistics 16, queries and
// output 64, keys and values 32, lse 32, three of the MLP 96.
// Head, gradient of logits: input and normed 128 each, statistics 16, logits
// and gradient 128 each, maximum and sum 16 each: 560. Around it the gradient
// that it makes, the last block's delta, two losses: 264.
// Backward, first product of the gradient of attention's input: the residual's
// gradient and this one 128 each, gradients of queries 64, of keys and values
// 32 each; around it 136.
TEST(LiveMemory, AddsUpAStep) {
  LiveMemory memory = liveMemory(smallLlama(), settings(4, 6), sizesOfSmall());
  EXPECT_EQ(memory.parameters, 392 * 4);
  EXPECT_EQ(memory.gradients, 1568 + 3 * 32); // norms fill 64 bytes
  EXPECT_EQ(memory.optimizer, 0);
  EXPECT_EQ(memory.inputs, 4 * 3 * 4 * 4 + 4);
  EXPECT_EQ(memory.outputs, 4 + 8 + 4);
  EXPECT_EQ(memory.saved, 5 * 128 + 2 * 16 + 2 * 64 + 2 * 32 + 32 + 3 * 96);
  ASSERT_EQ(memory.frames.size(), 3u); // forward, backward, head
  EXPECT_EQ(memory.peak().moment, "gradient of logits");
  EXPECT_EQ(memory.peak().frameBytes, 560);
  EXPECT_EQ(memory.peak().carriedBytes, 264);
  EXPECT_EQ(memory.frames[1].moment,
            "values' part of attention input's gradient");
  EXPECT_EQ(memory.frames[1].frameBytes, 384);
  EXPECT_EQ(memory.frames[1].carriedBytes, 136);
  EXPECT_EQ(memory.peak().function, "head");
  EXPECT_EQ(memory.peakBytes(), 2 * 1568 + 96 + 196 + 16 + 1184 + 824);
}

TEST(LiveMemory, AdamWKeepsTwoMomentsAndReadsTwoCorrections) {
  TrainSettings train = settings(4, 6);
  train.optimizer.kind = OptimizerKind::AdamW;
  LiveMemory memory = liveMemory(smallLlama(), train, sizesOfSmall());
  EXPECT_EQ(memory.optimizer, 2 * memory.parameters);
  EXPECT_EQ(memory.inputs, 4 * 3 * 4 * 4 + 3 * 4);
}

std::vector<std::string> savedNames(const ModelConfig &model) {
  std::vector<std::string> names;
  for (const SavedValue &value : savedPerLayer(model, sizesOfSmall()))
    names.push_back(value.name);
  return names;
}

TEST(LiveMemory, SavesWhatEachFamilyReadsAgain) {
  ModelConfig model = smallLlama();
  EXPECT_THAT(savedNames(model),
              ElementsAre("x1", "n1", "n1_rstd", "qr", "kr", "v", "o", "lse",
                          "x2", "n2", "n2_rstd", "gate", "up", "m"));
  model.qkNorm = true;
  EXPECT_THAT(savedNames(model),
              ElementsAre("x1", "n1", "n1_rstd", "q", "qn_rstd", "k", "kn_rstd",
                          "qr", "kr", "v", "o", "lse", "x2", "n2", "n2_rstd",
                          "gate", "up", "m"));
  model = smallLlama();
  model.norm = NormKind::Layer;
  model.position = PositionKind::Learned;
  model.gatedMlp = false;
  EXPECT_THAT(savedNames(model),
              ElementsAre("x1", "n1", "n1_mean", "n1_rstd", "q", "k", "v", "o",
                          "lse", "x2", "n2", "n2_mean", "n2_rstd", "up", "m"));
}

// One byte per element: 2 s b h of the branches, a s^2 b of attention.
TEST(LiveMemory, NamesTheMasksThatAreNowhere) {
  ModelConfig model = smallLlama();
  const RankSizes sizes = sizesOfSmall();
  EXPECT_TRUE(masksDrawnAgain(model, sizes).empty());
  model.dropout = {0.1, 0.1, 0.1};
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> masks;
  for (const SavedValue &mask : masksDrawnAgain(model, sizes))
    masks[mask.name] = {mask.bytes, mask.entries};
  const std::int64_t hidden = sizes.b * sizes.s * sizes.d;
  EXPECT_EQ(masks.size(), 4u);
  EXPECT_EQ(masks["embedding"], std::pair(hidden, std::int64_t{1}));
  EXPECT_EQ(masks["attention_output"], std::pair(hidden, sizes.layers));
  EXPECT_EQ(masks["mlp_output"], std::pair(hidden, sizes.layers));
  EXPECT_EQ(
      masks["attention"],
      std::pair(sizes.g * sizes.r * sizes.s * sizes.s * sizes.b, sizes.layers));
}

} // namespace
