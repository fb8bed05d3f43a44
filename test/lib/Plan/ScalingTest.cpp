// Recipes whose formats need scales: what is read, and what is refused.

#include "PlanModels.h"

#include "heddle/Plan/Plan.h"
#include "heddle/Plan/Scaling.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using ::testing::HasSubstr;

/// A plan of llama10m over tp ranks.
Result<Plan> readPlanOf(std::int64_t tp, const std::string &precision) {
  const ModelConfig model = test::llama10m();
  Result<Document> document = Document::parse(
      fmt::format(R"({{"mesh": [["pp", 1], ["dp", 1], ["cp", 1], ["tp", {}]],
                       "precision": {}}})",
                  tp, precision),
      "p.json", Document::Syntax::Json);
  if (!document)
    return document.error();
  return readPlan(*document, &model);
}

Plan planOf(std::int64_t tp, const std::string &precision) {
  Result<Plan> plan = readPlanOf(tp, precision);
  EXPECT_TRUE(plan) << (plan ? "" : plan.message());
  return plan ? *plan : Plan();
}

/// What `checkPlan` says of a plan of tp ranks with such a precision.
std::string scaled(std::int64_t tp, const std::string &precision) {
  const ModelConfig model = test::llama10m();
  TrainSettings train;
  train.globalBatch = 1;
  train.sequenceLength = 64;
  train.precision = {"fp8"};
  Result<std::vector<PlanWarning>> checked = checkPlan(
      planOf(tp, R"({"recipe": "fp8", )" + precision + "}"), model, train);
  return checked ? "" : checked.message();
}

// hidden 384, ffn 1024, 12 heads of 32 over 4 KV heads.
TEST(Scaling, BlocksOfScalesLieOnOneRank) {
  EXPECT_EQ(scaled(1, R"("scaling": "block")"), "");
  EXPECT_EQ(scaled(2, R"("scaling": "mxfp8")"), "");
  EXPECT_EQ(scaled(2, R"("scaling": "block", "block_length": 64)"), "");
  EXPECT_THAT(
      scaled(2, R"("scaling": "block")"),
      HasSubstr("precision recipe \"fp8\" with scaling \"block\": a scale "
                "belongs to 128 numbers along 'g r k' of "
                "\"model.layers.0.self_attn.q_proj.weight\", but each of 2 "
                "ranks of tp holds 192 of them, no whole blocks"));
  // Where KV heads are shared, what shares them is cut.
  EXPECT_THAT(scaled(8, R"("scaling": "block")"),
              HasSubstr("each of 2 ranks of tp.copy holds 64 of them"));
  // What is no product of codes may be cut anywhere.
  EXPECT_EQ(scaled(2, R"("scaling": "block", "exceptions": [
                         {"match": "*self_attn*", "compute": "bf16"}])"),
            "");
}

TEST(Scaling, BlocksHaveALength) {
  auto read = [](const std::string &precision) {
    return planOf(1, precision).precision;
  };
  EXPECT_EQ(read(R"("fp8")").blockLength, 0);
  EXPECT_EQ(read(R"({"recipe": "fp8", "scaling": "block"})").blockLength, 128);
  EXPECT_EQ(read(R"({"recipe": "fp8", "scaling": "block_power_of_two",
               "block_length": 16})")
                .blockLength,
            16);
  EXPECT_EQ(read(R"({"recipe": "fp8", "scaling": "mxfp8"})").blockLength, 32);
  EXPECT_EQ(read(R"("nvfp4")").blockLength, 16);
  EXPECT_EQ(read(R"({"recipe": "nvfp4", "block_length": 4})").blockLength, 4);
  EXPECT_EQ(read(R"("nvfp4")").scaling, "nvfp4");
  auto fault = [](const std::string &precision) {
    Result<Plan> plan = readPlanOf(1, precision);
    return plan ? "" : plan.message();
  };
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "mxfp8",
                        "block_length": 16})"),
              HasSubstr("is 16, but scaling \"mxfp8\" has blocks of 32"));
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "block",
                        "block_length": 0})"),
              HasSubstr("block_length"));
  // A key of nobody: scales belong to tensors.
  EXPECT_THAT(fault(R"({"recipe": "fp8", "block_length": 16})"),
              HasSubstr("unknown key 'precision.block_length'"));
  for (const char *length : {"3", "64"})
    EXPECT_THAT(fault(fmt::format(
                    R"({{"recipe": "nvfp4", "block_length": {}}})", length)),
                HasSubstr("mixes as many tokens: expected 1, 2, 4, 8, 16"));
  // Each recipe has its own.
  EXPECT_THAT(fault(R"({"recipe": "nvfp4", "scaling": "current"})"),
              HasSubstr("nvfp4"));
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "nvfp4"})"),
              HasSubstr("current"));
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "blocks"})"),
              HasSubstr("block_power_of_two"));
}

TEST(Scaling, HistoriesAreThoseOfDelayedScales) {
  auto read = [](const std::string &precision) {
    return planOf(1, precision).precision;
  };
  const PlanPrecision usual =
      read(R"({"recipe": "fp8", "scaling": "delayed"})");
  EXPECT_EQ(usual.amaxHistory, 1024); // of Transformer Engine
  EXPECT_EQ(usual.amaxAlgorithm, "max");
  EXPECT_FALSE(scalingOf(usual)->isMostRecent);
  const PlanPrecision other =
      read(R"({"recipe": "fp8", "scaling": "delayed", "amax_history": 16,
               "amax_algorithm": "most_recent", "amax_over_dp": true})");
  EXPECT_EQ(scalingOf(other)->amaxHistory, 16);
  EXPECT_TRUE(scalingOf(other)->isMostRecent);
  EXPECT_EQ(read(R"("fp8")").amaxHistory, 0);
  auto fault = [](const std::string &precision) {
    Result<Plan> plan = readPlanOf(1, precision);
    return plan ? "" : plan.message();
  };
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "delayed",
                        "amax_history": 0})"),
              HasSubstr("amax_history"));
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "delayed",
                        "amax_algorithm": "mean"})"),
              HasSubstr("most_recent"));
  EXPECT_THAT(fault(R"({"recipe": "fp8", "scaling": "delayed",
                        "amax_over_dp": false})"),
              HasSubstr("is false, but scales of earlier steps are shared over "
                        "dp"));
  // What was written is read again.
  Plan plan = planOf(1, R"({"recipe": "fp8", "scaling": "delayed",
                            "amax_history": 7})");
  plan.precision.amaxAlgorithm = "most_recent";
  const std::string text = writePlan(plan);
  EXPECT_THAT(text, HasSubstr("\"amax_over_dp\": true"));
  Result<Document> document =
      Document::parse(text, "p.json", Document::Syntax::Json);
  ASSERT_TRUE(document);
  Result<Plan> again = readPlan(*document);
  ASSERT_TRUE(again) << again.message();
  EXPECT_EQ(again->precision, plan.precision);
  // A key of nobody: scales are made of what is there now.
  EXPECT_THAT(fault(R"({"recipe": "fp8", "amax_history": 16})"),
              HasSubstr("unknown key 'precision.amax_history'"));
  EXPECT_EQ(scaled(2, R"("scaling": "delayed", "amax_history": 7)"), "");
}

TEST(Scaling, ExceptionsAreOfProductsThatAreScaled) {
  auto except = [&](const std::string &match, const std::string &compute) {
    return scaled(2, R"("exceptions": [{"match": ")" + match +
                         R"(", "compute": ")" + compute + "\"}]");
  };
  Plan bf16 = planOf(1, R"({"recipe": "bf16", "exceptions": [
                             {"match": "*", "compute": "fp32"}]})");
  TrainSettings train = test::batchOf(1);
  train.precision = {"bf16"};
  auto refused = checkPlan(bf16, test::llama10m(), train);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.message(),
              HasSubstr("precision.exceptions in recipe \"bf16\" is not "
                        "supported yet; leave them empty"));
  EXPECT_EQ(except("*.down_proj.weight", "bf16"), "");
  EXPECT_EQ(except("model.layers.*.self_attn.*", "bf16"), "");
  EXPECT_THAT(except("*.down_proj.weight", "fp32"),
              HasSubstr("compute \"fp32\" of \"*.down_proj.weight\" is not "
                        "supported yet; set it to \"bf16\""));
  // Of some layers, those that are not layer 0 too.
  EXPECT_EQ(except("model.layers.0.*", "bf16"), "");
  EXPECT_EQ(except("model.layers.3.mlp.*", "bf16"), "");
  EXPECT_THAT(except("*norm*", "bf16"),
              HasSubstr("\"*norm*\" matches no parameter whose products are "
                        "scaled; these are, of layer 0: "
                        "model.layers.0.self_attn.q_proj.weight, "));
}

} // namespace
} // namespace heddle
