//===- PinnedPlanTest.cpp - plans that pin what they like -----------------===//
//
// Rules drawn by a seed: any parameter along any factors, any named value,
// saved values in another layout than forward's. What checkPlan and planning
// accept compiles and is what one device computes (interpreter, exact reading,
// as soon as there are layouts and again with explicit collectives); what they
// refuse, they refuse in one sentence.
//
// HEDDLE_PINNED_SEEDS=N draws N plans; else a few.
//
//===----------------------------------------------------------------------===//

#include "test/TestPlan.h"

#include "dialects/Transformer/Transformer.h"
#include "heddle/Plan/PlanLayout.h"
#include "passes/Interpret/Compare.h"
#include "passes/Pipelines/Pipelines.h"
#include "passes/Planning/SegmentValues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

using namespace heddle;
using test::modelOf;
using test::must;
using test::planOf;

namespace {

constexpr double kTolerance = 1e-9;

const char *const kModels[] = {
    R"({"model_type": "llama", "hidden_size": 12, "intermediate_size": 19, "num_hidden_layers": 2,
      "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "attention_bias": true,
      "mlp_bias": true})",
    R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})",
    R"({"model_type": "qwen3", "hidden_size": 8, "intermediate_size": 20, "num_hidden_layers": 1,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 30, "hidden_act": "silu",
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})",
    R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 4, "n_positions": 32,
      "vocab_size": 26, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})",
};

TrainSettings settingsOf(int64_t microBatches) {
  TrainSettings train;
  train.sequenceLength = 7; // padded to 8 where it is cut
  train.globalBatch = 4 * microBatches;
  train.optimizer.kind = OptimizerKind::Sgd;
  return train;
}

/// Compiles, and says what was complained of.
struct Compiling {
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  std::string errors;

  Compiling() {
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &given) {
      if (given.getSeverity() == mlir::DiagnosticSeverity::Error)
        errors += (errors.empty() ? "" : "\n") + given.str();
      return mlir::success();
    });
  }

  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
  run(const ModelConfig &model, const Plan &plan, Phase last,
      const PhaseObserver &observer = {}) {
    return compileUpTo(context, {model, settingsOf(plan.microBatches), plan},
                       last, observer);
  }
};

std::vector<std::string> words(const std::string &text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Draws rules that may be legal.
class Drawer {
public:
  explicit Drawer(unsigned seed) : random(seed) {}

  int64_t draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }

  /// Axes for some of the factors, none twice; those that may not be padded
  /// stay whole more often.
  PlanSplit split(const std::string &factors, bool isValue) {
    std::vector<std::string> names = words(factors), axes = {"dp", "tp"};
    std::shuffle(axes.begin(), axes.end(), random);
    PlanSplit split;
    for (const std::string &axis : axes) {
      const std::string &factor = names[draw(0, std::ssize(names) - 1)];
      bool isWhole = factor == "p" || (isValue && factor == "k");
      if (draw(0, 2) && !isWhole)
        split[factor].push_back(axis);
    }
    return split;
  }

  std::mt19937 random;
};

Plan drawPlan(Drawer &drawer, const ModelConfig &model,
              const std::vector<SegmentValue> &values) {
  int64_t dp = drawer.draw(1, 2), tp = drawer.draw(1, 2) * drawer.draw(1, 2);
  Plan plan = planOf(model, dp, tp, 4 / dp, drawer.draw(1, 2));
  for (const ParameterFamily &family : parameters(model))
    if (drawer.draw(0, 2) == 0) {
      std::string match = family.name;
      if (size_t layer = match.find("{}"); layer != std::string::npos)
        match.replace(layer, 2, "*");
      plan.tensor.parameters.push_back(
          {match, drawer.split(family.letters, false)});
    }
  for (const SegmentValue &value : values) {
    if (drawer.draw(0, 5) == 0)
      plan.tensor.values.push_back(
          {value.name, drawer.split(value.factors, true)});
    if (value.isSaved && drawer.draw(0, 5) == 0)
      plan.tensor.saved.push_back(
          {value.name, drawer.split(value.factors, true)});
  }
  return plan;
}

class PinnedPlan : public testing::TestWithParam<unsigned> {};

TEST_P(PinnedPlan, EqualsOneDevice) {
  Drawer drawer(GetParam());
  ModelConfig model = modelOf(kModels[GetParam() % std::size(kModels)]);
  Compiling compiling;
  auto autodiff =
      compiling.run(model, planOf(model, 1, 1, 4, 1), Phase::Autodiff);
  ASSERT_TRUE(succeeded(autodiff));
  std::vector<SegmentValue> values = findSegmentValues(**autodiff);
  Plan plan = drawPlan(drawer, model, values);
  // Redrawn until it is legal: most single faults are refused.
  for (int i = 0;
       i < 200 && !checkPlan(plan, model, settingsOf(plan.microBatches)); ++i)
    plan = drawPlan(drawer, model, values);
  auto checked = checkPlan(plan, model, settingsOf(plan.microBatches));
  ASSERT_TRUE(static_cast<bool>(checked)) << checked.message();
  SCOPED_TRACE(writePlan(plan));

  Plan one = planOf(model, 1, 1, 4, plan.microBatches);
  one.microBatch = 4;
  auto reference = compiling.run(model, one, Phase::Autodiff);
  ASSERT_TRUE(succeeded(reference));
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    if (phase < Phase::Sharding)
      return;
    auto comparison = interpret::compareSteps(**reference, module, {});
    ASSERT_TRUE(succeeded(comparison)) << phaseName(phase) << compiling.errors;
    EXPECT_TRUE(comparison->isEqual(kTolerance)) << phaseName(phase) << "\n"
                                                 << comparison->describe();
  };
  EXPECT_TRUE(succeeded(compiling.run(model, plan, Phase::Overlap, observe)))
      << compiling.errors;
}

unsigned seeds() {
  const char *given = std::getenv("HEDDLE_PINNED_SEEDS");
  return given ? static_cast<unsigned>(std::atoi(given)) : 60;
}

INSTANTIATE_TEST_SUITE_P(Drawn, PinnedPlan, testing::Range(0u, seeds()));

/// What compiling with one more rule complains of.
std::string complaint(const char *list, const PlanRule &rule) {
  ModelConfig model = modelOf(kModels[1]);
  Plan plan = planOf(model, 1, 2, 4, 1);
  (std::string(list) == "saved" ? plan.tensor.saved : plan.tensor.values)
      .push_back(rule);
  EXPECT_TRUE(
      static_cast<bool>(checkPlan(plan, model, settingsOf(plan.microBatches))));
  Compiling compiling;
  EXPECT_TRUE(failed(compiling.run(model, plan, Phase::Sharding)));
  return compiling.errors;
}

TEST(RefusedPins, NameWhatThereIs) {
  using testing::HasSubstr;
  std::string unknown = complaint("values", {"block.n3", {{"b", {"dp"}}}});
  EXPECT_THAT(unknown, HasSubstr("plan: tensor.values: rule \"block.n3\" "
                                 "matches no value; values are block.x, "));
  EXPECT_THAT(unknown, HasSubstr("block.qr, "));
  EXPECT_EQ(unknown.find("embedding."), std::string::npos) << unknown;
  EXPECT_THAT(complaint("values", {"*.nothing*", {}}),
              HasSubstr("head.logits"));
  // Parameters have rules of their own.
  EXPECT_THAT(complaint("values", {"block.wq", {}}),
              HasSubstr("matches no value"));
  std::string saved = complaint("saved", {"block.gate_nothing", {}});
  EXPECT_THAT(saved, HasSubstr("tensor.saved"));
  EXPECT_THAT(saved, HasSubstr("block.n1"));
  EXPECT_EQ(saved.find("block.d_"), std::string::npos) << saved;
  EXPECT_THAT(complaint("values", {"block.n1", {{"f", {"tp"}}}}),
              HasSubstr("splits factor 'f' of value \"block.n1\", which has "
                        "the factors b s d"));
}

} // namespace
