#include "tools/heddle/Lives.h"

#include "heddle/Supervisor/Restarts.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Manifest.h"
#include "tools/heddle/Command.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;
using supervisor::Decision;
using supervisor::Restarts;

/// Step of the newest checkpoint that is committed; -1: there is none.
static int64_t newestStep(const std::string &root) {
  std::error_code ignored;
  if (root.empty() || !fs::is_directory(root, ignored))
    return -1;
  auto &files = checkpoint::realFileSystem();
  const auto steps = checkpoint::listSteps(files, root);
  return steps && !steps->empty()
             ? *std::max_element(steps->begin(), steps->end())
             : -1;
}

/// Renames a checkpoint, so that the one before it is the newest.
static Result<void> setAside(const std::string &root, int64_t step) {
  const fs::path from = fs::path(root) / checkpoint::stepFolder(step);
  fs::path to = fs::path(root) / ("set-aside-" + from.filename().string());
  std::error_code error;
  for (int i = 2; fs::exists(to, error); ++i)
    to = fs::path(root) /
         fmt::format("set-aside-{}-{}", from.filename().string(), i);
  fs::rename(from, to, error);
  if (error)
    return Error{fmt::format("{}: cannot be renamed to {}: {}", from.string(),
                             to.string(), error.message())};
  warn(fmt::format("the run failed twice in one step: {} is not trusted any "
                   "more, and kept as {}",
                   from.string(), to.string()));
  return {};
}

/// Sleeps; false where a signal came.
static bool sleepFor(double seconds) {
  timespec time = {time_t(seconds),
                   long((seconds - double(time_t(seconds))) * 1e9)};
  return nanosleep(&time, nullptr) == 0;
}

Result<int> tool::runLives(const MakeCommand &make,
                           const LivesOptions &options) {
  Restarts restarts(options.restarts);
  const std::string &root = options.checkpoints;
  bool isFirst = true;
  while (true) {
    const Result<LifeCommand> life =
        make(restarts.count(), !isFirst && newestStep(root) >= 0);
    if (!life)
      return life.error();
    isFirst = false;
    const Result<Life> ended =
        supervise(life->command, life->ranks,
                  {options.limits, options.record, restarts.count()});
    if (!ended)
      return ended.error();
    const bool mayPass =
        ended->verdict || ended->mayPass || ended->code >= kInternal;
    if (ended->interrupted || !mayPass)
      return ended->code;
    if (!ended->verdict && ended->code > kInternal)
      fmt::print(stderr, "error: {} ended with exit code {}{}\n",
                 life->command.front(), ended->code,
                 ended->code > 128 ? " (a signal)" : "");
    const int code = std::min(ended->code, int(kInternal));
    const Decision next = restarts.next({ended->step, newestStep(root)});
    if (!next.why.empty())
      fmt::print(stderr, "error: the run is not started again: {}\n", next.why);
    if (!next.again)
      return code;
    if (next.setAside)
      if (auto done = setAside(root, newestStep(root)); !done)
        return done.error();
    const int64_t from = newestStep(root);
    fmt::print(stderr, "restart {} of at most {} in {:.0f} s, {}\n",
               restarts.count(), options.restarts, next.delay,
               from < 0 ? "from the beginning: nothing was saved yet"
                        : fmt::format("from the checkpoint of step {}", from));
    if (!sleepFor(next.delay))
      return code;
  }
}
