//===- CrashTest.cpp - A save that stops anywhere -------------------------===//
//
// Step 2 is saved beside step 1, which then goes. At whichever call the run
// stops, and whatever of the unflushed the disk forgets, there is one of the
// two afterwards, whole; and the new one from the moment it was promised.
//
//===----------------------------------------------------------------------===//

#include "runtime/checkpoint/Checkpoint.h"
#include "test/runtime/checkpoint/Disk.h"
#include "test/runtime/checkpoint/Layouts.h"

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;
using testing::HasSubstr;

namespace {

const LayoutSpec kTwo = {.name = "two", .dp = 2, .zero = 1, .small = true};

/// A disk with step 1 on it, flushed.
Disk diskWithStepOne() {
  Disk disk;
  EXPECT_TRUE(disk.makeFolder("root"));
  EXPECT_TRUE(disk.syncFolder(""));
  EXPECT_TRUE(saveAll(disk, nameOf("root", 1), tablesOf(kTwo), 1));
  return disk;
}

/// What a rank stores at a step.
const RankMemory &memoryAt(int64_t step, int64_t rank) {
  static std::map<std::pair<int64_t, int64_t>, RankMemory> known;
  auto at = known.find({step, rank});
  if (at == known.end())
    at = known
             .emplace(std::pair(step, rank),
                      memoryOf(tablesOf(kTwo), rank, uint64_t(step)))
             .first;
  return at->second;
}

/// That it is whole, and what was saved.
Result<void> checkNumbers(const Checkpoint &c) {
  static const runtime::Tables tables = tablesOf(kTwo);
  if (auto done = c.verify(); !done)
    return done;
  for (int64_t rank = 0; rank < tables.ranks(); ++rank) {
    const Result<RankMemory> memory = loadRank(c, tables, rank);
    if (!memory)
      return memory.error();
    if (*memory != memoryAt(c.manifest().step, rank))
      return Error{"other numbers"};
  }
  return {};
}

/// The step that a run would go on from. -1 where there is none, or a folder
/// of a step is not whole.
int64_t newestStep(const FileSystem &files, const std::string &root) {
  const Result<std::vector<int64_t>> steps = listSteps(files, root);
  if (!steps || steps->empty())
    return -1;
  for (int64_t step : *steps) {
    const Result<Checkpoint> found =
        Checkpoint::open(files, root + "/" + stepFolder(step));
    if (!found || !checkNumbers(*found))
      return -1;
  }
  return steps->front();
}

/// The log of a save of step 2 with step 1 removed after it, and behind which
/// operation the save had promised step 2.
struct Recorded {
  std::vector<Operation> log;
  size_t begin, promised;
};

Recorded record(const Order &order) {
  Disk disk = diskWithStepOne();
  Recorded r;
  r.begin = disk.log.size();
  EXPECT_TRUE(saveAll(disk, nameOf("root", 2), tablesOf(kTwo), 2, order, 1));
  r.log = disk.log;
  // The promise: the flush of the folder of checkpoints behind the name.
  for (r.promised = r.begin; !(r.log[r.promised].kind == Operation::Rename &&
                               r.log[r.promised].other == stepFolder(2));)
    ++r.promised;
  while (r.log[r.promised].kind != Operation::SyncFolder)
    ++r.promised;
  return r;
}

/// Checks every state after a loss of power behind operation `count` - 1; gives
/// how many, or none where one is wrong. `promised`: step 2 must be there.
std::optional<int> checkStates(const std::vector<Operation> &log, size_t count,
                               bool promised, bool isReported) {
  int states = 0;
  for (const Unflushed data :
       {Unflushed::Lost, Unflushed::Kept, Unflushed::Zero, Unflushed::Torn})
    for (int choice = 0; choice < 5; ++choice) {
      std::mt19937 random{unsigned(count * 8 + size_t(choice))};
      const Disk disk = Disk::afterPowerLoss(log, count, data, choice == 1,
                                             choice < 2 ? nullptr : &random);
      const int64_t step = newestStep(disk, "root");
      const bool isRight = promised ? step == 2 : step == 1 || step == 2;
      if (!isRight && isReported)
        ADD_FAILURE() << "after " << count << " of " << log.size()
                      << " operations: step " << step;
      if (!isRight)
        return std::nullopt;
      ++states;
    }
  return states;
}

const Order kOrders[] = {{0, 1}, {1, 0}};

TEST(PowerLoss, AfterEveryOperationOneOfTheTwoIsWhole) {
  int states = 0;
  for (const Order &order : kOrders) {
    const Recorded r = record(order);
    for (size_t count = r.begin; count <= r.log.size(); ++count) {
      const auto checked = checkStates(r.log, count, count > r.promised, true);
      ASSERT_TRUE(checked);
      states += *checked;
    }
  }
  EXPECT_GT(states, 1000);
  RecordProperty("states", states);
}

/// None is there for nothing.
TEST(PowerLoss, WithoutAnyOneFlushAStateIsWrong) {
  std::vector<size_t> unseen; // by number among the flushes of the save
  for (const Order &order : kOrders) {
    const Recorded r = record(order);
    std::vector<size_t> now;
    size_t number = 0;
    for (size_t i = r.begin; i < r.log.size(); ++i) {
      if (r.log[i].kind != Operation::Sync &&
          r.log[i].kind != Operation::SyncFolder)
        continue;
      std::vector<Operation> log = r.log;
      log.erase(log.begin() + int64_t(i));
      bool isSeen = false;
      for (size_t count = i; count <= log.size() && !isSeen; ++count)
        isSeen = !checkStates(log, count,
                              count > r.promised - (i <= r.promised), false);
      if (!isSeen)
        now.push_back(number);
      ++number;
    }
    EXPECT_GE(number, 12u);
    // A folder's flush by the rank that ends first is repeated by the other.
    EXPECT_LE(now.size(), 2u) << testing::PrintToString(now);
    if (&order == kOrders)
      unseen = now;
    else
      for (size_t flush : now)
        unseen.push_back(flush);
  }
  // Those two are the folders of the first writer, in either order.
  EXPECT_EQ(unseen.size(), 4u) << testing::PrintToString(unseen);
}

TEST(Crash, AtEveryCallOfEveryRank) {
  int64_t calls = 0;
  for (const Order &order : kOrders)
    for (int64_t at = 0;; ++at) {
      Disk disk = diskWithStepOne();
      disk.crashAt = disk.calls + at;
      bool crashed = false;
      try {
        EXPECT_TRUE(
            saveAll(disk, nameOf("root", 2), tablesOf(kTwo), 2, order, 1));
      } catch (const Crash &) {
        crashed = true;
      }
      if (!crashed)
        break;
      ++calls;
      disk.crashAt.reset();
      const int64_t step = newestStep(disk, "root");
      // One legal outcome: the new one from its name on.
      bool named = false;
      for (const Operation &operation : disk.log)
        named |= operation.other == stepFolder(2);
      ASSERT_EQ(step, named ? 2 : 1) << "call " << at;
      // The next run finds no trace, and saves.
      ASSERT_TRUE(prepareRoot(disk, "root"));
      const Result<std::vector<Entry>> entries = disk.list("root");
      for (const Entry &entry : *entries)
        EXPECT_TRUE(stepOfFolder(entry.name) || entry.name == "LATEST")
            << entry.name;
      ASSERT_TRUE(saveAll(disk, nameOf("root", 3), tablesOf(kTwo), 3));
      ASSERT_EQ(newestStep(disk, "root"), 3);
    }
  EXPECT_GT(calls, 80);
}

TEST(Failure, OfEveryCallLeavesTheOldOneOrTheNewOne) {
  int64_t refused = 0;
  for (int64_t at = 0;; ++at) {
    Disk disk = diskWithStepOne();
    const int64_t before = disk.calls;
    disk.failAt = before + at;
    const auto saved =
        saveAll(disk, nameOf("root", 2), tablesOf(kTwo), 2, {}, 1);
    if (disk.calls <= before + at)
      break;
    disk.failAt.reset();
    if (!saved) {
      ++refused;
      EXPECT_THAT(saved.message(), HasSubstr("root")) << at;
      EXPECT_THAT(saved.message(), HasSubstr("Input/output error"));
      abandonSave(disk, nameOf("root", 2));
    }
    const int64_t step = newestStep(disk, "root");
    ASSERT_TRUE(step == 2 || (step == 1 && !saved)) << at;
    ASSERT_TRUE(prepareRoot(disk, "root"));
    ASSERT_TRUE(saveAll(disk, nameOf("root", 3), tablesOf(kTwo), 3));
    ASSERT_EQ(newestStep(disk, "root"), 3);
  }
  EXPECT_GT(refused, 10); // a rank's own files are written once more
}

TEST(Failure, DiskFullAtSixtyFourSizes) {
  uint64_t all = 0, before = 0;
  {
    Disk disk = diskWithStepOne();
    for (const auto &[path, bytes] : disk.files())
      before += bytes->size();
    ASSERT_TRUE(saveAll(disk, nameOf("root", 2), tablesOf(kTwo), 2));
    for (const auto &[path, bytes] : disk.files())
      all += bytes->size();
  }
  const uint64_t need = all - before;
  int refused = 0;
  for (uint64_t i = 0; i < 64; ++i) {
    Disk disk = diskWithStepOne();
    disk.capacity = before + need * 11 * i / 630; // 0 to 110 %
    const auto saved = saveAll(disk, nameOf("root", 2), tablesOf(kTwo), 2);
    if (!saved) {
      ++refused;
      EXPECT_THAT(saved.message(), HasSubstr("No space left")) << i;
      abandonSave(disk, nameOf("root", 2));
    }
    ASSERT_EQ(newestStep(disk, "root"), saved ? 2 : 1) << i;
    disk.capacity.reset();
    ASSERT_TRUE(saveAll(disk, nameOf("root", 3), tablesOf(kTwo), 3));
  }
  EXPECT_GT(refused, 50);
  EXPECT_LT(refused, 64);
  // What is known to be too much is not begun.
  Disk disk = diskWithStepOne();
  disk.capacity = before + 100;
  EXPECT_THAT(beginSave(disk, nameOf("root", 2), 1000).message(),
              HasSubstr("found 100 bytes free, expected 1000"));
}

TEST(Commit, IsRefusedWhereReportsOrExtentsAreWrong) {
  const runtime::Tables tables = tablesOf(kTwo);
  const auto commit = [&](auto change) {
    Disk disk = diskWithStepOne();
    const SaveName name = nameOf("root", 2);
    EXPECT_TRUE(beginSave(disk, name, 0));
    std::vector<std::vector<int64_t>> reports;
    for (int64_t rank = 0; rank < 2; ++rank) {
      const Result<RankPlan> plan = planRank(tables, rank);
      reports.push_back(*writeRank(
          disk, name, *plan, copyOf(*plan, tables, memoryOf(tables, rank, 2))));
    }
    runtime::Tables other = tables;
    change(reports, other);
    const auto done =
        commitSave(disk, name, other, emptyManifest(other, 2), reports);
    EXPECT_EQ(newestStep(disk, "root"), 1);
    return done.message();
  };
  EXPECT_THAT(commit([](auto &reports, auto &) { reports[1].pop_back(); }),
              HasSubstr("the report of rank 1"));
  EXPECT_THAT(commit([](auto &reports, auto &) { reports[0][0] ^= 1; }),
              HasSubstr("rank 0 wrote another header"));
  EXPECT_THAT(
      commit([](auto &reports, auto &) { std::swap(reports[0], reports[1]); }),
      HasSubstr("another header"));
  Manifest m =
      Checkpoint::open(diskWithStepOne(), "root/step-0000000001")->manifest();
  m.tensors["embed.weight"]["m"].extents.pop_back();
  EXPECT_THAT(checkManifest(m, "m").message(),
              HasSubstr("tensor 'embed.weight' (m): no extent has element"));
}

//===----------------------------------------------------------------------===//
// The system's files: kill -9 before each call
//===----------------------------------------------------------------------===//

/// Passes on, and ends the process before call `last`.
class Deadly final : public FileSystem {
public:
  explicit Deadly(int64_t last) : last(last) {}
  int64_t calls = 0;

  Result<void> makeFolder(const std::string &path) override {
    return count(), real.makeFolder(path);
  }
  Result<std::unique_ptr<OutputFile>> create(const std::string &path) override {
    return count(), real.create(path);
  }
  Result<void> rename(const std::string &from, const std::string &to) override {
    return count(), real.rename(from, to);
  }
  Result<void> replace(const std::string &from,
                       const std::string &to) override {
    return count(), real.replace(from, to);
  }
  Result<void> removeFile(const std::string &path) override {
    return count(), real.removeFile(path);
  }
  Result<void> removeFolder(const std::string &path) override {
    return count(), real.removeFolder(path);
  }
  Result<void> syncFolder(const std::string &path) override {
    return count(), real.syncFolder(path);
  }
  Result<std::unique_ptr<InputFile>>
  open(const std::string &path) const override {
    return real.open(path);
  }
  Result<std::vector<Entry>> list(const std::string &path) const override {
    return real.list(path);
  }
  Result<uint64_t> freeBytes(const std::string &path) const override {
    return real.freeBytes(path);
  }
  Result<std::unique_ptr<Lock>> lock(const std::string &path) override {
    return real.lock(path);
  }

private:
  void count() {
    if (calls++ == last)
      ::raise(SIGKILL);
  }
  FileSystem &real = realFileSystem();
  int64_t last;
};

TEST(Kill, BeforeEveryCall) {
  const runtime::Tables tables = tablesOf(kTwo);
  std::string root =
      (std::filesystem::temp_directory_path() / "heddle-kill-XXXXXX").string();
  ASSERT_TRUE(mkdtemp(root.data()));
  FileSystem &real = realFileSystem();
  ASSERT_TRUE(saveAll(real, nameOf(root, 1), tables, 1));
  int64_t step = 1, killed = 0;
  for (bool done = false; !done;) {
    const pid_t child = fork();
    if (child == 0) {
      Deadly files(killed);
      const auto saved = saveAll(files, nameOf(root, step + 1), tables,
                                 uint64_t(step + 1), {}, 1);
      _exit(saved ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    done = WIFEXITED(status);
    ASSERT_TRUE(!done || WEXITSTATUS(status) == 0);
    killed += !done;
    const int64_t found = newestStep(real, root);
    ASSERT_TRUE(found == step + 1 || (!done && found == step)) << killed;
    step = found;
    ASSERT_TRUE(prepareRoot(real, root));
  }
  EXPECT_GT(killed, 30);
  // Permissions are the owner's alone, whatever the process allows.
  for (const auto &entry : std::filesystem::recursive_directory_iterator(root))
    EXPECT_EQ(entry.status().permissions() &
                  (std::filesystem::perms::group_all |
                   std::filesystem::perms::others_all),
              std::filesystem::perms::none)
        << entry.path();
  std::filesystem::remove_all(root);
}

TEST(RealFiles, LocksAndNamesAreTheirOwn) {
  std::string root =
      (std::filesystem::temp_directory_path() / "heddle-files-XXXXXX").string();
  ASSERT_TRUE(mkdtemp(root.data()));
  FileSystem &files = realFileSystem();
  {
    const auto lock = files.lock(root + "/.lock");
    ASSERT_TRUE(lock);
    EXPECT_THAT(files.lock(root + "/.lock").message(),
                HasSubstr("another process holds it"));
  }
  EXPECT_TRUE(files.lock(root + "/.lock"));
  ASSERT_TRUE(writeText(files, root + "/a", "one"));
  ASSERT_TRUE(writeText(files, root + "/b", "two"));
  EXPECT_THAT(writeText(files, root + "/a", "").message(),
              HasSubstr("File exists"));
  EXPECT_THAT(files.rename(root + "/a", root + "/b").message(),
              HasSubstr("File exists"));
  ASSERT_TRUE(files.replace(root + "/a", root + "/b"));
  EXPECT_EQ(*readText(files, root + "/b"), "one");
  std::filesystem::create_symlink(root + "/b", root + "/link");
  EXPECT_FALSE(files.open(root + "/link"));
  ASSERT_EQ(mkfifo((root + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(files.open(root + "/pipe").message(),
              HasSubstr("no regular file"));
  EXPECT_THAT(files.open(root).message(), HasSubstr("no regular file"));
  std::byte more[4];
  EXPECT_THAT((*files.open(root + "/b"))->read(1, more).message(),
              HasSubstr("ends at byte 3, expected 2 more"));
  EXPECT_TRUE(files.list(root + "/none")->empty());
  std::filesystem::remove_all(root);
}

} // namespace
