//===- OpTest.cpp - each op on numbers worked out by hand -----------------===//

#include "test/passes/Interpret/Harness.h"

#include "passes/Interpret/Rank.h"

#include "gmock/gmock.h"

#include <cmath>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using testing::HasSubstr;

namespace {

using OpTest = InterpretTest;

TEST_F(OpTest, Contract) {
  // [1 2; 3 4] times the transpose of [5 6; 7 8]
  expectNear(
      runFloats(
          R"((%x: tensor<2x2xf32>, %w: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %y = transformer.contract "s d, f d -> s f" %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  })",
          {floats({2, 2}, {1, 2, 3, 4}), floats({2, 2}, {5, 6, 7, 8})}),
      {17, 23, 39, 53});
}

// The result's letters in another order, and a letter of all three lists.
TEST_F(OpTest, ContractTransposesItsResult) {
  expectNear(
      runFloats(
          R"((%x: tensor<2x2xf32>, %w: tensor<2x3xf32>) -> tensor<3x2xf32> {
    %y = transformer.contract "b d, d f -> f b" %x, %w : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<3x2xf32>
    return %y : tensor<3x2xf32>
  })",
          {floats({2, 2}, {1, 10, 2, 20}), floats({2, 3}, {1, 2, 3, 4, 5, 6})}),
      {41, 82, 52, 104, 63, 126});
  expectNear(
      runFloats(R"((%x: tensor<2x2xf32>, %w: tensor<2xf32>) -> tensor<2x2xf32> {
    %y = transformer.contract "b d, b -> d b" %x, %w : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  })",
                {floats({2, 2}, {1, 2, 3, 4}), floats({2}, {10, 100})}),
      {10, 300, 20, 400});
}

// 448 / 3 times [1 -3; 0.5 0.3], columns first, each to the nearest of e4m3:
// 149.3 to 144, 74.7 to 72, 44.8 to 44. Exactly, nothing is rounded.
TEST_F(OpTest, CodesBelongToAScale) {
  const std::string text = R"((%x: tensor<2x2xf32>) -> RESULT {
    %most = transformer.amax %x : (tensor<2x2xf32>) -> tensor<f32>
    %c, %s = transformer.quantize %x, %most rotate 1 POWER : (tensor<2x2xf32>, tensor<f32>) -> (tensor<2x2xf8E4M3FN>, tensor<f32>)
    %y = transformer.contract "b d, f d -> b f" %c, %c scaled %s, %s : (tensor<2x2xf8E4M3FN>, tensor<2x2xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<2x2xf32>
    return WHAT : RESULT
  })";
  auto give = [&](const std::string &what, const std::string &type,
                  Reading reading, const std::string &power = "") {
    std::string with = text;
    for (const auto &[name, value] : {std::pair("RESULT", type),
                                      {"RESULT", type},
                                      {"WHAT", what},
                                      {"POWER", power}})
      with.replace(with.find(name), std::string(name).size(), value);
    return runFloats(with, {floats({2, 2}, {1, -3, 0.5, 0.3})}, reading);
  };
  const std::string codes = "tensor<2x2xf8E4M3FN>", number = "tensor<f32>",
                    product = "tensor<2x2xf32>";
  expectNear(give("%most", number, Reading::Exact), {3});
  expectNear(give("%c", codes, Reading::Exact), {1, 0.5, -3, 0.3});
  expectNear(give("%s", number, Reading::Exact), {1});
  expectNear(give("%y", product, Reading::Exact), {1.25, -2.85, -2.85, 9.09});
  expectNear(give("%c", codes, Reading::Rounded), {144, 72, -448, 44});
  expectNear(give("%s", number, Reading::Rounded), {3 / 448.0}, 1e-9);
  const double unit = 9 / (448.0 * 448);
  expectNear(give("%y", product, Reading::Rounded),
             {25920 * unit, -61344 * unit, -61344 * unit, 202640 * unit}, 1e-5);
  // The power of two below 149.3 is 128.
  expectNear(give("%c", codes, Reading::Rounded, "power_of_two"),
             {128, 64, -384, 40});
  expectNear(give("%s", number, Reading::Rounded, "power_of_two"), {1 / 128.0});
}

// Blocks of one row and two columns, the last of one, turned: [1, 7 | 0.5],
// [-3, 0 | 0]. 448 / 7 is 64 and 448 / 0.5 is 896; in powers of two 64, 512;
// below 448 / 3 are 149.3 and 128. A block of zeros has scale 1.
TEST_F(OpTest, BlocksHaveScalesOfTheirOwn) {
  const Tensor x = floats({3, 2}, {1, -3, 7, 0, 0.5, 0});
  auto give = [&](const std::string &what, const std::string &type,
                  const std::string &power, const std::string &scale,
                  Reading reading = Reading::Rounded) {
    const std::string scales = "tensor<2x2x" + scale + ">",
                      codes = "tensor<2x3xf8E4M3FN>";
    return runFloats("(%x: tensor<3x2xf32>) -> " + type + R"( {
    %c, %s = transformer.quantize %x rotate 1 blocks [1, 2] over 1 )" +
                         power + " : (tensor<3x2xf32>) -> (" + codes + ", " +
                         scales + R"()
    %y = transformer.contract "a k, b k -> a b" %c, %c scaled %s, %s blocks [1, 1, 2] : ()" +
                         codes + ", " + codes + ", " + scales + ", " + scales +
                         R"() -> tensor<2x2xf32>
    return )" + what + " : " +
                         type + "\n}",
                     {x}, reading);
  };
  const std::string codes = "tensor<2x3xf8E4M3FN>", f32 = "tensor<2x2xf32>",
                    product = "tensor<2x2xf32>", byte = "tensor<2x2xf8E8M0FNU>";
  expectNear(give("%c", codes, "", "f32"), {64, 448, 448, -448, 0, 0});
  expectNear(give("%s", f32, "", "f32"), {1 / 64.0, 0.5 / 448, 3 / 448.0, 1},
             1e-7);
  expectNear(give("%y", product, "", "f32"), {50.25, -3, -3, 9}, 1e-6);
  expectNear(give("%c", codes, "power_of_two", "f8E8M0FNU"),
             {64, 448, 256, -384, 0, 0});
  expectNear(give("%s", byte, "power_of_two", "f8E8M0FNU"),
             {1 / 64.0, 1 / 512.0, 1 / 128.0, 1});
  expectNear(give("%c", codes, "", "f32", Reading::Exact),
             {1, 7, 0.5, -3, 0, 0});
  expectNear(give("%y", product, "", "f32", Reading::Exact),
             {50.25, -3, -3, 9});
}

// A block's rows are those of the matrix, and the last may be fewer.
TEST_F(OpTest, BlocksHaveRows) {
  expectNear(runFloats(R"((%x: tensor<3x2xf32>) -> tensor<2x1xf32> {
    %c, %s = transformer.quantize %x blocks [2, 2] over 1 : (tensor<3x2xf32>) -> (tensor<3x2xf8E5M2>, tensor<2x1xf32>)
    return %s : tensor<2x1xf32>
  })",
                       {floats({3, 2}, {1, -3, 7, 0, 0.5, 0})},
                       Reading::Rounded),
             {7 / 57344.0, 0.5 / 57344}, 1e-9);
}

// The place of the step, and what stands for a magnitude that is no number;
// where nothing is known, and where the step is passed over, all stays.
TEST_F(OpTest, HistoriesOfMagnitudes) {
  auto delay = [&](const std::string &recent, std::vector<double> now,
                   int64_t step, double factor) {
    std::vector<Tensor> found = run(
        parseFunction(
            R"((%h: tensor<2x3xf32>, %n: tensor<2xf32>, %b: tensor<2xf32>, %s: tensor<i32>, %f: tensor<f32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
    %h1, %a = transformer.delay_scales %h, %n, %b, %s, %f )" +
            recent +
            R"( : (tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<i32>, tensor<f32>) -> (tensor<2x3xf32>, tensor<2xf32>)
    return %h1, %a : tensor<2x3xf32>, tensor<2xf32>
  })"),
        {floats({2, 3}, {1, 5, 3, 0, 0, 0}), floats({2}, now),
         floats({2}, {9, 8}), integers({}, {step}), floats({}, {factor})});
    std::vector<double> all = found.at(0).floats;
    all.insert(all.end(), found.at(1).floats.begin(), found.at(1).floats.end());
    return all;
  };
  expectNear(delay("", {2, 0}, 4, 0.5), {1, 2, 3, 0, 0, 0, 3, 8});
  expectNear(delay("most_recent", {2, 4}, 5, 1), {1, 5, 2, 0, 0, 4, 2, 4});
  expectNear(delay("", {2, 4}, 4, 0), {1, 5, 3, 0, 0, 0, 9, 8});
  const double none = std::numeric_limits<double>::quiet_NaN();
  expectNear(delay("", {none, std::numeric_limits<double>::infinity()}, 3, 1),
             {9, 5, 3, 8, 0, 0, 9, 8});
}

TEST_F(OpTest, LargerOnes) {
  std::vector<double> larger = runFloats(
      R"((%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
    %m = transformer.maximum %x, %y : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    return %m : tensor<3xf32>
  })",
      {floats({3}, {1, -2, 3}),
       floats({3}, {2, -3, std::numeric_limits<double>::quiet_NaN()})});
  expectNear({larger[0], larger[1]}, {2, -2});
  EXPECT_TRUE(std::isnan(larger[2]));
}

TEST_F(OpTest, SumsAndStacks) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  expectNear(
      runFloats(R"((%x: tensor<2x2xf32>, %b: tensor<2xf32>) -> tensor<2x2xf32> {
    %y = transformer.bias_add %x, %b : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  })",
                {x, floats({2}, {10, 20})}),
      {11, 22, 13, 24});
  expectNear(runFloats(R"((%x: tensor<2x2xf32>) -> tensor<2xf32> {
    %y = transformer.sum_leading %x : (tensor<2x2xf32>) -> tensor<2xf32>
    return %y : tensor<2xf32>
  })",
                       {x}),
             {4, 6});
  expectNear(runFloats(R"((%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %a, %b = transformer.split_tensors %x : (tensor<2x2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
    %z = transformer.zeros_like %a : (tensor<2xf32>) -> tensor<2xf32>
    %c = transformer.add %z, %a : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %y = transformer.stack_tensors %b, %c : (tensor<2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
    return %y : tensor<2x2xf32>
  })",
                       {x}),
             {3, 4, 1, 2});
}

TEST_F(OpTest, Activations) {
  auto activate = [&](std::string kind) {
    return runFloats("(%x: tensor<4xf32>) -> tensor<4xf32> { %y = "
                     "transformer.activation " +
                         kind +
                         " %x : (tensor<4xf32>) -> tensor<4xf32>\nreturn %y : "
                         "tensor<4xf32> }",
                     {floats({4}, {0, 1, -1, 2})});
  };
  expectNear(activate("silu"),
             {0, 0.7310585786300049, -0.2689414213699951, 1.7615941559557649});
  expectNear(activate("gelu_tanh"),
             {0, 0.8411919906082768, -0.15880800939172324, 1.9545976940877752});
  expectNear(activate("gelu_erf"),
             {0, 0.8413447460685429, -0.15865525393145707, 1.9544997361036416});
  expectNear(activate("relu"), {0, 1, 0, 2});
  expectNear(
      runFloats(R"((%g: tensor<2xf32>, %u: tensor<2xf32>) -> tensor<2xf32> {
    %y = transformer.gated silu %g, %u : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %y : tensor<2xf32>
  })",
                {floats({2}, {1, 2}), floats({2}, {10, -1})}),
      {7.310585786300049, -1.7615941559557649});
}

TEST_F(OpTest, Norms) {
  // mean of squares of [3 4] is 12.5; with 0.5 more, 13
  double rms = std::sqrt(13.0);
  std::vector<Tensor> rmsNorm = run(
      parseFunction(
          R"((%x: tensor<1x2xf32>, %w: tensor<2xf32>) -> (tensor<1x2xf32>, tensor<1xf32>) {
    %y, %r = transformer.rms_norm %x, %w epsilon 5.0e-1 : (tensor<1x2xf32>, tensor<2xf32>) -> (tensor<1x2xf32>, tensor<1xf32>)
    return %y, %r : tensor<1x2xf32>, tensor<1xf32>
  })"),
      {floats({1, 2}, {3, 4}), floats({2}, {1, 2})});
  expectNear(rmsNorm.at(0).floats, {3 / rms, 8 / rms});
  expectNear(rmsNorm.at(1).floats, {1 / rms});
  // mean of [1 5] is 3, variance 4; with 5 more, 9
  std::vector<Tensor> layerNorm = run(
      parseFunction(
          R"((%x: tensor<1x2xf32>, %w: tensor<2xf32>, %b: tensor<2xf32>) -> (tensor<1x2xf32>, tensor<1xf32>, tensor<1xf32>) {
    %y, %m, %r = transformer.layer_norm %x, %w, %b epsilon 5.0 : (tensor<1x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<1x2xf32>, tensor<1xf32>, tensor<1xf32>)
    return %y, %m, %r : tensor<1x2xf32>, tensor<1xf32>, tensor<1xf32>
  })"),
      {floats({1, 2}, {1, 5}), floats({2}, {3, 6}), floats({2}, {10, 20})});
  expectNear(layerNorm.at(0).floats, {8, 24});
  expectNear(layerNorm.at(1).floats, {3});
  expectNear(layerNorm.at(2).floats, {1 / 3.0});
}

static std::string ropeText(const std::string &options) {
  return "(%x: tensor<1x1x4xf32>, %p: tensor<1x1xi32>) -> tensor<1x1x4xf32> { "
         "%y = transformer.rope %x, %p theta 1.0e2 " +
         options +
         " : (tensor<1x1x4xf32>, tensor<1x1xi32>) -> tensor<1x1x4xf32>\n"
         "return %y : tensor<1x1x4xf32> }";
}

// Frequencies are 1 and 1/10; elements 0 and 2 are a pair, 1 and 3.
TEST_F(OpTest, Rope) {
  Tensor x = floats({1, 1, 4}, {1, 1, 0, 2}), position = integers({1, 1}, {3});
  Floats turned = runFloats(ropeText(""), {x, position});
  double c0 = std::cos(3.0), s0 = std::sin(3.0), c1 = std::cos(0.3),
         s1 = std::sin(0.3);
  expectNear(turned, {c0, c1 - 2 * s1, s0, 2 * c1 + s1});
  expectNear(
      runFloats(ropeText("inverse"), {floats({1, 1, 4}, turned), position}),
      x.floats);
}

// Wavelengths 2 pi and 20 pi. Context 40: 6.4 turns, above 4, are kept; 0.64,
// below 1, are divided by 8. Context 128 makes 2.04 turns of the second: it is
// 0.346 of the way.
TEST_F(OpTest, RopeWithLlama3Scaling) {
  Tensor x = floats({1, 1, 4}, {1, 1, 0, 0}), position = integers({1, 1}, {3});
  auto angles = [&](int64_t context) {
    Floats y =
        runFloats(ropeText("scaling <factor = 8.0, lowFrequencyFactor = 1.0, "
                           "highFrequencyFactor = 4.0, originalContext = " +
                           std::to_string(context) + ">"),
                  {x, position});
    return Floats{std::atan2(y[2], y[0]) / 3, std::atan2(y[3], y[1]) / 3};
  };
  expectNear(angles(40), {1, 0.1 / 8});
  double kept = (12.8 / (2 * M_PI) - 1) / 3;
  expectNear(angles(128), {1, 0.1 * (kept + (1 - kept) / 8)});
}

/// One KV head of size 1 with two query heads, two tokens, scale 1.
static std::string attentionText(const std::string &options) {
  return R"((%q: tensor<1x2x1x2x1xf32>, %k: tensor<1x2x1x1xf32>, %v: tensor<1x2x1x1xf32>, %p: tensor<1x2xi32>, %c: tensor<1x2xi32>) -> (tensor<1x2x1x2x1xf32>, tensor<1x2x1x2xf32>) {
    %o, %l = transformer.attention %q, %k, %v, %p, %p, %c, %c scale 1.0 )" +
         options +
         R"( : (tensor<1x2x1x2x1xf32>, tensor<1x2x1x1xf32>, tensor<1x2x1x1xf32>, tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>, tensor<1x2xi32>) -> (tensor<1x2x1x2x1xf32>, tensor<1x2x1x2xf32>)
    return %o, %l : tensor<1x2x1x2x1xf32>, tensor<1x2x1x2xf32>
  })";
}

// The second token weighs the values 1 and 5 by 1 : 3 in one head, 1 : 1 in the
// other.
TEST_F(OpTest, Attention) {
  auto attend = [&](std::string options, std::vector<int64_t> documents) {
    return run(parseFunction(attentionText(options)),
               {floats({1, 2, 1, 2, 1}, {9, 9, 1, 0}),
                floats({1, 2, 1, 1}, {0, std::log(3.0)}),
                floats({1, 2, 1, 1}, {1, 5}), integers({1, 2}, {0, 1}),
                integers({1, 2}, documents)});
  };
  std::vector<Tensor> all = attend("", {0, 0});
  expectNear(all.at(0).floats, {1, 1, 4, 3});
  expectNear(all.at(1).floats, {0, 0, std::log(4.0), std::log(2.0)});
  expectNear(attend("window 1", {0, 0}).at(0).floats, {1, 1, 5, 5});
  expectNear(attend("window 2", {0, 0}).at(0).floats, {1, 1, 4, 3});
  expectNear(attend("", {0, 1}).at(0).floats, {1, 1, 5, 5});
}

TEST_F(OpTest, Embedding) {
  std::string text =
      R"((%i: tensor<1x3xi32>, %t: tensor<3x2xf32>) -> (tensor<1x3x2xf32>, tensor<3x2xf32>) {
    %x = transformer.embedding %i, %t : (tensor<1x3xi32>, tensor<3x2xf32>) -> tensor<1x3x2xf32>
    %d = transformer.embedding_grad %i, %x : (tensor<1x3xi32>, tensor<1x3x2xf32>) -> tensor<3x2xf32>
    return %x, %d : tensor<1x3x2xf32>, tensor<3x2xf32>
  })";
  Tensor table = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  std::vector<Tensor> results =
      run(parseFunction(text), {integers({1, 3}, {2, 0, 2}), table});
  expectNear(results.at(0).floats, {5, 6, 1, 2, 5, 6});
  expectNear(results.at(1).floats, {1, 2, 0, 0, 10, 12});

  EXPECT_TRUE(
      run(parseFunction(text), {integers({1, 3}, {2, 3, 2}), table}).empty());
  EXPECT_THAT(messages, HasSubstr("'transformer.embedding' op reads number 3 "
                                  "(element 1) of 3; expected 0 to 2"));
}

/// Logits [0, ln 3] of two tokens.
static std::string lossText() {
  return R"((%x: tensor<1x2x2xf32>, %t: tensor<1x2xi32>) -> (tensor<i64>, tensor<f32>, tensor<1x2x2xf32>) {
    %n = transformer.count_labels %t : (tensor<1x2xi32>) -> tensor<i64>
    %m = transformer.row_max %x : (tensor<1x2x2xf32>) -> tensor<1x2xf32>
    %z = transformer.row_sum_exp %x, %m : (tensor<1x2x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
    %p = transformer.pick %x, %t : (tensor<1x2x2xf32>, tensor<1x2xi32>) -> tensor<1x2xf32>
    %l = transformer.token_loss %m, %z, %p : (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
    %loss = transformer.mean_counted %l, %t, %n : (tensor<1x2xf32>, tensor<1x2xi32>, tensor<i64>) -> tensor<f32>
    %d = transformer.loss_grad %x, %m, %z, %t, %n : (tensor<1x2x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x2xi32>, tensor<i64>) -> tensor<1x2x2xf32>
    return %n, %loss, %d : tensor<i64>, tensor<f32>, tensor<1x2x2xf32>
  })";
}

TEST_F(OpTest, Loss) {
  auto measure = [&](std::vector<int64_t> labels) {
    return run(parseFunction(lossText()),
               {floats({1, 2, 2}, {0, std::log(3.0), 0, std::log(3.0)}),
                integers({1, 2}, labels)});
  };
  std::vector<Tensor> both = measure({1, 0});
  EXPECT_EQ(both.at(0).integers, std::vector<int64_t>{2});
  expectNear(both.at(1).floats, {(std::log(4 / 3.0) + std::log(4.0)) / 2});
  expectNear(both.at(2).floats, {0.125, -0.125, -0.375, 0.375});
  std::vector<Tensor> one = measure({1, -100});
  EXPECT_EQ(one.at(0).integers, std::vector<int64_t>{1});
  expectNear(one.at(1).floats, {std::log(4 / 3.0)});
  expectNear(one.at(2).floats, {0.25, -0.25, 0, 0});
  std::vector<Tensor> none = measure({-100, -1});
  EXPECT_EQ(none.at(0).integers, std::vector<int64_t>{0});
  expectNear(none.at(1).floats, {0});
  expectNear(none.at(2).floats, {0, 0, 0, 0});

  EXPECT_TRUE(measure({1, 2}).empty());
  EXPECT_THAT(messages, HasSubstr("'transformer.pick' op reads number 2 "
                                  "(element 1) of 2; expected 0 to 1"));
}

TEST_F(OpTest, ClipsByTheNorm) {
  std::string text =
      R"((%g: tensor<2xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
    %s = transformer.sum_squares %g : (tensor<2xf32>) -> tensor<f64>
    %n, %f = transformer.clip_factor %s max_norm 1.0 : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
    %m, %e = transformer.clip_factor %s : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
    return %n, %f, %m, %e : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  })";
  auto clip = [&](double x, double y) {
    Floats all;
    for (const Tensor &tensor : run(parseFunction(text), {floats({2}, {x, y})}))
      all.push_back(tensor.floats[0]);
    return all;
  };
  expectNear(clip(3, 4), {5, 1 / (5 + 1e-6), 5, 1});
  expectNear(clip(0.3, 0.4), {0.5, 1, 0.5, 1});
}

TEST_F(OpTest, Optimizers) {
  expectNear(
      runFloats(
          R"((%w: tensor<1xf32>, %g: tensor<1xf32>, %r: tensor<f32>, %f: tensor<f32>) -> tensor<1xf32> {
    %y = transformer.sgd %w, %g, %r, %f {weight_decay = 0.5 : f64} : (tensor<1xf32>, tensor<1xf32>, tensor<f32>, tensor<f32>) -> tensor<1xf32>
    return %y : tensor<1xf32>
  })",
          {floats({1}, {2}), floats({1}, {3}), Tensor::scalar(0.1),
           Tensor::scalar(0.5)}),
      {2 * 0.95 - 0.1 * 0.5 * 3});
  // g = 4 * 0.5 = 2; m' = 0.5 + 1 = 1.5; v' = 0.75 * 4 + 0.25 * 4 = 4;
  // 2 m' / (sqrt(4 v') + 1) = 3 / 5
  std::vector<Tensor> adam = run(
      parseFunction(
          R"((%w: tensor<1xf32>, %g: tensor<1xf32>, %m: tensor<1xf32>, %v: tensor<1xf32>, %r: tensor<f32>, %a: tensor<f32>, %b: tensor<f32>, %f: tensor<f32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) {
    %x, %n, %u = transformer.adamw %w, %g, %m, %v, %r, %a, %b, %f {beta1 = 0.5 : f64, beta2 = 0.75 : f64, epsilon = 1.0 : f64, weight_decay = 0.2 : f64} : (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>)
    return %x, %n, %u : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
  })"),
      {floats({1}, {10}), floats({1}, {4}), floats({1}, {1}), floats({1}, {4}),
       Tensor::scalar(0.5), Tensor::scalar(2), Tensor::scalar(4),
       Tensor::scalar(0.5)});
  expectNear(adam.at(0).floats, {10 * 0.9 - 0.5 * 0.6});
  expectNear(adam.at(1).floats, {1.5});
  expectNear(adam.at(2).floats, {4});
}

//===----------------------------------------------------------------------===//
// Readings
//===----------------------------------------------------------------------===//

TEST_F(OpTest, RoundedReadingRoundsEachResult) {
  auto add = [&](std::string type, double a, double b, Reading reading) {
    return runFloats("(%x: tensor<" + type + ">, %y: tensor<" + type +
                         ">) -> tensor<" + type +
                         "> { %z = transformer.add %x, %y : (tensor<" + type +
                         ">, tensor<" + type + ">) -> tensor<" + type +
                         ">\nreturn %z : tensor<" + type + "> }",
                     {Tensor::scalar(a), Tensor::scalar(b)}, reading)
        .front();
  };
  double small = std::ldexp(1.0, -25);
  EXPECT_EQ(add("f32", 1, small, Reading::Exact), 1 + small);
  EXPECT_EQ(add("f32", 1, small, Reading::Rounded), 1);
  EXPECT_EQ(add("f64", 1, small, Reading::Rounded), 1 + small);
  // bf16 has 8 bits: 1 + 1/256 is a tie, which goes to the even 1
  EXPECT_EQ(add("bf16", 1, 1.0 / 256, Reading::Rounded), 1);
  EXPECT_EQ(add("bf16", 1, 1.0 / 128, Reading::Rounded), 1 + 1.0 / 128);
  EXPECT_EQ(add("bf16", 1, 1.0 / 256, Reading::Exact), 1 + 1.0 / 256);
}

// 2^24 + 1 is no fp32 number: adding ones one by one changes nothing.
TEST_F(OpTest, RoundedReadingSumsInSinglePrecision) {
  std::string text = R"((%x: tensor<3xf32>, %w: tensor<3xf32>) -> tensor<f32> {
    %y = transformer.contract "d, d -> " %x, %w : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
    return %y : tensor<f32>
  })";
  std::vector<Tensor> arguments = {floats({3}, {16777216, 1, 1}),
                                   floats({3}, {1, 1, 1})};
  EXPECT_EQ(runFloats(text, arguments, Reading::Rounded).at(0), 16777216);
  EXPECT_EQ(runFloats(text, arguments, Reading::Exact).at(0), 16777218);
}

//===----------------------------------------------------------------------===//
// What is refused
//===----------------------------------------------------------------------===//

TEST_F(OpTest, EveryOpHasAMeaning) {
  // These stand around what is evaluated.
  std::set<std::string> structure = {"transformer.state", "transformer.yield",
                                     "stage.table", "stage.yield"};
  const Evaluators evaluators = Evaluators::of(context);
  unsigned known = 0;
  for (RegisteredOperationName name : context.getRegisteredOperations()) {
    StringRef dialect = name.getDialectNamespace();
    if ((dialect != "transformer" && dialect != "dist" && dialect != "stage") ||
        structure.count(name.getStringRef().str()))
      continue;
    EXPECT_TRUE(evaluators.find(name.getStringRef()))
        << name.getStringRef().str();
    ++known;
  }
  EXPECT_GT(known, 30u);
}

TEST_F(OpTest, OpWithoutMeaningIsNamed) {
  EXPECT_TRUE(run(parseFunction(R"(() -> () {
    %u = builtin.unrealized_conversion_cast to i32
    return
  })"),
                  {})
                  .empty());
  EXPECT_THAT(messages, HasSubstr("'builtin.unrealized_conversion_cast' op has "
                                  "no meaning in the interpreter"));
}

TEST_F(OpTest, InputsAreChecked) {
  ModuleOp module = parseFunction(
      R"((%x: tensor<2xf32> {transformer.as = "x"}) -> tensor<2xf32> { return %x : tensor<2xf32> })");
  Machine machine = makeMachine(module);
  auto fails = [&](const Inputs &inputs, const std::string &message) {
    messages.clear();
    EXPECT_TRUE(failed(machine.run("f", inputs)));
    EXPECT_THAT(messages, HasSubstr(message));
  };
  Tensor x = floats({2}, {1, 2});
  fails({}, "needs an input 'x'");
  fails({{"x", {x}}, {"y", {x}}}, "has no argument 'y'; it has x");
  fails({{"x", {floats({3}, {1, 2, 3})}}}, "for 'x', got float 3");
  fails({{"x", {integers({2}, {1, 2})}}}, "for 'x', got integer 2");
  fails({{"x", {x, x}}}, "takes 1 tensors for 'x', got 2");
  messages.clear();
  EXPECT_TRUE(failed(machine.run("g", {})));
  EXPECT_THAT(messages, HasSubstr("has no function @g"));
  EXPECT_TRUE(succeeded(machine.run("f", {{"x", {x}}})));
}

TEST_F(OpTest, FunctionThatCallsItselfIsStopped) {
  EXPECT_TRUE(run(parseFunction("() { func.call @f() : () -> ()\nreturn }"), {})
                  .empty());
  EXPECT_THAT(messages, HasSubstr("calls itself"));
}

} // namespace
