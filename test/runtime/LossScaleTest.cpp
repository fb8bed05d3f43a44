//===- LossScaleTest.cpp - The loss scale from step to step ---------------===//

#include "runtime/train/LossScale.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

using namespace heddle;
using testing::ElementsAre;

namespace {

/// The scale behind each step, of which those of `steps` overflow that are 'x'.
std::vector<double> scalesOf(const runtime::LossScaling &rules,
                             const std::string &steps) {
  train::LossScale scale(rules);
  std::vector<double> scales;
  for (char step : steps) {
    scale.update(step != 'x');
    scales.push_back(scale.value());
  }
  return scales;
}

/// torch.amp.GradScaler with growth_interval 2: an overflow halves at once and
/// starts the count of good steps again.
TEST(LossScale, WithoutHysteresisIsPyTorchs) {
  const runtime::LossScaling rules = {8, 2, 1, 1};
  EXPECT_THAT(scalesOf(rules, "...."), ElementsAre(8, 16, 16, 32));
  EXPECT_THAT(scalesOf(rules, ".x.."), ElementsAre(8, 4, 4, 8));
  EXPECT_THAT(scalesOf(rules, "x.x."), ElementsAre(4, 4, 2, 2));
  EXPECT_THAT(scalesOf(rules, "xxxx"), ElementsAre(4, 2, 1, 1));
  EXPECT_THAT(scalesOf(rules, "..x.x.."), ElementsAre(8, 16, 8, 8, 4, 4, 8));
}

/// DynamicGradScaler of Megatron-LM with growth interval 3 and hysteresis 2: an
/// overflow is borne once; good steps between two do not forgive, growing does.
TEST(LossScale, WithHysteresisIsMegatrons) {
  const runtime::LossScaling rules = {8, 3, 2, 1};
  EXPECT_THAT(scalesOf(rules, "x"), ElementsAre(8));
  EXPECT_THAT(scalesOf(rules, "xxx"), ElementsAre(8, 4, 2));
  EXPECT_THAT(scalesOf(rules, "x.x"), ElementsAre(8, 8, 4));
  EXPECT_THAT(scalesOf(rules, "x..x..."), ElementsAre(8, 8, 8, 4, 4, 4, 8));
  EXPECT_THAT(scalesOf(rules, "xx...xx"), ElementsAre(8, 4, 4, 4, 8, 8, 4));
}

/// Cut off behind any step and gone on with, it is as if never cut off.
TEST(LossScale, GoesOnFromItsState) {
  const std::string steps = "..x.xx...x......xxx....x.x......";
  for (const runtime::LossScaling &rules :
       {runtime::LossScaling{8, 2, 1, 1}, {8, 3, 2, 1}, {4, 5, 3, 2}}) {
    const std::vector<double> whole = scalesOf(rules, steps);
    for (size_t cut = 0; cut < steps.size(); ++cut) {
      train::LossScale before(rules);
      for (char step : steps.substr(0, cut))
        before.update(step != 'x');
      train::LossScale after(rules);
      after.restore(before.state());
      for (size_t i = cut; i < steps.size(); ++i) {
        after.update(steps[i] != 'x');
        ASSERT_EQ(after.value(), whole[i]) << cut << " " << i;
      }
      EXPECT_EQ(after.skippedAtLeast(), 0);
    }
  }
}

TEST(LossScale, OtherRulesHoldFromThere) {
  train::LossScale scale({8, 3, 1, 4});
  scale.restore({1, 100, 7, 2});
  EXPECT_EQ(scale.value(), 4);
  EXPECT_EQ(scale.skippedAtLeast(), 2);
  scale.update(true); // the count has passed 3: it grows at once
  EXPECT_EQ(scale.value(), 8);
  scale.update(false); // one overflow is enough
  EXPECT_EQ(scale.value(), 4);
  scale.update(false);
  EXPECT_EQ(scale.skippedAtLeast(), 1);
}

TEST(LossScale, StaysWhereItMay) {
  EXPECT_THAT(scalesOf({8, 0, 1, 2}, "....xxx"),
              ElementsAre(8, 8, 8, 8, 4, 2, 2));
  // Neither a float nor its reciprocal overflows, however long training is.
  const std::vector<double> long_ =
      scalesOf({65536, 1, 1, 1}, std::string(400, '.'));
  EXPECT_EQ(long_.back(), 0x1p+64);
}

} // namespace
