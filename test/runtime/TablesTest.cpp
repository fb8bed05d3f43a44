//===- TablesTest.cpp - tables.bin, and what ranks hold of a tensor -------===//

#include "heddle/Runtime/Tables.h"
#include "runtime/train/Cbor.h"
#include "runtime/train/Rank.h"
#include "test/runtime/TrainProgram.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace heddle;
using namespace heddle::test;
using namespace heddle::train;
using testing::HasSubstr;

namespace {

TEST(Cbor, ExamplesOfTheStandard) {
  const auto decoded = [](std::string bytes) {
    Result<DocumentValue> value = decodeCbor(bytes);
    EXPECT_TRUE(value) << value.message();
    return *value;
  };
  EXPECT_EQ(decoded("\x17").integer, 23);
  EXPECT_EQ(decoded(std::string("\x19\x03\xe8", 3)).integer, 1000);
  EXPECT_EQ(decoded(std::string("\x39\x03\xe7", 3)).integer, -1000);
  EXPECT_EQ(decoded(std::string("\x1b\0\0\0\xe8\xd4\xa5\x10\0", 9)).integer,
            1000000000000);
  EXPECT_EQ(
      decoded(std::string("\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", 9)).number,
      1.1);
  EXPECT_EQ(decoded(std::string("\xfa\x47\xc3\x50\0", 5)).number, 100000.0);
  EXPECT_TRUE(decoded("\xf5").boolean);
  EXPECT_EQ(decoded("\x64IETF").text, "IETF");
  EXPECT_EQ(decoded("\x82\x01\x82\x02\x03").items[1].items[1].integer, 3);
  EXPECT_EQ(decoded("\xa1\x61"
                    "a\x01")
                .find("a")
                ->integer,
            1);
}

TEST(Cbor, RefusesWhatIsCutOffOrStrange) {
  for (std::string bytes : {"", "\x19\x03", "\x64IET", "\x82\x01", "\x9f\xff",
                            "\x01\x01", "\xc0\x01", "\xa1\x01\x01"})
    EXPECT_FALSE(decodeCbor(bytes)) << bytes.size();
  EXPECT_FALSE(decodeCbor(std::string(100, '\x81')));
  EXPECT_FALSE(decodeCbor("\x9b\x7f\xff\xff\xff\xff\xff\xff\xff")); // no memory
}

TEST(Tables, ComeBackAsTheyWere) {
  const std::string bytes = encodeTables(bigramTables());
  const runtime::Tables read = runtime::decodeTables(bytes);
  EXPECT_EQ(encodeTables(read), bytes);
  EXPECT_EQ(read.ranks(), 4);
  EXPECT_EQ(read.states[0].file.order, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(read.schedule.finalLr, 0.1);
  EXPECT_EQ(read.inputs.at("tokens").layout.dims[1][0], "dp");
  // Every cut of the bytes is refused, none crashes.
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(runtime::decodeTables(std::string_view(bytes).substr(0, n)),
                 runtime::TablesError);
}

TEST(Tables, RefusesWhatDoesNotFit) {
  const auto why = [](auto change) -> std::string {
    runtime::Tables tables = bigramTables();
    change(tables);
    try {
      runtime::decodeTables(encodeTables(tables));
    } catch (const runtime::TablesError &error) {
      return error.what();
    }
    return "accepted";
  };
  using T = runtime::Tables;
  EXPECT_EQ(why([](T &) {}), "accepted");
  EXPECT_THAT(why([](T &t) { t.version = 2; }), HasSubstr("version is 2"));
  EXPECT_THAT(why([](T &t) { t.states[0].offset = kBytes; }),
              HasSubstr("do not fit arena 'main'"));
  EXPECT_THAT(why([](T &t) { t.states[0].layout.local[0] = 3; }),
              HasSubstr("which do not fit"));
  EXPECT_THAT(why([](T &t) { t.states[0].layout.dims[0] = {"cp"}; }),
              HasSubstr("no axis 'cp'"));
  EXPECT_THAT(why([](T &t) { t.states[0].layout.dims[1] = {"tp"}; }),
              HasSubstr("axis 'tp' cuts twice"));
  EXPECT_THAT(why([](T &t) { t.states[1] = t.states[0]; }),
              HasSubstr("is there twice"));
  EXPECT_THAT(why([](T &t) { t.states[0].file.order = {1, 1}; }),
              HasSubstr("no permutation"));
  EXPECT_THAT(why([](T &t) { t.states[0].file.shape = {7}; }),
              HasSubstr("file.shape has 7 elements"));
  EXPECT_THAT(why([](T &t) { t.outputs.erase("loss"); }),
              HasSubstr("no output 'loss'"));
  EXPECT_THAT(why([](T &t) { t.states[0].layers = 2; }),
              HasSubstr("2 layers of a name without"));
}

TEST(Tables, InstanceNames) {
  runtime::State state;
  state.name = "model.layers.{}.weight";
  EXPECT_EQ(state.instanceName(7), "model.layers.7.weight");
  state.name = "lm_head.weight";
  EXPECT_EQ(state.instanceName(0), "lm_head.weight");
}

/// The mesh of `bigramTables` with stages before it, of 5 layers.
runtime::Tables stagedTables() {
  runtime::Tables tables = bigramTables();
  tables.mesh.insert(tables.mesh.begin(), {"pp", 3});
  tables.stages = {"pp", {{0, 3}, {1, 2, 4}, {}}};
  runtime::State layers = tables.states[0];
  layers.name = "layers.{}.weight";
  layers.layers = 5;
  layers.layerStride = 4096;
  layers.byStage = {0, 64, 1 << 20}; // nothing is on the last one
  tables.arenas[0].bytes = 3 * 4096 + kBytes;
  tables.arenas[0].byStage = {2 * 4096, 3 * 4096 + kBytes, kBytes};
  tables.states.push_back(layers);
  tables.states[0].heldBy = {0, 2};
  return tables;
}

TEST(Stages, HoldWhatTheTableSays) {
  const runtime::Tables tables =
      runtime::decodeTables(encodeTables(stagedTables()));
  EXPECT_EQ(tables.numStages(), 3);
  EXPECT_EQ(tables.stageOf(3), 0);
  EXPECT_EQ(tables.stageOf(4), 1);
  EXPECT_EQ(tables.stageOf(11), 2);
  const runtime::State &shared = tables.states[0],
                       &layers = tables.states.back();
  EXPECT_EQ(tables.instancesAt(layers, 1), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_TRUE(tables.instancesAt(layers, 2).empty());
  EXPECT_TRUE(tables.instancesAt(shared, 1).empty());
  EXPECT_EQ(tables.instancesAt(shared, 2), (std::vector<int64_t>{0}));
  for (int64_t stage = 0; stage < 3; ++stage)
    for (const runtime::State *state : {&shared, &layers})
      EXPECT_EQ(tables.numInstancesAt(*state, stage),
                int64_t(tables.instancesAt(*state, stage).size()));
  EXPECT_EQ(instancePlace(layers, 2, extentsOf(tables, 4, layers), 1).offset,
            64 + 2 * 4096);
  EXPECT_EQ(tables.layersAt(0, 5), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(bigramTables().layersAt(0, 3), (std::vector<int64_t>{0, 1, 2}));
}

/// Copies on several stages are copies of one share.
TEST(Stages, SharesAreThoseOfAnyStage) {
  const runtime::Tables tables = stagedTables();
  const runtime::State &state = tables.states[0];
  for (int64_t rank = 0; rank < 4; ++rank) {
    const Extents here = extentsOf(tables, rank, state),
                  there = extentsOf(tables, 8 + rank, state);
    EXPECT_EQ(here.share(), there.share());
    EXPECT_EQ(here.first(), there.first());
    EXPECT_EQ(here.share() == extentsOf(tables, 0, state).share(),
              here.runCount() &&
                  here.runStart(0) == extentsOf(tables, 0, state).runStart(0));
  }
}

TEST(Stages, RefusesWhatDoesNotFit) {
  const auto why = [](auto change) -> std::string {
    runtime::Tables tables = stagedTables();
    change(tables);
    try {
      runtime::decodeTables(encodeTables(tables));
    } catch (const runtime::TablesError &error) {
      return error.what();
    }
    return "accepted";
  };
  using T = runtime::Tables;
  EXPECT_EQ(why([](T &) {}), "accepted");
  EXPECT_THAT(why([](T &t) { t.stages.axis = "cp"; }),
              HasSubstr("no axis 'cp'"));
  EXPECT_THAT(why([](T &t) { t.stages.layers.pop_back(); }),
              HasSubstr("lists 2 stages, axis 'pp' has 3"));
  EXPECT_THAT(why([](T &t) { t.stages.layers[0] = {0}; }),
              HasSubstr("no stage holds layer 3"));
  EXPECT_THAT(why([](T &t) { t.stages.layers[2] = {5}; }),
              HasSubstr("stage 2 holds layer 5 of 5"));
  EXPECT_THAT(why([](T &t) { t.states[0].heldBy = {3}; }),
              HasSubstr("held_by names stage 3 of 3"));
  EXPECT_THAT(why([](T &t) { t.states[0].byStage = {0}; }),
              HasSubstr("by_stage has 1 numbers for 3 stages"));
  EXPECT_THAT(why([](T &t) { t.arenas[0].byStage[1] = 2 * 4096 + 128; }),
              HasSubstr("do not fit arena 'main'"));
}

/// Layouts drawn at random: 1 to 3 dimensions, axes in any order, padding, and
/// a permuted file form.
struct Drawn {
  std::vector<std::pair<std::string, int64_t>> mesh = {
      {"a", 2}, {"b", 3}, {"c", 2}};
  runtime::Layout layout;
  runtime::FileForm file;

  explicit Drawn(std::mt19937 &random) {
    const size_t n = 1 + random() % 3;
    std::vector<std::string> axes = {"a", "b", "c"};
    std::shuffle(axes.begin(), axes.end(), random);
    layout.dims.resize(n);
    for (const std::string &axis : axes)
      if (random() % 3 != 0)
        layout.dims[random() % n].push_back(axis);
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    file.order = order;
    file.shape.resize(n);
    for (size_t d = 0; d < n; ++d) {
      int64_t parts = 1;
      for (const std::string &axis : layout.dims[d])
        parts *= axis == "b" ? 3 : 2;
      const int64_t local = 1 + random() % 4;
      layout.local.push_back(local);
      layout.padded.push_back(local * parts);
      layout.shape.push_back(
          std::max<int64_t>(1, local * parts - int64_t(random() % 3)));
      file.shape[size_t(order[d])] = layout.shape.back();
    }
  }
  /// Place of a file element in the logical tensor, by definition.
  std::vector<int64_t> logicalIndex(int64_t element) const {
    std::vector<int64_t> inFile(file.shape.size()), index(file.shape.size());
    for (size_t f = file.shape.size(); f-- > 0;) {
      inFile[f] = element % file.shape[f];
      element /= file.shape[f];
    }
    for (size_t d = 0; d < index.size(); ++d)
      index[d] = inFile[size_t(file.order[d])];
    return index;
  }
};

TEST(Extents, ScatterAndGatherOfRandomLayouts) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const Drawn drawn(random);
    int64_t elements = 1;
    for (int64_t size : drawn.layout.shape)
      elements *= size;
    std::vector<float> whole(elements), back(elements, -1);
    std::iota(whole.begin(), whole.end(), 0.0f);
    std::vector<int> writers(elements, 0);
    for (int64_t rank = 0; rank < 12; ++rank) {
      const Extents extents(drawn.mesh, rank, drawn.layout, drawn.file);
      std::vector<float> block(extents.blockElements(), -1);
      std::vector<float> run(extents.runElements());
      for (int64_t r = 0; r < extents.runCount(); ++r)
        extents.toBlock(r, whole.data() + extents.runStart(r), block.data());
      // Each held element is where the definition says; the rest is padding.
      const auto at = runtime::coordinatesOf(drawn.mesh, rank);
      std::vector<float> expected(block.size(), -1);
      for (int64_t e = 0; e < elements; ++e) {
        const auto index = drawn.logicalIndex(e);
        int64_t place = 0;
        bool mine = true;
        for (size_t d = 0; d < index.size(); ++d) {
          int64_t part = 0;
          for (const std::string &axis : drawn.layout.dims[d]) {
            const size_t a = size_t(axis[0] - 'a');
            part = part * drawn.mesh[a].second + at[a];
          }
          const int64_t local = index[d] - part * drawn.layout.local[d];
          mine = mine && local >= 0 && local < drawn.layout.local[d];
          place = place * drawn.layout.local[d] + local;
        }
        if (mine)
          expected[place] = whole[e];
      }
      EXPECT_EQ(block, expected) << "trial " << trial << " rank " << rank;
      if (!extents.first())
        continue;
      for (int64_t r = 0; r < extents.runCount(); ++r) {
        extents.fromBlock(r, block.data(), run.data());
        for (size_t i = 0; i < run.size(); ++i) {
          back[extents.runStart(r) + int64_t(i)] = run[i];
          ++writers[extents.runStart(r) + int64_t(i)];
        }
      }
    }
    EXPECT_EQ(back, whole);
    EXPECT_EQ(*std::min_element(writers.begin(), writers.end()), 1);
    EXPECT_EQ(*std::max_element(writers.begin(), writers.end()), 1);
  }
}

TEST(Extents, WholeTensorIsOneRun) {
  const runtime::Layout layout = {
      {4, 5, 6}, {4, 5, 6}, {4, 5, 6}, {{}, {}, {}}};
  const Extents whole({{"a", 2}}, 1, layout, {{120}, {}});
  EXPECT_EQ(whole.runCount(), 1);
  EXPECT_EQ(whole.runElements(), 120);
  EXPECT_FALSE(whole.first());
  const runtime::Layout rows = {{4, 5}, {4, 5}, {2, 5}, {{"a"}, {}}};
  const Extents half({{"a", 2}}, 1, rows, {{20}, {}});
  EXPECT_EQ(half.runCount(), 1);
  EXPECT_EQ(half.runStart(0), 10);
  EXPECT_TRUE(half.first());
}

} // namespace
