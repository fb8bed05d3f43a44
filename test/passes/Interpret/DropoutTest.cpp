//===- DropoutTest.cpp - masks: how many, which, and the same everywhere --===//

#include "heddle/Runtime/Random.h"
#include "test/passes/Interpret/Harness.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;

namespace {

constexpr const char *kMesh = R"(#dist.mesh<["a" = 2, "b" = 3]>)";

Tensor ones(std::vector<int64_t> shape) {
  Tensor tensor = Tensor::zeros(Tensor::Kind::Float, shape);
  std::fill(tensor.floats.begin(), tensor.floats.end(), 1.0);
  return tensor;
}

/// Numbers from `first` on.
Tensor numbers(std::vector<int64_t> shape, int64_t first = 0) {
  Tensor tensor = Tensor::zeros(Tensor::Kind::Integer, shape);
  std::iota(tensor.integers.begin(), tensor.integers.end(), first);
  return tensor;
}

class DropoutTest : public InterpretTest {
protected:
  /// Dropout of ones [4, 8, 64].
  Floats mask(double rate, int64_t seed, const std::string &site = "embedding",
              int64_t firstToken = 0) {
    return runFloats(
        "(%x: tensor<4x8x64xf32>, %s: tensor<i64>, %t: tensor<4x8xi32>) -> "
        "tensor<4x8x64xf32> { %y = transformer.dropout %x, %s, %t rate " +
            std::to_string(rate) + " site " + site +
            " : (tensor<4x8x64xf32>, tensor<i64>, tensor<4x8xi32>) -> "
            "tensor<4x8x64xf32>\nreturn %y : tensor<4x8x64xf32> }",
        {ones({4, 8, 64}), integers({}, {seed}), numbers({4, 8}, firstToken)});
  }
};

int64_t countZeros(const Floats &values) {
  return std::count(values.begin(), values.end(), 0.0);
}

TEST_F(DropoutTest, DropsAtItsRateAndScalesTheRest) {
  for (double rate : {0.0, 0.1, 0.5, 0.9})
    for (int64_t seed : {1, -7}) {
      Floats found = mask(rate, seed);
      double n = static_cast<double>(found.size());
      EXPECT_LE(std::fabs(static_cast<double>(countZeros(found)) - n * rate),
                4 * std::sqrt(n * rate * (1 - rate)))
          << "rate " << rate;
      for (double value : found)
        if (value != 0)
          ASSERT_NEAR(value, 1 / (1 - rate), 1e-12);
    }
}

// Two masks agree where chance has it: at (1 - rate)^2 + rate^2 of all places.
TEST_F(DropoutTest, SeedSiteAndTokenEachGiveAnotherMask) {
  Floats first = mask(0.5, 1);
  for (const Floats &other :
       {mask(0.5, 2), mask(0.5, 1, "mlp_output"), mask(0.5, 1, "embedding", 32),
        mask(0.5, int64_t(1) << 32)}) {
    int64_t equal = 0;
    for (size_t i = 0; i < first.size(); ++i)
      equal += first[i] == other[i];
    double n = static_cast<double>(first.size());
    EXPECT_LE(std::fabs(static_cast<double>(equal) - n / 2), 2 * std::sqrt(n));
  }
}

TEST_F(DropoutTest, FollowsTheTokenNotItsPlace) {
  Floats all = mask(0.5, 1), later = mask(0.5, 1, "embedding", 8);
  for (size_t i = 0; i + 512 < all.size(); ++i)
    ASSERT_EQ(all[i + 512], later[i]); // one sequence of 8 tokens further
}

// What Random.h says of an element is what the op does.
TEST_F(DropoutTest, IsTheGeneratorsWord) {
  Floats found = mask(0.25, 5, "attention_output", 100);
  for (uint32_t row = 0; row < 32; ++row)
    for (uint32_t column = 0; column < 64; ++column)
      ASSERT_EQ(found[row * 64 + column] == 0,
                random::dropoutWord(5, 2, 0, 100 + row, column) < 1u << 30);
}

/// Sequences over a, columns over b (5 stored as 6), or tokens over b: the same
/// mask on every element.
TEST_F(DropoutTest, IsTheSameHoweverTheTensorIsCut) {
  auto text = [](std::string x, std::string t, std::string cutX,
                 std::string cutT, std::string shards) {
    auto global = [](std::string cut, std::string type) {
      return cut.empty() ? ""
                         : " {dist.layout = #dist.layout<#mesh, " + cut +
                               ">, dist.global = " + type + "}";
    };
    std::string gx = global(cutX, "tensor<4x3x5xf32>");
    return "#mesh = " + std::string(kMesh) +
           "\nmodule attributes {dist.mesh = #mesh} { func.func @f(%x: " + x +
           gx + ", %s: tensor<i64>, %t: " + t +
           global(cutT, "tensor<4x3xi32>") + ") -> (" + x + gx +
           ") { %y = transformer.dropout %x, %s, %t rate "
           "0.5 site mlp_output" +
           shards + " : (" + x + ", tensor<i64>, " + t + ") -> " + x +
           "\nreturn %y : " + x + " } }";
  };
  std::vector<Tensor> arguments = {random({4, 3, 5}), integers({}, {3}),
                                   numbers({4, 3}, 24)};
  Floats whole =
      run(parse(text("tensor<4x3x5xf32>", "tensor<4x3xi32>", "", "", "")),
          arguments)
          .at(0)
          .floats;
  EXPECT_GT(countZeros(whole), 10);
  std::vector<Tensor> columns =
      run(parse(text("tensor<2x3x2xf32>", "tensor<2x3xi32>",
                     R"([{"a"}, {}, {"b"} padded 6])", R"([{"a"}, {}])",
                     R"( shards {d = #dist.shard<#mesh, ["b"], 5>})")),
          arguments);
  ASSERT_EQ(columns.size(), 1u) << messages;
  EXPECT_EQ(columns[0].floats, whole);
  std::vector<Tensor> tokens =
      run(parse(text("tensor<2x1x5xf32>", "tensor<2x1xi32>",
                     R"([{"a"}, {"b"}, {}])", R"([{"a"}, {"b"}])", "")),
          arguments);
  ASSERT_EQ(tokens.size(), 1u) << messages;
  EXPECT_EQ(tokens[0].floats, whole);
}

/// Attention of 2 KV heads over a and 5 query heads of each, stored as 6, over
/// b.
TEST_F(DropoutTest, HeadsAreNumberedInTheWholeModel) {
  auto text = [](int64_t g, int64_t r, bool cut) {
    std::string heads = std::to_string(g) + "x" + std::to_string(r);
    std::string q = "tensor<1x4x" + heads + "x2xf32>",
                k = "tensor<1x4x" + std::to_string(g) + "x2xf32>",
                lse = "tensor<1x4x" + heads + "xf32>", ids = "tensor<1x4xi32>";
    auto layout = [&](std::string dims, std::string global) {
      return cut ? " {dist.layout = #dist.layout<#mesh, " + dims +
                       ">, dist.global = " + global + "}"
                 : "";
    };
    std::string cutQ = layout(R"([{}, {}, {"a"}, {"b"} padded 6, {}])",
                              "tensor<1x4x2x5x2xf32>"),
                cutK = layout(R"([{}, {}, {"a"}, {}])", "tensor<1x4x2x2xf32>");
    return "#mesh = " + std::string(kMesh) +
           "\nmodule attributes {dist.mesh = #mesh} { func.func @f(%q: " + q +
           cutQ + ", %k: " + k + cutK + ", %v: " + k + cutK + ", %p: " + ids +
           ", %c: " + ids + ", %s: tensor<i64>, %t: " + ids + ") -> (" + q +
           cutQ +
           ") { %o, %l = transformer.attention %q, %k, %v, %p, %p, %c, "
           "%c scale 0.5 dropout 0.5(%s, %t)" +
           (cut ? R"( shards {g = #dist.shard<#mesh, ["a"], 2>, r = #dist.shard<#mesh, ["b"], 5>})"
                : "") +
           " : (" + q + ", " + k + ", " + k + ", " + ids + ", " + ids + ", " +
           ids + ", " + ids + ", tensor<i64>, " + ids + ") -> (" + q + ", " +
           lse + ")\nreturn %o : " + q + " } }";
  };
  std::vector<Tensor> arguments = {random({1, 4, 2, 5, 2}),
                                   random({1, 4, 2, 2}),
                                   random({1, 4, 2, 2}),
                                   numbers({1, 4}),
                                   integers({1, 4}, {0, 0, 0, 0}),
                                   integers({}, {8}),
                                   numbers({1, 4}, 40)};
  std::vector<Tensor> whole = run(parse(text(2, 5, false)), arguments),
                      cut = run(parse(text(1, 2, true)), arguments);
  ASSERT_EQ(whole.size(), 1u) << messages;
  ASSERT_EQ(cut.size(), 1u) << messages;
  expectNear(cut[0].floats, whole[0].floats);
  EXPECT_GT(countZeros(whole[0].floats), 0); // a query with all keys dropped
}

} // namespace
