//===- DamageTest.cpp - Flipped bits, cut files, wrong manifests ----------===//

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Checksum.h"
#include "test/runtime/checkpoint/Disk.h"
#include "test/runtime/checkpoint/Layouts.h"

#include <gmock/gmock.h>

#include <functional>
#include <random>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;
using testing::HasSubstr;

namespace {

const LayoutSpec kSpec = {
    .name = "d", .dp = 2, .tp = 2, .zero = 1, .bf16 = true, .small = true};
const std::string kFolder = "root/step-0000000001";

Disk savedDisk() {
  Disk disk;
  EXPECT_TRUE(disk.makeFolder("root"));
  EXPECT_TRUE(saveAll(disk, nameOf("root", 1), tablesOf(kSpec), 1));
  return disk;
}

std::string verdict(const Disk &disk) {
  Result<Checkpoint> found = Checkpoint::open(disk, kFolder);
  return found ? found->verify().message() : found.message();
}

/// Which tensor has a byte of a file; "" for the header.
std::string tensorAt(const Manifest &manifest, const std::string &file,
                     uint64_t byte) {
  for (const auto &[name, states] : manifest.tensors)
    for (const auto &[role, state] : states)
      for (const Extent &e : state.extents) {
        const FileRecord &record = manifest.files[size_t(e.file)];
        if (kFolder + "/" + record.name == file &&
            byte >= record.headerBytes + e.begin &&
            byte < record.headerBytes + e.end)
          return "'" + name + "' (" + role + ")";
      }
  return "";
}

TEST(Checksums, KnownAnswers) {
  // RFC 3720, B.4; FIPS 180-4's "abc".
  EXPECT_EQ(crc32c(bytesOf(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytesOf(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(bytesOf("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(bytesOf("56789"), crc32c(bytesOf("1234"))), 0xe3069283u);
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb"
                           "410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca"
                        "495991b7852b855");
  // Of lengths around the ends of blocks, by another implementation.
  std::string ends;
  for (size_t n = 0; n < 200; ++n)
    ends += sha256(std::string(n, 'a'));
  EXPECT_EQ(sha256(ends), "019f2b9f1af27a53a1f046da7e98af2c179f431e4b5bebb00"
                          "0e74040917a4123");
}

TEST(Damage, TenThousandFlippedBitsAreSeenAndNamed) {
  Disk disk = savedDisk();
  ASSERT_EQ(verdict(disk), "");
  const Result<Checkpoint> whole = Checkpoint::open(disk, kFolder);
  std::vector<std::pair<std::string, std::string *>> files;
  for (const auto &[path, bytes] : disk.files())
    if (path.starts_with(kFolder))
      files.emplace_back(path, bytes);
  ASSERT_GE(files.size(), 10u);
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    // Each file as often, so that small ones are looked at too.
    auto &[path, bytes] = files[size_t(i) % files.size()];
    const size_t at = random() % bytes->size();
    char &byte = (*bytes)[at];
    const char before = byte;
    byte = char(byte ^ 1 << random() % 8);
    const std::string said = verdict(disk);
    ASSERT_THAT(said, HasSubstr(path));
    const std::string tensor = tensorAt(whole->manifest(), path, at);
    ASSERT_THAT(said, HasSubstr(tensor)) << path << " byte " << at;
    if (tensor.empty() && path.ends_with("safetensors")) {
      ASSERT_THAT(said, HasSubstr("header is damaged"));
    }
    byte = before;
  }
  EXPECT_EQ(verdict(disk), "");
}

TEST(Damage, CutAtEveryBoundary) {
  Disk disk = savedDisk();
  const Result<Checkpoint> whole = Checkpoint::open(disk, kFolder);
  std::mt19937 random(4);
  for (const auto &[path, bytes] : disk.files()) {
    if (!path.starts_with(kFolder))
      continue;
    const std::string before = *bytes;
    const bool isText = !path.ends_with("safetensors");
    std::vector<size_t> lengths;
    // Every byte of headers and of COMMIT, one in some of the manifest.
    const size_t step = path.ends_with("manifest.json") ? 37 : 1;
    uint64_t header = before.size();
    for (const FileRecord &record : whole->manifest().files)
      if (kFolder + "/" + record.name == path)
        header = record.headerBytes;
    for (size_t length = 0; length < header; length += step)
      lengths.push_back(length);
    for (const auto &[name, states] : whole->manifest().tensors)
      for (const auto &[role, state] : states)
        for (const Extent &e : state.extents)
          if (!isText && header + e.begin < before.size())
            lengths.push_back(header + e.begin);
    for (int i = 0; i < 100; ++i)
      lengths.push_back(random() % before.size());
    for (size_t length : lengths) {
      bytes->resize(length);
      ASSERT_THAT(verdict(disk), HasSubstr(isText ? kFolder : path)) << length;
      *bytes = before;
    }
    *bytes += '\n';
    ASSERT_THAT(verdict(disk), HasSubstr(isText ? kFolder : path));
    *bytes = before;
  }
  EXPECT_EQ(verdict(disk), "");
}

TEST(Damage, TheFirstTensorThatIsCutOffIsNamed) {
  Disk disk = savedDisk();
  const Result<Checkpoint> whole = Checkpoint::open(disk, kFolder);
  const FileRecord &record = whole->manifest().files[0];
  disk.files().at(kFolder + "/" + record.name)->resize(record.headerBytes + 5);
  const std::string first = tensorAt(
      whole->manifest(), kFolder + "/" + record.name, record.headerBytes + 5);
  EXPECT_THAT(verdict(disk),
              HasSubstr("tensor " + first + " is the first that is cut off"));
}

TEST(Damage, FilesOfOtherPlacesAreSeen) {
  Disk disk = savedDisk();
  const auto files = disk.files();
  std::string &one = *files.at(kFolder + "/model/rank-00000.safetensors");
  std::string &two = *files.at(kFolder + "/model/rank-00001.safetensors");
  std::swap(one, two);
  EXPECT_THAT(verdict(disk), HasSubstr("model/rank-0000"));
  std::swap(one, two);
  // The same file of another step: other numbers, or at least another id.
  for (const uint64_t salt : {1, 2}) {
    Disk other;
    ASSERT_TRUE(other.makeFolder("root"));
    ASSERT_TRUE(saveAll(other, nameOf("root", 2), tablesOf(kSpec), salt));
    const std::string before = one;
    one =
        *other.files().at("root/step-0000000002/model/rank-00000.safetensors");
    EXPECT_THAT(verdict(disk), HasSubstr("model/rank-00000.safetensors"));
    one = before;
    // And the manifest, with its COMMIT or without.
    std::string &manifest = *files.at(kFolder + "/manifest.json");
    std::string &commit = *files.at(kFolder + "/COMMIT");
    const std::string ownManifest = manifest, ownCommit = commit;
    manifest = *other.files().at("root/step-0000000002/manifest.json");
    EXPECT_THAT(verdict(disk), HasSubstr("does not vouch"));
    commit = *other.files().at("root/step-0000000002/COMMIT");
    EXPECT_THAT(verdict(disk), HasSubstr("is the checkpoint of step 2"));
    manifest = ownManifest;
    commit = ownCommit;
  }
  ASSERT_TRUE(writeText(disk, kFolder + "/model/more.safetensors", "x"));
  EXPECT_THAT(verdict(disk),
              HasSubstr("more.safetensors: manifest.json does not list it"));
}

//===----------------------------------------------------------------------===//
// Manifests that vouch for themselves and are wrong all the same
//===----------------------------------------------------------------------===//

std::string refused(const std::function<void(Manifest &)> &change) {
  const Disk disk = savedDisk();
  Manifest m = Checkpoint::open(disk, kFolder)->manifest();
  change(m);
  return parseManifest(manifestText(m), "m").message();
}

TEST(Manifest, ComesBackAsItWas) {
  const Disk disk = savedDisk();
  Manifest m = Checkpoint::open(disk, kFolder)->manifest();
  m.progress.optimizer.learningRate = 0.1;
  m.progress.schedule = {"cosine", 3, 100, 1e-300};
  m.progress.carried = {1, Scaling{0x1p-14 / 3, 1999, -3, 4}};
  m.createdUnixNs = 1764520000123456789;
  const std::string text = manifestText(m);
  const Result<Manifest> again = parseManifest(text, "m");
  ASSERT_TRUE(again) << again.message();
  EXPECT_EQ(manifestText(*again), text);
  EXPECT_EQ(again->progress.optimizer.learningRate, 0.1);
  EXPECT_EQ(again->progress.schedule.finalLr, 1e-300);
  EXPECT_EQ(again->progress.carried.skippedSteps, 1);
  EXPECT_EQ(again->progress.carried.scaling, m.progress.carried.scaling);
  m.progress.carried.scaling = std::nullopt;
  const Result<Manifest> without = parseManifest(manifestText(m), "m");
  ASSERT_TRUE(without) << without.message();
  EXPECT_FALSE(without->progress.carried.scaling);
}

TEST(Manifest, WhatIsWrongIsNamed) {
  const auto extent = [](Manifest &m) -> Extent & {
    return m.tensors["embed.weight"]["m"].extents[0];
  };
  EXPECT_THAT(refused([&](auto &m) { extent(m).box.offset[0] += 1; }),
              HasSubstr("tensor 'embed.weight' (m)"));
  EXPECT_THAT(refused([&](auto &m) { extent(m).end += 4; }),
              HasSubstr("tensor 'embed.weight' (m): extent"));
  EXPECT_THAT(
      refused([&](auto &m) { extent(m).begin += 4, extent(m).end += 4; }),
      HasSubstr("its bytes do not follow"));
  EXPECT_THAT(refused([&](auto &m) { extent(m).file = 99; }),
              HasSubstr("found file 99 of"));
  EXPECT_THAT(refused([](auto &m) { m.files[0].bytes += 1; }),
              HasSubstr("bytes of header and"));
  EXPECT_THAT(refused([](auto &m) { m.files[1].name = m.files[0].name; }),
              HasSubstr("is listed twice"));
  for (const char *name : {"model/../../x", "/etc/passwd", "model/", "x",
                           "model/.x", "model/a/b", "model/a b"})
    EXPECT_THAT(refused([&](auto &m) { m.files[0].name = name; }),
                HasSubstr("expected model/NAME"))
        << name;
  EXPECT_THAT(refused([](auto &m) {
                m.tensors["huge"]["param"] = {
                    TensorType::F32, {INT64_C(1) << 40, INT64_C(1) << 40}, {}};
              }),
              HasSubstr("tensor 'huge' (param): the shape has more than"));
  EXPECT_THAT(refused([](auto &m) { m.id = "short"; }),
              HasSubstr("32 hexadecimal digits"));
  EXPECT_THAT(refused([](auto &m) { m.progress.nextSample += 1; }),
              HasSubstr("next_sample"));
  EXPECT_THAT(refused([](auto &m) {
                m.step = INT64_C(1) << 53;
                m.progress.globalBatch = INT64_C(1) << 53;
              }),
              HasSubstr("next_sample"));
  EXPECT_THAT(refused([](auto &m) { m.progress.carried.skippedSteps = 99; }),
              HasSubstr("skipped_steps"));
  for (double scale : {0.0, -1.0, 1e300, 1e-300})
    EXPECT_THAT(
        refused([&](auto &m) { m.progress.carried.scaling = Scaling{scale}; }),
        HasSubstr("key 'state.scaler.scale'"))
        << scale;
}

TEST(Manifest, TextThatIsNoneIsRefused) {
  const Disk disk = savedDisk();
  const std::string text =
      manifestText(Checkpoint::open(disk, kFolder)->manifest());
  const auto with = [&](const std::string &from, const std::string &to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return parseManifest(changed, "m").message();
  };
  EXPECT_THAT(with("\"version\":1", "\"version\":2"), HasSubstr("version"));
  EXPECT_THAT(with("\"step\":1", "\"step\":-1"), HasSubstr("step"));
  EXPECT_THAT(with("\"step\":1", "\"step\":1.5"), HasSubstr("step"));
  EXPECT_THAT(with("\"step\":1", "\"step\":1,\"step\":1"), HasSubstr("step"));
  EXPECT_THAT(with("\"profile\"", "\"profil\""), HasSubstr("profil"));
  EXPECT_THAT(with("\"dtype\":\"BF16\"", "\"dtype\":\"B16\""),
              HasSubstr("B16"));
  EXPECT_THAT(with("\"dtype\":\"BF16\"", "\"dtype\":\"F16\""),
              HasSubstr("model_hash"));
  EXPECT_THAT(with("\"o\":[", "\"o\":[-1,"), HasSubstr("o"));
  EXPECT_FALSE(parseManifest("", "m"));
  EXPECT_FALSE(parseManifest("[]", "m"));
  EXPECT_FALSE(parseManifest(std::string(100000, '['), "m"));
  EXPECT_FALSE(parseManifest(text.substr(0, text.size() / 2), "m"));
}

TEST(Recovery, TakesTheNewestThatIsRightAndSaysWhatItLeavesOut) {
  Disk disk = savedDisk();
  ASSERT_TRUE(saveAll(disk, nameOf("root", 2), tablesOf({.name = "two"}), 2));
  std::string warnings;
  const auto newest = [&] {
    warnings.clear();
    return findNewest(
        disk, "root", [](const Checkpoint &c) { return c.verify(); },
        [&](const std::string &warning) { warnings += warning; });
  };
  EXPECT_EQ((*newest())->manifest().step, 2);
  EXPECT_EQ(warnings, "");
  (*disk.files().at("root/step-0000000002/optim/rank-00000.safetensors"))
      .back() ^= 1;
  EXPECT_EQ((*newest())->manifest().step, 1);
  EXPECT_THAT(warnings, HasSubstr("step 2 is left out: root/step-0000000002"));
  disk.files().at("root/step-0000000001/COMMIT")->clear();
  EXPECT_THAT(newest().message(), HasSubstr("none of 2 checkpoints is whole"));
  Disk empty;
  EXPECT_FALSE(findNewest(
                   empty, "root",
                   [](const Checkpoint &) { return Result<void>(); },
                   [](const std::string &) {})
                   ->has_value());
}

TEST(Names, OfSteps) {
  EXPECT_EQ(stepFolder(1200), "step-0000001200");
  EXPECT_EQ(stepOfFolder("step-0000001200"), 1200);
  EXPECT_EQ(stepOfFolder("step-12345678901"), 12345678901);
  for (const char *name : {"step-1200", "step-", "step-000000120x", ".tmp-step",
                           "step--000000001", "step-0000001200.old"})
    EXPECT_EQ(stepOfFolder(name), std::nullopt) << name;
}

} // namespace
