//===- PiecesTest.cpp - Shares as boxes, tilings, loads between layouts ---===//

#include "runtime/checkpoint/Reshard.h"
#include "runtime/train/Extents.h"
#include "test/runtime/checkpoint/Disk.h"
#include "test/runtime/checkpoint/Layouts.h"

#include <gmock/gmock.h>

#include <random>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;
using testing::HasSubstr;

namespace {

/// By place: which element of the file form a rank stores there; -1: padding.
std::vector<int64_t> elementsByExtents(const runtime::Tables &t, int64_t rank,
                                       const runtime::State &state) {
  const train::Extents extents(t.mesh, rank, state.layout, state.file,
                               t.stages.axis);
  std::vector<int64_t> at(size_t(extents.storedElements()), -1);
  for (int64_t r = 0; r < extents.runCount(); ++r)
    extents.visitStored(r, [&](int64_t element, int64_t place) {
      at[size_t(place)] = extents.runStart(r) + element;
    });
  return at;
}

std::vector<int64_t> elementsByPieces(const Share &share,
                                      const std::vector<int64_t> &shape) {
  std::vector<int64_t> at(size_t(share.stored), -1);
  for (const Piece &piece : share.pieces) {
    const Box &box = piece.box;
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < box.elements(); ++i) {
      int64_t rest = i, index = 0, stride = 1;
      for (size_t d = shape.size(); d-- > 0;) {
        index += (box.offset[d] + rest % box.size[d]) * stride;
        rest /= box.size[d];
        stride *= shape[d];
      }
      indices.push_back(index);
    }
    std::vector<int64_t> own(at.size(), -1);
    piece.scatter(reinterpret_cast<const std::byte *>(indices.data()), 8,
                  reinterpret_cast<std::byte *>(own.data()));
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i] >= 0) {
        EXPECT_EQ(at[i], -1) << "two pieces store one element";
        at[i] = own[i];
      }
    // And back, by halves.
    std::vector<int64_t> again(indices.size(), -1);
    const int64_t half = piece.rows() / 2;
    const int64_t inRow = box.elements() / piece.rows();
    piece.gather(reinterpret_cast<const std::byte *>(at.data()), 8, 0, half,
                 reinterpret_cast<std::byte *>(again.data()));
    piece.gather(reinterpret_cast<const std::byte *>(at.data()), 8, half,
                 piece.rows() - half,
                 reinterpret_cast<std::byte *>(again.data() + half * inRow));
    EXPECT_EQ(again, indices);
  }
  return at;
}

/// A state of a drawn layout over a mesh of three axes.
runtime::State drawState(std::mt19937 &random) {
  const auto draw = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  runtime::State state;
  state.name = "w";
  state.kind = "parameter";
  const auto n = size_t(draw(1, 4));
  std::vector<int32_t> order(n);
  std::vector<std::string> axes = {"a", "b", "c"};
  std::vector<int64_t> sizes = {2, 3, 2};
  runtime::Layout &l = state.layout;
  l.dims.resize(n);
  for (size_t d = 0; d < n; ++d) {
    order[d] = int32_t(d);
    l.shape.push_back(draw(1, 5));
    int64_t parts = 1;
    for (size_t a = 0; a < axes.size(); ++a)
      if (!axes[a].empty() && draw(0, 3) == 0) {
        l.dims[d].push_back(axes[a]);
        axes[a].clear();
        parts *= sizes[a];
      }
    l.local.push_back((l.shape[d] + parts - 1) / parts);
    l.padded.push_back(l.local[d] * parts);
  }
  int64_t parts = 1, block = 1;
  for (size_t a = 0; a < axes.size(); ++a)
    if (!axes[a].empty() && draw(0, 2) == 0) {
      l.runs.push_back(axes[a]);
      parts *= sizes[a];
    }
  for (int64_t size : l.local)
    block *= size;
  if (parts > 1)
    l.row = (block + parts - 1) / parts * parts;
  std::shuffle(order.begin(), order.end(), random);
  state.file.order = order;
  std::vector<int64_t> cut(n);
  for (size_t d = 0; d < n; ++d)
    cut[size_t(order[d])] = l.shape[d];
  for (size_t f = 0; f < n; ++f)
    if (f > 0 && draw(0, 1))
      state.file.shape.back() *= cut[f];
    else
      state.file.shape.push_back(cut[f]);
  return state;
}

TEST(Pieces, AreWhatARankStoresOfDrawnLayouts) {
  std::mt19937 random(1);
  runtime::Tables t;
  t.mesh = {{"a", 2}, {"b", 3}, {"c", 2}};
  for (int trial = 0; trial < 1500; ++trial) {
    const runtime::State state = drawState(random);
    std::vector<Box> boxes;
    for (int64_t rank = 0; rank < 12; ++rank) {
      const Result<Share> share = shareOf(t, rank, state);
      ASSERT_TRUE(share) << share.message();
      ASSERT_EQ(elementsByPieces(*share, state.file.shape),
                elementsByExtents(t, rank, state))
          << "trial " << trial << ", rank " << rank;
      if (share->replica == 0)
        for (const Piece &piece : share->pieces)
          boxes.push_back(piece.box);
    }
    ASSERT_EQ(tilingFault(state.file.shape, boxes), std::nullopt)
        << "trial " << trial;
  }
}

TEST(Pieces, ARunOfRowsIsOneBoxAndAnyRunAFew) {
  runtime::Tables t;
  t.mesh = {{"dp", 4}};
  runtime::State state;
  state.layout = {{8, 6}, {8, 6}, {8, 6}, {{}, {}}, {"dp"}, 48};
  state.file = {{8, 6}, {}};
  Result<Share> rows = shareOf(t, 1, state);
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->pieces.size(), 1u);
  EXPECT_EQ(textOf(rows->pieces[0].box), "[2:4, 0:6]");
  state.layout.row = 52; // runs of 13: a row's end, rows, a row's begin
  Result<Share> ragged = shareOf(t, 1, state);
  ASSERT_EQ(ragged->pieces.size(), 3u);
  EXPECT_EQ(textOf(ragged->pieces[0].box), "[2:3, 1:6]");
  EXPECT_EQ(textOf(ragged->pieces[1].box), "[3:4, 0:6]");
  EXPECT_EQ(textOf(ragged->pieces[2].box), "[4:5, 0:2]");
  state.file.shape = {6, 8};
  EXPECT_THAT(shareOf(t, 1, state).message(), HasSubstr("is no merge of"));
}

/// Cuts a box at random until parts are small.
void cut(std::mt19937 &random, Box box, std::vector<Box> &to) {
  const size_t d = random() % box.size.size();
  if (box.elements() < 6 || random() % 4 == 0 || box.size[d] == 1) {
    to.push_back(box);
    return;
  }
  Box low = box, high = box;
  low.size[d] = 1 + int64_t(random() % uint64_t(box.size[d] - 1));
  high.offset[d] += low.size[d];
  high.size[d] -= low.size[d];
  cut(random, low, to);
  cut(random, high, to);
}

// Of every second element there are as many pieces as elements.
TEST(Pieces, MoreThanAnyLayoutHasAreRefused) {
  const int64_t many = int64_t(1) << 30;
  runtime::Tables tables;
  tables.mesh = {{"tp", 2}};
  runtime::State state;
  state.kind = "parameter";
  state.name = "w";
  state.layout = {{many, 2}, {many, 2}, {many, 1}, {{}, {"tp"}}};
  state.file.shape = {2 * many};
  EXPECT_THAT(shareOf(tables, 0, state).message(),
              testing::HasSubstr("w: a rank's share has more than"));
}

TEST(Tiling, DrawnTilingsHoldAndEveryChangeIsSeen) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 5000; ++trial) {
    std::vector<int64_t> shape(1 + random() % 4);
    for (int64_t &size : shape)
      size = 1 + int64_t(random() % 9);
    std::vector<Box> boxes;
    cut(random, {std::vector<int64_t>(shape.size(), 0), shape}, boxes);
    std::shuffle(boxes.begin(), boxes.end(), random);
    ASSERT_EQ(tilingFault(shape, boxes), std::nullopt);
    const size_t i = random() % boxes.size();
    std::vector<Box> less = boxes, twice = boxes, moved = boxes, larger = boxes;
    less.erase(less.begin() + int64_t(i));
    ASSERT_TRUE(tilingFault(shape, less));
    twice.push_back(boxes[i]);
    ASSERT_TRUE(tilingFault(shape, twice));
    const size_t d = random() % shape.size();
    moved[i].offset[d] += random() % 2 ? 1 : -1;
    ASSERT_TRUE(tilingFault(shape, moved));
    larger[i].size[d] += 1;
    ASSERT_TRUE(tilingFault(shape, larger));
    if (boxes.size() > 1) { // as many elements, in other places
      moved = boxes;
      moved[i] = moved[(i + 1) % boxes.size()];
      ASSERT_TRUE(tilingFault(shape, moved));
    }
  }
  EXPECT_TRUE(tilingFault({INT64_MAX, INT64_MAX}, {}));
  EXPECT_EQ(tilingFault({}, {{{}, {}}}), std::nullopt);
  EXPECT_TRUE(tilingFault({}, {{{}, {}}, {{}, {}}}));
  EXPECT_TRUE(tilingFault({4}, {{{0, 0}, {4, 1}}}));
  EXPECT_EQ(tilingFault({4, 2}, {{{0}, {4, 2}}}),
            "an extent has 1 offsets and 2 sizes, expected 2 of each");
}

TEST(Tiling, NamesTheFirstElementThatIsNotInOneExtent) {
  const std::vector<int64_t> shape = {4, 6};
  const Box left = {{0, 0}, {4, 3}}, right = {{0, 3}, {4, 3}};
  EXPECT_EQ(tilingFault(shape, {right, left}), std::nullopt);
  EXPECT_EQ(tilingFault(shape, {left}), "no extent has element [0, 3]");
  EXPECT_EQ(tilingFault(shape, {left, {{1, 3}, {3, 3}}}),
            "no extent has element [0, 3]");
  EXPECT_EQ(tilingFault(shape, {left, {{0, 2}, {3, 4}}}),
            "extents [0:4, 0:3] and [0:3, 2:6] overlap");
}

// That would take minutes where each extent is held against each.
TEST(Tiling, OfManyExtentsInThreeDimensionsIsSeen) {
  const int64_t n = 48;
  std::vector<Box> boxes;
  for (int64_t i = 0; i < n * n * n; ++i)
    boxes.push_back({{2 * (i / n / n), 3 * (i / n % n), i % n}, {2, 3, 1}});
  const std::vector<int64_t> shape = {2 * n, 3 * n, n};
  EXPECT_EQ(tilingFault(shape, boxes), std::nullopt);
  boxes.back() = boxes[1];
  EXPECT_EQ(tilingFault(shape, boxes),
            "extents [0:2, 0:3, 1:2] and [0:2, 0:3, 1:2] overlap");
  // Halves of each dimension.
  std::vector<Box> halves;
  for (int64_t i = 0; i < 1 << 9; ++i) {
    Box &half = halves.emplace_back();
    for (int64_t d = 0; d < 9; ++d) {
      half.offset.push_back(i >> d & 1);
      half.size.push_back(1);
    }
  }
  EXPECT_EQ(tilingFault(std::vector<int64_t>(9, 2), halves),
            "the extents cut 9 dimensions, expected at most 8");
}

//===----------------------------------------------------------------------===//
// Every layout to every layout
//===----------------------------------------------------------------------===//

TEST(Reshard, TwelveLayoutsToTwelveBitByBit) {
  for (const bool bf16 : {false, true})
    for (LayoutSpec from : twelveLayouts()) {
      from.bf16 = bf16;
      Disk disk;
      ASSERT_TRUE(disk.makeFolder("root"));
      const auto saved = saveAll(disk, nameOf("root", 7), tablesOf(from), 5);
      ASSERT_TRUE(saved) << from.name << ": " << saved.message();
      const Result<Checkpoint> found =
          Checkpoint::open(disk, "root/step-0000000007");
      ASSERT_TRUE(found) << found.message();
      ASSERT_TRUE(found->verify()) << found->verify().message();
      for (LayoutSpec to : twelveLayouts()) {
        to.bf16 = bf16;
        const runtime::Tables tables = tablesOf(to);
        for (int64_t rank = 0; rank < tables.ranks(); ++rank) {
          const Result<RankMemory> loaded = loadRank(*found, tables, rank);
          ASSERT_TRUE(loaded) << loaded.message();
          ASSERT_EQ(*loaded, memoryOf(tables, rank, 5))
              << from.name << " -> " << to.name << ", rank " << rank;
        }
      }
    }
}

TEST(Reshard, ReplicasShareTheWriting) {
  const runtime::Tables t = tablesOf({.name = "dp8", .dp = 8});
  std::vector<int64_t> bytes;
  int64_t all = 0;
  for (int64_t rank = 0; rank < 8; ++rank) {
    bytes.push_back(planRank(t, rank)->copyBytes);
    all += bytes.back();
  }
  EXPECT_LT(*std::max_element(bytes.begin(), bytes.end()), all / 4);
}

TEST(Reshard, EachByteIsReadOnceByEachReplica) {
  Disk disk;
  ASSERT_TRUE(disk.makeFolder("root"));
  ASSERT_TRUE(
      saveAll(disk, nameOf("root", 1), tablesOf({.name = "tp3", .tp = 3}), 1));
  const Result<Checkpoint> found =
      Checkpoint::open(disk, "root/step-0000000001");
  const runtime::Tables t = tablesOf({.name = "z", .dp = 4, .zero = 3});
  int64_t read = 0;
  for (int64_t rank = 0; rank < 4; ++rank)
    read += planReads(found->manifest(), t, rank)->bytes();
  EXPECT_EQ(read, bytesOfSave(t));
}

/// Master and parameter stand for each other.
TEST(Reshard, OtherPrecision) {
  const LayoutSpec narrow = {.name = "bf16", .dp = 2, .zero = 1, .bf16 = true};
  const LayoutSpec wide = {.name = "fp32", .tp = 2};
  for (const auto &[from, to] : {std::pair(narrow, wide), {wide, narrow}}) {
    Disk disk;
    ASSERT_TRUE(disk.makeFolder("root"));
    ASSERT_TRUE(saveAll(disk, nameOf("root", 1), tablesOf(from), 1));
    const Result<Checkpoint> found =
        Checkpoint::open(disk, "root/step-0000000001");
    const runtime::Tables tables = tablesOf(to);
    const Result<ReadPlan> plan = planReads(found->manifest(), tables, 0);
    ASSERT_TRUE(plan) << plan.message();
    const std::string expected = from.bf16 ? "master" : "param";
    for (const Wanted &w : plan->wanted)
      if (w.state->kind == "parameter" || w.state->kind == "master") {
        EXPECT_EQ(w.role, expected);
      }
    for (int64_t rank = 0; rank < tables.ranks(); ++rank)
      ASSERT_TRUE(loadRank(*found, tables, rank));
  }
}

TEST(Reshard, WhatDoesNotFitIsRefused) {
  Disk disk;
  ASSERT_TRUE(disk.makeFolder("root"));
  ASSERT_TRUE(saveAll(disk, nameOf("root", 1), tablesOf({.name = "one"}), 1));
  const Result<Checkpoint> found =
      Checkpoint::open(disk, "root/step-0000000001");
  const auto why = [&](auto change) {
    runtime::Tables t = tablesOf({.name = "one"});
    change(t);
    return checkFits(found->manifest(), t).message();
  };
  EXPECT_THAT(why([](auto &t) { t.states[1].layers = 5; }),
              HasSubstr("has no 'layers.4.q.weight' (param)"));
  EXPECT_THAT(why([](auto &t) { t.states[0].name = "other"; }),
              HasSubstr("has no 'other'"));
  EXPECT_THAT(why([](auto &t) { t.states.erase(t.states.begin()); }),
              HasSubstr("'embed.weight', which the program does not know"));
  EXPECT_THAT(why([](auto &t) { t.states[0].file.shape = {6, 13}; }),
              HasSubstr("shape [13, 6], the program [6, 13]"));
  EXPECT_THAT(why([](auto &t) { t.states.back().kind = "momentum"; }),
              HasSubstr("has no 'norm.weight' (momentum)"));
}

} // namespace
