//===- KillTest.cpp - Runs that are killed while they save ----------------===//
//
// A child trains and saves; it is killed at a call to the disk that was chosen,
// or at any time. What a run would go on from is then the step that was
// committed last, or the one that was being committed, and the numbers are
// those of that step. CrashTest does the same on a disk that forgets.
//
//===----------------------------------------------------------------------===//

#include "test/runtime/SavedRuns.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;

namespace {

constexpr int kRanks = 4;

/// What a child leaves, however it ends.
struct Shared {
  std::array<std::atomic<int>, kRanks> calls; ///< to the disk, by rank
  std::atomic<int64_t> begun, committed;      ///< the last step, 0 for none
};

Shared &shared() {
  static Shared &memory = *static_cast<Shared *>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return memory;
}

/// Counts calls by the rank that makes them, and may be killed at one.
class Counting final : public Forwarding {
public:
  int rank = -1, call = -1; ///< where

private:
  Result<void> before(const std::string &path, const char *what) override {
    constexpr std::string_view kTemporary = "/.tmp-";
    if (const size_t at = path.rfind(kTemporary);
        at != path.npos && what == std::string_view("makeFolder")) {
      const auto step = stepOfFolder(path.substr(
          at + kTemporary.size(), path.rfind('-') - at - kTemporary.size()));
      if (step)
        shared().begun = *step;
    }
    int who = 0; // all that is no rank's own file is the first one's
    if (const size_t at = path.find("/rank-"); at != path.npos)
      who = std::stoi(path.substr(at + 6, 5));
    if (shared().calls[size_t(who)]++ == call && who == rank)
      kill(getpid(), SIGKILL);
    return {};
  }
  void renamed(const std::string &to) override {
    if (const auto step = stepOfFolder(to.substr(to.rfind('/') + 1)))
      shared().committed = *step;
  }
};

/// Runs `work` in a child, which is killed after so long, if any is said. Its
/// exit code, or none where a signal has ended it.
template <class Work>
std::optional<int> inChild(Work work, std::optional<int> microseconds = {}) {
  const pid_t child = fork();
  if (child == 0) {
    // Messages are the parent's business.
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    _exit(work());
  }
  if (microseconds) {
    usleep(useconds_t(*microseconds));
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? std::optional(WEXITSTATUS(status)) : std::nullopt;
}

int trained(Job &job, int64_t steps, bool resumes, int rank = -1,
            int call = -1) {
  Counting files;
  files.rank = rank;
  files.call = call;
  return runWith(job, files, steps, 1, resumes, 2).status;
}

/// bigram.weight behind each step of a run that nobody disturbs.
const std::vector<std::byte> &weightBehind(int64_t step) {
  static std::map<int64_t, std::vector<std::byte>> known;
  if (!known.contains(step)) {
    Job job;
    EXPECT_EQ(inChild([&] { return trained(job, step, false); }), 0);
    known[step] = weightAt(job, step);
  }
  return known[step];
}

/// The step that a run goes on from, 0 for none. Every folder of a step is
/// whole, and has the numbers of that step.
int64_t newestStep(const Job &job) {
  const auto steps = listSteps(realFileSystem(), job.checkpoints);
  EXPECT_TRUE(steps) << steps.message();
  for (int64_t step : *steps)
    EXPECT_TRUE(weightAt(job, step) == weightBehind(step)) << step;
  return steps->empty() ? 0 : steps->front();
}

/// To the last step, from what is there.
void expectGoesOn(Job &job, int64_t steps) {
  const bool resumes = newestStep(job) > 0;
  EXPECT_EQ(inChild([&] { return trained(job, steps, resumes); }), 0);
  EXPECT_EQ(newestStep(job), steps);
}

/// Step 1 is there, step 2 is saved, then step 1 removed: at each call of each
/// rank the run is killed.
TEST(Kill, AtEveryCallOfEveryRank) {
  const auto begun = [](Job &job) {
    ASSERT_EQ(inChild([&] { return trained(job, 1, false); }), 0);
    for (auto &calls : shared().calls)
      calls = 0;
    shared().committed = 1;
  };
  const auto second = [](Job &job, int rank, int call) {
    Counting files;
    files.rank = rank;
    files.call = call;
    return runWith(job, files, 2, 1, true, 1).status;
  };
  Job whole;
  begun(whole);
  ASSERT_EQ(inChild([&] { return second(whole, -1, -1); }), 0);
  std::array<int, kRanks> calls;
  for (size_t r = 0; r < calls.size(); ++r)
    calls[r] = shared().calls[r];
  EXPECT_GT(calls[0], 20);
  int points = 0;
  for (int rank = 0; rank < kRanks; ++rank)
    for (int call = 0; call < calls[size_t(rank)]; ++call, ++points) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << " call " << call);
      Job job;
      begun(job);
      ASSERT_FALSE(inChild([&] { return second(job, rank, call); }));
      const int64_t said = shared().committed; // before others say theirs
      EXPECT_EQ(newestStep(job), said);
      if (points % 4 == 0) // all of them in a longer test
        expectGoesOn(job, 3);
    }
  RecordProperty("points", points);
  EXPECT_GT(points, 30);
}

/// As many kills as HEDDLE_KILLS says (tools/check-all: 2,000), else a few, at
/// any time up to one and a half of what a run takes.
TEST(Kill, AtAnyTime) {
  const char *given = std::getenv("HEDDLE_KILLS");
  const int kills = given ? std::atoi(given) : 5;
  constexpr int64_t kSteps = 6;
  std::mt19937 random(7);
  int killed = 0, committed = 0;
  double seconds = 0.1; // that a run takes: what it took lately
  while (killed < kills) {
    Job job;
    shared().committed = 0;
    for (int64_t done = 0; done < kSteps && killed < kills;) {
      shared().begun = done;
      const double most = 1.5 * seconds;
      const double share = double(random() % 1000) / 1000;
      const auto begin = std::chrono::steady_clock::now();
      const auto ended = inChild([&] { return trained(job, kSteps, done > 0); },
                                 int(share * most * 1e6));
      const std::chrono::duration<double> took =
          std::chrono::steady_clock::now() - begin;
      // Where it gets nowhere, the machine is slow today.
      seconds = ended ? 0.5 * seconds + 0.5 * took.count() : 1.1 * seconds;
      killed += !ended;
      if (ended) {
        EXPECT_EQ(*ended, 0);
      }
      // The one before, or the one in flight: its name is there a moment before
      // the child can say so. Runs to compare with say it too.
      const int64_t said = shared().committed, begun = shared().begun;
      const int64_t found = newestStep(job);
      EXPECT_TRUE(found == said || found == begun)
          << found << ", said " << said << " of " << begun;
      EXPECT_GE(found, done);
      committed += found > done;
      done = found;
      shared().committed = found;
    }
  }
  EXPECT_GT(committed, 0);
}

} // namespace
