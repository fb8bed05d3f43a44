//===- TrainSettings.h - train.yaml as a value ------------------*- C++ -*-===//

#ifndef HEDDLE_MODEL_TRAINSETTINGS_H
#define HEDDLE_MODEL_TRAINSETTINGS_H

#include "heddle/Model/ModelConfig.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

enum class OptimizerKind { Sgd, AdamW };
std::string_view optimizerName(OptimizerKind kind); ///< "adamw"

/// Decay is decoupled: p -= lr * weightDecay * p, on parameters with decay.
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::AdamW;      ///< key type; required
  double lr = 0;                                  ///< required
  std::pair<double, double> betas = {0.9, 0.999}; ///< adamw only
  double eps = 1e-8;                              ///< adamw only; above 0
  double weightDecay = 0;
  double clipNorm = 0; ///< of the global gradient norm; 0: no clipping

  bool operator==(const OptimizerSettings &) const = default;
};

enum class ScheduleKind { Constant, Cosine };
std::string_view scheduleName(ScheduleKind kind); ///< "cosine"

/// Learning rate of step t (from 1): during warmupSteps lr * t / warmupSteps;
/// then Constant: lr; Cosine: from lr to finalLr along half a cosine that ends
/// at step `steps` (required for it), finalLr afterwards.
struct LrSchedule {
  ScheduleKind kind = ScheduleKind::Constant;
  std::int64_t warmupSteps = 0;
  std::int64_t steps = 0; ///< of the training; 0: not said
  double finalLr = 0;

  bool operator==(const LrSchedule &) const = default;
};

/// The learning rate of step `step`, from 1.
double learningRate(const OptimizerSettings &optimizer,
                    const LrSchedule &schedule, std::int64_t step);

/// By what the loss of an fp16 plan is multiplied where backward begins. After
/// `growthInterval` steps in a row whose gradients are finite (0: never) it
/// doubles; a step whose gradients are not is skipped. The `hysteresis`-th of
/// those since it last grew, and each one behind it, halves it, down to
/// `minimum`. Powers of two: nothing is rounded by them.
struct LossScaleSettings {
  double initial = 65536;
  std::int64_t growthInterval = 2000;
  std::int64_t hysteresis = 1;
  double minimum = 1;

  bool operator==(const LossScaleSettings &) const = default;
};

struct TrainSettings {
  std::int64_t sequenceLength = 0; ///< required; tokens
  std::int64_t globalBatch = 0;    ///< required; sequences of one step
  /// Formats that a plan may use: fp32, bf16, fp16, fp8, nvfp4.
  std::vector<std::string> precision = {"fp32"};
  OptimizerSettings optimizer; ///< required
  LrSchedule schedule;         ///< key lr_schedule; default constant
  LossScaleSettings lossScale; ///< key loss_scale; of fp16 alone
  /// Each rate that is given replaces the model's.
  std::optional<double> attentionDropout, residualDropout, embeddingDropout;
  std::int64_t seed = 0;

  bool operator==(const TrainSettings &) const = default;
};

Result<TrainSettings> readTrainSettings(const std::filesystem::path &path);
Result<TrainSettings> readTrainSettings(const Document &document);

/// The model's rates, replaced by those that the settings give.
DropoutRates effectiveDropout(const ModelConfig &model,
                              const TrainSettings &settings);

/// Whether the two fit. An error: sequences longer than learned positions.
/// Warnings, one sentence each: sequences longer than the RoPE model was made
/// for.
Result<std::vector<std::string>>
checkTrainSettings(const ModelConfig &model, const TrainSettings &settings);

} // namespace heddle

#endif
