//===- RanksTest.cpp - collectives, layouts, ranks that do not meet -------===//

#include "test/passes/Interpret/Harness.h"

#include "passes/Interpret/Exchange.h"

#include "gmock/gmock.h"

#include <cmath>
#include <thread>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using testing::HasSubstr;

namespace {

/// A mesh of axes "a" and "b" on which rank i holds row i of a whole tensor, so
/// that every rank's value is seen from outside.
class CollectiveTest : public InterpretTest,
                       public ::testing::WithParamInterface<
                           std::tuple<int64_t, std::vector<std::string>>> {
protected:
  CollectiveTest() {
    std::tie(fast, axes) = GetParam();
    ranks = 2 * fast;
    size = 1;
    for (const std::string &axis : axes)
      size *= sizeOf(axis);
  }

  std::string mesh() const {
    return "#dist.mesh<[\"a\" = 2, \"b\" = " + std::to_string(fast) + "]>";
  }
  std::string axesText() const {
    std::string text;
    for (const std::string &axis : axes)
      text += (text.empty() ? "\"" : ", \"") + axis + "\"";
    return "[" + text + "]";
  }
  int64_t sizeOf(const std::string &axis) const {
    return axis == "b" ? fast : 2;
  }
  /// Coordinates of a rank, worked out here once more.
  int64_t along(int64_t rank, const std::string &axis) const {
    if (axis == "b.mirror")
      return 2 * (rank % fast) >= fast;
    return axis == "a" ? rank / fast : rank % fast;
  }
  int64_t position(int64_t rank) const {
    int64_t index = 0;
    for (const std::string &axis : axes)
      index = index * sizeOf(axis) + along(rank, axis);
    return index;
  }
  /// The group of a rank, by position.
  std::vector<int64_t> group(int64_t rank) const {
    std::vector<int64_t> members(size);
    for (int64_t other = 0; other < ranks; ++other) {
      bool same = true;
      for (const std::string axis : {"a", "b"})
        if (llvm::is_contained(axes, axis + ".mirror"))
          same &= along(rank, axis) == along(other, axis) ||
                  along(rank, axis) + along(other, axis) == fast - 1;
        else if (!llvm::is_contained(axes, axis))
          same &= along(rank, axis) == along(other, axis);
      if (same)
        members[position(other)] = other;
    }
    return members;
  }

  /// Runs a collective of rows of `inner` (as `1 x rows x columns`) to rows of
  /// `outer`; returns what each rank gets.
  std::vector<Floats> runRows(const std::string &op, const std::string &clauses,
                              std::pair<int64_t, int64_t> inner,
                              std::pair<int64_t, int64_t> outer) {
    auto type = [](int64_t rows, std::pair<int64_t, int64_t> sizes) {
      return "tensor<" + std::to_string(rows) + "x" +
             std::to_string(sizes.first) + "x" + std::to_string(sizes.second) +
             "xf32>";
    };
    auto attributes = [&](std::pair<int64_t, int64_t> sizes) {
      return " {dist.layout = #dist.layout<" + mesh() +
             ", [{\"a\", \"b\"}, {}, {}]>, dist.global = " +
             type(ranks, sizes) + "}";
    };
    std::string text =
        "module attributes {dist.mesh = " + mesh() +
        "} { func.func @f(%x: " + type(1, inner) + attributes(inner) +
        ") -> (" + type(1, outer) + attributes(outer) + ") { %y = dist." + op +
        " on " + mesh() + " " + clauses + " : " + type(1, inner) + " -> " +
        type(1, outer) + "\nreturn %y : " + type(1, outer) + " } }";
    input = random({ranks, inner.first, inner.second});
    rowSize = inner.first * inner.second;
    columns = inner.second;
    std::vector<Tensor> results = run(parse(text), {input});
    if (results.empty()) {
      ADD_FAILURE() << messages << text;
      return {};
    }
    std::vector<Floats> rows;
    int64_t outerSize = outer.first * outer.second;
    for (int64_t rank = 0; rank < ranks; ++rank)
      rows.emplace_back(results[0].floats.begin() + rank * outerSize,
                        results[0].floats.begin() + (rank + 1) * outerSize);
    return rows;
  }
  /// Element of what a rank put in.
  double in(int64_t rank, int64_t row, int64_t column) const {
    return input.floats[rank * rowSize + row * columns + column];
  }

  int64_t fast, ranks, size, rowSize = 0, columns = 0;
  std::vector<std::string> axes;
  Tensor input;
};

TEST_P(CollectiveTest, AllReduce) {
  std::vector<Floats> sum =
      runRows("all_reduce %x sum", "over " + axesText(), {2, 3}, {2, 3});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 6; ++i) {
      double expected = 0;
      for (int64_t member : group(rank))
        expected += in(member, i / 3, i % 3);
      EXPECT_NEAR(sum.at(rank)[i], expected, 1e-14);
    }
  std::vector<Floats> max =
      runRows("all_reduce %x max", "over " + axesText(), {2, 3}, {2, 3});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 6; ++i) {
      double expected = -INFINITY;
      for (int64_t member : group(rank))
        expected = std::max(expected, in(member, i / 3, i % 3));
      EXPECT_EQ(max.at(rank)[i], expected);
    }
}

TEST_P(CollectiveTest, ReduceScatter) {
  std::vector<Floats> own =
      runRows("reduce_scatter %x sum", "over " + axesText() + " dim 2",
              {2, 2 * size}, {2, 2});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 4; ++i) {
      double expected = 0;
      for (int64_t member : group(rank))
        expected += in(member, i / 2, position(rank) * 2 + i % 2);
      EXPECT_NEAR(own.at(rank)[i], expected, 1e-14);
    }
}

TEST_P(CollectiveTest, AllGather) {
  std::vector<Floats> all = runRows(
      "all_gather %x", "over " + axesText() + " dim 2", {2, 3}, {2, 3 * size});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t j = 0; j < 3 * size; ++j)
        EXPECT_EQ(all.at(rank)[row * 3 * size + j],
                  in(group(rank)[j / 3], row, j % 3));
}

TEST_P(CollectiveTest, AllToAll) {
  std::vector<Floats> moved =
      runRows("all_to_all %x", "over " + axesText() + " dim 1 to_dim 2",
              {2, 3 * size}, {2 * size, 3});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 2 * size; ++i)
      for (int64_t j = 0; j < 3; ++j)
        EXPECT_EQ(moved.at(rank)[i * 3 + j],
                  in(group(rank)[i / 2], i % 2, position(rank) * 3 + j));
}

TEST_P(CollectiveTest, Slice) {
  std::vector<Floats> own = runRows("slice %x", "over " + axesText() + " dim 2",
                                    {2, 3 * size}, {2, 3});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(own.at(rank)[i], in(rank, i / 3, position(rank) * 3 + i % 3));
}

TEST_P(CollectiveTest, MakePartial) {
  std::vector<Floats> part =
      runRows("make_partial %x", "over " + axesText(), {2, 3}, {2, 3});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(part.at(rank)[i],
                position(rank) == 0 ? in(rank, i / 3, i % 3) : 0);
}

TEST_P(CollectiveTest, Permute) {
  std::string sources;
  for (int64_t i = 0; i < size; ++i)
    sources += (i ? ", " : "") + std::to_string((i + 1) % size);
  // The tile keeps its elements and takes another shape.
  std::vector<Floats> other =
      runRows("permute %x", "over " + axesText() + " from [" + sources + "]",
              {2, 3}, {3, 2});
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(other.at(rank)[i],
                in(group(rank)[(position(rank) + 1) % size], i / 3, i % 3));
}

using Axes = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    Meshes, CollectiveTest,
    ::testing::Combine(::testing::Values(2, 3),
                       ::testing::Values(Axes{"a"}, Axes{"b"}, Axes{"a", "b"},
                                         Axes{"b", "a"})));
// Ranks 0 and 3, 1 and 2 of an axis.
INSTANTIATE_TEST_SUITE_P(
    Mirrors, CollectiveTest,
    ::testing::Combine(::testing::Values(2, 4),
                       ::testing::Values(Axes{"b.mirror"},
                                         Axes{"a", "b.mirror"},
                                         Axes{"b.mirror", "a"})));

//===----------------------------------------------------------------------===//
// Layouts of arguments, results and states
//===----------------------------------------------------------------------===//

constexpr const char *kMesh = "#dist.mesh<[\"a\" = 2, \"b\" = 3]>";

class RanksTest : public InterpretTest {
protected:
  /// A per-rank module on 2 x 3 ranks.
  ModuleOp parseRanks(const std::string &body) {
    return parse("#mesh = " + std::string(kMesh) +
                 "\nmodule attributes {dist.mesh = #mesh} {" + body + "}");
  }
};

// 5 x 7 is stored as 6 x 9; what comes back is what went in.
TEST_F(RanksTest, CutsAndPutsTogether) {
  ModuleOp module = parseRanks(R"(
transformer.state @w parameter : tensor<3x3xf32> {dist.layout = #dist.layout<#mesh, [{"a"} padded 6, {"b"} padded 9]>, dist.global = tensor<5x7xf32>}
func.func @f(%x: tensor<1x7xf32> {dist.layout = #dist.layout<#mesh, [{"b", "a"} padded 6, {}]>, dist.global = tensor<5x7xf32>})
    -> (tensor<1x7xf32> {dist.layout = #dist.layout<#mesh, [{"b", "a"} padded 6, {}]>, dist.global = tensor<5x7xf32>}) {
  return %x : tensor<1x7xf32>
})");
  Tensor whole = random({5, 7});
  EXPECT_EQ(run(module, {whole}).at(0).floats, whole.floats);
  Machine machine = makeMachine(module);
  EXPECT_EQ(machine.getNumRanks(), 6);
  ASSERT_TRUE(succeeded(machine.setState("w", 0, whole)));
  EXPECT_EQ(machine.getState("w", 0)->floats, whole.floats);
}

// Each rank adds its own part; the result says it is a sum over b.
TEST_F(RanksTest, PartialResultsAreSummed) {
  ModuleOp module = parseRanks(R"(
func.func @f(%x: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{"b"}]>, dist.global = tensor<12xf32>})
    -> (tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{}], partial = ["b"]>, dist.global = tensor<4xf32>}) {
  return %x : tensor<4xf32>
})");
  Tensor x = random({12});
  Floats expected(4);
  for (int64_t i = 0; i < 12; ++i)
    expected[i % 4] += x.floats[i];
  expectNear(run(module, {x}).at(0).floats, expected);
}

// Three sequences stored as four: the fourth has no label.
TEST_F(RanksTest, LabelsInPaddingDoNotCount) {
  ModuleOp module = parseRanks(R"(
func.func @f(%l: tensor<2x1xi32> {transformer.as = "labels", dist.layout = #dist.layout<#mesh, [{"a"} padded 4, {}]>, dist.global = tensor<3x1xi32>}) -> tensor<i64> {
  %n = transformer.count_labels %l : (tensor<2x1xi32>) -> tensor<i64>
  %all = dist.all_reduce %n sum on #mesh over ["a"] : tensor<i64> -> tensor<i64>
  return %all : tensor<i64>
})");
  auto results =
      makeMachine(module).run("f", {{"labels", {integers({3, 1}, {0, 1, 2})}}});
  ASSERT_TRUE(succeeded(results)) << messages;
  EXPECT_EQ((*results)[0].getTensor().integers, std::vector<int64_t>{3});
}

TEST_F(RanksTest, UnequalReplicasOfAResultAreSeen) {
  ModuleOp module = parseRanks(R"(
func.func @f(%x: tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{"b"}]>, dist.global = tensor<12xf32>})
    -> (tensor<4xf32> {transformer.as = "y"}) {
  return %x : tensor<4xf32>
})");
  EXPECT_TRUE(run(module, {random({12})}).empty());
  EXPECT_THAT(messages, HasSubstr("has result 'y' where ranks 0 and 1 must "
                                  "hold the same bits (layout [{}]), but do "
                                  "not"));
}

TEST_F(RanksTest, UnequalReplicasAndPaddingOfAStateAreSeen) {
  ModuleOp module = parseRanks(R"(
transformer.state @w parameter : tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{"a"}]>, dist.global = tensor<8xf32>}
transformer.state @p parameter : tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{"a"} padded 8]>, dist.global = tensor<7xf32>}
func.func @break() {
  %w = transformer.load @w : tensor<4xf32>
  transformer.store %w to @p : tensor<4xf32>
  %part = dist.make_partial %w on #mesh over ["b"] : tensor<4xf32> -> tensor<4xf32>
  transformer.store %part to @w : tensor<4xf32>
  return
})");
  Machine machine = makeMachine(module);
  ASSERT_TRUE(succeeded(machine.setState("w", 0, random({8}))));
  ASSERT_TRUE(succeeded(machine.getState("w", 0)));
  ASSERT_TRUE(succeeded(machine.run("break", {}))) << messages;
  EXPECT_TRUE(failed(machine.getState("w", 0)));
  EXPECT_THAT(messages, HasSubstr("ranks 0 and 1 must hold the same bits"));
  std::string message;
  messages.clear();
  EXPECT_TRUE(failed(machine.getState("p", 0, &message)));
  EXPECT_EQ(messages, "");
  EXPECT_EQ(message,
            "@\"p\" of layer 0: has padding that is not zero on rank 3");
}

TEST_F(RanksTest, PartialStateBeginsAtZeroAndCannotBeSet) {
  ModuleOp module = parseRanks(R"(
transformer.state @w parameter : tensor<4xf32>
transformer.state @w.sum gradient_sum of @w : tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{}], partial = ["a"]>, dist.global = tensor<4xf32>}
func.func @add() {
  %w = transformer.load @w : tensor<4xf32>
  transformer.accumulate %w into @w.sum : tensor<4xf32>
  return
})");
  Machine machine = makeMachine(module);
  Tensor w = random({4});
  EXPECT_TRUE(failed(machine.setState("w.sum", 0, w)));
  EXPECT_THAT(messages, HasSubstr("is a partial sum"));
  ASSERT_TRUE(succeeded(machine.setState("w", 0, w)));
  ASSERT_TRUE(succeeded(machine.run("add", {}))) << messages;
  Floats twice;
  for (double value : w.floats)
    twice.push_back(2 * value);
  expectNear(machine.getState("w.sum", 0)->floats, twice);
}

TEST_F(RanksTest, LayoutThatDoesNotFitItsTypeIsRefused) {
  ModuleOp module = parseRanks(R"(
transformer.state @w parameter : tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{"b"} padded 9]>, dist.global = tensor<8xf32>}
)");
  EXPECT_TRUE(failed(Machine::create(module)));
  EXPECT_THAT(messages, HasSubstr("state is 'tensor<4xf32>', but its part of "
                                  "'tensor<8xf32>' by [{\"b\"} padded 9] is "
                                  "'tensor<3xf32>'"));
}

// Before partitioning layouts are in types, and values are whole.
TEST_F(RanksTest, LayoutsInTypesRunOnWholeTensors) {
  ModuleOp module = parse("#mesh = " + std::string(kMesh) + R"(
!own = tensor<5xf32, #dist.layout<#mesh, [{"b"} padded 6]>>
!all = tensor<5xf32, #dist.layout<#mesh, [{} padded 6]>>
module attributes {dist.mesh = #mesh} {
func.func @f(%x: !own) -> !all {
  %y = dist.reshard %x : !own -> !all
  return %y : !all
}})");
  EXPECT_EQ(makeMachine(module).getNumRanks(), 1);
  expectNear(run(module, {floats({5}, {1, 2, 3, 4, 5})}).at(0).floats,
             {1, 2, 3, 4, 5});
}

//===----------------------------------------------------------------------===//
// Ops that know their part
//===----------------------------------------------------------------------===//

/// Embedding and loss of a vocabulary of `rows` of which a rank holds `local`.
static std::string vocabularyText(std::string local, std::string shard,
                                  std::string attributes, bool reduce) {
  auto sum = [&](std::string name, std::string type, std::string how) {
    return reduce
               ? "%" + name + "s = dist.all_reduce %" + name + " " + how +
                     " on #mesh over [\"b\"] : " + type + " -> " + type + "\n"
               : "%z" + name + " = transformer.zeros_like %" + name + " : (" +
                     type + ") -> " + type + "\n%" + name +
                     "s = transformer.add %" + name + ", %z" + name + " : (" +
                     type + ", " + type + ") -> " + type + "\n";
  };
  std::string row = "tensor<1x4xf32>", ids = "tensor<1x4xi32>",
              x = "tensor<1x4x3xf32>", table = "tensor<" + local + "x3xf32>",
              logits = "tensor<1x4x" + local + "xf32>";
  return "func.func @f(%t: " + table + attributes + ", %ids: " + ids +
         ", %labels: " + ids + ") -> (" + row + ", " + table + attributes +
         ", " + table + attributes + ") {\n" +
         "%x = transformer.embedding %ids, %t" + shard + " : (" + ids + ", " +
         table + ") -> " + x + "\n" + sum("x", x, "sum") +
         "%l = transformer.contract \"b s d, v d -> b s v\" %xs, %t : (" + x +
         ", " + table + ") -> " + logits + "\n" +
         "%m = transformer.row_max %l" + shard + " : (" + logits + ") -> " +
         row + "\n" + sum("m", row, "max") +
         "%z = transformer.row_sum_exp %l, %ms" + shard + " : (" + logits +
         ", " + row + ") -> " + row + "\n" + sum("z", row, "sum") +
         "%p = transformer.pick %l, %labels" + shard + " : (" + logits + ", " +
         ids + ") -> " + row + "\n" + sum("p", row, "sum") +
         "%loss = transformer.token_loss %ms, %zs, %ps : (" + row + ", " + row +
         ", " + row + ") -> " + row + "\n" +
         "%n = transformer.count_labels %labels : (" + ids +
         ") -> tensor<i64>\n" +
         "%d = transformer.loss_grad %l, %ms, %zs, %labels, %n" + shard +
         " : (" + logits + ", " + row + ", " + row + ", " + ids +
         ", tensor<i64>) -> " + logits + "\n" +
         "%dt = transformer.contract \"b s v, b s d -> v d\" %d, %xs : (" +
         logits + ", " + x + ") -> " + table + "\n" +
         "%de = transformer.embedding_grad %ids, %xs" + shard + " : (" + ids +
         ", " + x + ") -> " + table + "\n" + "return %loss, %dt, %de : " + row +
         ", " + table + ", " + table + " }";
}

// Seven rows stored as nine, three to a rank along b.
TEST_F(RanksTest, SplitVocabularyEqualsTheWhole) {
  std::vector<Tensor> arguments = {random({7, 3}),
                                   integers({1, 4}, {0, 6, 3, 6}),
                                   integers({1, 4}, {6, -100, 2, 0})};
  std::vector<Tensor> whole =
      run(parse(vocabularyText("7", "", "", false)), arguments);
  std::vector<Tensor> split =
      run(parseRanks(vocabularyText(
              "3", " shards {v = #dist.shard<#mesh, [\"b\"], 7>}",
              " {dist.layout = #dist.layout<#mesh, [{\"b\"} padded 9, {}]>, "
              "dist.global = tensor<7x3xf32>}",
              true)),
          arguments);
  ASSERT_EQ(whole.size(), 3u) << messages;
  ASSERT_EQ(split.size(), 3u) << messages;
  for (int64_t i = 0; i < 3; ++i)
    expectNear(split[i].floats, whole[i].floats);
}

//===----------------------------------------------------------------------===//
// Ranks that do not meet
//===----------------------------------------------------------------------===//

class ExchangeTest : public InterpretTest {
protected:
  /// Two collectives on a pair of ranks; entry i of `ops` is what rank i does
  /// (-1: nothing).
  std::string meet(std::vector<int> ops) {
    ModuleOp module = parse(R"(
#mesh = #dist.mesh<["a" = 2]>
func.func @f(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  %0 = dist.all_reduce %x sum on #mesh over ["a"] : tensor<4xf32> -> tensor<4xf32>
  %1 = dist.all_reduce %y sum on #mesh over ["a"] : tensor<2xf32> -> tensor<2xf32>
  %2 = dist.all_reduce %x max on #mesh over ["a"] : tensor<4xf32> -> tensor<4xf32>
  return
})");
    std::vector<Operation *> found;
    module.walk([&](dist::AllReduceOp op) { found.push_back(op); });
    Exchange exchange(2);
    auto runRank = [&](int64_t rank) {
      if (ops[rank] >= 0)
        exchange.meet(rank, found[ops[rank]], {0, 1},
                      std::make_shared<const Tensor>(Tensor::scalar(rank)));
      exchange.finish(rank);
    };
    std::thread other([&] { runRank(1); });
    runRank(0);
    other.join();
    if (exchange.getFault())
      exchange.getFault()->emit();
    return messages;
  }
};

TEST_F(ExchangeTest, EqualCollectivesMeet) { EXPECT_EQ(meet({0, 0}), ""); }

TEST_F(ExchangeTest, DifferentShapesAreNamed) {
  EXPECT_THAT(meet({0, 1}),
              HasSubstr("ranks 0 and 1 of one group meet in different "
                        "collectives: dist.all_reduce of tensor<4xf32> and "
                        "dist.all_reduce of tensor<2xf32>"));
}

TEST_F(ExchangeTest, DifferentReductionsAreNamed) {
  EXPECT_THAT(meet({0, 2}), HasSubstr("note: rank 1 is here"));
}

TEST_F(ExchangeTest, RankThatNeverComesIsNamed) {
  EXPECT_THAT(meet({-1, 1}),
              HasSubstr("rank 1 waits for rank 0, which never comes"));
}

// A fault on one rank ends the others, and is what is reported.
TEST_F(RanksTest, FaultOfOneRankReleasesTheOthers) {
  ModuleOp module = parseRanks(R"(
func.func @f(%i: tensor<1x1xi32> {dist.layout = #dist.layout<#mesh, [{"a", "b"}, {}]>, dist.global = tensor<6x1xi32>}, %t: tensor<2x1xf32>) -> tensor<1x1x1xf32> {
  %x = transformer.embedding %i, %t : (tensor<1x1xi32>, tensor<2x1xf32>) -> tensor<1x1x1xf32>
  %y = dist.all_reduce %x sum on #mesh over ["a", "b"] : tensor<1x1x1xf32> -> tensor<1x1x1xf32>
  return %y : tensor<1x1x1xf32>
})");
  Tensor table = floats({2, 1}, {1, 10});
  expectNear(
      run(module, {integers({6, 1}, {0, 0, 1, 0, 1, 1}), table}).at(0).floats,
      {33});
  EXPECT_TRUE(
      run(module, {integers({6, 1}, {0, 0, 0, 0, 5, 0}), table}).empty());
  EXPECT_THAT(messages, HasSubstr("reads number 5 (element 0) of 2; expected 0 "
                                  "to 1 (on rank 4)"));
}

TEST_F(RanksTest, CollectiveOfAnotherMeshIsRefused) {
  ModuleOp module = parse(R"(
#pair = #dist.mesh<["a" = 2]>
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = dist.all_reduce %x sum on #pair over ["a"] : tensor<2xf32> -> tensor<2xf32>
  return %y : tensor<2xf32>
})");
  EXPECT_TRUE(run(module, {random({2})}).empty());
  EXPECT_THAT(messages, HasSubstr("is on a mesh of 2 ranks, but 1 run"));
}

} // namespace
