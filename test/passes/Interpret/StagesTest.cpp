//===- StagesTest.cpp - slots, what passes between places, what is not there =//

#include "test/passes/Interpret/Harness.h"

#include "passes/Interpret/Exchange.h"

#include "gmock/gmock.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using testing::HasSubstr;

namespace {

/// Three layers of x -> 2 x + w, whose order shows, for two micro-batches.
struct Schedule {
  const char *name;
  int64_t places, mostOfChunk, mostOfPlace;
  const char *layers, *rows;
};

std::string fill(std::string text,
                 const std::vector<std::pair<std::string, std::string>> &keys) {
  for (const auto &[key, value] : keys)
    for (size_t at; (at = text.find("$" + key)) != std::string::npos;)
      text.replace(at, key.size() + 1, value);
  return text;
}

constexpr const char *kModule = R"(
#mesh = #dist.mesh<["pp" = $places]>
!x = tensor<2xf32>
!sum = tensor<f64>
module attributes {dist.mesh = #mesh} {
stage.table @schedule micro_batches 2 layers $layers rows $rows
transformer.state @"w.{}" parameter layers $held : !x
transformer.state @"w.{}.sum" gradient_sum layers $held of @"w.{}" : !x
func.func @f($arguments) -> $result {
  $body
}})";

/// The sum of the last layer's results, and gradients of w as if each element
/// of that result were its own gradient.
constexpr const char *kRun = R"(
  transformer.zero @"w.{}.sum"
  %none = transformer.zeros : !x
  %out = stage.run @schedule carry(%none) : (!x) -> !x forward {
  ^bb0(%chunk: index, %i: index, %received: !x):
    %x = stage.where $begins at %chunk -> (!x) {
      %t = transformer.get %tokens at %i : !transformer.stack<2 x !x>
      stage.yield %t : !x
    } else {
      stage.yield %received : !x
    }
    %n = stage.layers at %chunk
    %y = transformer.loop "layer" $chunk up_to %n carry(%x) : (!x) -> !x {
    ^bb0(%l: index, %a: !x):
      %held = stage.layer %l of %chunk
      %w = transformer.load @"w.{}" at %held : !x
      %twice = transformer.add %a, %a : (!x, !x) -> !x
      %b = transformer.add %twice, %w : (!x, !x) -> !x
      transformer.yield %b : !x
    }
    $behind
    stage.yield send $sent : !x save %y : !x
  } backward {
  ^bb0(%chunk: index, %i: index, %sum: !x, %received: !x, %y: !x):
    %next, %d = stage.where head at %chunk -> (!x, !x) {
      %s = transformer.add %sum, %y : (!x, !x) -> !x
      stage.yield %s, %y : !x, !x
    } else {
      stage.yield %sum, %received : !x, !x
    }
    %n = stage.layers at %chunk
    %dx, %all = transformer.loop "layer" $chunk up_to %n reversed carry(%d) : (!x) -> (!x, !transformer.stack<$chunk x !x>) {
    ^bb0(%l: index, %a: !x):
      $here
      %twice = transformer.add %a, %a : (!x, !x) -> !x
      transformer.yield %twice : !x collect %a : !x
    }
    stage.yield %next : !x send %dx : !x$kept
  } $weight
  %all = dist.all_reduce %out sum on #mesh over ["pp"] : !x -> !x
  return %all : !x)";

constexpr const char *kHere = R"(
      %held = stage.layer %l of %chunk
      transformer.accumulate %a into @"w.{}.sum" at %held : !x)";

constexpr const char *kWeight = R"(weight {
  ^bb0(%chunk: index, %i: index, %y: !x, %all: !transformer.stack<$chunk x !x>):
    %n = stage.layers at %chunk
    transformer.loop "layer" $chunk up_to %n : () -> () {
    ^bb0(%l: index):
      %a = transformer.get %all at %l : !transformer.stack<$chunk x !x>
      %held = stage.layer %l of %chunk
      transformer.accumulate %a into @"w.{}.sum" at %held : !x
      transformer.yield
    }
    stage.yield
  })";

const Schedule kTwoPlaces = {"TwoPlaces",
                             2,
                             2,
                             2,
                             R"([["0..1"], ["2"]])",
                             R"(["F0 F1 D0 D1 O", "F0 D0 F1 D1 O"])"};
const Schedule kSchedules[] = {
    kTwoPlaces,
    {"OnePlace", 1, 3, 3, R"([["0..2"]])", R"(["F0 D0 F1 D1 O"])"},
    {"SecondFirst", 2, 2, 2, R"([["2"], ["0..1"]])",
     R"(["@1 F0 D0 F1 D1 O", "@0 F0 F1 D0 D1 O"])"},
    {"LaterMicroBatchFirst", 2, 2, 2, R"([["0..1"], ["2"]])",
     R"(["F1 F0 D1 D0 O", "F1 F0 D1 D0 O"])"},
    {"WeightsApart", 2, 2, 2, R"([["0"], ["1..2"]])",
     R"(["F0 F1 B0 B1 W0 W1 O", "F0 B0 F1 B1 W0 W1 O"])"},
    {"EmptyStage", 3, 2, 2, R"([["0..1"], [""], ["2"]])",
     R"(["F0 F1 D0 D1 O", "F0 F1 D0 D1 O", "F0 D0 F1 D1 O"])"},
    {"ForthAndBack", 2, 1, 2, R"([["0", "2"], ["1", ""]])",
     R"(["@0,3 F0 F1 F0/1 D0/1 F1/1 D1/1 D0 D1 O", "@1,2 F0 F0/1 F1 F1/1 D0/1 D0 D1/1 D1 O"])"},
    {"Chunks", 2, 1, 2, R"([["0", "2"], ["1", ""]])",
     R"(["F0 F1 F0/1 F1/1 D0/1 D0 D1/1 D1 O", "F0 F1 F0/1 D0/1 F1/1 D0 D1/1 D1 O"])"},
};

class StagesTest : public InterpretTest {
protected:
  using Keys = std::vector<std::pair<std::string, std::string>>;

  ModuleOp parseBody(
      const Schedule &schedule, const std::string &body, const Keys &keys = {},
      const std::string &arguments = "%tokens: !transformer.stack<2 x !x>",
      const std::string &result = "!x") {
    Keys all = {{"arguments", arguments},
                {"result", result},
                {"body", body},
                {"places", std::to_string(schedule.places)},
                {"layers", schedule.layers},
                {"rows", schedule.rows},
                {"held", std::to_string(schedule.mostOfPlace)}};
    all.insert(all.end(), keys.begin(), keys.end());
    all.push_back({"chunk", std::to_string(schedule.mostOfChunk)});
    return parse(fill(kModule, all));
  }

  /// kRun, with other words where `keys` have some.
  ModuleOp parseRun(const Schedule &schedule, Keys keys = {}) {
    for (const auto &[key, value] : Keys{{"begins", "embedding"},
                                         {"behind", ""},
                                         {"sent", "%y"},
                                         {"here", kHere},
                                         {"kept", ""},
                                         {"weight", ""}})
      if (llvm::none_of(keys, [&](const auto &k) { return k.first == key; }))
        keys.push_back({key, value});
    return parseBody(schedule, kRun, keys);
  }

  /// Runs @f; the result's floats, none after a fault.
  Floats runOn(Machine &machine) {
    for (int64_t layer = 0; layer < 3; ++layer)
      EXPECT_TRUE(succeeded(machine.setState("w.{}", layer, w[layer])));
    FailureOr<std::vector<NamedValue>> results =
        machine.run("f", {{"argument 0", x}});
    return succeeded(results) ? results->front().getTensor().floats : Floats();
  }
  std::string faultOf(ModuleOp module) {
    Machine machine = makeMachine(module);
    EXPECT_TRUE(runOn(machine).empty());
    return messages;
  }

  std::vector<Tensor> w = {random({2}), random({2}), random({2})};
  std::vector<Tensor> x = {random({2}), random({2})};
};

class SchedulesTest
    : public StagesTest,
      public ::testing::WithParamInterface<std::tuple<Schedule, bool>> {};

TEST_P(SchedulesTest, EqualTheWhole) {
  auto [schedule, apart] = GetParam();
  StagesTest::Keys keys;
  if (apart)
    keys = {{"here", ""},
            {"kept", " save %all : !transformer.stack<$chunk x !x>"},
            {"weight", kWeight}};
  Machine machine = makeMachine(parseRun(schedule, keys));
  Floats found = runOn(machine), expected(2);
  for (int64_t i = 0; i < 2; ++i)
    for (const Tensor &entry : x)
      expected[i] += 8 * entry.floats[i] + 4 * w[0].floats[i] +
                     2 * w[1].floats[i] + w[2].floats[i];
  expectNear(found, expected);
  for (int64_t layer = 0; layer < 3; ++layer) {
    Floats gradient;
    for (double value : expected)
      gradient.push_back(value * static_cast<double>(4 >> layer));
    expectNear(machine.getState("w.{}.sum", layer)->floats, gradient);
  }
  EXPECT_EQ(machine.countLayers(), 3);
}

INSTANTIATE_TEST_SUITE_P(Schedules, SchedulesTest,
                         ::testing::Combine(::testing::ValuesIn(kSchedules),
                                            ::testing::Bool()),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) ? "WeightRegion"
                                                           : "");
                         });

// What is done in a chunk's last slot is done for one micro-batch, whichever
// comes last.
TEST_F(StagesTest, LastSlotOfAChunkIsKnown) {
  auto inLastSlot = [](std::string text) {
    size_t at = text.find("transformer.accumulate"), end = text.find("!x", at);
    return text.substr(0, at) + "stage.where last {\n" +
           text.substr(at, end + 2 - at) + "\nstage.yield\n}" +
           text.substr(end + 2);
  };
  Keys whole = {{"here", inLastSlot(kHere)}};
  Keys apart = {{"here", ""},
                {"kept", " save %all : !transformer.stack<$chunk x !x>"},
                {"weight", inLastSlot(kWeight)}};
  for (auto [schedule, micro] :
       {std::pair(kTwoPlaces, 1), std::pair(kSchedules[3], 0),
        std::pair(kSchedules[4], 1), std::pair(kSchedules[6], 1)})
    for (const Keys &keys : {whole, apart}) {
      Machine machine = makeMachine(parseRun(schedule, keys));
      ASSERT_FALSE(runOn(machine).empty()) << messages;
      for (int64_t layer = 0; layer < 3; ++layer) {
        Floats gradient(2);
        for (int64_t i = 0; i < 2; ++i)
          gradient[i] = static_cast<double>(4 >> layer) *
                        (8 * x[micro].floats[i] + 4 * w[0].floats[i] +
                         2 * w[1].floats[i] + w[2].floats[i]);
        expectNear(machine.getState("w.{}.sum", layer)->floats, gradient);
      }
    }
}

//===----------------------------------------------------------------------===//
// Values that a place does not have
//===----------------------------------------------------------------------===//

TEST_F(StagesTest, WhatNothingWasReceivedForIsNamed) {
  EXPECT_THAT(faultOf(parseRun(kTwoPlaces, {{"begins", "head"}})),
              HasSubstr("'transformer.add' op uses operand 0, which is "
                        "undefined here: no stage of this rank has made or "
                        "received it (on rank 0)"));
}

TEST_F(StagesTest, UndefinedValueCannotBeSent) {
  EXPECT_THAT(
      faultOf(
          parseRun(kTwoPlaces, {{"behind", "%nothing = stage.undefined : !x"},
                                {"sent", "%nothing"}})),
      HasSubstr("sends value 0 of micro-batch 0 forward to chunk 0 of rank 1, "
                "which is undefined here (on rank 0)"));
}

TEST_F(StagesTest, UndefinedResultIsNamed) {
  EXPECT_THAT(
      faultOf(parseBody(kTwoPlaces, "%nothing = stage.undefined : !x\n"
                                    "%y = stage.where head -> (!x) {\n"
                                    "  %z = transformer.zeros : !x\n"
                                    "  stage.yield %z : !x\n"
                                    "} else { stage.yield %nothing : !x }\n"
                                    "return %y : !x")),
      HasSubstr("has result 'result 0', which is undefined on rank 0"));
}

TEST_F(StagesTest, UndefinedStackHasNoEntries) {
  EXPECT_THAT(
      faultOf(parseBody(kTwoPlaces,
                        "%all = stage.undefined : !transformer.stack<2 x !x>\n"
                        "%n = stage.layers\n"
                        "%y = transformer.get %all at %n : "
                        "!transformer.stack<2 x !x>\nreturn %y : !x")),
      HasSubstr("asks for entry 2 of 0 (on rank 0)"));
}

/// Entries of a stack that a loop did not come to.
TEST_F(StagesTest, EntryBehindTheLastLayerIsUndefined) {
  EXPECT_THAT(
      faultOf(parseBody(kTwoPlaces, R"(
  %zero = transformer.zeros : !x
  %n = stage.layers
  %all = transformer.loop "layer" 2 up_to %n : () -> !transformer.stack<2 x !x> {
  ^bb0(%l: index):
    transformer.yield collect %zero : !x
  }
  %y = transformer.loop "layer" 2 carry(%zero) : (!x) -> !x {
  ^bb0(%l: index, %sum: !x):
    %one = transformer.get %all at %l : !transformer.stack<2 x !x>
    %next = transformer.add %sum, %one : (!x, !x) -> !x
    transformer.yield %next : !x
  }
  return %y : !x)")),
      HasSubstr("uses operand 1, which is undefined here: no stage of this "
                "rank has made or received it (on rank 1)"));
}

TEST_F(StagesTest, LoopHasRoomForItsLayers) {
  EXPECT_THAT(faultOf(parseBody(kTwoPlaces, R"(
  %zero = transformer.zeros : !x
  %n = stage.layers
  transformer.loop "layer" 1 up_to %n : () -> () {
  ^bb0(%l: index):
    transformer.yield
  }
  return %zero : !x)")),
              HasSubstr("runs up to 2, and has room for 1 (on rank 0)"));
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

// Of one entry per layer each place is given those of its own.
TEST_F(StagesTest, SeedsOfLayersGoToTheirPlaces) {
  ModuleOp module = parseBody(
      kSchedules[6], R"(
  %zero = transformer.zeros : tensor<i64>
  %n = stage.layers
  %own = transformer.loop "layer" $held up_to %n carry(%zero) : (tensor<i64>) -> tensor<i64> {
  ^bb0(%l: index, %sum: tensor<i64>):
    %seed = transformer.get %seeds at %l : !transformer.stack<$held x tensor<i64>>
    %twice = transformer.add %sum, %sum : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %next = transformer.add %twice, %seed : (tensor<i64>, tensor<i64>) -> tensor<i64>
    transformer.yield %next : tensor<i64>
  }
  %all = dist.all_reduce %own sum on #mesh over ["pp"] : tensor<i64> -> tensor<i64>
  return %all : tensor<i64>)",
      {},
      "%seeds: !transformer.stack<$held x tensor<i64>> {transformer.as = "
      "\"layer_dropout_seeds\"}",
      "tensor<i64>");
  Inputs inputs = {
      {"layer_dropout_seeds",
       {integers({}, {1}), integers({}, {10}), integers({}, {100})}}};
  FailureOr<std::vector<NamedValue>> results =
      makeMachine(module).run("f", inputs);
  ASSERT_TRUE(succeeded(results)) << messages;
  // Layers 0 and 2, and 1 at the other place.
  EXPECT_EQ((*results)[0].getTensor().integers,
            std::vector<int64_t>{2 * 1 + 100 + 10});
  inputs["layer_dropout_seeds"].pop_back();
  EXPECT_TRUE(failed(makeMachine(module).run("f", inputs)));
  EXPECT_THAT(messages, HasSubstr("takes 3 tensors for 'layer_dropout_seeds', "
                                  "got 2"));
}

/// Twice: x and 2 x of the two ends, or what one has that is both; then over
/// all places.
constexpr const char *kSumEnds = R"(
  %twice = transformer.add %x, %x : (!x, !x) -> !x
  %a = stage.where head -> (!x) {
    stage.yield %twice : !x
  } else {
    stage.yield %x : !x
  }
  %b = stage.where $part -> (!x) {
    %first = stage.sum_ends %a : !x
    %second = stage.sum_ends %first : !x
    stage.yield %second : !x
  } else {
    %none = transformer.zeros : !x
    stage.yield %none : !x
  }
  %all = dist.all_reduce %b sum on #mesh over ["pp"] : !x -> !x
  return %all : !x)";

TEST_F(StagesTest, BothEndsHaveTheirSum) {
  for (const Schedule &schedule : kSchedules) {
    StringRef name = schedule.name;
    double times = name == "OnePlace" || name == "ForthAndBack" ? 2 : 12;
    Machine machine = makeMachine(
        parseBody(schedule, kSumEnds, {{"part", "ends"}}, "%x: !x"));
    auto results = machine.run("f", {{"argument 0", {x[0]}}});
    ASSERT_TRUE(succeeded(results)) << messages;
    expectNear((*results)[0].getTensor().floats,
               {times * x[0].floats[0], times * x[0].floats[1]});
  }
}

TEST_F(StagesTest, SumOfEndsElsewhereIsRefused) {
  const Schedule &three = kSchedules[5];
  ModuleOp module = parseBody(
      three, "%y = stage.sum_ends %x : !x\nreturn %y : !x", {}, "%x: !x");
  EXPECT_TRUE(failed(makeMachine(module).run("f", {{"argument 0", {x[0]}}})));
  EXPECT_THAT(messages, HasSubstr("is at a place that has no end of the chain "
                                  "(on rank 1)"));
}

TEST_F(StagesTest, TableAndMeshHaveTheSamePlaces) {
  Schedule other = kTwoPlaces;
  other.places = 3;
  EXPECT_TRUE(failed(Machine::create(parseRun(other))));
  EXPECT_THAT(messages, HasSubstr("has a mesh of 3 places over pp, and a table "
                                  "of 2"));
  Schedule more = kTwoPlaces;
  more.mostOfPlace = 1;
  EXPECT_TRUE(failed(Machine::create(parseRun(more))));
  EXPECT_THAT(messages,
              HasSubstr("has room for 1 layers, and a place holds 2"));
  EXPECT_TRUE(failed(Machine::create(parse(R"(
#mesh = #dist.mesh<["dp" = 2]>
module attributes {dist.mesh = #mesh} {
stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 D0 O"]
func.func @f(%x: tensor<2xf32> {dist.layout = #dist.layout<#mesh, [{}]>, dist.global = tensor<2xf32>}) {
  %n = stage.layers
  return
}})"))));
  EXPECT_THAT(messages, HasSubstr("has a mesh of 0 places over pp, and a table "
                                  "of 1"));
  EXPECT_TRUE(failed(
      Machine::create(parseFunction("() { %n = stage.layers\nreturn }"))));
  EXPECT_THAT(messages, HasSubstr("asks for stages, but has no mesh"));
  EXPECT_TRUE(failed(Machine::create(parse(R"(
module attributes {dist.mesh = #dist.mesh<["pp" = 2]>} {
func.func @f() {
  %n = stage.layers
  return
}})"))));
  EXPECT_THAT(messages,
              HasSubstr("asks for stages, but has no table of their slots"));
}

//===----------------------------------------------------------------------===//
// Places that wait
//===----------------------------------------------------------------------===//

// The place with the head waits for all, the other one for its gradient.
TEST_F(StagesTest, PlacesThatWaitForEachOtherAreBothNamed) {
  std::string text = faultOf(parseRun(kTwoPlaces, {{"behind", R"(
    stage.where head at %chunk {
      %all = dist.all_reduce %y sum on #mesh over ["pp"] : !x -> !x
      stage.yield
    })"}}));
  EXPECT_THAT(text, HasSubstr("rank 0 waits for rank 1 to send value 0 of "
                              "micro-batch 0 backward to chunk 0, which never "
                              "comes"));
  EXPECT_THAT(text, HasSubstr("note: rank 1 waits here"));
}

TEST_F(StagesTest, EndThatSumsAloneNamesTheOther) {
  ModuleOp module =
      parseBody(kTwoPlaces, kSumEnds, {{"part", "embedding"}}, "%x: !x");
  EXPECT_TRUE(failed(makeMachine(module).run("f", {{"argument 0", {x[0]}}})));
  EXPECT_THAT(messages,
              HasSubstr("rank 0 waits for rank 1 to send what its end "
                        "of the chain has, which never comes"));
  EXPECT_THAT(messages, HasSubstr("note: rank 1 waits here"));
}

// A rank may send more under a name before the first is received.
TEST(MessagesTest, OfOneNameComeInTheirOrder) {
  Exchange exchange(2);
  for (double value : {1, 2})
    exchange.send(0, 1, "x",
                  std::make_shared<const Tensor>(Tensor::scalar(value)));
  for (double value : {1, 2})
    EXPECT_EQ(exchange.receive(1, nullptr, 0, "x")->floats[0], value);
}

} // namespace
