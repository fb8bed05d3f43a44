#include "heddle/Model/TrainSettings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

using namespace heddle;

std::string_view heddle::optimizerName(OptimizerKind kind) {
  return kind == OptimizerKind::Sgd ? "sgd" : "adamw";
}

std::string_view heddle::scheduleName(ScheduleKind kind) {
  return kind == ScheduleKind::Constant ? "constant" : "cosine";
}

double heddle::learningRate(const OptimizerSettings &optimizer,
                            const LrSchedule &schedule, std::int64_t step) {
  auto real = [](std::int64_t count) { return static_cast<double>(count); };
  if (step <= schedule.warmupSteps)
    return optimizer.lr * real(step) / real(schedule.warmupSteps);
  if (schedule.kind == ScheduleKind::Constant)
    return optimizer.lr;
  if (step >= schedule.steps)
    return schedule.finalLr;
  double done = real(step - schedule.warmupSteps) /
                real(schedule.steps - schedule.warmupSteps);
  return schedule.finalLr + (optimizer.lr - schedule.finalLr) * 0.5 *
                                (1 + std::cos(std::numbers::pi * done));
}

static OptimizerSettings readOptimizer(MapReader &reader) {
  OptimizerSettings settings;
  settings.kind = reader.choice("type", {"adamw", "sgd"}) == "sgd"
                      ? OptimizerKind::Sgd
                      : OptimizerKind::AdamW;
  settings.lr = reader.number("lr", NumberRange::positive());
  settings.weightDecay =
      reader.number("weight_decay", NumberRange::nonNegative(), 0.0);
  settings.clipNorm =
      reader.number("clip_norm", NumberRange::nonNegative(), 0.0);
  if (settings.kind == OptimizerKind::Sgd) {
    for (const char *key : {"betas", "eps"})
      if (reader.value(key))
        reader.fail(key, "found it with type sgd, expected it with adamw only; "
                         "remove it");
    return settings;
  }
  std::vector<double> betas = reader.numbers(
      "betas", NumberRange::rate(),
      std::vector<double>{settings.betas.first, settings.betas.second}, 2);
  settings.betas = {betas[0], betas[1]};
  settings.eps = reader.number("eps", NumberRange::positive(), settings.eps);
  return settings;
}

static LrSchedule readSchedule(MapReader &reader, double lr) {
  LrSchedule schedule;
  bool cosine =
      reader.choice("type", {"constant", "cosine"}, "constant") == "cosine";
  schedule.kind = cosine ? ScheduleKind::Cosine : ScheduleKind::Constant;
  schedule.warmupSteps =
      reader.integer("warmup_steps", IntegerRange::nonNegative(), 0);
  schedule.steps = cosine
                       ? reader.integer("steps", IntegerRange::positive())
                       : reader.integer("steps", IntegerRange::positive(), 0);
  if (!cosine && reader.value("final_lr"))
    reader.fail("final_lr", "found it with type constant, expected it with "
                            "cosine only; remove it");
  else
    schedule.finalLr =
        reader.number("final_lr", NumberRange::nonNegative(), 0.0);
  if (!reader.ok())
    return schedule;
  if (cosine && schedule.warmupSteps >= schedule.steps)
    reader.fail("warmup_steps",
                fmt::format("found {}, expected fewer than steps {}",
                            schedule.warmupSteps, schedule.steps));
  if (schedule.finalLr > lr)
    reader.fail("final_lr", fmt::format("found {}, expected at most "
                                        "optimizer.lr {}",
                                        schedule.finalLr, lr));
  return schedule;
}

/// A power of two, so that scaling is exact.
static double readScale(MapReader &reader, const char *key, double normally) {
  const double value = reader.number(key, NumberRange::positive(), normally);
  int exponent = 0;
  if (reader.ok() &&
      (std::frexp(value, &exponent) != 0.5 || std::abs(exponent - 1) > 32))
    reader.fail(key, fmt::format("found {}, expected a power of two from 2^-32 "
                                 "to 2^32",
                                 value));
  return value;
}

static LossScaleSettings readLossScale(MapReader &reader) {
  LossScaleSettings settings;
  settings.initial = readScale(reader, "initial", settings.initial);
  settings.minimum = readScale(reader, "minimum", settings.minimum);
  settings.growthInterval = reader.integer(
      "growth_interval", IntegerRange::nonNegative(), settings.growthInterval);
  settings.hysteresis = reader.integer("hysteresis", IntegerRange::positive(),
                                       settings.hysteresis);
  if (reader.ok() && settings.minimum > settings.initial)
    reader.fail("minimum", fmt::format("found {}, expected at most initial {}",
                                       settings.minimum, settings.initial));
  return settings;
}

static std::vector<std::string> readPrecision(MapReader &reader) {
  const std::vector<std::string> formats = {"fp32", "bf16", "fp16", "fp8",
                                            "nvfp4"};
  std::vector<std::string> read =
      reader.strings("precision", std::vector<std::string>{"fp32"});
  for (const std::string &format : read) {
    if (!std::count(formats.begin(), formats.end(), format))
      reader.fail("precision",
                  fmt::format("found \"{}\", expected formats out of {}",
                              format, fmt::join(formats, ", ")));
    else if (std::count(read.begin(), read.end(), format) > 1)
      reader.fail("precision", fmt::format("found \"{}\" twice, expected each "
                                           "format once",
                                           format));
  }
  if (read.empty())
    reader.fail("precision",
                fmt::format("found an empty list, expected formats out of {}",
                            fmt::join(formats, ", ")));
  return read;
}

Result<TrainSettings> heddle::readTrainSettings(const Document &document) {
  TrainSettings settings;
  MapReader reader(document);
  constexpr IntegerRange sizeRange = {1, (std::int64_t{1} << 31) - 1};
  settings.sequenceLength = reader.integer("sequence_length", sizeRange);
  settings.globalBatch = reader.integer("global_batch", sizeRange);
  settings.precision = readPrecision(reader);
  settings.seed = reader.integer("seed", IntegerRange::nonNegative(), 0);
  if (auto optimizer = reader.requiredMap("optimizer"))
    settings.optimizer = readOptimizer(*optimizer);
  if (auto schedule = reader.map("lr_schedule"))
    settings.schedule = readSchedule(*schedule, settings.optimizer.lr);
  if (auto scale = reader.map("loss_scale"))
    settings.lossScale = readLossScale(*scale);
  if (auto dropout = reader.map("dropout")) {
    NumberRange rate = NumberRange::rate();
    settings.attentionDropout = dropout->optionalNumber("attention", rate);
    settings.residualDropout = dropout->optionalNumber("residual", rate);
    settings.embeddingDropout = dropout->optionalNumber("embedding", rate);
  }
  if (auto done = reader.finish(); !done)
    return done.error();
  return settings;
}

Result<TrainSettings>
heddle::readTrainSettings(const std::filesystem::path &path) {
  Result<Document> document = Document::read(path);
  if (!document)
    return document.error();
  return readTrainSettings(*document);
}

DropoutRates heddle::effectiveDropout(const ModelConfig &model,
                                      const TrainSettings &settings) {
  DropoutRates rates;
  rates.attention = settings.attentionDropout.value_or(model.dropout.attention);
  rates.residual = settings.residualDropout.value_or(model.dropout.residual);
  rates.embedding = settings.embeddingDropout.value_or(model.dropout.embedding);
  return rates;
}

Result<std::vector<std::string>>
heddle::checkTrainSettings(const ModelConfig &model,
                           const TrainSettings &settings) {
  std::vector<std::string> warnings;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (effectiveDropout(model, settings).any() && settings.sequenceLength > 0 &&
      settings.globalBatch > most / settings.sequenceLength)
    return Error{fmt::format(
        "global_batch {} x sequence_length {}: expected at most {} tokens in a "
        "step, whose numbers dropout needs in 32 bits, or dropout rates of 0",
        settings.globalBatch, settings.sequenceLength, most)};
  if (settings.sequenceLength <= model.maxPositions)
    return warnings;
  if (model.position == PositionKind::Learned)
    return Error{fmt::format(
        "sequence_length: found {}, expected at most {}, the number of learned "
        "positions (n_positions) of model {}",
        settings.sequenceLength, model.maxPositions, model.name)};
  warnings.push_back(fmt::format(
      "sequence_length {} is above max_position_embeddings {} of model {}: it "
      "computes, but the model was not made for such positions",
      settings.sequenceLength, model.maxPositions, model.name));
  return warnings;
}
