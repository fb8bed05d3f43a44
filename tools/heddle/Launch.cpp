#include "tools/heddle/Launch.h"

#include "heddle/Runtime/Endings.h"
#include "heddle/Support/Files.h"
#include "tools/heddle/Endings.h"
#include "tools/heddle/Folder.h"

#include "llvm/Support/Program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

using namespace heddle;
using namespace heddle::tool;

/// Whether the work of a program is over, though it has not ended itself.
using IsOver = std::function<bool()>;

/// Ends a process and all that descend from it.
static void killTree(pid_t process) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process));
  const std::vector<pid_t> children{std::istream_iterator<pid_t>(file), {}};
  kill(process, SIGKILL);
  for (pid_t child : children)
    killTree(child);
}

/// Waits for a process. One whose work is over is given some seconds to end
/// itself: mpirun has been seen to wait for itself for ever.
static Result<int> waitFor(pid_t child, const std::string &name,
                           const IsOver &isOver) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(10);
  std::optional<Clock::time_point> over;
  int status = 0;
  for (pid_t ended = 0; ended == 0;) {
    ended = waitpid(child, &status, isOver ? WNOHANG : 0);
    if (ended < 0 && errno != EINTR)
      return Error{
          fmt::format("cannot wait for {}: {}", name, strerror(errno))};
    if (ended > 0)
      break;
    ended = 0;
    if (!isOver)
      continue;
    if (!over && isOver())
      over = Clock::now();
    if (over && Clock::now() - *over > kPatience)
      killTree(child);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Starts a program, its stdout and stderr going to files where those are
/// named.
static Result<int> spawnAndWait(const std::vector<std::string> &command,
                                const std::string &output,
                                const std::string &errors,
                                const IsOver &isOver) {
  std::vector<char *> words;
  for (const std::string &word : command)
    words.push_back(const_cast<char *>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!output.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_CREAT | O_WRONLY | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(),
                                     O_CREAT | O_WRONLY | O_TRUNC, 0600);
  }
  pid_t child = 0;
  int failed =
      posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed)
    return Error{
        fmt::format("cannot start {}: {}", command[0], strerror(failed))};
  return waitFor(child, command[0], isOver);
}

static Result<Outcome> executeUntil(const std::vector<std::string> &command,
                                    Capture capture, const IsOver &isOver) {
  std::fflush(stdout);
  if (capture == Capture::Nothing) {
    Result<int> code = spawnAndWait(command, "", "", isOver);
    if (!code)
      return code.error();
    return Outcome{*code, "", ""};
  }
  Result<ScratchFolder> scratch = ScratchFolder::create();
  if (!scratch)
    return scratch.error();
  std::string output = (scratch->path() / "stdout").string();
  std::string errors = (scratch->path() / "stderr").string();
  Result<int> code = spawnAndWait(command, output, errors, isOver);
  if (!code)
    return code.error();
  Outcome outcome{*code, "", ""};
  for (auto [path, to] : {std::pair(&output, &outcome.output),
                          std::pair(&errors, &outcome.errors)}) {
    Result<std::string> text = readFile(*path);
    if (!text)
      return text.error();
    *to = std::move(*text);
  }
  return outcome;
}

Result<Outcome> tool::execute(const std::vector<std::string> &command,
                              Capture capture) {
  return executeUntil(command, capture, {});
}

/// mpirun and its options for so many ranks.
static Result<std::vector<std::string>> mpirun(int64_t ranks) {
  if (!llvm::sys::findProgramByName("mpirun"))
    return Error{"no mpirun on the search path; install openmpi-bin, or give "
                 "--threads"};
  std::vector<std::string> command = {"mpirun", "--oversubscribe", "-n",
                                      std::to_string(ranks)};
  if (geteuid() == 0)
    command.push_back("--allow-run-as-root");
  // The message of the failing rank is the program's own.
  command.push_back("--quiet");
  return command;
}

/// Runs the command of a launcher. How it went is what the ranks say: mpirun
/// has been seen to crash or to hang while it shut itself down, after all had
/// ended.
static Result<Outcome> executeRanks(const std::vector<std::string> &command,
                                    int64_t ranks, Capture capture) {
  Result<ScratchFolder> endings = ScratchFolder::create();
  if (!endings)
    return endings.error();
  setenv(runtime::kEndingsVariable, endings->path().c_str(), 1);
  Result<Outcome> outcome = executeUntil(command, capture, [&] {
    return readEndings(endings->path(), ranks).has_value();
  });
  unsetenv(runtime::kEndingsVariable);
  if (!outcome)
    return outcome;
  std::optional<Ending> ending = readEndings(endings->path(), ranks);
  if (!ending)
    return outcome;
  outcome->code = ending->code;
  if (ending->untold.empty())
    return outcome;
  std::string message = fmt::format("error: {}\n", ending->untold);
  if (capture == Capture::Nothing)
    fmt::print(stderr, "{}", message);
  outcome->errors += message;
  return outcome;
}

static bool areProcesses(const Ranks &ranks) {
  return !ranks.threads && ranks.count > 1;
}

Result<std::vector<std::string>>
tool::rankCommand(const std::string &program, const Ranks &ranks,
                  const std::vector<std::string> &arguments) {
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  // What the user has set stays.
  std::string threads =
      std::to_string(std::max<int64_t>(1, cores / ranks.count));
  setenv("OMP_NUM_THREADS", threads.c_str(), 0);
  if (ranks.count > cores)
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  std::vector<std::string> command;
  if (areProcesses(ranks)) {
    auto launcher = mpirun(ranks.count);
    if (!launcher)
      return launcher.error();
    command = *launcher;
  }
  command.push_back(program);
  if (ranks.threads)
    command.push_back("--threads");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Result<Outcome> tool::launch(const std::string &program, const Ranks &ranks,
                             const std::vector<std::string> &arguments,
                             Capture capture) {
  const auto command = rankCommand(program, ranks, arguments);
  if (!command)
    return command.error();
  return areProcesses(ranks) ? executeRanks(*command, ranks.count, capture)
                             : execute(*command, capture);
}
