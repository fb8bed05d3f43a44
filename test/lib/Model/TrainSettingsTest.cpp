#include "Configs.h"

#include "heddle/Model/TrainSettings.h"

#include <gmock/gmock.h>

#include <vector>

using namespace heddle;
using testing::HasSubstr;

static Result<TrainSettings> parse(const std::string &text) {
  Result<Document> document =
      Document::parse(text, "train.yaml", Document::Syntax::Yaml);
  if (!document)
    return document.error();
  return readTrainSettings(*document);
}

static TrainSettings accept(const std::string &text) {
  Result<TrainSettings> settings = parse(text);
  EXPECT_TRUE(settings) << settings.message();
  return settings ? *settings : TrainSettings();
}

static const std::string sizes = "sequence_length: 64\nglobal_batch: 8\n";
static const std::string adam = "optimizer: {type: adamw, lr: 0.1}\n";

TEST(TrainSettings, TakesDefaults) {
  TrainSettings t = accept(sizes + adam);
  EXPECT_EQ(t.sequenceLength, 64);
  EXPECT_EQ(t.globalBatch, 8);
  EXPECT_EQ(t.precision, std::vector<std::string>{"fp32"});
  EXPECT_EQ(t.optimizer.kind, OptimizerKind::AdamW);
  EXPECT_EQ(t.optimizer.lr, 0.1);
  EXPECT_EQ(t.optimizer.betas, (std::pair{0.9, 0.999}));
  EXPECT_EQ(t.optimizer.eps, 1e-8);
  EXPECT_EQ(t.optimizer.weightDecay, 0);
  EXPECT_EQ(t.optimizer.clipNorm, 0);
  EXPECT_EQ(t.schedule, LrSchedule());
  EXPECT_EQ(t.schedule.kind, ScheduleKind::Constant);
  EXPECT_FALSE(t.attentionDropout || t.residualDropout || t.embeddingDropout);
  EXPECT_EQ(t.seed, 0);
}

TEST(TrainSettings, ReadsEveryKey) {
  TrainSettings t = accept(
      sizes + "precision: [bf16, fp32]\n"
              "optimizer: {type: adamw, lr: 3.0e-4, betas: [0.8, 0.95], eps: "
              "1.0e-6, weight_decay: 0.1, clip_norm: 1}\n"
              "lr_schedule: {type: cosine, warmup_steps: 10, steps: 50, "
              "final_lr: 1.0e-5}\n"
              "loss_scale: {initial: 1024, growth_interval: 5, hysteresis: "
              "2, minimum: 0.5}\n"
              "dropout: {attention: 0, residual: 0.5}\nseed: 7\n");
  EXPECT_EQ(t.lossScale, (LossScaleSettings{1024, 5, 2, 0.5}));
  EXPECT_EQ(t.precision, (std::vector<std::string>{"bf16", "fp32"}));
  EXPECT_EQ(t.optimizer,
            (OptimizerSettings{
                OptimizerKind::AdamW, 3e-4, {0.8, 0.95}, 1e-6, 0.1, 1}));
  EXPECT_EQ(t.schedule, (LrSchedule{ScheduleKind::Cosine, 10, 50, 1e-5}));
  EXPECT_EQ(t.attentionDropout, 0);
  EXPECT_EQ(t.residualDropout, 0.5);
  EXPECT_EQ(t.embeddingDropout, std::nullopt);
  EXPECT_EQ(t.seed, 7);
  EXPECT_EQ(accept(sizes + "optimizer: {type: sgd, lr: 0.1}").optimizer.kind,
            OptimizerKind::Sgd);
}

TEST(TrainSettings, RefusesWithLineAndReason) {
  auto refuse = [](const std::string &text) {
    Result<TrainSettings> settings = parse(text);
    EXPECT_FALSE(settings) << text;
    return settings ? "" : settings.message();
  };
  EXPECT_EQ(refuse(sizes + "optimizer: {type: adam, lr: 0.1}"),
            "train.yaml:3: key 'optimizer.type': found \"adam\", expected one "
            "of adamw, sgd");
  EXPECT_EQ(refuse(sizes + "optimizer:\n  type: adamw\n  lr: -1\n"),
            "train.yaml:5: key 'optimizer.lr': found -1, expected a number "
            "above 0");
  EXPECT_EQ(refuse(sizes + adam + "sed: 1"),
            "train.yaml:4: unknown key 'sed'; did you mean 'seed'?");
  struct Bad {
    std::string text, message;
  };
  std::string all = sizes + adam;
  for (const Bad &bad : std::vector<Bad>{
           {"", "the file is empty"},
           {"- 1\n", "found a list of 1"},
           {sizes, "key 'optimizer' is missing"},
           {"global_batch: 8\n" + adam, "key 'sequence_length' is missing"},
           {"sequence_length: 0\nglobal_batch: 8\n" + adam, "found 0"},
           {"sequence_length: 64\nglobal_batch: 8.5\n" + adam, "found 8.5"},
           {"sequence_length: 64\nglobal_batch: -8\n" + adam, "found -8"},
           {sizes + "optimizer: adamw\n", "found \"adamw\", expected keys"},
           {sizes + "optimizer: {type: adamw}\n", "'optimizer.lr' is missing"},
           {sizes + "optimizer: {type: adamw, lr: .nan}\n", "found .nan"},
           {sizes + "optimizer: {type: adamw, lr: 1, betas: [0.9]}\n",
            "a list of 2"},
           {sizes + "optimizer: {type: adamw, lr: 1, betas: [0.9, 1]}\n",
            "found 1, expected a number of at least 0 and below 1"},
           {sizes + "optimizer: {type: adamw, lr: 1, eps: 0}\n", "above 0"},
           {sizes + "optimizer: {type: sgd, lr: 1, eps: 1.0e-8}\n",
            "expected it with adamw only"},
           {sizes + "optimizer: {type: sgd, lr: 1, momentum: 0.9}\n",
            "unknown key 'optimizer.momentum'"},
           {sizes + "optimizer: {type: sgd, lr: 1, clip_norm: -1}\n",
            "found -1"},
           {all + "precision: [bf16, int4]", "found \"int4\""},
           {all + "precision: [bf16, bf16]", "found \"bf16\" twice"},
           {all + "precision: []", "an empty list"},
           {all + "precision: bf16", "a list of strings"},
           {all + "lr_schedule: {type: linear}", "found \"linear\""},
           {all + "lr_schedule: {type: cosine}", "steps' is missing"},
           {all + "lr_schedule: {type: cosine, steps: 5, warmup_steps: 5}",
            "expected fewer than steps 5"},
           {all + "lr_schedule: {type: cosine, steps: 5, final_lr: 0.2}",
            "expected at most optimizer.lr 0.1"},
           {all + "lr_schedule: {final_lr: 0.05}", "with cosine only"},
           {all + "loss_scale: {initial: 1000}",
            "'loss_scale.initial': found 1000, expected a power of two"},
           {all + "loss_scale: {initial: 0}", "loss_scale.initial"},
           {all + "loss_scale: {initial: 2, minimum: 4}",
            "'loss_scale.minimum': found 4, expected at most initial 2"},
           {all + "loss_scale: {growth_interval: -1}", "growth_interval"},
           {all + "loss_scale: {hysteresis: 0}", "hysteresis"},
           {all + "loss_scale: {growth: 3}", "growth"},
           {all + "dropout: 0.1", "found 0.1, expected keys and values"},
           {all + "dropout: {attention: 1}", "below 1"},
           {all + "dropout: {hidden: 0.1}", "unknown key 'dropout.hidden'"},
           {all + "seed: -1", "found -1"},
           {all + "seed: 1\nseed: 2", "train.yaml:5: key 'seed' is given "
                                      "twice"}})
    EXPECT_THAT(refuse(bad.text), HasSubstr(bad.message)) << bad.text;
}

TEST(TrainSettings, GivesTheLearningRate) {
  OptimizerSettings optimizer;
  optimizer.lr = 2;
  LrSchedule schedule{ScheduleKind::Cosine, 4, 8, 1};
  auto rate = [&](std::int64_t step) {
    return learningRate(optimizer, schedule, step);
  };
  EXPECT_DOUBLE_EQ(rate(1), 0.5);
  EXPECT_DOUBLE_EQ(rate(4), 2);
  EXPECT_DOUBLE_EQ(rate(6), 1.5); // half of the way from 2 to 1
  EXPECT_DOUBLE_EQ(rate(8), 1);
  EXPECT_DOUBLE_EQ(rate(100), 1);
  schedule.kind = ScheduleKind::Constant;
  EXPECT_DOUBLE_EQ(rate(2), 1);
  EXPECT_DOUBLE_EQ(rate(100), 2);
}

TEST(TrainSettings, ReplacesDropoutRates) {
  ModelConfig model = test::accept(test::gpt2Config());
  EXPECT_EQ(effectiveDropout(model, accept(sizes + adam)), model.dropout);
  EXPECT_EQ(
      effectiveDropout(model, accept(sizes + adam + "dropout: {attention: 0}")),
      (DropoutRates{0, 0.1, 0.1}));
}

TEST(TrainSettings, MustFitTheModel) {
  TrainSettings settings = accept(sizes + adam);
  ModelConfig gpt2 = test::accept(test::gpt2Config());
  EXPECT_TRUE(checkTrainSettings(gpt2, settings)->empty());
  settings.sequenceLength = 65;
  EXPECT_EQ(checkTrainSettings(gpt2, settings).message(),
            "sequence_length: found 65, expected at most 64, the number of "
            "learned positions (n_positions) of model tiny");
  ModelConfig llama = test::accept(
      test::ropeConfig("llama", "\"max_position_embeddings\": 64"));
  auto warnings = checkTrainSettings(llama, settings);
  ASSERT_TRUE(warnings);
  ASSERT_EQ(warnings->size(), 1u);
  EXPECT_THAT((*warnings)[0], HasSubstr("sequence_length 65 is above "
                                        "max_position_embeddings 64"));
}

TEST(Examples, TrainSettingsAreRead) {
  std::filesystem::path folder =
      std::filesystem::path(HEDDLE_SOURCE_DIR) / "tools/examples/train";
  std::vector<std::pair<std::string, std::pair<std::int64_t, std::int64_t>>>
      expected = {{"quickstart", {8, 256}},
                  {"llama3", {1024, 8192}},
                  {"llama3-405b", {2048, 8192}},
                  {"gpt3", {1536, 2048}},
                  {"real-width", {1, 256}}};
  std::size_t files = 0;
  for ([[maybe_unused]] auto &file :
       std::filesystem::directory_iterator(folder))
    ++files;
  EXPECT_EQ(files, expected.size());
  for (auto &[name, numbers] : expected) {
    Result<TrainSettings> settings =
        readTrainSettings(folder / (name + ".yaml"));
    ASSERT_TRUE(settings) << settings.message();
    EXPECT_EQ(settings->globalBatch, numbers.first) << name;
    EXPECT_EQ(settings->sequenceLength, numbers.second) << name;
  }
}
