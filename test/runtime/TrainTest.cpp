//===- TrainTest.cpp - The train main, end to end and piece by piece ------===//

#include "heddle/Runtime/Train.h"
#include "heddle/Runtime/Random.h"
#include "heddle/Support/Document.h"
#include "heddle/Support/Safetensors.h"
#include "runtime/train/Data.h"
#include "runtime/train/Schedule.h"
#include "test/runtime/TrainProgram.h"
#include "test/runtime/Trial.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace heddle;
using namespace heddle::test;
using namespace heddle::train;
using testing::HasSubstr;

namespace {

//===----------------------------------------------------------------------===//
// Schedule
//===----------------------------------------------------------------------===//

TEST(Schedule, HandWorkedRates) {
  const runtime::Schedule constant = {"constant", 4, 0, 0};
  EXPECT_DOUBLE_EQ(learningRate(constant, 1, 1), 0.25);
  EXPECT_DOUBLE_EQ(learningRate(constant, 1, 4), 1);
  EXPECT_DOUBLE_EQ(learningRate(constant, 1, 1000), 1);
  const runtime::Schedule cosine = {"cosine", 2, 10, 0.2};
  EXPECT_DOUBLE_EQ(learningRate(cosine, 1, 1), 0.5);
  EXPECT_DOUBLE_EQ(learningRate(cosine, 1, 2), 1);
  EXPECT_DOUBLE_EQ(learningRate(cosine, 1, 6), 0.6); // half way
  EXPECT_NEAR(learningRate(cosine, 1, 4), 0.2 + 0.8 * 0.8535533905932737,
              1e-12); // a quarter: (1 + cos 45) / 2
  EXPECT_DOUBLE_EQ(learningRate(cosine, 1, 10), 0.2);
  EXPECT_DOUBLE_EQ(learningRate(cosine, 1, 99), 0.2);
  EXPECT_DOUBLE_EQ(learningRate({"cosine", 0, 2, 0}, 1, 1), 0.5);
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

std::unique_ptr<Data> opened(const std::string &path, const DataShape &shape) {
  Result<std::unique_ptr<Data>> data = Data::open(path, shape);
  EXPECT_TRUE(data) << data.message();
  return std::move(*data);
}

TEST(Data, TextIsBytesAndSequencesAreNeighbours) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 256; ++i)
    text.push_back(char(i));
  const auto data =
      opened(folder.write("a.txt", text), {3, 10, 256, /*seed=*/1});
  Batch batch, again, next;
  ASSERT_TRUE(data->fill(1, batch));
  ASSERT_TRUE(data->fill(2, next));
  ASSERT_TRUE(data->fill(1, again));
  EXPECT_EQ(batch.tokens, again.tokens);
  EXPECT_NE(batch.tokens, next.tokens);
  EXPECT_EQ(batch.counted, 3 * 9);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 10; ++j) {
      const int at = i * 10 + j;
      EXPECT_EQ(batch.positions[at], j);
      EXPECT_EQ(batch.tokens[at], batch.tokens[i * 10] + j);
      EXPECT_EQ(batch.labels[at], j < 9 ? batch.tokens[at] + 1 : -100);
    }
}

TEST(Data, SequenceDependsOnSeedStepAndNumberAlone) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text.push_back(char(random::wordAt(1, 1, i)));
  const std::string path = folder.write("a.txt", text);
  Batch few, many, other;
  ASSERT_TRUE(opened(path, {2, 16, 256, 1})->fill(5, few));
  ASSERT_TRUE(opened(path, {6, 16, 256, 1})->fill(5, many));
  ASSERT_TRUE(opened(path, {2, 16, 256, 2})->fill(5, other));
  EXPECT_TRUE(
      std::equal(few.tokens.begin(), few.tokens.end(), many.tokens.begin()));
  EXPECT_NE(few.tokens, other.tokens);
}

TEST(Data, BinaryTokensOfTwoAndFourBytes) {
  const Folder folder;
  std::string two, four;
  for (int i = 0; i < 40; ++i) {
    two += {char(i + 7), char(1)};
    four += {char(i + 7), char(1), char(1), char(0)};
  }
  Batch batch;
  ASSERT_TRUE(
      opened(folder.write("two.bin", two), {1, 8, 65536, 1})->fill(1, batch));
  EXPECT_EQ(batch.tokens[1], batch.tokens[0] + 1);
  EXPECT_EQ(batch.tokens[0] / 256, 1);
  const std::string path = folder.write("four.bin", four);
  ASSERT_TRUE(opened(path, {1, 8, 70000, 1})->fill(1, batch));
  EXPECT_EQ(batch.tokens[0] / 256, 257);
  ASSERT_TRUE(opened(path, {1, 8, 65793 + 300, 1, 4})->fill(1, batch));
}

TEST(Data, RefusesWhatDoesNotFit) {
  const Folder folder;
  const auto why = [](const std::string &path, const DataShape &shape) {
    Result<std::unique_ptr<Data>> data = Data::open(path, shape);
    if (!data)
      return data.message();
    Batch batch;
    const Result<void> filled = (*data)->fill(1, batch);
    return filled ? std::string("accepted") : filled.message();
  };
  const DataShape shape = {1, 4, 100, 1};
  EXPECT_THAT(why(folder.path / "none.txt", shape), HasSubstr("none.txt"));
  EXPECT_THAT(why(folder.write("short.txt", "abc"), shape),
              HasSubstr("found 3 tokens, expected at least the 4"));
  EXPECT_THAT(why(folder.write("big.txt", "\x7f\x7f\x7f\x7f\x7f"), shape),
              HasSubstr("token 127"));
  EXPECT_THAT(why(folder.write("odd.bin", "abcde"), shape),
              HasSubstr("5 bytes are no whole number of tokens of 2"));
  EXPECT_THAT(why(folder.write("a.json", "{\"tokens\": [[1, 2, 3]]}"), shape),
              HasSubstr("found sequences of 3"));
  EXPECT_THAT(
      why(folder.write("b.json", "{\"tokens\": [[1, 2, 3, 100]]}"), shape),
      HasSubstr("token 100 in sequence 0 at position 3"));
  EXPECT_THAT(why(folder.write("c.json", "{\"tokens\": [[1, 2, 3, 4]],\n"
                                         " \"labels\": [[1, 2, 3, -7]]}"),
                  shape),
              HasSubstr("label -7"));
  EXPECT_THAT(why(folder.write("d.json", "{\"tokens\": [[1, 2, 3, 4]],\n"
                                         " \"masks\": [[1, 1, 1, 1]]}"),
                  shape),
              HasSubstr("d.json:2: key 'masks' is unknown"));
  EXPECT_THAT(why(folder.write("e.json", "{\"tokens\": [[1, 2, 3, 4]],"
                                         " \"mask\": [[1,1,1,1],[1,1,1,1]]}"),
                  shape),
              HasSubstr("found 2 sequences, expected 1"));
}

TEST(Data, BatchesInOrderAndAShortLastWindow) {
  const Folder folder;
  const auto data = opened(
      folder.write("a.json", "{\"tokens\": [[1,2,3],[4,5,6],[7,8,9]],"
                             " \"mask\": [[1,1,1],[1,0,1],[1,1,1]],"
                             " \"documents\": [[0,0,1],[0,0,0],[2,2,2]],"
                             " \"positions\": [[0,1,0],[0,1,2],[0,1,2]]}"),
      {2, 3, 10, 1});
  Batch batch;
  ASSERT_TRUE(data->fill(1, batch));
  EXPECT_THAT(batch.tokens, testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(batch.labels, testing::ElementsAre(2, 3, -100, 5, -100, -100));
  EXPECT_THAT(batch.documents, testing::ElementsAre(0, 0, 1, 0, 0, 0));
  EXPECT_THAT(batch.positions, testing::ElementsAre(0, 1, 0, 0, 1, 2));
  EXPECT_EQ(batch.counted, 3);
  ASSERT_TRUE(data->fill(2, batch));
  EXPECT_THAT(batch.tokens, testing::ElementsAre(7, 8, 9, 0, 0, 0));
  EXPECT_THAT(batch.labels, testing::ElementsAre(8, 9, -100, -100, -100, -100));
  EXPECT_EQ(batch.counted, 2);
  ASSERT_TRUE(data->fill(3, batch)); // from the start again
  EXPECT_EQ(batch.tokens[0], 1);
}

TEST(Data, BatchesOfSafetensors) {
  const Folder folder;
  const std::string path = folder.path / "a.safetensors";
  const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
  const int64_t labels[] = {2, -100, 4, 5, 6, 7};
  auto writer =
      SafetensorsWriter::create(path, {{"tokens", TensorType::I32, {2, 3}},
                                       {"labels", TensorType::I64, {2, 3}}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->write("tokens", std::as_bytes(std::span(tokens))));
  ASSERT_TRUE(writer->write("labels", std::as_bytes(std::span(labels))));
  ASSERT_TRUE(writer->commit());
  Batch batch;
  ASSERT_TRUE(opened(path, {2, 3, 10, 1})->fill(1, batch));
  EXPECT_THAT(batch.tokens, testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(batch.labels, testing::ElementsAre(2, -100, 4, 5, 6, 7));
  EXPECT_EQ(batch.counted, 5);
}

//===----------------------------------------------------------------------===//
// End to end: four ranks, the program of TrainProgram.cpp
//===----------------------------------------------------------------------===//

/// The same model in double on one device. W is [token][next], as in the file.
struct Reference {
  double w[kVocabulary][kVocabulary], g[kVocabulary][kVocabulary] = {};

  explicit Reference(uint64_t seed) {
    const uint64_t stream = random::nameHash(std::string("bigram.weight"));
    for (int i = 0; i < kVocabulary * kVocabulary; ++i)
      w[i / kVocabulary][i % kVocabulary] =
          0.5 * random::normalAt(seed, stream, uint64_t(i));
  }
  double step(const Batch &batch, double rate) {
    double loss = 0;
    memset(g, 0, sizeof g);
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.labels[i] < 0)
        continue;
      const double *row = w[batch.tokens[i]];
      double sum = 0;
      for (int n = 0; n < kVocabulary; ++n)
        sum += std::exp(row[n]);
      loss += (std::log(sum) - row[batch.labels[i]]) / double(batch.counted);
      for (int n = 0; n < kVocabulary; ++n)
        g[batch.tokens[i]][n] +=
            (std::exp(row[n]) / sum - (n == batch.labels[i])) /
            double(batch.counted);
    }
    for (int t = 0; t < kVocabulary; ++t)
      for (int n = 0; n < kVocabulary; ++n)
        w[t][n] -= rate * g[t][n];
    return loss;
  }
};

std::vector<float> floatsOf(const SafetensorsFile &file, const char *name) {
  const TensorEntry *tensor = file.find(name);
  if (!tensor) {
    ADD_FAILURE() << name << " is missing";
    return {};
  }
  std::vector<float> values(size_t(tensor->elements()));
  memcpy(values.data(), file.bytes(*tensor).data(), values.size() * 4);
  return values;
}

TEST(Train, EqualsOneDeviceStepByStep) {
  Trial run;
  const std::string data = run.folder.write("a.json", kBatches);
  ASSERT_EQ(run({"--threads", "--data", data, "--dump", run.file("dump"),
                 "--save", run.file("saved"), "--replica-check", "2"}),
            0)
      << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("6 steps, loss "));
  const auto losses = run.logged("loss"), counts = run.logged("counted_labels");
  const auto rates = run.logged("learning_rate");
  ASSERT_EQ(losses.size(), 6u); // as the schedule says
  Reference reference(3);
  const auto source =
      opened(data, {kSequences, kLength, kVocabulary, /*seed=*/3});
  for (int step = 1; step <= 6; ++step) {
    Batch batch;
    ASSERT_TRUE(source->fill(step, batch));
    const double rate = learningRate({"cosine", 2, 6, 0.1}, 0.5, step);
    const double loss = reference.step(batch, rate);
    EXPECT_NEAR(losses[step - 1], loss, 1e-6 * loss) << step;
    EXPECT_EQ(counts[step - 1], step % 2 ? 20 : 5); // one of four is there
    EXPECT_NEAR(rates[step - 1], rate, 1e-9);
  }
  auto dump = SafetensorsFile::open(run.file("dump"));
  ASSERT_TRUE(dump) << dump.message();
  const auto w = floatsOf(*dump, "bigram.weight");
  const auto g = floatsOf(*dump, "gradient.bigram.weight");
  for (int i = 0; i < kVocabulary * kVocabulary; ++i) {
    EXPECT_NEAR(w[i], reference.w[i / kVocabulary][i % kVocabulary], 1e-5);
    EXPECT_NEAR(g[i], reference.g[i / kVocabulary][i % kVocabulary], 1e-6);
  }
  EXPECT_EQ(floatsOf(*dump, "loss")[0], float(losses.back()));
  auto saved = SafetensorsFile::open(run.file("saved"));
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->tensors().size(), 1u);
  EXPECT_EQ(floatsOf(*saved, "bigram.weight"), w);
}

TEST(Train, WeightsComeBackAsTheyWere) {
  Trial run;
  const std::string data = run.folder.write("a.json", kBatches);
  ASSERT_EQ(run({"--threads", "--data", data, "--steps", "2", "--save",
                 run.file("saved")}),
            0)
      << run.errors;
  // The third step's batch is the first's; what follows is one reference step.
  ASSERT_EQ(run({"--threads", "--data", data, "--steps", "1", "--weights",
                 run.file("saved"), "--dump", run.file("dump")}),
            0)
      << run.errors;
  Reference reference(3);
  const auto source = opened(data, {kSequences, kLength, kVocabulary, 3});
  double loss = 0;
  for (int step = 1; step <= 3; ++step) {
    Batch batch;
    ASSERT_TRUE(source->fill(step, batch));
    loss = reference.step(batch, 0.5 * std::min(step, 2) / 2);
  }
  EXPECT_NEAR(run.logged("loss")[0], loss, 1e-6 * loss);
  // A dump is a file of weights too; what is no parameter is said.
  ASSERT_EQ(run({"--threads", "--data", data, "--steps", "1", "--weights",
                 run.file("dump")}),
            0);
  EXPECT_THAT(run.errors, HasSubstr("gradient.bigram.weight"));
}

TEST(Train, StepsWithoutLabelsAreSkipped) {
  Trial run;
  const std::string data = run.folder.write(
      "a.json", "{\"tokens\": [[0,1,2,3,4,5],[6,5,4,3,2,1],[1,1,2,2,3,3],"
                "[0,6,0,6,0,6]], \"mask\": [[0,0,0,0,0,0],[0,0,0,0,0,0],"
                "[0,0,0,0,0,0],[0,0,0,0,0,1]]}");
  ASSERT_EQ(run({"--threads", "--data", data, "--steps", "2"}), 0)
      << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("step 1: no label is counted; skipped"));
  EXPECT_EQ(run.logged("skipped"), (std::vector<double>{1, 1}));
  EXPECT_TRUE(std::isnan(run.logged("loss")[0]));
}

TEST(Train, SaysWhichReplicasDiffer) {
  Trial run;
  const std::string data = run.folder.write("a.json", kBatches);
  plantFault(Fault::ReplicasDrift);
  const int code = run({"--threads", "--data", data, "--replica-check", "2"});
  plantFault(Fault::None);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(run.errors,
              HasSubstr("after step 2 the copies of parameter bigram.weight "
                        "on ranks 0 and 2 differ"));
}

TEST(Train, StopsWhereTheLossIsNoNumber) {
  Trial run;
  const std::string data = run.folder.write("a.json", kBatches);
  plantFault(Fault::LossIsNan);
  const int code = run({"--threads", "--data", data});
  plantFault(Fault::None);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(run.errors, HasSubstr("step 1: the loss is nan"));
  ASSERT_EQ(run.logged("loss").size(), 1u); // a line, with null
  EXPECT_TRUE(std::isnan(run.logged("loss")[0]));
}

// Alone it would stop, and leave the others in calls that it does not make.
TEST(Train, NamesTheRankWhoseLossIsAnother) {
  Trial run;
  const std::string data = run.folder.write("a.json", kBatches);
  for (const char *check : {"--replica-check", "--sum-check", "--guard"}) {
    plantFault(Fault::OneLossIsNan);
    const int code = run({"--threads", "--data", data, check, "1"});
    plantFault(Fault::None);
    EXPECT_EQ(code, 1);
    EXPECT_THAT(run.errors, HasSubstr("after step 1 the loss differs: rank 2 "
                                      "has nan, most of the others have "));
  }
}

TEST(Train, DryWritesTheTraceOfOneRank) {
  Trial run;
  ASSERT_EQ(run({"--dry", "--rank", "2", "--trace", run.file("trace")}), 0)
      << run.errors;
  std::ifstream file(run.file("trace"));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Result<DocumentValue> trace = parseJson(text, "trace");
  ASSERT_TRUE(trace) << trace.message();
  EXPECT_EQ(trace->find("rank")->integer, 2);
  EXPECT_EQ(trace->find("calls")->integer, 5); // the step's reductions
  EXPECT_EQ(run({"--dry", "--rank", "4"}), 2);
}

TEST(Train, RefusesBadInputWithCodeTwo) {
  Trial run;
  const std::string data = run.folder.write("a.json", kBatches);
  EXPECT_EQ(run({"--threads"}), 2);
  EXPECT_THAT(run.errors, HasSubstr("--data FILE"));
  EXPECT_EQ(run({"--thread", "--data", data}), 2);
  EXPECT_THAT(run.errors, HasSubstr("did you mean --threads?"));
  EXPECT_EQ(run({"--threads", "--data", data, "--steps", "x"}), 2);
  EXPECT_THAT(run.errors, HasSubstr("--steps: found 'x'"));
  const std::string bad =
      run.folder.write("bad.json", "{\"tokens\": [[0,1,2,3,4,7]]}");
  EXPECT_EQ(run({"--threads", "--data", bad}), 2);
  EXPECT_THAT(run.errors, HasSubstr("token 7 in sequence 0 at position 5, "
                                    "expected 0 to 6"));
  EXPECT_EQ(run({"--threads", "--data", data, "--weights", data}), 2);
  EXPECT_EQ(run({"--data", data}), 2); // one process, four ranks
  EXPECT_THAT(run.errors, HasSubstr("this program is for 4 ranks, found 1"));
  run.folder.write("tables.bin", "nonsense");
  EXPECT_EQ(run({"--threads", "--data", data}), 2);
  EXPECT_THAT(run.errors, HasSubstr("tables.bin"));
}

} // namespace
