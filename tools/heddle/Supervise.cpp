#include "tools/heddle/Supervise.h"

#include "heddle/Runtime/Endings.h"
#include "heddle/Runtime/Flight.h"
#include "tools/heddle/Endings.h"
#include "tools/heddle/FlightPages.h"
#include "tools/heddle/FlightRecord.h"
#include "tools/heddle/Folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace heddle;
using namespace heddle::tool;
using supervisor::RankView;
using supervisor::Verdict;

namespace {

constexpr int kLookEvery = 50;   ///< milliseconds
constexpr size_t kRecorded = 32; ///< operations of each rank
/// How long ranks have to end themselves when they are told to, and a launcher
/// when they have ended.
constexpr double kGrace = 1, kPatience = 10;

volatile std::sig_atomic_t interruption = 0;
void interrupt(int signal) { interruption = signal; }

/// While it lives, signals that would end this process are kept in
/// `interruption`.
class Interruptions {
public:
  Interruptions() {
    interruption = 0;
    struct sigaction action = {};
    action.sa_handler = interrupt;
    for (size_t i = 0; i < std::size(kSignals); ++i)
      sigaction(kSignals[i], &action, &before[i]);
  }
  ~Interruptions() {
    for (size_t i = 0; i < std::size(kSignals); ++i)
      sigaction(kSignals[i], &before[i], nullptr);
  }

private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before[3] = {};
};

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Children of this process, among them those whose parents are gone.
std::vector<pid_t> childrenOf(pid_t process) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process));
  return {std::istream_iterator<pid_t>(file), {}};
}

void addTree(pid_t process, std::vector<pid_t> &all) {
  all.push_back(process);
  for (pid_t child : childrenOf(process))
    addTree(child, all);
}

class Supervision {
public:
  Supervision(const SuperviseOptions &options, int64_t ranks)
      : options(options), ranks(ranks), watch(options.limits) {}
  Result<Life> run(const std::vector<std::string> &command);

private:
  Result<void> start(const std::vector<std::string> &command);
  bool isOver();
  void judge();
  void end();
  bool reap();
  void sweep() const;
  int codeOf(const Life &life) const;

  const SuperviseOptions &options;
  const int64_t ranks;
  supervisor::Watch watch;
  supervisor::SlowRanks slow;
  std::optional<ScratchFolder> folder;
  std::optional<FlightPages> pages;
  pid_t launcher = 0;
  std::optional<int> status; ///< of the launcher, once it has ended
  double told = 0;           ///< since when ranks have said how they ended
  Life life;
};

/// A child that is ended with this process.
Result<void> Supervision::start(const std::vector<std::string> &command) {
  std::vector<char *> words;
  for (const std::string &word : command)
    words.push_back(const_cast<char *>(word.c_str()));
  words.push_back(nullptr);
  std::fflush(nullptr);
  // Ranks whose launcher is gone become children of this process.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = getpid();
  launcher = fork();
  if (launcher < 0)
    return Error{
        fmt::format("cannot start {}: {}", command[0], strerror(errno))};
  if (launcher == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent)
      execvp(words[0], words.data());
    _exit(127);
  }
  return {};
}

/// Collects what has ended; whether nothing is left.
bool Supervision::reap() {
  int ended = 0;
  pid_t child;
  while ((child = waitpid(-1, &ended, WNOHANG)) > 0)
    if (child == launcher)
      status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
  return child < 0 && errno == ECHILD;
}

/// Looks, and tells what is found.
void Supervision::judge() {
  const std::vector<RankView> seen = pages->look(1);
  for (const supervisor::SlowRank &rank : slow.look(seen))
    fmt::print(stderr, "warning: {}\n", rank.text());
  std::optional<Verdict> found = watch.look(now(), seen);
  if (!found)
    return;
  // Once more, with all that the record is to have; who waits for a rank that
  // died leaves word of how, a moment later.
  if (found->blame.cause == supervisor::Cause::Died)
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookEvery));
  const std::vector<RankView> views = pages->look(kRecorded);
  if (auto again = watch.look(now(), views))
    found = again;
  life.verdict = found;
  fmt::print(stderr, "error: {}\n{}", found->text(), reportOf(views));
  if (options.record.empty())
    return;
  if (auto written =
          appendRecord(options.record, options.restarts, *found, views);
      !written)
    fmt::print(stderr, "warning: {}\n", written.message());
  else
    fmt::print(stderr, "the last operations of each rank are in {}\n",
               options.record);
}

bool Supervision::isOver() {
  if (interruption) {
    life.interrupted = interruption;
    return true;
  }
  judge();
  if (life.verdict || status)
    return true;
  // A launcher has been seen to wait for itself for ever.
  if (told == 0 && readEndings(folder->path(), ranks))
    told = now();
  return told > 0 && now() - told > kPatience;
}

/// Ends all that is left, in bounded time.
void Supervision::end() {
  std::vector<pid_t> left;
  for (pid_t child : childrenOf(getpid()))
    addTree(child, left);
  // A launcher ends with its ranks; told a second time, mpirun has crashed.
  for (pid_t process : left)
    if (process != launcher)
      kill(process, SIGTERM);
  const double start = now();
  while (!reap()) {
    if (now() - start > kGrace) {
      left.clear();
      for (pid_t child : childrenOf(getpid()))
        addTree(child, left);
      for (pid_t process : left)
        kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// LLVM's OpenMP keeps a file for each process that uses it, and refuses to
/// start where one of a process of the same number is there: one that was
/// killed has not removed its own.
void Supervision::sweep() const {
  std::error_code ignored;
  for (pid_t process : pages->processes())
    std::filesystem::remove(
        fmt::format("/dev/shm/__KMP_REGISTERED_LIB_{}_{}", process, getuid()),
        ignored);
}

int Supervision::codeOf(const Life &life) const {
  if (life.interrupted)
    return 128 + life.interrupted;
  if (life.verdict)
    return 3;
  const auto ending = readEndings(folder->path(), ranks);
  if (!ending)
    return status.value_or(3);
  if (!ending->untold.empty())
    fmt::print(stderr, "error: {}\n", ending->untold);
  return ending->code;
}

Result<Life> Supervision::run(const std::vector<std::string> &command) {
  Result<ScratchFolder> made = ScratchFolder::create();
  if (!made)
    return made.error();
  folder.emplace(std::move(*made));
  pages.emplace(folder->path(), ranks);
  const char *path = folder->path().c_str();
  setenv(runtime::kEndingsVariable, path, 1);
  setenv(runtime::kFlightVariable, path, 1);
  setenv(runtime::kRestartsVariable, std::to_string(options.restarts).c_str(),
         1);
  const Interruptions kept;
  auto started = start(command);
  for (const char *variable :
       {runtime::kEndingsVariable, runtime::kFlightVariable,
        runtime::kRestartsVariable})
    unsetenv(variable);
  if (!started)
    return started.error();
  while (!isOver()) {
    pages->sleep(launcher, kLookEvery);
    reap();
  }
  end();
  sweep();
  for (const RankView &view : pages->look(1)) {
    life.step = std::max(life.step, view.step);
    life.mayPass |= view.mayPass;
  }
  life.code = codeOf(life);
  if (!options.record.empty())
    if (auto written = appendEnd(options.record, options.restarts, life.code,
                                 life.step, slow.windows());
        !written)
      fmt::print(stderr, "warning: {}\n", written.message());
  return life;
}

} // namespace

Result<Life> tool::supervise(const std::vector<std::string> &command,
                             int64_t ranks, const SuperviseOptions &options) {
  return Supervision(options, ranks).run(command);
}
