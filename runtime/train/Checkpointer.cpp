#include "runtime/train/Checkpointer.h"

#include "heddle/Support/SaveInterval.h"
#include "runtime/checkpoint/Checksum.h"
#include "runtime/common/Status.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::train {

using checkpoint::Manifest;
using checkpoint::SavedItem;

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
/// A failed save is told and forgotten; so many in a row are a broken disk.
constexpr int64_t kMostFailures = 3;

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Who owns the folder decides what a run goes on from.
Result<void> checkOwner(const std::string &root, bool isAny) {
  struct stat status;
  if (isAny || ::stat(root.c_str(), &status) != 0 || status.st_uid == 0 ||
      status.st_uid == ::geteuid())
    return {};
  return Error{fmt::format("{}: belongs to user {}, expected user {}, who runs "
                           "this; --any-owner takes it nevertheless",
                           root, status.st_uid, ::geteuid())};
}

void mix(double &mean, double value) {
  mean = mean == 0 ? value : 0.7 * mean + 0.3 * value;
}

} // namespace

Checkpointer::Checkpointer(Rank &rank, const Options &options,
                           checkpoint::FileSystem &files, bool &common,
                           std::function<void(const std::string &)> note)
    : rank(rank), options(options), common(common), note(std::move(note)),
      files(files), started(now()) {
  interval = options.saveSteps();
  // Where it is to be found how often, the first one is made to measure it.
  nextSave =
      options.saveEvery.empty() ? kNever : std::max<int64_t>(interval, 1);
}

Checkpointer::~Checkpointer() { join(); }

void Checkpointer::join() {
  if (writer.joinable())
    writer.join();
}

//===----------------------------------------------------------------------===//
// Agreement
//===----------------------------------------------------------------------===//

/// Fails on all ranks where it has on one, with its message.
heddle_rt_status Checkpointer::agree(const Result<void> &own) {
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(rank.gather({own ? 0 : 1}, all));
  const auto failed = std::find(all.begin(), all.end(), 1);
  if (failed == all.end())
    return HEDDLE_RT_OK;
  std::string text = own.message();
  HEDDLE_RT_TRY(rank.shareText(failed - all.begin(), text));
  common = true;
  return runtime::invalid("{}", text);
}

//===----------------------------------------------------------------------===//
// The beginning
//===----------------------------------------------------------------------===//

heddle_rt_status Checkpointer::takeFolder() {
  Result<void> taken;
  const std::string &root = options.checkpoints;
  if (rank.rank == 0)
    taken = [&]() -> Result<void> {
      std::error_code error;
      std::filesystem::create_directories(root, error);
      if (error)
        return Error{
            fmt::format("{}: cannot be made: {}", root, error.message())};
      if (auto trusted = checkOwner(root, options.anyOwner); !trusted)
        return trusted;
      auto held = files.lock(root + "/.lock");
      if (!held)
        return held.error();
      lock = std::move(*held);
      if (auto done = checkpoint::prepareRoot(files, root); !done)
        return done;
      const auto steps = checkpoint::listSteps(files, root);
      if (!steps)
        return steps.error();
      if (!options.resume && !steps->empty())
        return Error{fmt::format(
            "{}: has a checkpoint of step {}, expected none where a run "
            "begins; give --resume, or another folder (--checkpoints)",
            root, steps->front())};
      if (options.resume && steps->empty())
        return Error{fmt::format("{}: there is no checkpoint to resume from; "
                                 "leave out --resume to begin",
                                 root)};
      return {};
    }();
  return agree(taken);
}

/// Memory for the copy, all of it touched, so that the first one is as fast as
/// others.
heddle_rt_status Checkpointer::makeCopy() {
  Result<checkpoint::RankPlan> planned =
      checkpoint::planRank(rank.tables, rank.rank);
  HEDDLE_RT_TRY(agree(planned ? Result<void>() : planned.error()));
  plan = std::move(*planned);
  const int64_t bytes = std::max<int64_t>(plan.copyBytes, 8);
  HEDDLE_RT_TRY(rank.allocateHost(bytes, "checkpoint copy", &copy));
  memset(copy, 0, size_t(bytes));
  return HEDDLE_RT_OK;
}

heddle_rt_status Checkpointer::open(int64_t &step, checkpoint::Carried &found) {
  HEDDLE_RT_TRY(takeFolder());
  if (rank.rank == 0)
    run = checkpoint::newId();
  HEDDLE_RT_TRY(rank.shareText(0, run));
  if (!options.saveEvery.empty())
    HEDDLE_RT_TRY(makeCopy());
  step = 0;
  if (!options.resume)
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(resume(step, found));
  lastSaved = step;
  if (nextSave != kNever)
    nextSave = interval > 0 ? (step / interval + 1) * interval : step + 1;
  return HEDDLE_RT_OK;
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

Manifest Checkpointer::manifest() const {
  const runtime::Tables &t = rank.tables;
  Manifest m;
  m.parent = parent;
  m.createdUnixNs = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  m.program = t.program;
  m.mesh = t.mesh;
  m.progress.seed = t.seed;
  m.progress.globalBatch = t.globalBatch;
  m.progress.sequenceLength = t.sequenceLength;
  m.progress.nextSample = name.step * t.globalBatch;
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(options.data, ignored);
  m.progress.dataBytes = ignored ? 0 : int64_t(bytes);
  m.progress.optimizer = t.optimizer;
  m.progress.schedule = t.schedule;
  m.progress.carried = carried;
  m.progress.interruptions = interruptions;
  m.progress.deviceSeconds =
      deviceSeconds + int64_t((now() - started) * double(rank.size));
  return m;
}

void Checkpointer::runInBackground(std::function<Result<void>()> work) {
  join();
  outcome = Running;
  writer = std::thread([this, work = std::move(work)] {
    const Result<void> done = work();
    if (!done)
      failure = done.message();
    outcome = done ? Done : Failed;
  });
}

heddle_rt_status Checkpointer::begin(int64_t step,
                                     const checkpoint::Carried &state) {
  const double start = now();
  carried = state;
  const std::string id =
      checkpoint::sha256(fmt::format("{} {} {}", run, step, ++saves));
  name = {options.checkpoints, id.substr(0, 32), step};
  for (const SavedItem &item : plan.items) {
    const Extents extents = extentsOf(rank.tables, rank.rank, *item.state);
    HEDDLE_RT_TRY(rank.copyOut(
        copy + item.offset,
        instancePlace(*item.state, item.position, extents, rank.stage),
        item.bytes));
  }
  HEDDLE_RT_TRY(rank.synchronize());
  lastPause = now() - start;
  mix(pause, lastPause);
  saveStarted = start;
  phase = Phase::Preparing;
  if (rank.rank == 0)
    runInBackground([this] {
      return checkpoint::beginSave(
          files, name, uint64_t(checkpoint::bytesOfSave(rank.tables)));
    });
  return HEDDLE_RT_OK;
}

/// The folder is there.
heddle_rt_status Checkpointer::startWriting() {
  phase = Phase::Writing;
  runInBackground([this]() -> Result<void> {
    const auto bytes = std::as_bytes(std::span(copy, size_t(plan.copyBytes)));
    Result<std::vector<int64_t>> written =
        checkpoint::writeRank(files, name, plan, bytes);
    if (!written)
      return written.error();
    report = std::move(*written);
    return {};
  });
  return HEDDLE_RT_OK;
}

/// All have written: the first rank gets their checksums and commits.
heddle_rt_status Checkpointer::startCommit() {
  std::vector<int64_t> sizes, all;
  HEDDLE_RT_TRY(rank.gather({int64_t(report.size())}, sizes));
  const auto most = size_t(*std::max_element(sizes.begin(), sizes.end()));
  report.resize(most);
  HEDDLE_RT_TRY(rank.gather(report, all));
  phase = Phase::Committing;
  if (rank.rank != 0)
    return HEDDLE_RT_OK;
  reports.clear();
  for (size_t r = 0; r < size_t(rank.size); ++r)
    reports.emplace_back(all.begin() + int64_t(r * most),
                         all.begin() + int64_t(r * most) + sizes[r]);
  runInBackground([this, m = manifest()]() -> Result<void> {
    auto done = checkpoint::commitSave(files, name, rank.tables, m, reports);
    if (done)
      kept = removeOlder();
    return done;
  });
  return HEDDLE_RT_OK;
}

/// Those that do not vouch for themselves are neither kept nor removed.
Result<void> Checkpointer::removeOlder() const {
  const auto steps = checkpoint::listSteps(files, name.root);
  if (!steps)
    return steps.error();
  std::vector<int64_t> valid;
  for (int64_t step : *steps)
    if (checkpoint::Checkpoint::open(files, name.root + "/" +
                                                checkpoint::stepFolder(step)))
      valid.push_back(step);
  return checkpoint::removeOld(files, name.root, options.keep, valid);
}

/// Told once, by the first rank; training goes on.
heddle_rt_status Checkpointer::saveFailed(int64_t who, const std::string &why) {
  std::string text = why;
  HEDDLE_RT_TRY(rank.shareText(who, text));
  phase = Phase::Idle;
  join();
  text = fmt::format("the checkpoint of step {} failed on rank {}: {}",
                     name.step, who, text);
  if (rank.rank == 0) {
    checkpoint::abandonSave(files, name);
    note("warning: " + text);
  }
  if (!options.saveEvery.empty())
    nextSave = name.step + std::max<int64_t>(interval, 1);
  if (++failures < kMostFailures)
    return HEDDLE_RT_OK;
  common = true;
  return runtime::fail(HEDDLE_RT_CHECK_FAILED,
                       "{}; that makes {} in a row, so training stopped", text,
                       failures);
}

void Checkpointer::chooseInterval() {
  const double seconds = now() - started;
  const double mtbf =
      expectedMtbf(rank.size, interruptions,
                   double(deviceSeconds) + seconds * double(rank.size));
  // Not before the one before it is written.
  const double best = std::max(bestInterval(pause, mtbf), now() - saveStarted);
  const auto steps =
      std::max<int64_t>(1, std::llround(best / std::max(stepSeconds, 1e-9)));
  if (interval == 0 ||
      std::abs(double(steps - interval)) > 0.25 * double(interval))
    note(fmt::format("checkpoints: every {} steps ({:.0f} s): the pause is "
                     "{:.3f} s, an interruption is expected every {:.0f} s "
                     "({} seen)",
                     steps, best, pause, mtbf, interruptions));
  interval = steps;
}

heddle_rt_status Checkpointer::endSave(const std::vector<int64_t> &outcomes) {
  if (outcomes[0] == Failed)
    return saveFailed(0, failure);
  phase = Phase::Idle;
  join();
  failures = 0;
  lastSaved = name.step;
  pauses.push_back(lastPause);
  if (!kept)
    note("warning: older checkpoints could not be removed: " + kept.message());
  kept = {};
  if (options.saveEvery != "auto")
    return HEDDLE_RT_OK;
  if (rank.rank == 0)
    chooseInterval();
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(rank.gather({interval}, all));
  interval = all[0];
  nextSave = name.step + interval;
  return HEDDLE_RT_OK;
}

/// One look at the save in flight. What is done next follows from what all
/// ranks have said, so all do the same.
heddle_rt_status Checkpointer::advance() {
  // What only the first rank does.
  const bool isFirsts = phase != Phase::Writing;
  const bool isOver = isFirsts && rank.rank != 0;
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(rank.gather({isOver ? int64_t(Done) : outcome.load()}, all));
  if (isFirsts && all[0] == Running)
    return HEDDLE_RT_OK;
  if (phase == Phase::Committing)
    return endSave(all);
  if (std::count(all.begin(), all.end(), int64_t(Running)) > 0)
    return HEDDLE_RT_OK;
  const auto failed = std::find(all.begin(), all.end(), int64_t(Failed));
  if (failed != all.end())
    return saveFailed(failed - all.begin(), failure);
  return phase == Phase::Preparing ? startWriting() : startCommit();
}

heddle_rt_status Checkpointer::boundary(int64_t step, double seconds,
                                        const checkpoint::Carried &state) {
  mix(stepSeconds, seconds);
  if (phase != Phase::Idle)
    HEDDLE_RT_TRY(advance());
  if (step < nextSave)
    return HEDDLE_RT_OK;
  if (phase != Phase::Idle) {
    if (rank.rank == 0 && interval > 0)
      note(fmt::format("step {} is not saved ({} so far): the checkpoint of "
                       "step {} is still being written",
                       step, ++skipped, name.step));
    nextSave = interval > 0 ? step + interval : kNever;
    return HEDDLE_RT_OK;
  }
  // Where it is to be found how often, that is known when this one is written.
  nextSave = options.saveSteps() > 0 ? step + interval : kNever;
  return begin(step, state);
}

heddle_rt_status Checkpointer::drain() {
  while (phase != Phase::Idle) {
    join();
    HEDDLE_RT_TRY(advance());
  }
  return HEDDLE_RT_OK;
}

/// How long training stood still for the saves of this run, on the first rank.
void Checkpointer::tellPauses() {
  if (rank.rank != 0 || pauses.empty())
    return;
  std::sort(pauses.begin(), pauses.end());
  note(fmt::format("checkpoints: {} of {} bytes a rank, for which training "
                   "paused {:.4f} s (median), at most {:.4f} s",
                   pauses.size(), plan.copyBytes, pauses[pauses.size() / 2],
                   pauses.back()));
}

heddle_rt_status Checkpointer::finish(int64_t step,
                                      const checkpoint::Carried &state) {
  HEDDLE_RT_TRY(drain());
  if (!options.saveEvery.empty() && step > 0 && lastSaved != step) {
    HEDDLE_RT_TRY(begin(step, state));
    HEDDLE_RT_TRY(drain());
  }
  tellPauses();
  if (options.saveEvery.empty() || step == 0 || lastSaved == step)
    return HEDDLE_RT_OK;
  common = true;
  return runtime::fail(HEDDLE_RT_CHECK_FAILED,
                       "the last step, {}, could not be saved", step);
}

} // namespace heddle::train
