//===- RecomputeTest.cpp - What backward computes again, by hand ----------===//

#include "SmallLlama.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace heddle;
using test::planOf;
using test::settings;
using test::smallLlama;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

namespace {

/// dp 2, tp 2: 3 micro-batches of one sequence of 4 tokens on each rank.
Result<RankSizes> sizesUnder(const std::string &recompute,
                             const ModelConfig &model = smallLlama()) {
  return rankSizes(model, settings(4, 6),
                   planOf(model, 2, 2, 1, 3,
                          fmt::format(R"(, "recompute": {})", recompute)));
}

LayersUnder under(const std::string &recompute,
                  const ModelConfig &model = smallLlama()) {
  Result<RankSizes> sizes = sizesUnder(recompute, model);
  EXPECT_TRUE(sizes) << sizes.message();
  return sizes->recompute.front();
}

std::vector<std::string> savedBy(const LayersUnder &layers) {
  std::vector<std::string> names;
  for (const SavedValue &value : layers.saved)
    names.push_back(value.name);
  return names;
}

std::vector<std::string> repeatedBy(const LayersUnder &layers) {
  std::vector<std::string> names;
  for (const BlockOp &op : layers.again)
    names.push_back(op.results.front().name);
  return names;
}

std::int64_t bytesOf(const LayersUnder &layers) {
  std::int64_t bytes = 0;
  for (const SavedValue &value : layers.saved)
    bytes += value.bytes;
  return bytes;
}

TEST(Recompute, AListIsNotSavedAndWhatItIsMadeOfIs) {
  EXPECT_THAT(repeatedBy(under("[]")), IsEmpty());
  LayersUnder listed = under(R"(["n1", "m"])");
  EXPECT_THAT(savedBy(listed),
              UnorderedElementsAre("x1", "qr", "kr", "v", "o", "lse", "x2",
                                   "n2", "n2_rstd", "gate", "up"));
  EXPECT_THAT(repeatedBy(listed), ElementsAre("n1", "m"));
  EXPECT_EQ(flopsAgain(listed).total(), 0);
  // Rotated again, queries are saved as the product gives them.
  EXPECT_THAT(savedBy(under(R"(["qr"])")), testing::Contains("q"));
  // The sum of residual and delta is made of both.
  EXPECT_THAT(
      savedBy(under(R"(["x1"])")),
      testing::AllOf(testing::Contains("x"), testing::Contains("delta")));
}

// The products of 4 tokens: 2 x 4 x (8 x (4 + 2 + 2 + 4) + 8 x 6 x 2) without
// the down projection, which is 2 x 4 x 8 x 6; attention over 10 pairs of 2
// heads of 2. Where sequences are whole, one all-reduce is repeated, or two.
TEST(Recompute, AllButTheInput) {
  LayersUnder pruned = under(R"("full")"),
              whole = under(R"([{"full": true, "prune": false}])");
  EXPECT_THAT(savedBy(pruned), ElementsAre("x1"));
  EXPECT_THAT(savedBy(whole), ElementsAre("x1"));
  EXPECT_EQ(flopsAgain(pruned).products, 2 * 4 * (8 * 12 + 8 * 6 * 2));
  EXPECT_EQ(flopsAgain(whole).products, 2 * 4 * (8 * 12 + 8 * 6 * 3));
  EXPECT_EQ(flopsAgain(pruned).attention, 2 * 2 * 10 * 4);
  auto moves = [](const LayersUnder &layers) {
    return std::count_if(
        layers.again.begin(), layers.again.end(),
        [](const BlockOp &op) { return op.moves.has_value(); });
  };
  EXPECT_EQ(moves(pruned), 1);
  EXPECT_EQ(moves(whole), 2);
}

// What costs nothing that counts, also through a value that is not saved
// itself.
TEST(Recompute, SelectiveRepeatsNoProduct) {
  LayersUnder selective = under(R"("selective")");
  EXPECT_THAT(repeatedBy(selective), ElementsAre("n1", "n2", "m"));
  ModelConfig model = smallLlama();
  model.qkNorm = true;
  LayersUnder normed = under(R"("selective")", model);
  EXPECT_THAT(repeatedBy(normed),
              ElementsAre("n1", "qn", "kn", "qr", "kr", "n2", "m"));
  EXPECT_EQ(flopsAgain(normed).total(), 0);
}

TEST(Recompute, ABudgetTakesTheCheapestThatFits) {
  ModelConfig model = smallLlama(); // with sizes at which products count
  model.hidden = 4096;
  model.kvHeads = 8;
  model.queryHeadsPerKvHead = 4;
  model.headSize = 128;
  model.ffn = 14336;
  auto within = [&](std::int64_t bytes) {
    return under(fmt::format(R"({{"budget_bytes": {}}})", bytes), model);
  };
  const std::int64_t all = bytesOf(under("[]", model)),
                     free = bytesOf(under(R"("selective")", model)),
                     least = bytesOf(under(R"("full")", model));
  EXPECT_THAT(repeatedBy(within(all)), IsEmpty());
  EXPECT_EQ(repeatedBy(within(all - 1)).size(), 1u);
  EXPECT_EQ(flopsAgain(within(free)).products, 0);
  EXPECT_EQ(flopsAgain(within(least)).total(),
            flopsAgain(under(R"("full")", model)).total());
  for (std::int64_t bytes = all; bytes >= least; bytes -= (all - least) / 7)
    EXPECT_LE(bytesOf(within(bytes)), bytes);
  Result<RankSizes> none = sizesUnder(R"({"budget_bytes": 1})", model);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.message(),
              HasSubstr(fmt::format("budget_bytes is 1, but a layer saves at "
                                    "least {} bytes",
                                    least)));
}

// GPT-3 175B with 2,048 tokens: forward of a layer is 24 s h^2 and 2 s (s + 1)
// h, of the down projection 8 s h^2.
TEST(Recompute, OperationsAddedToGpt3) {
  const ModelConfig model = test::modelOf(R"({"model_type": "gpt2",
      "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 4096,
      "vocab_size": 51200, "activation_function": "gelu_new",
      "layer_norm_epsilon": 1e-5})");
  for (const double s : {2048.0, 4096.0}) {
    auto flopsOf = [&](const char *recompute) {
      Result<RankSizes> sizes =
          rankSizes(model, settings(std::int64_t(s), 1),
                    planOf(model, 1, 1, 1, 1,
                           fmt::format(R"(, "recompute": {})", recompute)));
      EXPECT_TRUE(sizes) << sizes.message();
      return stepFlops(model, *sizes).total();
    };
    const double h = 12288, none = flopsOf("[]"), pairs = 2 * s * (s + 1) * h;
    EXPECT_DOUBLE_EQ(flopsOf(R"([{"full": true, "prune": false}])") - none,
                     96 * (24 * s * h * h + pairs));
    EXPECT_DOUBLE_EQ(flopsOf(R"("full")") - none,
                     96 * (16 * s * h * h + pairs));
    EXPECT_EQ(flopsOf(R"("selective")"), none);
  }
}

} // namespace
