#include "PlanModels.h"

#include "test/TestPlan.h"

#include <gmock/gmock.h>

namespace heddle {
namespace {

using testing::HasSubstr;

Result<Plan> read(const std::string &members) {
  const ModelConfig model = test::gpt2();
  return readPlan(test::parseJson(R"({"mesh": [["pp", 1], ["dp", 1], ["cp", 1],
                                   ["tp", 1]], )" +
                                      members + "}",
                                  "p.json"),
                  &model);
}

TEST(SavedSet, DefaultsAreOneKernelAndMasksDrawnAgain) {
  const Plan plan = test::must(read(R"("micro_batch": 1)"));
  EXPECT_EQ(plan.attention, PlanAttention::Flash);
  EXPECT_EQ(plan.dropoutMasks, PlanMasks::DrawnAgain);
  EXPECT_EQ(plan.save, PlanSave::Least);
}

TEST(SavedSet, IsReadAndWritten) {
  const Plan plan = test::must(read(
      R"("attention": "unfused", "dropout_masks": "saved",
         "save": "linear_inputs",
         "recompute": [{"selective": true, "prune": false}])"));
  EXPECT_EQ(plan.attention, PlanAttention::Unfused);
  EXPECT_EQ(plan.dropoutMasks, PlanMasks::Saved);
  EXPECT_EQ(plan.save, PlanSave::LinearInputs);
  EXPECT_FALSE(plan.recompute.front().prune);
  const ModelConfig model = test::gpt2();
  EXPECT_EQ(
      test::must(readPlan(test::parseJson(writePlan(plan), "again"), &model)),
      plan);
}

TEST(SavedSet, OtherWordsAreRefused) {
  for (auto [members, key] :
       {std::pair(R"("attention": "core")", "key 'attention'"),
        std::pair(R"("dropout_masks": "kept")", "key 'dropout_masks'"),
        std::pair(R"("save": "nothing")", "key 'save'")}) {
    const Result<Plan> plan = read(members);
    ASSERT_FALSE(plan) << members;
    EXPECT_THAT(plan.message(), HasSubstr(key));
  }
}

// A kernel draws attention's mask where it needs it: there is none to save.
TEST(SavedSet, MasksOfOneKernelAreRefused) {
  ModelConfig model = test::gpt2();
  const Plan plan = test::must(read(R"("dropout_masks": "saved")"));
  EXPECT_TRUE(checkPlan(plan, model, test::batchOf(1)));
  model.dropout.attention = 0.1;
  const auto checked = checkPlan(plan, model, test::batchOf(1));
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.message(), HasSubstr("set attention to \"unfused\""));
}

} // namespace
} // namespace heddle
