//===- GradientTest.cpp - gradients of ops against differences ------------===//
//
// Each op's gradient, built through its interface, against central differences
// of its forward meaning in fp64.
//
//===----------------------------------------------------------------------===//

#include "test/passes/Interpret/Harness.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;

namespace {

class GradientTest : public InterpretTest {
protected:
  /// @f of `text` is one op on the arguments. Checks the gradients of sum over
  /// results of <result, random weights>; only the first `weighted` results
  /// have weights.
  void check(const std::string &text, std::vector<Tensor> arguments,
             unsigned weighted = 1);

private:
  /// Adds @gradient: the arguments of @f and the weights to the gradients of
  /// the arguments at `targets`.
  void buildGradient(ModuleOp module, unsigned weighted,
                     SmallVectorImpl<unsigned> &targets);
  double measure(ModuleOp module, const std::vector<Tensor> &arguments,
                 const std::vector<Tensor> &weights);
};

void GradientTest::buildGradient(ModuleOp module, unsigned weighted,
                                 SmallVectorImpl<unsigned> &targets) {
  auto forward = module.lookupSymbol<func::FuncOp>("f");
  auto function = cast<func::FuncOp>(forward->clone());
  function.setName("gradient");
  module.push_back(function);
  Operation *terminator = function.front().getTerminator();
  auto op = cast<dist::GradientOpInterface>(terminator->getPrevNode());
  SmallVector<Value> weights(op->getNumResults());
  for (unsigned i = 0; i < weighted; ++i)
    weights[i] =
        function.front().addArgument(op->getResult(i).getType(), op.getLoc());
  OpBuilder builder(terminator);
  SmallVector<Value> gradients = op.buildGradient(builder, weights), kept;
  for (auto [i, gradient] : llvm::enumerate(gradients)) {
    if (!gradient)
      continue;
    ASSERT_EQ(gradient.getType(), op->getOperand(i).getType());
    kept.push_back(gradient);
    targets.push_back(cast<BlockArgument>(op->getOperand(i)).getArgNumber());
  }
  terminator->setOperands(kept);
  function.setFunctionType(builder.getFunctionType(
      function.front().getArgumentTypes(), ValueRange(kept).getTypes()));
}

double GradientTest::measure(ModuleOp module,
                             const std::vector<Tensor> &arguments,
                             const std::vector<Tensor> &weights) {
  std::vector<Tensor> results = run(module, arguments);
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    for (size_t j = 0; j < weights[i].floats.size(); ++j)
      sum += weights[i].floats[j] * results.at(i).floats[j];
  return sum;
}

void GradientTest::check(const std::string &text, std::vector<Tensor> arguments,
                         unsigned weighted) {
  ModuleOp module = parseFunction(text);
  SmallVector<unsigned> targets;
  buildGradient(module, weighted, targets);
  std::vector<Tensor> weights;
  std::vector<Tensor> results = run(module, arguments);
  ASSERT_GE(results.size(), weighted) << messages;
  for (unsigned i = 0; i < weighted; ++i)
    weights.push_back(random(results[i].shape));
  Machine machine = makeMachine(module);
  Inputs inputs;
  for (const std::vector<Tensor> *list : {&arguments, &weights})
    for (const Tensor &tensor : *list)
      inputs["argument " + std::to_string(inputs.size())] = {tensor};
  FailureOr<std::vector<NamedValue>> gradients =
      machine.run("gradient", inputs);
  ASSERT_TRUE(succeeded(gradients)) << messages;
  ASSERT_FALSE(targets.empty());
  for (auto [i, target] : llvm::enumerate(targets)) {
    const Tensor &gradient = (*gradients)[i].getTensor();
    double error = 0, norm = 0;
    for (size_t j = 0; j < gradient.floats.size(); ++j) {
      constexpr double kStep = 1e-5;
      double kept = arguments[target].floats[j];
      arguments[target].floats[j] = kept + kStep;
      double above = measure(module, arguments, weights);
      arguments[target].floats[j] = kept - kStep;
      double below = measure(module, arguments, weights);
      arguments[target].floats[j] = kept;
      double expected = (above - below) / (2 * kStep);
      error += std::pow(gradient.floats[j] - expected, 2);
      norm += expected * expected;
    }
    EXPECT_GT(norm, 0) << "argument " << target;
    EXPECT_LT(std::sqrt(error / norm), 1e-7) << "argument " << target;
  }
}

TEST_F(GradientTest, Contract) {
  check(
      R"((%x: tensor<2x3x4xf32>, %w: tensor<5x2x4xf32>) -> tensor<2x3x5x2xf32> {
    %y = transformer.contract "b s d, g k d -> b s g k" %x, %w : (tensor<2x3x4xf32>, tensor<5x2x4xf32>) -> tensor<2x3x5x2xf32>
    return %y : tensor<2x3x5x2xf32>
  })",
      {random({2, 3, 4}), random({5, 2, 4})});
}

// A letter in all three lists, and two summed ones in another order.
TEST_F(GradientTest, ContractWithBatchLetter) {
  check(R"((%x: tensor<2x3x4x2xf32>, %w: tensor<2x3x4xf32>) -> tensor<3x2xf32> {
    %y = transformer.contract "k e b g, k e b -> e g" %x, %w : (tensor<2x3x4x2xf32>, tensor<2x3x4xf32>) -> tensor<3x2xf32>
    return %y : tensor<3x2xf32>
  })",
        {random({2, 3, 4, 2}), random({2, 3, 4})});
}

TEST_F(GradientTest, BiasAdd) {
  check(R"((%x: tensor<3x2x4xf32>, %b: tensor<2x4xf32>) -> tensor<3x2x4xf32> {
    %y = transformer.bias_add %x, %b : (tensor<3x2x4xf32>, tensor<2x4xf32>) -> tensor<3x2x4xf32>
    return %y : tensor<3x2x4xf32>
  })",
        {random({3, 2, 4}), random({2, 4})});
}

TEST_F(GradientTest, Add) {
  check(R"((%x: tensor<5xf32>, %b: tensor<5xf32>) -> tensor<5xf32> {
    %y = transformer.add %x, %b : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    return %y : tensor<5xf32>
  })",
        {random({5}), random({5})});
}

TEST_F(GradientTest, EveryActivation) {
  for (std::string kind : {"silu", "gelu_tanh", "gelu_erf", "relu"})
    check("(%x: tensor<3x4xf32>) -> tensor<3x4xf32> { %y = "
          "transformer.activation " +
              kind +
              " %x : (tensor<3x4xf32>) -> tensor<3x4xf32>\n"
              "return %y : tensor<3x4xf32> }",
          {random({3, 4}, 2)});
}

TEST_F(GradientTest, EveryGatedActivation) {
  for (std::string kind : {"silu", "gelu_tanh", "gelu_erf", "relu"})
    check("(%g: tensor<3x4xf32>, %u: tensor<3x4xf32>) -> tensor<3x4xf32> { %y "
          "= transformer.gated " +
              kind +
              " %g, %u : (tensor<3x4xf32>, tensor<3x4xf32>) -> "
              "tensor<3x4xf32>\nreturn %y : tensor<3x4xf32> }",
          {random({3, 4}, 2), random({3, 4})});
}

TEST_F(GradientTest, Dropout) {
  auto checkSite = [&](const char *site, const std::string &type,
                       Tensor input) {
    check(llvm::formatv("(%x: {0}, %s: tensor<i64>, %t: tensor<2x3xi32>) -> "
                        "{0} {{ %y = transformer.dropout %x, %s, %t rate 0.4 "
                        "site {1} : ({0}, tensor<i64>, tensor<2x3xi32>) -> {0}"
                        "\nreturn %y : {0} }",
                        type, site)
              .str(),
          {std::move(input), integers({}, {-123456789012345}),
           integers({2, 3}, {6, 7, 8, 21, 22, 23})});
  };
  for (const char *site : {"embedding", "attention_output", "mlp_output"})
    checkSite(site, "tensor<2x3x8xf32>", random({2, 3, 8}));
  checkSite("attention", "tensor<2x3x2x2x4xf32>", random({2, 3, 2, 2, 4}));
}

TEST_F(GradientTest, RmsNorm) {
  check(
      R"((%x: tensor<2x3x5xf32>, %w: tensor<5xf32>) -> (tensor<2x3x5xf32>, tensor<2x3xf32>) {
    %y, %r = transformer.rms_norm %x, %w epsilon 1.0e-2 : (tensor<2x3x5xf32>, tensor<5xf32>) -> (tensor<2x3x5xf32>, tensor<2x3xf32>)
    return %y, %r : tensor<2x3x5xf32>, tensor<2x3xf32>
  })",
      {random({2, 3, 5}), random({5})});
}

// Over the head size, as Qwen3 norms queries.
TEST_F(GradientTest, RmsNormOfHeads) {
  check(
      R"((%x: tensor<2x2x2x2x4xf32>, %w: tensor<4xf32>) -> (tensor<2x2x2x2x4xf32>, tensor<2x2x2x2xf32>) {
    %y, %r = transformer.rms_norm %x, %w epsilon 1.0e-6 : (tensor<2x2x2x2x4xf32>, tensor<4xf32>) -> (tensor<2x2x2x2x4xf32>, tensor<2x2x2x2xf32>)
    return %y, %r : tensor<2x2x2x2x4xf32>, tensor<2x2x2x2xf32>
  })",
      {random({2, 2, 2, 2, 4}), random({4})});
}

TEST_F(GradientTest, LayerNorm) {
  check(
      R"((%x: tensor<2x3x5xf32>, %w: tensor<5xf32>, %b: tensor<5xf32>) -> (tensor<2x3x5xf32>, tensor<2x3xf32>, tensor<2x3xf32>) {
    %y, %m, %r = transformer.layer_norm %x, %w, %b epsilon 1.0e-2 : (tensor<2x3x5xf32>, tensor<5xf32>, tensor<5xf32>) -> (tensor<2x3x5xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
    return %y, %m, %r : tensor<2x3x5xf32>, tensor<2x3xf32>, tensor<2x3xf32>
  })",
      {random({2, 3, 5}), random({5}), random({5})});
}

TEST_F(GradientTest, Rope) {
  for (std::string options :
       {"", "inverse",
        "scaling <factor = 8.0, lowFrequencyFactor = 1.0, highFrequencyFactor "
        "= 4.0, originalContext = 32>"})
    check("(%x: tensor<2x3x2x8xf32>, %p: tensor<2x3xi32>) -> "
          "tensor<2x3x2x8xf32> { %y = transformer.rope %x, %p theta 1.0e2 " +
              options +
              " : (tensor<2x3x2x8xf32>, tensor<2x3xi32>) -> "
              "tensor<2x3x2x8xf32>\nreturn %y : tensor<2x3x2x8xf32> }",
          {random({2, 3, 2, 8}), integers({2, 3}, {0, 1, 2, 5, 30, 7})});
}

/// Attention with 2 KV heads of 2 query heads, over 4 tokens; the second
/// sequence is two documents.
static std::string attentionText(const std::string &options) {
  return R"((%q: tensor<2x4x2x2x3xf32>, %k: tensor<2x4x2x3xf32>, %v: tensor<2x4x2x3xf32>, %p: tensor<2x4xi32>, %c: tensor<2x4xi32>) -> (tensor<2x4x2x2x3xf32>, tensor<2x4x2x2xf32>) {
    %o, %l = transformer.attention %q, %k, %v, %p, %p, %c, %c scale 0.7 )" +
         options +
         R"( : (tensor<2x4x2x2x3xf32>, tensor<2x4x2x3xf32>, tensor<2x4x2x3xf32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>) -> (tensor<2x4x2x2x3xf32>, tensor<2x4x2x2xf32>)
    return %o, %l : tensor<2x4x2x2x3xf32>, tensor<2x4x2x2xf32>
  })";
}

TEST_F(GradientTest, Attention) {
  for (std::string options : {"", "window 2"})
    check(attentionText(options),
          {random({2, 4, 2, 2, 3}), random({2, 4, 2, 3}), random({2, 4, 2, 3}),
           integers({2, 4}, {0, 1, 2, 3, 0, 1, 0, 1}),
           integers({2, 4}, {0, 0, 0, 0, 0, 0, 1, 1})});
}

TEST_F(GradientTest, AttentionWithDropout) {
  check(
      R"((%q: tensor<2x4x2x2x3xf32>, %k: tensor<2x4x2x3xf32>, %v: tensor<2x4x2x3xf32>, %p: tensor<2x4xi32>, %c: tensor<2x4xi32>, %s: tensor<i64>, %t: tensor<2x4xi32>) -> (tensor<2x4x2x2x3xf32>, tensor<2x4x2x2xf32>) {
    %o, %l = transformer.attention %q, %k, %v, %p, %p, %c, %c scale 0.7 dropout 0.4(%s, %t) : (tensor<2x4x2x2x3xf32>, tensor<2x4x2x3xf32>, tensor<2x4x2x3xf32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<2x4xi32>, tensor<i64>, tensor<2x4xi32>) -> (tensor<2x4x2x2x3xf32>, tensor<2x4x2x2xf32>)
    return %o, %l : tensor<2x4x2x2x3xf32>, tensor<2x4x2x2xf32>
  })",
      {random({2, 4, 2, 2, 3}), random({2, 4, 2, 3}), random({2, 4, 2, 3}),
       integers({2, 4}, {0, 1, 2, 3, 0, 1, 0, 1}),
       integers({2, 4}, {0, 0, 0, 0, 0, 0, 1, 1}), integers({}, {99}),
       integers({2, 4}, {8, 9, 10, 11, 0, 1, 2, 3})});
}

TEST_F(GradientTest, SplitTensors) {
  check(R"((%x: tensor<2x3x2xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>) {
    %a, %b = transformer.split_tensors %x : (tensor<2x3x2xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>)
    return %a, %b : tensor<3x2xf32>, tensor<3x2xf32>
  })",
        {random({2, 3, 2})}, 2);
}

TEST_F(GradientTest, SplitTensorsWithUnusedPart) {
  check(R"((%x: tensor<2x3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    %a, %b = transformer.split_tensors %x : (tensor<2x3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
    return %a, %b : tensor<3xf32>, tensor<3xf32>
  })",
        {random({2, 3})}, 1);
}

TEST_F(GradientTest, Embedding) {
  check(R"((%i: tensor<2x3xi32>, %t: tensor<5x2xf32>) -> tensor<2x3x2xf32> {
    %x = transformer.embedding %i, %t : (tensor<2x3xi32>, tensor<5x2xf32>) -> tensor<2x3x2xf32>
    return %x : tensor<2x3x2xf32>
  })",
        {integers({2, 3}, {0, 4, 1, 4, 4, 2}), random({5, 2})});
}

/// The loss of logits, and its gradient, with a count that is not this batch's.
constexpr const char *kLoss =
    R"((%x: tensor<2x3x5xf32>, %t: tensor<2x3xi32>, %n: tensor<i64>) -> (tensor<f32>, tensor<2x3x5xf32>) {
    %m = transformer.row_max %x : (tensor<2x3x5xf32>) -> tensor<2x3xf32>
    %z = transformer.row_sum_exp %x, %m : (tensor<2x3x5xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %p = transformer.pick %x, %t : (tensor<2x3x5xf32>, tensor<2x3xi32>) -> tensor<2x3xf32>
    %l = transformer.token_loss %m, %z, %p : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %loss = transformer.mean_counted %l, %t, %n : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<i64>) -> tensor<f32>
    %d = transformer.loss_grad %x, %m, %z, %t, %n : (tensor<2x3x5xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xi32>, tensor<i64>) -> tensor<2x3x5xf32>
    return %loss, %d : tensor<f32>, tensor<2x3x5xf32>
  })";

TEST_F(GradientTest, Loss) {
  ModuleOp module = parseFunction(kLoss);
  std::vector<Tensor> arguments = {random({2, 3, 5}),
                                   integers({2, 3}, {4, -100, 0, 2, 2, -1}),
                                   integers({}, {7})};
  Floats gradient = run(module, arguments).at(1).floats;
  Floats expected;
  for (double &x : arguments[0].floats) {
    double kept = x;
    x = kept + 1e-5;
    double above = run(module, arguments).at(0).floats[0];
    x = kept - 1e-5;
    double below = run(module, arguments).at(0).floats[0];
    x = kept;
    expected.push_back((above - below) / 2e-5);
  }
  expectNear(gradient, expected, 1e-9);
  EXPECT_GT(std::fabs(expected[0]), 1e-3);
}

} // namespace
