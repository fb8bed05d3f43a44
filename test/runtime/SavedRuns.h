//===- SavedRuns.h - Runs of TrainProgram.cpp that save and resume --------===//

#ifndef HEDDLE_TEST_RUNTIME_SAVEDRUNS_H
#define HEDDLE_TEST_RUNTIME_SAVEDRUNS_H

#include "heddle/Support/Files.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/ranks/RunRanks.h"
#include "runtime/train/Trainer.h"
#include "test/runtime/Trial.h"

namespace heddle::test {

struct Job : Trial {
  std::string data = folder.write("a.json", kBatches);
  std::string checkpoints = folder.path / "checkpoints";

  int train(int64_t steps, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--threads", "--data", data, "--steps",
                               std::to_string(steps)});
    return (*this)(more);
  }
  std::string bytes(const char *name) const {
    return *readFile(std::filesystem::path(file(name)));
  }
  std::string folderOf(int64_t step) const {
    return checkpoints + "/" + checkpoint::stepFolder(step);
  }
  std::vector<int64_t> steps() const {
    return *checkpoint::listSteps(checkpoint::realFileSystem(), checkpoints);
  }
  void damage(int64_t step) {
    const std::string path = folderOf(step) + "/model/rank-00000.safetensors";
    std::string text = *readFile(std::filesystem::path(path));
    text.back() = char(text.back() ^ 4);
    std::ofstream(path, std::ios::binary) << text;
  }
};

/// The system's files, each call of which a test may look at first.
class Forwarding : public checkpoint::FileSystem {
public:
  Result<void> makeFolder(const std::string &path) override {
    if (auto done = before(path, "makeFolder"); !done)
      return done;
    return real.makeFolder(path);
  }
  Result<std::unique_ptr<checkpoint::OutputFile>>
  create(const std::string &path) override {
    if (auto done = before(path, "create"); !done)
      return done.error();
    auto file = real.create(path);
    if (!file)
      return file;
    return std::unique_ptr<checkpoint::OutputFile>(
        std::make_unique<Output>(*this, path, std::move(*file)));
  }
  Result<void> rename(const std::string &from, const std::string &to) override {
    if (auto done = before(to, "rename"); !done)
      return done;
    auto done = real.rename(from, to);
    if (done)
      renamed(to);
    return done;
  }
  Result<void> replace(const std::string &from,
                       const std::string &to) override {
    if (auto done = before(to, "replace"); !done)
      return done;
    return real.replace(from, to);
  }
  Result<void> removeFile(const std::string &path) override {
    if (auto done = before(path, "removeFile"); !done)
      return done;
    return real.removeFile(path);
  }
  Result<void> removeFolder(const std::string &path) override {
    if (auto done = before(path, "removeFolder"); !done)
      return done;
    return real.removeFolder(path);
  }
  Result<void> syncFolder(const std::string &path) override {
    if (auto done = before(path, "syncFolder"); !done)
      return done;
    return real.syncFolder(path);
  }
  Result<std::unique_ptr<checkpoint::InputFile>>
  open(const std::string &path) const override {
    return real.open(path);
  }
  Result<std::vector<checkpoint::Entry>>
  list(const std::string &path) const override {
    return real.list(path);
  }
  Result<uint64_t> freeBytes(const std::string &path) const override {
    return real.freeBytes(path);
  }
  Result<std::unique_ptr<checkpoint::Lock>>
  lock(const std::string &path) override {
    return real.lock(path);
  }

protected:
  /// Ahead of each call that changes the disk; an error is the call's.
  virtual Result<void> before(const std::string &path, const char *call) = 0;
  /// Behind a rename that was done.
  virtual void renamed(const std::string &) {}

private:
  class Output final : public checkpoint::OutputFile {
  public:
    Output(Forwarding &files, std::string path,
           std::unique_ptr<checkpoint::OutputFile> file)
        : files(files), path(std::move(path)), file(std::move(file)) {}
    Result<void> write(std::span<const std::byte> bytes) override {
      if (auto done = files.before(path, "write"); !done)
        return done;
      return file->write(bytes);
    }
    Result<void> sync() override {
      if (auto done = files.before(path, "sync"); !done)
        return done;
      return file->sync();
    }
    Result<void> close() override { return file->close(); }

  private:
    Forwarding &files;
    std::string path;
    std::unique_ptr<checkpoint::OutputFile> file;
  };

  checkpoint::FileSystem &real = checkpoint::realFileSystem();
};

/// Trains with other files, from the newest checkpoint or from the begin.
inline ranks::RunResult runWith(const Job &job, checkpoint::FileSystem &files,
                                int64_t steps, int64_t every, bool resumes,
                                int64_t keep) {
  train::Job parts;
  parts.options.data = job.data;
  parts.options.checkpoints = job.checkpoints;
  parts.options.saveEvery = std::to_string(every);
  parts.options.keep = keep;
  parts.options.resume = resumes;
  parts.tables = bigramTables();
  parts.steps = steps;
  parts.files = &files;
  const auto data =
      train::Data::open(job.data, {kSequences, kLength, kVocabulary, 3});
  parts.data = data->get();
  return ranks::runRanks(4, {}, [&](heddle_rt_context *context) {
    bool common = false;
    return trainRank(context, parts, common);
  });
}

/// The same, with all checkpoints kept; what was said is in `job` then.
inline heddle_rt_status trainWith(Job &job, checkpoint::FileSystem &files,
                                  int64_t steps, int64_t every) {
  testing::internal::CaptureStderr();
  const ranks::RunResult result = runWith(job, files, steps, every, false, 9);
  job.errors = testing::internal::GetCapturedStderr() + result.message;
  return result.status;
}

/// bigram.weight of a checkpoint, whole.
inline std::vector<std::byte> weightAt(const Job &job, int64_t step) {
  const auto found = checkpoint::Checkpoint::open(checkpoint::realFileSystem(),
                                                  job.folderOf(step));
  EXPECT_TRUE(found && found->verify()) << step;
  const checkpoint::StateRecord &state =
      found->manifest().tensors.at("bigram.weight").at("param");
  std::vector<std::byte> bytes(kVocabulary * kVocabulary * 4);
  EXPECT_TRUE(found->read(state, {{0, 0}, {kVocabulary, kVocabulary}}, bytes));
  return bytes;
}

} // namespace heddle::test

#endif
