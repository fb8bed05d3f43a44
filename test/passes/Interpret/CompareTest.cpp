//===- CompareTest.cpp - two steps that are equal, and two that are not ---===//
//
// A whole step by hand: a table, layers of one product, the loss; on whole
// tensors and on two ranks of `dp`.
//
//===----------------------------------------------------------------------===//

#include "test/passes/Interpret/Harness.h"

#include "passes/Interpret/Compare.h"

#include "gmock/gmock.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using testing::HasSubstr;

namespace {

/// What differs between the variants.
struct Variant {
  int64_t ranks = 1;        // of dp, each with an equal part of the sequences
  int64_t microBatches = 2; // times sequences is 4
  bool reduceGradients = true, reduceCount = true;
  std::string scaleBug = {}; // ops on %dw before it is accumulated
};

class CompareTest : public InterpretTest {
protected:
  ModuleOp parseStep(const Variant &variant);
};

/// Replaces each key, written $key, by its value.
std::string fill(std::string text,
                 const std::vector<std::pair<std::string, std::string>> &keys) {
  for (const auto &[key, value] : keys)
    for (size_t at; (at = text.find("$" + key)) != std::string::npos;)
      text.replace(at, key.size() + 1, value);
  return text;
}

constexpr const char *kStep = R"(
#mesh = #dist.mesh<["dp" = $ranks]>
!ids = tensor<$bx3xi32>
!x = tensor<$bx3x2xf32>
!row = tensor<$bx3xf32>
!w = tensor<2x2xf32>
!t = tensor<5x2xf32>
!stack = !transformer.stack<$mx!ids>
module attributes {$module} {
transformer.state @table parameter : !t {initializer = 2 : i32, initializer_std = 1.0 : f64$state}
transformer.state @table.sum gradient_sum of @table : !t {as = []$sum_t}
transformer.state @table.gradient gradient of @table : !t {as = []$state}
transformer.state @"w.{}" parameter layers 2 : !w {initializer = 2 : i32, initializer_std = 1.0 : f64}
transformer.state @"w.{}.sum" gradient_sum layers 2 of @"w.{}" : !w {as = []$sum_w}
transformer.state @"w.{}.gradient" gradient layers 2 of @"w.{}" : !w
func.func @step(%tokens: !stack {transformer.as = "tokens"$ids}, %labels: !stack {transformer.as = "labels"$ids},
                %learning_rate: tensor<f32> {transformer.as = "learning_rate"})
    -> (tensor<f32> {transformer.as = "loss"$loss}, tensor<i64> {transformer.as = "count"}, tensor<f32> {transformer.as = "gradient_norm"}) {
  %none = transformer.zeros : tensor<i64>
  %own = transformer.loop "micro_batch" $m carry(%none) : (tensor<i64>) -> (tensor<i64>) {
  ^bb0(%i: index, %sum: tensor<i64>):
    %l = transformer.get %labels at %i : !stack
    %n = transformer.count_labels %l : (!ids) -> tensor<i64>
    %next = transformer.add %sum, %n : (tensor<i64>, tensor<i64>) -> tensor<i64>
    transformer.yield %next : tensor<i64>
  }
  $count
  transformer.zero @table.sum
  transformer.zero @"w.{}.sum"
  %start = transformer.zeros : tensor<f32>
  %loss = transformer.loop "micro_batch" $m carry(%start) : (tensor<f32>) -> (tensor<f32>) {
  ^bb0(%i: index, %before: tensor<f32>):
    %ids = transformer.get %tokens at %i : !stack
    %l = transformer.get %labels at %i : !stack
    %t = transformer.load @table : !t
    %x0 = transformer.embedding %ids, %t : (!ids, !t) -> !x
    %x, %all = transformer.loop "layer" 2 carry(%x0) : (!x) -> (!x, !transformer.stack<2 x !x>) {
    ^bb0(%layer: index, %a: !x):
      %w = transformer.load @"w.{}" at %layer : !w
      %b = transformer.contract "b s d, e d -> b s e" %a, %w : (!x, !w) -> !x
      transformer.yield %b : !x collect %a : !x
    }
    %logits = transformer.contract "b s d, v d -> b s v" %x, %t : (!x, !t) -> tensor<$bx3x5xf32>
    %m = transformer.row_max %logits : (tensor<$bx3x5xf32>) -> !row
    %z = transformer.row_sum_exp %logits, %m : (tensor<$bx3x5xf32>, !row) -> !row
    %p = transformer.pick %logits, %l : (tensor<$bx3x5xf32>, !ids) -> !row
    %losses = transformer.token_loss %m, %z, %p : (!row, !row, !row) -> !row
    %mean = transformer.mean_counted %losses, %l, %n : (!row, !ids, tensor<i64>) -> tensor<f32>
    %after = transformer.add %before, %mean : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %dl = transformer.loss_grad %logits, %m, %z, %l, %n : (tensor<$bx3x5xf32>, !row, !row, !ids, tensor<i64>) -> tensor<$bx3x5xf32>
    %dt = transformer.contract "b s v, b s d -> v d" %dl, %x : (tensor<$bx3x5xf32>, !x) -> !t
    transformer.accumulate %dt into @table.sum : !t
    %dx = transformer.contract "b s v, v d -> b s d" %dl, %t : (tensor<$bx3x5xf32>, !t) -> !x
    %dx0 = transformer.loop "layer" 2 reversed carry(%dx) : (!x) -> (!x) {
    ^bb0(%layer: index, %d: !x):
      %w = transformer.load @"w.{}" at %layer : !w
      %a = transformer.get %all at %layer : !transformer.stack<2 x !x>
      %dw = transformer.contract "b s e, b s d -> e d" %d, %a : (!x, !x) -> !w
      $bug
      transformer.accumulate %$dw into @"w.{}.sum" at %layer : !w
      %da = transformer.contract "b s e, e d -> b s d" %d, %w : (!x, !w) -> !x
      transformer.yield %da : !x
    }
    %de = transformer.embedding_grad %ids, %dx0 : (!ids, !x) -> !t
    transformer.accumulate %de into @table.sum : !t
    transformer.yield %after : tensor<f32>
  }
  %ts = transformer.load @table.sum : !t
  $reduce_t
  transformer.store %tg to @table.gradient : !t
  %s0 = transformer.sum_squares %tg : (!t) -> tensor<f64>
  %squares = transformer.loop "layer" 2 carry(%s0) : (tensor<f64>) -> (tensor<f64>) {
  ^bb0(%layer: index, %s: tensor<f64>):
    %ws = transformer.load @"w.{}.sum" at %layer : !w
    $reduce_w
    transformer.store %wg to @"w.{}.gradient" at %layer : !w
    %q = transformer.sum_squares %wg : (!w) -> tensor<f64>
    %r = transformer.add %s, %q : (tensor<f64>, tensor<f64>) -> tensor<f64>
    transformer.yield %r : tensor<f64>
  }
  %norm, %factor = transformer.clip_factor %squares max_norm 0.01 : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
  %t = transformer.load @table : !t
  %g = transformer.load @table.gradient : !t
  %t1 = transformer.sgd %t, %g, %learning_rate, %factor {weight_decay = 0.0 : f64} : (!t, !t, tensor<f32>, tensor<f32>) -> !t
  transformer.store %t1 to @table : !t
  transformer.loop "layer" 2 : () -> () {
  ^bb0(%layer: index):
    %w = transformer.load @"w.{}" at %layer : !w
    %wg = transformer.load @"w.{}.gradient" at %layer : !w
    %w1 = transformer.sgd %w, %wg, %learning_rate, %factor {weight_decay = 0.0 : f64} : (!w, !w, tensor<f32>, tensor<f32>) -> !w
    transformer.store %w1 to @"w.{}" at %layer : !w
    transformer.yield
  }
  return %loss, %n, %norm : tensor<f32>, tensor<i64>, tensor<f32>
}
})";

/// `%to = %from`, summed over dp or as it is.
std::string reduceText(const std::string &from, const std::string &to,
                       const std::string &type, bool reduce) {
  if (reduce)
    return "%" + to + " = dist.all_reduce %" + from +
           " sum on #mesh over [\"dp\"] : " + type + " -> " + type;
  return "%zero_" + to + " = transformer.zeros : " + type + "\n%" + to +
         " = transformer.add %" + from + ", %zero_" + to + " : (" + type +
         ", " + type + ") -> " + type;
}

std::string layoutText(const std::string &layout, const std::string &global) {
  return ", dist.layout = #dist.layout<#mesh, " + layout +
         ">, dist.global = " + global;
}

ModuleOp CompareTest::parseStep(const Variant &variant) {
  bool split = variant.ranks > 1;
  int64_t whole = 4 / variant.microBatches;
  auto onlySplit = [&](const std::string &text) {
    return split ? text : std::string();
  };
  return parse(fill(
      kStep,
      {{"ids",
        onlySplit(layoutText("[{\"dp\"}, {}]",
                             "tensor<" + std::to_string(whole) + "x3xi32>"))},
       {"ranks", std::to_string(variant.ranks)},
       {"module", onlySplit("dist.mesh = #mesh")},
       {"m", std::to_string(variant.microBatches) + " "},
       {"bug", variant.scaleBug},
       {"b", std::to_string(whole / variant.ranks)},
       {"state", onlySplit(layoutText("[{}, {}]", "!t"))},
       {"sum_t", onlySplit(layoutText("[{}, {}], partial = [\"dp\"]", "!t"))},
       {"sum_w", onlySplit(layoutText("[{}, {}], partial = [\"dp\"]", "!w"))},
       {"loss", onlySplit(layoutText("[], partial = [\"dp\"]", "tensor<f32>"))},
       {"count",
        reduceText("own", "n", "tensor<i64>", split && variant.reduceCount)},
       {"reduce_t",
        reduceText("ts", "tg", "!t", split && variant.reduceGradients)},
       {"reduce_w",
        reduceText("ws", "wg", "!w", split && variant.reduceGradients)},
       {"dw", variant.scaleBug.empty() ? "dw" : "dw2"}}));
}

TEST_F(CompareTest, MicroBatchesAndRanksDoNotShow) {
  Variant reference;
  reference.microBatches = 1;
  for (Variant variant : {Variant{1, 4}, Variant{1, 2}, Variant{2, 2},
                          Variant{2, 1}, Variant{4, 1}}) {
    CompareOptions options;
    options.steps = 2;
    FailureOr<StepComparison> comparison =
        compareSteps(parseStep(reference), parseStep(variant), options);
    ASSERT_TRUE(succeeded(comparison)) << messages;
    EXPECT_TRUE(comparison->isEqual(1e-12)) << comparison->describe();
    EXPECT_EQ(comparison->gradients.size(), 3u);
    EXPECT_EQ(comparison->parameters.size(), 3u);
    EXPECT_GT(comparison->count, 3);
    EXPECT_GT(comparison->loss, 1);
    EXPECT_GT(comparison->norm, 0.1);
  }
}

// The gradient that the step computes is the derivative of its loss.
TEST_F(CompareTest, GradientIsTheDerivativeOfTheLoss) {
  ModuleOp module = parseStep({});
  Machine machine = makeMachine(module);
  ASSERT_TRUE(succeeded(setTestParameters(machine, 1)));
  Tensor w = *machine.getState("w.{}", 1);
  auto lossAt = [&](double value) {
    Machine other = makeMachine(module);
    EXPECT_TRUE(succeeded(setTestParameters(other, 1)));
    Tensor moved = w;
    moved.floats[2] = value;
    EXPECT_TRUE(succeeded(other.setState("w.{}", 1, moved)));
    Inputs inputs = *makeStepInputs(other, makeTestBatch(4, 3, 5, 1), {});
    return (*other.run("step", inputs))[0].getTensor().floats[0];
  };
  Inputs inputs = *makeStepInputs(machine, makeTestBatch(4, 3, 5, 1), {});
  ASSERT_TRUE(succeeded(machine.run("step", inputs)));
  double gradient = machine.getState("w.{}.gradient", 1)->floats[2];
  double expected =
      (lossAt(w.floats[2] + 1e-5) - lossAt(w.floats[2] - 1e-5)) / 2e-5;
  EXPECT_NEAR(gradient, expected, 1e-9);
  EXPECT_GT(std::abs(gradient), 1e-4);
}

TEST_F(CompareTest, MissingReductionIsSeen) {
  Variant broken{2, 2};
  broken.reduceGradients = false;
  FailureOr<StepComparison> comparison =
      compareSteps(parseStep({}), parseStep(broken));
  // The norm differs between the ranks, and is returned as one value.
  EXPECT_TRUE(failed(comparison));
  EXPECT_THAT(messages, HasSubstr("has result 'gradient_norm' where ranks 0 "
                                  "and 1 must hold the same bits"));
}

TEST_F(CompareTest, WrongFactorIsSeenAndNamed) {
  Variant broken{2, 2};
  broken.scaleBug = "%dw2 = transformer.add %dw, %dw : (!w, !w) -> !w";
  FailureOr<StepComparison> comparison =
      compareSteps(parseStep({}), parseStep(broken));
  ASSERT_TRUE(succeeded(comparison)) << messages;
  EXPECT_FALSE(comparison->isEqual(1e-2));
  EXPECT_LT(comparison->lossRelative, 1e-12);
  EXPECT_EQ(comparison->gradients.front().name.substr(0, 2), "w.");
  EXPECT_NEAR(comparison->gradients.front().relative, 1, 1e-9);
  EXPECT_LT(comparison->gradients.back().relative, 1e-12);
  EXPECT_THAT(comparison->describe(1), HasSubstr("gradient w."));
}

// Each rank divides by its own count: the loss contract's classic fault.
TEST_F(CompareTest, OwnCountIsSeen) {
  Variant broken{2, 2};
  broken.reduceCount = false;
  FailureOr<StepComparison> comparison =
      compareSteps(parseStep({}), parseStep(broken));
  EXPECT_TRUE(failed(comparison));
  EXPECT_THAT(messages, HasSubstr("has result 'count' where ranks 0 and 1"));
}

TEST_F(CompareTest, DifferenceThatIsNoNumberIsTheWorst) {
  Tensor reference = floats({2}, {1, 2});
  Difference bad =
      measureDifference("bad", reference, floats({2}, {1, std::nan("")}), 1);
  EXPECT_TRUE(std::isnan(bad.relative));
  EXPECT_TRUE(std::isnan(bad.largest));
  StepComparison comparison;
  EXPECT_TRUE(comparison.isEqual(0));
  comparison.gradients = {bad};
  EXPECT_FALSE(comparison.isEqual(1e300));
  Difference off =
      measureDifference("off", reference, floats({2}, {1, 2.5}), 1);
  EXPECT_NEAR(off.relative, 0.5 / std::sqrt(5.0), 1e-15);
  EXPECT_EQ(off.largest, 0.5);
  // Nothing is measured against less than a millionth of all.
  EXPECT_NEAR(
      measureDifference("small", floats({1}, {0}), floats({1}, {1e-6}), 10)
          .relative,
      0.1, 1e-12);
}

} // namespace
