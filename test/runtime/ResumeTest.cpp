//===- ResumeTest.cpp - Runs that are saved, broken and resumed -----------===//

#include "test/runtime/SavedRuns.h"

#include <gmock/gmock.h>

#include <unistd.h>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

TEST(Resume, ThreeAndThreeStepsAreSixBitByBit) {
  Job whole;
  ASSERT_EQ(whole.train(6, {"--save", whole.file("saved")}), 0) << whole.errors;
  Job parts;
  ASSERT_EQ(parts.train(3, {"--save-every", "3"}), 0) << parts.errors;
  ASSERT_EQ(parts.steps(), std::vector<int64_t>{3});
  ASSERT_EQ(parts.train(6, {"--resume", "--save", parts.file("saved")}), 0)
      << parts.errors;
  EXPECT_THAT(parts.errors, HasSubstr("resumed behind step 3"));
  EXPECT_EQ(parts.bytes("saved"), whole.bytes("saved"));
  for (const char *key : {"step", "loss", "learning_rate"})
    EXPECT_EQ(parts.logged(key), whole.logged(key)) << key;
  // Nothing is left to do, and nothing is done twice.
  ASSERT_EQ(parts.train(3, {"--resume"}), 0) << parts.errors;
  EXPECT_THAT(parts.errors, HasSubstr("nothing left to train"));
}

TEST(Resume, TheNewestThatIsWholeAndLoudly) {
  Job job;
  ASSERT_EQ(job.train(2, {"--save-every", "2"}), 0) << job.errors;
  for (int64_t step : {4, 6})
    ASSERT_EQ(job.train(step, {"--save-every", "2", "--resume", "--save",
                               job.file("saved")}),
              0)
        << job.errors;
  const std::string saved = job.bytes("saved");
  // As many as are kept, and the last step is one of them.
  EXPECT_THAT(job.steps(), ElementsAre(6, 4));
  job.damage(6);
  ASSERT_EQ(job.train(6, {"--resume", "--save", job.file("saved")}), 0)
      << job.errors;
  EXPECT_THAT(job.errors, HasSubstr("the checkpoint of step 6 is left out"));
  EXPECT_THAT(job.errors, HasSubstr("tensor 'bigram.weight' (param)"));
  EXPECT_THAT(job.errors, HasSubstr("resumed behind step 4"));
  EXPECT_EQ(job.bytes("saved"), saved);
  EXPECT_THAT(job.logged("step"), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Resume, NeverBeginsAnewUnasked) {
  Job job;
  EXPECT_EQ(job.train(1, {"--resume"}), 2);
  EXPECT_THAT(job.errors, HasSubstr("there is no checkpoint to resume from"));
  ASSERT_EQ(job.train(1, {"--save-every", "1"}), 0) << job.errors;
  ASSERT_EQ(job.train(2, {"--save-every", "1", "--resume"}), 0) << job.errors;
  EXPECT_EQ(job.train(2, {"--save-every", "1"}), 2);
  EXPECT_THAT(job.errors,
              HasSubstr("has a checkpoint of step 2, expected none"));
  job.damage(1);
  job.damage(2);
  EXPECT_EQ(job.train(3, {"--resume"}), 2);
  EXPECT_THAT(job.errors, HasSubstr("step 2 is left out"));
  EXPECT_THAT(job.errors, HasSubstr("step 1 is left out"));
  EXPECT_THAT(job.errors, HasSubstr("none of the checkpoints there is whole"));
  EXPECT_EQ(job.train(1, {"--resume", "--weights", "w"}), 2);
  EXPECT_EQ(job.train(1, {"--save-every", "often"}), 2);
  EXPECT_THAT(job.errors, HasSubstr("expected an integer from 1 to "));
  EXPECT_THAT(job.errors, HasSubstr("or auto"));
  EXPECT_EQ(job.train(1, {"--save-every", "0"}), 2);
}

TEST(Resume, AnotherUsersFolderIsTakenOnlyWhereTold) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can give a folder away";
  Job job;
  ASSERT_EQ(job.train(1, {"--save-every", "1"}), 0) << job.errors;
  ASSERT_EQ(chown(job.checkpoints.c_str(), 12345, gid_t(-1)), 0);
  EXPECT_EQ(job.train(2, {"--resume"}), 2);
  EXPECT_THAT(job.errors, HasSubstr("belongs to user 12345, expected user 0"));
  EXPECT_EQ(job.train(2, {"--save-every", "1", "--resume"}), 2);
  EXPECT_EQ(job.steps(), std::vector<int64_t>{1});
  EXPECT_EQ(job.train(2, {"--resume", "--any-owner"}), 0) << job.errors;
}

TEST(Resume, WhatIsAnotherRunIsRefused) {
  Job job;
  ASSERT_EQ(job.train(2, {"--save-every", "2"}), 0) << job.errors;
  const auto why = [&](auto change) {
    runtime::Tables tables = bigramTables();
    change(tables);
    job.writeTables(tables);
    EXPECT_EQ(job.train(3, {"--resume"}), 2);
    return job.errors;
  };
  EXPECT_THAT(why([](auto &t) { t.seed = 4; }),
              HasSubstr("the checkpoint of step 2 has seed 3, the program 4"));
  EXPECT_THAT(why([](auto &t) { t.states[0].name = "other"; }),
              HasSubstr("has no 'other' (param), which the program needs"));
  // Another rate is one's own business, and said.
  runtime::Tables tables = bigramTables();
  tables.optimizer.learningRate = 0.25;
  job.writeTables(tables);
  EXPECT_EQ(job.train(3, {"--resume"}), 0);
  EXPECT_THAT(job.errors, HasSubstr("another learning rate or schedule"));
}

TEST(Resume, AnIntervalIsChosenAndSaid) {
  Job job;
  ASSERT_EQ(job.train(6, {"--save-every", "auto"}), 0) << job.errors;
  EXPECT_THAT(job.errors, HasSubstr("checkpoints: every "));
  EXPECT_THAT(job.errors, HasSubstr("(0 seen)"));
  EXPECT_EQ(job.steps().front(), 6);
  ASSERT_EQ(job.train(8, {"--save-every", "auto", "--resume"}), 0)
      << job.errors;
  EXPECT_THAT(job.errors, HasSubstr("(1 seen)"));
}

//===----------------------------------------------------------------------===//
// While training goes on
//===----------------------------------------------------------------------===//

/// Something before each new file.
class Watched final : public Forwarding {
public:
  std::function<Result<void>(const std::string &path)> beforeCreate;
  bool refusesFolders = false;

private:
  Result<void> before(const std::string &path, const char *call) override {
    if (refusesFolders && call == std::string("makeFolder"))
      return Error{path + ": cannot be made: Input/output error"};
    if (beforeCreate && call == std::string("create"))
      return beforeCreate(path);
    return {};
  }
};

TEST(TwoPhases, WhatChangesAfterTheCopyDoesNotReachTheDisk) {
  Job job, plain;
  Watched files;
  // No byte is written before the last step has begun.
  const int64_t last = stepsBegun() + 6;
  files.beforeCreate = [&](const std::string &) -> Result<void> {
    waitForSteps(last);
    return {};
  };
  ASSERT_EQ(trainWith(job, files, 6, 2), HEDDLE_RT_OK) << job.errors;
  // The ones that were due while it was in flight are left out, and said.
  EXPECT_THAT(job.steps(), ElementsAre(6, 2));
  EXPECT_THAT(job.errors, HasSubstr("step 4 is not saved (1 so far): the "
                                    "checkpoint of step 2 is still being"));
  ASSERT_EQ(plain.train(2, {"--save-every", "2"}), 0) << plain.errors;
  EXPECT_EQ(weightAt(job, 2), weightAt(plain, 2));
  EXPECT_NE(weightAt(job, 2), weightAt(job, 6));
}

TEST(TwoPhases, WhatIsInFlightIsWrittenWhereTheRunStops) {
  Job job;
  Watched files;
  const int64_t second = stepsBegun() + 2;
  files.beforeCreate = [&](const std::string &) -> Result<void> {
    waitForSteps(second);
    plantFault(Fault::LossIsNan);
    return {};
  };
  const heddle_rt_status status = trainWith(job, files, 1000, 1);
  plantFault(Fault::None);
  EXPECT_EQ(status, HEDDLE_RT_CHECK_FAILED);
  EXPECT_THAT(job.errors, HasSubstr("the loss is nan"));
  ASSERT_FALSE(job.steps().empty());
  for (int64_t step : job.steps())
    weightAt(job, step);
}

TEST(TwoPhases, AFailedSaveIsToldAndTheNextOneIsMade) {
  Job job;
  Watched files;
  // Of the first checkpoint a file of rank 1 cannot be made.
  files.beforeCreate = [&](const std::string &path) -> Result<void> {
    if (path.find("step-0000000001") != std::string::npos &&
        path.find("rank-00001") != std::string::npos)
      return Error{path + ": cannot be made: No space left on device"};
    return {};
  };
  ASSERT_EQ(trainWith(job, files, 6, 1), HEDDLE_RT_OK) << job.errors;
  EXPECT_THAT(job.errors, HasSubstr("step 1 failed on rank 1: "));
  EXPECT_THAT(job.errors, HasSubstr("No space left on device"));
  EXPECT_EQ(job.steps().front(), 6);
  EXPECT_THAT(job.steps(), Not(testing::Contains(1)));
  for (int64_t step : job.steps())
    weightAt(job, step);
  const auto entries = realFileSystem().list(job.checkpoints);
  for (const Entry &entry : *entries)
    EXPECT_FALSE(entry.name.starts_with(".tmp")) << entry.name;
}

TEST(TwoPhases, ADiskThatRefusesEverythingStopsTheRun) {
  Job job;
  Watched files;
  files.refusesFolders = true;
  EXPECT_EQ(trainWith(job, files, 50, 1), HEDDLE_RT_CHECK_FAILED);
  EXPECT_THAT(job.errors, HasSubstr("3 in a row, so training stopped"));
  EXPECT_TRUE(job.steps().empty());
}

} // namespace
