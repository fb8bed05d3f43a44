//===- Checkpointer.h - Saves while training goes on, and resumes ---------===//

#ifndef RUNTIME_TRAIN_CHECKPOINTER_H
#define RUNTIME_TRAIN_CHECKPOINTER_H

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Save.h"
#include "runtime/train/Options.h"
#include "runtime/train/Rank.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace heddle::train {

/// One rank's part of all checkpoints of a run. A save is in two phases: the
/// states are copied while training stands still, without a word between ranks
/// and without the disk; then threads make the folder, write the copies, and
/// commit. Ranks agree at the boundaries of steps, by a gather of few numbers
/// while a save is in flight and by none otherwise; all calls are collective.
class Checkpointer {
public:
  /// `note` tells people of something, on the first rank; `common` is set where
  /// an error is every rank's.
  Checkpointer(Rank &rank, const Options &options,
               checkpoint::FileSystem &files, bool &common,
               std::function<void(const std::string &)> note);
  ~Checkpointer();

  /// Takes the folder. With --resume fills the states and gives the step that
  /// they are behind; else 0, and the folder has to have no checkpoints.
  /// `carried` is what the run begins with, then what it goes on with.
  heddle_rt_status open(int64_t &step, checkpoint::Carried &carried);
  /// Behind each step: ends a save that is written, begins one that is due.
  /// A failed one is told; the third in a row is an error.
  heddle_rt_status boundary(int64_t step, double stepSeconds,
                            const checkpoint::Carried &carried);
  /// Behind the last step: saves it, and waits until all is written.
  heddle_rt_status finish(int64_t step, const checkpoint::Carried &carried);

  /// Waits until what is in flight is written: also where training stops with
  /// an error that all ranks share.
  heddle_rt_status drain();

private:
  enum class Phase { Idle, Preparing, Writing, Committing };
  enum Outcome : int64_t { Running, Done, Failed };

  heddle_rt_status takeFolder();
  heddle_rt_status makeCopy();
  heddle_rt_status resume(int64_t &step, checkpoint::Carried &carried);
  heddle_rt_status choose(std::optional<checkpoint::Checkpoint> &chosen);
  heddle_rt_status checkProgress(const checkpoint::Manifest &manifest);
  heddle_rt_status load(const checkpoint::Checkpoint &from);
  void goOn(const checkpoint::Manifest &manifest,
            checkpoint::Carried &found) const;
  heddle_rt_status begin(int64_t step, const checkpoint::Carried &carried);
  heddle_rt_status advance();
  heddle_rt_status startWriting();
  heddle_rt_status startCommit();
  Result<void> removeOlder() const;
  heddle_rt_status endSave(const std::vector<int64_t> &outcomes);
  heddle_rt_status saveFailed(int64_t who, const std::string &why);
  heddle_rt_status agree(const Result<void> &own);
  void runInBackground(std::function<Result<void>()> work);
  void join();
  checkpoint::Manifest manifest() const;
  void tellPauses();
  void chooseInterval();

  Rank &rank;
  const Options &options;
  bool &common;
  std::function<void(const std::string &)> note;
  checkpoint::FileSystem &files;
  std::unique_ptr<checkpoint::Lock> lock; ///< of the first rank

  checkpoint::RankPlan plan;
  char *copy = nullptr;
  Phase phase = Phase::Idle;
  checkpoint::SaveName name;
  checkpoint::Carried carried; ///< of the save in flight
  std::thread writer;
  std::atomic<int64_t> outcome{Running}; ///< of the thread
  std::string failure;                   ///< where it failed
  Result<void> kept; ///< of the thread: whether older ones could be removed
  std::vector<int64_t> report;
  std::vector<std::vector<int64_t>> reports; ///< of all, on the first rank

  std::string run;    ///< an id of this run, that of its saves are made of
  int64_t saves = 0;  ///< begun by this run
  std::string parent; ///< id of the checkpoint that the run goes on from
  int64_t interruptions = 0, deviceSeconds = 0; ///< before this run
  double started = 0, saveStarted = 0;
  double pause = 0, stepSeconds = 0; ///< moving means
  std::vector<double> pauses;        ///< of saves that were committed
  double lastPause = 0;
  int64_t nextSave = 0, interval = 0, failures = 0, skipped = 0;
  int64_t lastSaved = 0;
};

} // namespace heddle::train

#endif
