//===- ConvertTest.cpp - Checkpoints in other forms, published folders ----===//

#include "runtime/checkpoint/Convert.h"
#include "test/runtime/checkpoint/Disk.h"
#include "test/runtime/checkpoint/Layouts.h"

#include <gmock/gmock.h>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;
using testing::HasSubstr;

namespace {

/// A disk with step 7 of a layout in `root`.
Disk savedUnder(const LayoutSpec &spec) {
  Disk disk;
  EXPECT_TRUE(disk.makeFolder("root"));
  EXPECT_TRUE(disk.makeFolder("other"));
  const auto saved = saveAll(disk, nameOf("root", 7), tablesOf(spec), 5);
  EXPECT_TRUE(saved) << saved.message();
  return disk;
}

Checkpoint opened(const Disk &disk, const std::string &folder) {
  Result<Checkpoint> found = Checkpoint::open(disk, folder);
  EXPECT_TRUE(found) << found.message();
  const Result<void> verified = found->verify();
  EXPECT_TRUE(verified) << verified.message();
  return std::move(*found);
}

/// Files below a folder that are tensors, by name.
std::map<std::string, std::string> tensorFiles(Disk &disk,
                                               const std::string &folder) {
  std::map<std::string, std::string> files;
  for (const auto &[path, bytes] : disk.files())
    if (path.starts_with(folder + "/") && path.ends_with(".safetensors"))
      files[path.substr(folder.size())] = *bytes;
  return files;
}

TEST(Convert, WhatIsExportedKnowsNoLayout) {
  std::map<std::string, std::string> first;
  for (const LayoutSpec &spec : twelveLayouts()) {
    Disk disk = savedUnder(spec);
    const Checkpoint from = opened(disk, "root/step-0000000007");
    ASSERT_TRUE(exportHf(disk, from, "hf", {"param"}, "{}"));
    ASSERT_TRUE(writeLogical(disk, from, nameOf("other", 7)));
    EXPECT_EQ(opened(disk, "other/step-0000000007").manifest().profile,
              "logical");
    auto files = tensorFiles(disk, "hf");
    EXPECT_EQ(files.size(), 1u);
    files.merge(tensorFiles(disk, "other/step-0000000007"));
    EXPECT_EQ(files.size(), 3u);
    if (first.empty())
      first = files;
    EXPECT_TRUE(files == first) << spec.name;
  }
}

TEST(Convert, ToTheLayoutOfAnotherProgramIsWhatItWouldSave) {
  const LayoutSpec to = {.name = "to", .dp = 2, .tp = 2, .zero = 3};
  for (const LayoutSpec &spec : twelveLayouts()) {
    Disk disk = savedUnder(spec), own = savedUnder(to);
    const auto done = writeSharded(disk, opened(disk, "root/step-0000000007"),
                                   tablesOf(to), nameOf("other", 7));
    ASSERT_TRUE(done) << done.message();
    EXPECT_TRUE(tensorFiles(disk, "other/step-0000000007") ==
                tensorFiles(own, "root/step-0000000007"))
        << spec.name;
  }
}

TEST(Convert, ImportedAndExportedIsTheSameTensorByTensor) {
  for (const uint64_t most : {kFileBytes, uint64_t(400)}) {
    Disk disk = savedUnder({.name = "one"});
    ASSERT_TRUE(exportHf(disk, opened(disk, "root/step-0000000007"), "hf",
                         {"param"}, "{\"a\": 1}", most));
    const bool isDivided = most < kFileBytes;
    EXPECT_EQ(disk.files().contains("hf/model.safetensors.index.json"),
              isDivided);
    EXPECT_EQ(tensorFiles(disk, "hf").size() > 1, isDivided);
    EXPECT_EQ(*disk.files().at("hf/config.json"), "{\"a\": 1}");
    const Result<Checkpoint> published = openHf(disk, "hf");
    ASSERT_TRUE(published) << published.message();
    ASSERT_TRUE(writeLogical(disk, *published, nameOf("other", 0)));
    const Checkpoint imported = opened(disk, "other/step-0000000000");
    ASSERT_TRUE(exportHf(disk, imported, "again", {"param"}, "", most));
    EXPECT_TRUE(tensorFiles(disk, "again") == tensorFiles(disk, "hf"));
    // A run begins from it: moments are zero.
    const runtime::Tables tables =
        tablesOf({.name = "tp2", .tp = 2, .zero = 1});
    const RankMemory expected = memoryOf(tables, 1, 5);
    const Result<RankMemory> loaded = loadRank(imported, tables, 1);
    ASSERT_TRUE(loaded) << loaded.message();
    for (size_t s = 0; s < tables.states.size(); ++s)
      for (size_t i = 0; i < expected[s].size(); ++i) {
        const bool isParameter = tables.states[s].kind == "parameter";
        EXPECT_TRUE((*loaded)[s][i] ==
                    (isParameter
                         ? expected[s][i]
                         : std::vector<std::byte>(expected[s][i].size())));
      }
  }
}

TEST(Convert, FoldersThatAreNoneAreRefused) {
  const auto why = [](auto change) {
    Disk disk = savedUnder({.name = "one"});
    EXPECT_TRUE(exportHf(disk, opened(disk, "root/step-0000000007"), "hf",
                         {"param"}, "", 400));
    change(*disk.files().at("hf/model.safetensors.index.json"));
    Result<Checkpoint> found = openHf(disk, "hf");
    return found ? std::string() : found.message();
  };
  const auto put = [](const std::string &from, const std::string &to) {
    return [=](std::string &index) {
      index.replace(index.find(from), from.size(), to);
    };
  };
  EXPECT_EQ(why([](auto &) {}), "");
  for (const char *name : {"../x", "/etc/passwd", "a/b", "", ".x"})
    EXPECT_THAT(why(put("\"model-00001", std::string("\"") + name +
                                             "\",\"x\":"
                                             "\"")),
                HasSubstr("expected the name of a file in the folder"))
        << name;
  EXPECT_THAT(why(put("embed.weight", "other.weight")),
              HasSubstr("tensor 'other.weight' is not in"));
  EXPECT_THAT(why(put("weight_map", "weights")),
              HasSubstr("found no map 'weight_map'"));
  EXPECT_THAT(why(put("model-00001", "model-00009")), HasSubstr("00009"));
  Disk empty;
  EXPECT_THAT(openHf(empty, "hf").message(), HasSubstr("no .safetensors"));
}

/// Sizes around those that are written, copied and verified at once.
TEST(Convert, TensorsThatEndAroundTheEndsOfBuffers) {
  for (const int64_t buffer : {4 << 20, 64 << 20})
    for (const int64_t elements :
         {buffer / 4 - 1, buffer / 4, buffer / 4 + 1}) {
      std::vector<TensorEntry> tensors = {
          {"w", TensorType::F32, {elements}, 0, 0}};
      std::string data(size_t(elements) * 4, '\0');
      for (size_t at = 0; at < data.size(); at += 4093)
        data[at] = char(at);
      data.back() = 'e';
      Disk disk;
      ASSERT_TRUE(disk.makeFolder("hf") && disk.makeFolder("other"));
      ASSERT_TRUE(writeText(disk, "hf/model.safetensors",
                            safetensorsHeader(tensors, {}) + data));
      const Result<Checkpoint> from = openHf(disk, "hf");
      ASSERT_TRUE(from) << from.message();
      ASSERT_TRUE(writeLogical(disk, *from, nameOf("other", 0)));
      const std::string folder = "other/step-0000000000";
      const Checkpoint whole = opened(disk, folder);
      const auto files = tensorFiles(disk, folder);
      ASSERT_EQ(files.size(), 1u);
      const auto &[name, bytes] = *files.begin();
      EXPECT_TRUE(bytes.ends_with(data)) << elements;
      disk.files().at(folder + name)->back() = 'x';
      EXPECT_THAT(whole.verify().message(), HasSubstr("'w'")) << elements;
    }
}

TEST(Convert, StatesThatEndAroundTheEndsOfBuffersAreSaved) {
  for (const int64_t elements : {(1 << 20) - 1, 1 << 20, (1 << 20) + 1}) {
    runtime::Tables tables = tablesOf({.name = "one", .small = true});
    runtime::State &state = tables.states[1];
    ASSERT_EQ(state.layout.shape.size(), 1u);
    state.layout.shape = state.layout.padded = state.layout.local =
        state.file.shape = {elements};
    state.layerStride = elements * 4;
    state.offset = tables.arenas[0].bytes;
    tables.arenas[0].bytes += state.layerStride;
    Disk disk;
    ASSERT_TRUE(disk.makeFolder("root"));
    const auto saved = saveAll(disk, nameOf("root", 7), tables, 5);
    ASSERT_TRUE(saved) << saved.message();
    const auto loaded =
        loadRank(opened(disk, "root/step-0000000007"), tables, 0);
    ASSERT_TRUE(loaded) << loaded.message();
    EXPECT_TRUE((*loaded)[1] == memoryOf(tables, 0, 5)[1]) << elements;
  }
}

/// Nothing of it stands under its name, wherever it stops.
TEST(Convert, AnExportIsThereWholeOrNotAtAll) {
  for (int64_t at = 0;; ++at) {
    Disk disk = savedUnder({.name = "small", .small = true});
    const Checkpoint from = opened(disk, "root/step-0000000007");
    const int64_t before = disk.calls;
    disk.failAt = before + at;
    const auto done = exportHf(disk, from, "hf", {"param"}, "{}");
    if (disk.calls <= before + at)
      break;
    const bool isThere = !disk.list("hf")->empty();
    EXPECT_TRUE(!isThere || openHf(disk, "hf")) << at;
    EXPECT_TRUE(done || !done.message().empty());
    if (done) {
      EXPECT_TRUE(isThere);
    }
  }
}

} // namespace
