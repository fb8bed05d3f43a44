//===- HostilePathsTest.cpp - Others have a hand in the folder ------------===//
//
// On the real file system: what stands in the place of a file, who planted a
// link, what a name may hold.
//
//===----------------------------------------------------------------------===//

#include "heddle/Support/Printable.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Convert.h"
#include "test/runtime/checkpoint/Layouts.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <sys/sysmacros.h>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

const LayoutSpec kSpec = {.name = "h", .dp = 2, .small = true};

class HostilePaths : public testing::Test {
protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "heddle-hostile-XXXXXX");
    ASSERT_TRUE(mkdtemp(name.data()));
    scratch = name;
    root = name + "/root";
    ASSERT_TRUE(files.makeFolder(root));
    ASSERT_TRUE(saveAll(files, nameOf(root, 1), tablesOf(kSpec), 1));
    folder = root + "/" + stepFolder(1);
  }
  void TearDown() override { fs::remove_all(scratch); }

  std::string verdict() const {
    const Result<Checkpoint> found = Checkpoint::open(files, folder);
    return found ? found->verify().message() : found.message();
  }

  FileSystem &files = realFileSystem();
  std::string scratch, root, folder;
};

// A pipe must not be waited for: the test would not end.
TEST_F(HostilePaths, OtherThingsThanFilesAreRefused) {
  ASSERT_EQ(verdict(), "");
  const std::string kept = scratch + "/kept";
  const std::map<std::string, std::function<bool(const std::string &)>> things =
      {{"a link to what it was",
        [&](const std::string &path) {
          fs::create_symlink(kept, path);
          return true;
        }},
       {"a folder",
        [](const std::string &path) { return fs::create_directory(path); }},
       {"a pipe",
        [](const std::string &path) {
          return mkfifo(path.c_str(), 0600) == 0;
        }},
       {"a device that never ends", [](const std::string &path) {
          return mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 5)) == 0;
        }}};
  for (const std::string name :
       {"model/rank-00000.safetensors", "manifest.json", "COMMIT"})
    for (const auto &[what, make] : things) {
      const std::string path = folder + "/" + name;
      fs::rename(path, kept);
      if (make(path)) // not everybody may make a device
        EXPECT_THAT(verdict(), HasSubstr(path)) << what;
      fs::remove_all(path);
      fs::rename(kept, path);
    }
  EXPECT_EQ(verdict(), "");
}

// Of the folder of a model, which somebody else has filled.
TEST_F(HostilePaths, NamesOfAnIndexAreOfTheFolderAndOfOneLine) {
  const std::string model = scratch + "/model";
  ASSERT_TRUE(fs::create_directory(model));
  for (const std::string name :
       {"../root/x.safetensors", "/etc/passwd", "a\\nerror: b.safetensors",
        "a\\u001b[2J", "..", "", ".hidden"}) {
    std::ofstream(model + "/model.safetensors.index.json")
        << R"({"weight_map":{"w":")" << name << "\"}}";
    const Result<Checkpoint> opened = openHf(files, model);
    ASSERT_FALSE(opened) << name;
    EXPECT_THAT(opened.message(), HasSubstr("expected the name of a file"));
    EXPECT_TRUE(isPrintable(opened.message())) << opened.message();
  }
}

// Links that wait for a run under the names that it removes or makes.
TEST_F(HostilePaths, PlantedLinksAreNotFollowed) {
  const std::string victim = scratch + "/victim";
  ASSERT_TRUE(fs::create_directory(victim));
  std::ofstream(victim + "/file") << "text";
  for (const std::string name :
       {".tmp-step-0000000002-x", ".trash-step-0000000001-x"})
    fs::create_directory_symlink(victim, root + "/" + name);
  ASSERT_TRUE(prepareRoot(files, root));
  EXPECT_TRUE(fs::exists(victim + "/file"));
  for (const auto &entry : fs::directory_iterator(root))
    EXPECT_FALSE(entry.is_symlink()) << entry.path();

  const SaveName name = nameOf(root, 2);
  fs::create_directory_symlink(victim, name.temporary());
  EXPECT_FALSE(saveAll(files, name, tablesOf(kSpec), 2));
  fs::create_symlink(victim + "/file", root + "/.lock");
  EXPECT_FALSE(files.lock(root + "/.lock"));
  EXPECT_EQ(std::distance(fs::directory_iterator(victim), {}), 1);
  EXPECT_EQ(verdict(), "");
}

// A page that is gone from under a mapping ends the process; what is read by
// calls is only missing.
TEST_F(HostilePaths, AFileThatIsCutWhileItIsOpenIsAnError) {
  const std::string path = folder + "/model/rank-00000.safetensors";
  const auto in = files.open(path);
  ASSERT_TRUE(in) << in.message();
  std::vector<std::byte> bytes((*in)->size());
  ASSERT_TRUE((*in)->read(0, bytes));
  fs::resize_file(path, bytes.size() / 2);
  EXPECT_THAT((*in)->read(0, bytes).message(), HasSubstr(path));
  fs::resize_file(path, 0);
  EXPECT_THAT((*in)->read(0, bytes).message(), HasSubstr(path));
  EXPECT_THAT(verdict(), HasSubstr(path));
}

// Another checkpoint takes the place of one that was found right.
TEST_F(HostilePaths, AFolderThatIsReplacedIsNotTakenForTheOldOne) {
  const Result<Checkpoint> found = Checkpoint::open(files, folder);
  ASSERT_TRUE(found && found->verify());
  EXPECT_TRUE(found->checkSame());
  fs::rename(root, scratch + "/old");
  EXPECT_THAT(found->checkSame().message(), HasSubstr(folder + "/COMMIT"));
  ASSERT_TRUE(files.makeFolder(root));
  ASSERT_TRUE(saveAll(files, nameOf(root, 1), tablesOf(kSpec), 77));
  EXPECT_THAT(found->checkSame().message(),
              HasSubstr("another checkpoint has taken its place"));
}

// What is not there is known by arithmetic, not by counting.
TEST(HostileManifest, ShapesLargerThanAnyMemory) {
  const int64_t large = int64_t(1) << 40;
  const std::vector<std::vector<int64_t>> shapes = {
      {1'000'000'000}, {large}, {large, large}, {large, large, large, large}};
  for (const std::vector<int64_t> &shape : shapes) {
    const std::vector<int64_t> none(shape.size(), 0), one(shape.size(), 1);
    EXPECT_TRUE(tilingFault(shape, {{none, one}}));
    EXPECT_TRUE(tilingFault(shape, {}));
    std::vector<int64_t> cut = shape;
    --cut[0];
    EXPECT_TRUE(tilingFault(shape, {{none, cut}}));
  }
  EXPECT_FALSE(tilingFault({large}, {{{0}, {large}}}));
}

} // namespace
