//===- StepTest.cpp - states, loops, stacks, calls ------------------------===//

#include "test/passes/Interpret/Harness.h"

#include "passes/Interpret/Values.h"

#include "heddle/Runtime/Random.h"

#include "gmock/gmock.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using testing::HasSubstr;

namespace {

using StepTest = InterpretTest;

// x + w0, then + w1, then + w2; the stack holds what went into each layer.
TEST_F(StepTest, LoopCarriesAndCollects) {
  ModuleOp module = parse(R"(
transformer.state @"w.{}" parameter layers 3 : tensor<1xf32>
func.func @add(%x: tensor<1xf32>, %w: tensor<1xf32>) -> tensor<1xf32> {
  %y = transformer.add %x, %w : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  return %y : tensor<1xf32>
}
func.func @f(%x: tensor<1xf32>) -> (tensor<1xf32>, !transformer.stack<3 x tensor<1xf32>>, tensor<1xf32>) {
  %y, %all = transformer.loop "layer" 3 carry(%x) : (tensor<1xf32>) -> (tensor<1xf32>, !transformer.stack<3 x tensor<1xf32>>) {
  ^bb0(%i: index, %a: tensor<1xf32>):
    %w = transformer.load @"w.{}" at %i : tensor<1xf32>
    %b = func.call @add(%a, %w) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
    transformer.yield %b : tensor<1xf32> collect %a : tensor<1xf32>
  }
  %z = transformer.loop "layer" 3 reversed carry(%x) : (tensor<1xf32>) -> (tensor<1xf32>) {
  ^bb0(%i: index, %a: tensor<1xf32>):
    %s = transformer.get %all at %i : !transformer.stack<3 x tensor<1xf32>>
    transformer.yield %s : tensor<1xf32>
  }
  return %y, %all, %z : tensor<1xf32>, !transformer.stack<3 x tensor<1xf32>>, tensor<1xf32>
})");
  Machine machine = makeMachine(module);
  for (int64_t layer = 0; layer < 3; ++layer)
    ASSERT_TRUE(succeeded(
        machine.setState("w.{}", layer, floats({1}, {10.0 * (layer + 1)}))));
  auto results = machine.run("f", {{"argument 0", {floats({1}, {1})}}});
  ASSERT_TRUE(succeeded(results)) << messages;
  expectNear((*results)[0].getTensor().floats, {61});
  ASSERT_EQ((*results)[1].entries.size(), 3u);
  expectNear((*results)[1].entries[0].floats, {1});
  expectNear((*results)[1].entries[1].floats, {11});
  expectNear((*results)[1].entries[2].floats, {31});
  // Downwards, so the last one read is entry 0.
  expectNear((*results)[2].getTensor().floats, {1});
}

constexpr const char *kStates = R"(
transformer.state @w parameter : tensor<2xf32>
transformer.state @w.sum gradient_sum of @w : tensor<2xf32>
transformer.state @w.gradient gradient of @w storage @w.sum : tensor<2xf32>
func.func @accumulate(%d: tensor<2xf32>) {
  transformer.accumulate %d into @w.sum : tensor<2xf32>
  return
}
func.func @finish() {
  %g = transformer.load @w.sum : tensor<2xf32>
  transformer.store %g to @w.gradient : tensor<2xf32>
  return
}
func.func @begin() {
  transformer.zero @w.sum
  return
}
func.func @early() -> tensor<2xf32> {
  %g = transformer.load @w.gradient : tensor<2xf32>
  return %g : tensor<2xf32>
})";

TEST_F(StepTest, StatesKeepTheirValues) {
  Machine machine = makeMachine(parse(kStates));
  Inputs inputs = {{"argument 0", {floats({2}, {1, 2})}}};
  ASSERT_TRUE(succeeded(machine.run("accumulate", inputs)));
  ASSERT_TRUE(succeeded(machine.run("accumulate", inputs)));
  ASSERT_TRUE(succeeded(machine.run("finish", {})));
  expectNear(machine.getState("w.gradient", 0)->floats, {2, 4});
  ASSERT_TRUE(succeeded(machine.run("begin", {})));
  expectNear(machine.getState("w.sum", 0)->floats, {0, 0});
}

TEST_F(StepTest, StatesOfTheSameBytesLoseTheirValues) {
  Machine machine = makeMachine(parse(kStates));
  Inputs inputs = {{"argument 0", {floats({2}, {1, 2})}}};
  ASSERT_TRUE(succeeded(machine.run("accumulate", inputs)));
  ASSERT_TRUE(succeeded(machine.run("finish", {})));
  EXPECT_TRUE(failed(machine.run("accumulate", inputs)));
  EXPECT_THAT(messages, HasSubstr("reads @\"w.sum\", which has not been given "
                                  "a value, or lost it"));
  ASSERT_TRUE(succeeded(machine.run("begin", {})));
  EXPECT_TRUE(failed(machine.run("early", {})));
}

TEST_F(StepTest, StateWithoutAValueIsRefused) {
  Machine machine = makeMachine(parse(kStates));
  EXPECT_TRUE(failed(machine.run("early", {})));
  EXPECT_THAT(messages, HasSubstr("reads @\"w.gradient\", which has not been "
                                  "given a value"));
  messages.clear();
  EXPECT_TRUE(failed(machine.getState("w", 0)));
  EXPECT_THAT(messages, HasSubstr("has not been given a value"));
  messages.clear();
  EXPECT_TRUE(failed(machine.setState("w", 1, floats({2}, {1, 2}))));
  EXPECT_THAT(messages, HasSubstr("has 1 instances, asked for number 1"));
  messages.clear();
  EXPECT_TRUE(failed(machine.setState("w", 0, floats({3}, {1, 2, 3}))));
  EXPECT_THAT(messages, HasSubstr("got float 3"));
  messages.clear();
  EXPECT_TRUE(failed(machine.setState("v", 0, floats({2}, {1, 2}))));
  EXPECT_THAT(messages, HasSubstr("has no state @\"v\""));
}

TEST_F(StepTest, LayerOutsideIsRefused) {
  Machine machine = makeMachine(parse(R"(
transformer.state @"w.{}" adam_m layers 2 of @v : tensor<1xf32>
transformer.state @v parameter : tensor<1xf32>
func.func @f() {
  transformer.loop "layer" 3 : () -> () {
  ^bb0(%i: index):
    %w = transformer.load @"w.{}" at %i : tensor<1xf32>
    transformer.yield
  }
  return
})"));
  EXPECT_TRUE(failed(machine.run("f", {})));
  EXPECT_THAT(messages, HasSubstr("asks for layer 2 of 2 of @\"w.{}\""));
}

//===----------------------------------------------------------------------===//
// Values to run with
//===----------------------------------------------------------------------===//

TEST_F(StepTest, TestParametersFollowNameKindAndFileOrder) {
  ModuleOp module = parse(R"(
transformer.state @"w.{}.weight" parameter layers 2 : tensor<2x3x4xf32> {file_order = array<i64: 1, 2, 0>, file_shape = array<i64: 4, 6>, initializer = 2 : i32, initializer_std = 5.000000e-01 : f64}
transformer.state @bias parameter : tensor<2xf32> {initializer = 0 : i32}
transformer.state @norm parameter : tensor<2xf32> {initializer = 1 : i32}
)");
  Machine machine = makeMachine(module);
  ASSERT_TRUE(succeeded(setTestParameters(machine, 5)));
  auto normal = [](const char *name, int64_t index) -> float {
    return random::normalAt(5, random::nameHash(std::string(name)), index);
  };
  Floats weight = machine.getState("w.{}.weight", 1)->floats;
  // Dimensions 0, 1, 2 are the checkpoint's 1, 2, 0: [4][2][3].
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t k = 0; k < 4; ++k)
        EXPECT_EQ(weight[(i * 3 + j) * 4 + k],
                  0.5f * normal("w.1.weight", (k * 2 + i) * 3 + j));
  EXPECT_EQ(machine.getState("bias", 0)->floats[1], 0.02f * normal("bias", 1));
  EXPECT_EQ(machine.getState("norm", 0)->floats[1],
            1.0f + 0.1f * normal("norm", 1));
}

TEST_F(StepTest, TestBatchHasWhatHidesNothing) {
  Batch batch = makeTestBatch(4, 8, 11, 3);
  EXPECT_EQ(batch.tokens.shape, (std::vector<int64_t>{4, 8}));
  int64_t documents = 0, uncounted = 0, counted = 0;
  for (size_t i = 0; i < batch.tokens.integers.size(); ++i) {
    EXPECT_LT(batch.tokens.integers[i], 11);
    documents += batch.documents.integers[i];
    if (batch.labels.integers[i] < 0) {
      ++uncounted;
      continue;
    }
    ++counted;
    EXPECT_EQ(batch.labels.integers[i], batch.tokens.integers[i + 1]);
  }
  EXPECT_GT(documents, 0);
  EXPECT_GT(counted, uncounted);
  EXPECT_GE(uncounted, 4);
}

} // namespace
