#include "runtime/train/Trainer.h"

#include "heddle/Runtime/Random.h"
#include "heddle/Support/Document.h"
#include "heddle/Support/Files.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/train/Checkpointer.h"
#include "runtime/train/Inject.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/Progress.h"
#include "runtime/train/Replay.h"
#include "runtime/train/Replicas.h"
#include "runtime/train/Schedule.h"
#include "runtime/train/Suspects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <unistd.h>

namespace heddle::train {

namespace {

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A loss scale that is as small as it may be, and gradients that overflow all
/// the same: forward does. One odd batch is passed over.
constexpr int64_t kMostSkipped = 10;

class Trainer {
public:
  Trainer(Rank &rank, const Job &job, bool &common)
      : rank(rank), job(job), tables(job.tables), common(common),
        flight(ranks::flightOf(rank.context)), progress(job.steps),
        lossScale(tables.lossScaling),
        scalesLoss(tables.inputs.count("loss_scale") != 0) {}

  heddle_rt_status run();

private:
  /// What a checkpoint behind the last step has to say beside tensors.
  checkpoint::Carried carried() const {
    return {overflows,
            scalesLoss ? std::optional(lossScale.state()) : std::nullopt};
  }
  heddle_rt_status openLog(int64_t done);
  heddle_rt_status step(int64_t number);
  heddle_rt_status train(StepResult &result);
  heddle_rt_status checked(heddle_rt_status status);
  heddle_rt_status guard(StepResult &result);
  heddle_rt_status checkNorm(const StepResult &result);
  bool looksAtNumbers() const {
    return job.options.guard > 0 || job.options.normLimit > 0;
  }
  heddle_rt_status withRanges(int64_t step,
                              const std::function<heddle_rt_status()> &run);
  heddle_rt_status stepOnce(int64_t number);
  heddle_rt_status setInputs(const StepResult &result);
  heddle_rt_status setTokens(const std::string &name,
                             const runtime::Input &input,
                             const std::vector<int32_t> &whole, int32_t pad);
  std::vector<int32_t> tokenNumbers() const;
  uint64_t dropoutSeed(int64_t step, int64_t layer) const;
  heddle_rt_status setLayerSeeds(const runtime::Input &input, int64_t step);
  heddle_rt_status readOutputs(StepResult &result);
  heddle_rt_status report(const StepResult &result);
  std::string whyStopped(const StepResult &result);
  heddle_rt_status checkLossScale(int64_t step);
  heddle_rt_status checkResult(const StepResult &result);
  heddle_rt_status dump(const StepResult &result);
  /// What training has of a parameter is then its master.
  bool hasMasters() const {
    return std::any_of(
        tables.states.begin(), tables.states.end(),
        [](const runtime::State &state) { return state.kind == "master"; });
  }

  Rank &rank;
  const Job &job;
  const runtime::Tables &tables;
  bool &common;
  runtime::Flight &flight; ///< what it tells who watches
  Progress progress;
  LossScale lossScale;
  const bool scalesLoss;
  int64_t overflows = 0;  ///< steps that were skipped for them
  int64_t passedOver = 0; ///< in a row, by --guard
  int64_t norms = 0;      ///< seen by --norm-limit
  double usualNorm = 0;   ///< their moving mean
  Batch batch;
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> log{nullptr, std::fclose};
};

/// Lines of steps after `done` are of a run that was cut off: they are made
/// again.
static Result<void> keepLines(const std::string &path, int64_t done) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return {};
  const Result<std::string> text = readFile(path);
  if (!text)
    return text.error();
  std::string kept;
  for (size_t at = 0; at < text->size();) {
    const size_t end = text->find('\n', at);
    if (end == std::string::npos)
      break;
    const std::string line = text->substr(at, end + 1 - at);
    const Result<DocumentValue> value = parseJson(line, path);
    const DocumentValue *step = value ? value->find("step") : nullptr;
    if (step && step->integer && *step->integer <= done)
      kept += line;
    at = end + 1;
  }
  return writeFile(path, kept);
}

heddle_rt_status Trainer::openLog(int64_t done) {
  if (rank.rank != 0 || job.options.log.empty())
    return HEDDLE_RT_OK;
  if (done > 0)
    if (auto kept = keepLines(job.options.log, done); !kept)
      return runtime::invalid("{}", kept.message());
  log.reset(std::fopen(job.options.log.c_str(), done > 0 ? "a" : "w"));
  if (!log)
    return runtime::invalid("{}: cannot open: {}", job.options.log,
                            strerror(errno));
  return HEDDLE_RT_OK;
}

heddle_rt_status Trainer::run() {
  std::optional<Checkpointer> checkpoints;
  int64_t done = 0;
  flight.enter(runtime::Section::Load);
  if (job.options.savesOrResumes()) {
    checkpoints.emplace(
        rank, job.options, *job.files, common,
        [this](const std::string &text) { progress.note(text); });
    checkpoint::Carried found = carried();
    HEDDLE_RT_TRY(checkpoints->open(done, found));
    overflows = found.skippedSteps;
    if (found.scaling)
      lossScale.restore(*found.scaling);
  }
  HEDDLE_RT_TRY(openLog(done));
  if (!job.options.resume)
    HEDDLE_RT_TRY(fillStates(rank, job.weights, job.options.testInit));
  if (done >= job.steps && rank.rank == 0)
    progress.note(fmt::format("step {} of {} is done: there is nothing left to "
                              "train",
                              done, job.steps));
  for (int64_t number = done + 1; number <= job.steps; ++number) {
    const double start = now();
    if (const heddle_rt_status status = step(number)) {
      if (!checkpoints || !common)
        return status;
      // What was saved before is not lost with the run.
      const std::string why = heddle_rt_last_error();
      (void)checkpoints->drain();
      return runtime::fail(status, "{}", why);
    }
    if (checkpoints)
      HEDDLE_RT_TRY(checkpoints->boundary(number, now() - start, carried()));
  }
  flight.enter(runtime::Section::Finish);
  if (checkpoints)
    HEDDLE_RT_TRY(checkpoints->finish(std::max(done, job.steps), carried()));
  if (!job.options.save.empty())
    HEDDLE_RT_TRY(writeStates(rank, job.options.save,
                              {{hasMasters() ? "master" : "parameter", ""}},
                              {}));
  if (rank.rank == 0) {
    progress.summary();
    if (const std::string graphs = ranks::graphsOf(rank.context);
        !graphs.empty())
      progress.note(graphs);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Trainer::step(int64_t number) {
  StepResult result;
  result.step = number;
  result.rate =
      learningRate(tables.schedule, tables.optimizer.learningRate, number);
  flight.beginStep(number);
  const double start = now();
  if (auto ok = job.data->fill(number, batch); !ok) {
    common = true;
    return runtime::invalid("{}", ok.message());
  }
  result.counted = batch.counted;
  result.skipped = batch.counted == 0;
  result.lossScale = scalesLoss ? lossScale.value() : 0;
  if (!result.skipped)
    HEDDLE_RT_TRY(train(result));
  flight.endStep();
  result.seconds = now() - start;
  const double tokens = double(tables.globalBatch * tables.sequenceLength);
  if (!result.skipped) {
    result.tokensPerSecond = tokens / result.seconds;
    if (tables.peakFlopsPerDevice > 0)
      result.mfu = tables.flopsPerStep / result.seconds /
                   (tables.peakFlopsPerDevice * double(tables.ranks()));
  }
  if (rank.rank == 0)
    HEDDLE_RT_TRY(report(result));
  HEDDLE_RT_TRY(checkResult(result));
  if (number == job.steps && !job.options.dump.empty())
    return dump(result);
  return HEDDLE_RT_OK;
}

heddle_rt_status Trainer::train(StepResult &result) {
  const Options &options = job.options;
  const auto isDue = [&](int64_t every) {
    return every > 0 && result.step % every == 0;
  };
  const ranks::Integrity::Look look = {isDue(options.sumCheck),
                                       looksAtNumbers(), false};
  ranks::integrityOf(rank.context).begin(look);
  const auto once = [&] { return stepOnce(result.step); };
  if (isDue(options.replay)) {
    const auto with = [&](auto run) {
      return [&, run]() -> heddle_rt_status {
        HEDDLE_RT_TRY(setInputs(result));
        return run();
      };
    };
    HEDDLE_RT_TRY(checked(replayStep(rank, result.step, with(once),
                                     with([&] { return rank.step(); }))));
  } else {
    HEDDLE_RT_TRY(setInputs(result));
    HEDDLE_RT_TRY(withRanges(result.step, once));
  }
  HEDDLE_RT_TRY(rank.synchronize());
  if (look.sums)
    HEDDLE_RT_TRY(checked(checkSums(rank, result.step)));
  HEDDLE_RT_TRY(readOutputs(result));
  if (looksAtNumbers() || look.sums || isDue(options.replay) ||
      isDue(options.replicaCheck))
    HEDDLE_RT_TRY(
        checked(checkNumbers(rank, result.step,
                             {{"the loss", result.loss},
                              {"the norm of the gradients",
                               result.hasNorm ? result.gradientNorm : 0}})));
  // The optimizer did the same (`clip_factor`).
  const bool finite = !result.hasNorm || std::isfinite(result.gradientNorm);
  if (scalesLoss)
    lossScale.update(finite);
  result.skipped = scalesLoss && !finite;
  overflows += result.skipped;
  return scalesLoss ? HEDDLE_RT_OK : guard(result);
}

/// A check that fails on all ranks alike, and may go well another time.
heddle_rt_status Trainer::checked(heddle_rt_status status) {
  common = status == HEDDLE_RT_CHECK_FAILED;
  if (common)
    flight.tellMayPass();
  return status;
}

/// Passes over steps whose gradients are no numbers (optimizers left all as it
/// was), as long as that is allowed.
heddle_rt_status Trainer::guard(StepResult &result) {
  if (!looksAtNumbers() || !result.hasNorm)
    return HEDDLE_RT_OK;
  if (std::isfinite(result.gradientNorm) && std::isfinite(result.loss)) {
    passedOver = 0;
    return checkNorm(result);
  }
  std::string where;
  HEDDLE_RT_TRY(findNoNumber(rank, where));
  if (where.empty())
    where = "no rank had such a value in a state or gave it to a sum";
  const std::string what =
      fmt::format("step {}: the loss is {:g}, the norm of the gradients {:g}; "
                  "{}",
                  result.step, result.loss, result.gradientNorm, where);
  // A parameter that is no number stays so: only a checkpoint helps.
  if (std::isfinite(result.gradientNorm) || ++passedOver > job.options.guard)
    return checked(
        runtime::fail(HEDDLE_RT_CHECK_FAILED, "{}; training stopped", what));
  if (rank.rank == 0)
    progress.note(fmt::format("warning: {}; the step is passed over ({} of {} "
                              "in a row)",
                              what, passedOver, job.options.guard));
  result.skipped = true;
  ++overflows;
  return HEDDLE_RT_OK;
}

/// A norm far above its moving mean. The step is done; who starts the run again
/// goes back before it.
heddle_rt_status Trainer::checkNorm(const StepResult &result) {
  constexpr int64_t kToKnow = 5; // steps until the mean means something
  const int64_t limit = job.options.normLimit;
  const double norm = result.gradientNorm;
  if (limit > 0 && norms >= kToKnow && norm > double(limit) * usualNorm) {
    std::string where;
    HEDDLE_RT_TRY(findLargest(rank, where));
    return checked(runtime::fail(
        HEDDLE_RT_CHECK_FAILED,
        "step {}: the norm of the gradients is {:g}, {:.0f} times what is "
        "usual (--norm-limit {}); {}; training stopped",
        result.step, norm, norm / usualNorm, limit, where));
  }
  usualNorm = norms++ == 0 ? norm : 0.9 * usualNorm + 0.1 * norm;
  return HEDDLE_RT_OK;
}

/// Runs a step; --ranges of the last one.
heddle_rt_status
Trainer::withRanges(int64_t step,
                    const std::function<heddle_rt_status()> &run) {
  const std::string &folder = job.options.ranges;
  const bool writesRanges = !folder.empty() && step == job.steps;
  if (writesRanges)
    HEDDLE_RT_TRY(heddle_rt_ranges_write(
        rank.context,
        fmt::format("{}/ranges.{}.jsonl", folder, rank.rank).c_str()));
  HEDDLE_RT_TRY(run());
  return writesRanges ? heddle_rt_ranges_write(rank.context, nullptr)
                      : HEDDLE_RT_OK;
}

/// Runs the step, with the fault that --inject or --inject-inf asks for.
heddle_rt_status Trainer::stepOnce(int64_t number) {
  const Options &options = job.options;
  if (rank.rank != options.rank)
    return rank.step();
  if (number != options.injectInf)
    return stepWithFault(rank, options.fault, number,
                         [&] { return rank.step(); });
  return withInfinity(rank, [&] { return rank.step(); });
}

heddle_rt_status Trainer::setTokens(const std::string &name,
                                    const runtime::Input &input,
                                    const std::vector<int32_t> &whole,
                                    int32_t pad) {
  if (elementsOf(input.layout.shape) != int64_t(whole.size()))
    return runtime::invalid("tables.bin: input {} has shape [{}], expected {} "
                            "elements (global_batch x sequence_length)",
                            name, fmt::join(input.layout.shape, ", "),
                            whole.size());
  const Extents extents(tables.mesh, rank.rank, input.layout,
                        {input.layout.shape, {}});
  std::vector<int32_t> block(size_t(extents.blockElements()), pad);
  for (int64_t r = 0; r < extents.runCount(); ++r)
    extents.toBlock(r, whole.data() + extents.runStart(r), block.data());
  return rank.upload(input, block.data(), extents.blockElements() * 4);
}

std::vector<int32_t> Trainer::tokenNumbers() const {
  std::vector<int32_t> numbers(batch.tokens.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

uint64_t Trainer::dropoutSeed(int64_t step, int64_t layer) const {
  return random::dropoutSeed(uint64_t(tables.seed), step, layer);
}

heddle_rt_status Trainer::setLayerSeeds(const runtime::Input &input,
                                        int64_t step) {
  std::vector<uint64_t> seeds;
  for (int64_t layer :
       tables.layersAt(rank.stage, elementsOf(input.layout.local)))
    seeds.push_back(dropoutSeed(step, layer));
  if (seeds.empty()) // a stage without layers
    return HEDDLE_RT_OK;
  return rank.upload(input, seeds.data(), int64_t(seeds.size()) * 8);
}

heddle_rt_status Trainer::setInputs(const StepResult &result) {
  const auto correction = [&](double beta) {
    return float(1 / (1 - std::pow(beta, double(result.step - overflows))));
  };
  const auto [beta1, beta2] = tables.optimizer.betas;
  for (const auto &[name, input] : tables.inputs) {
    const auto scalar = [&](auto value) {
      return rank.upload(input, &value, sizeof value);
    };
    heddle_rt_status status = HEDDLE_RT_OK;
    if (name == "tokens")
      status = setTokens(name, input, batch.tokens, 0);
    else if (name == "labels")
      status = setTokens(name, input, batch.labels, -100);
    else if (name == "documents")
      // Tokens that are padding are of no document, so that none sees them.
      status = setTokens(name, input, batch.documents,
                         std::numeric_limits<int32_t>::min());
    else if (name == "positions")
      status = setTokens(name, input, batch.positions, 0);
    else if (name == "token_numbers")
      status = setTokens(name, input, tokenNumbers(), 0);
    else if (name == "dropout_seed")
      status = scalar(dropoutSeed(result.step, -1));
    else if (name == "layer_dropout_seeds")
      status = setLayerSeeds(input, result.step);
    else if (name == "loss_scale")
      status = scalar(float(result.lossScale));
    else if (name == "learning_rate")
      status = scalar(float(result.rate));
    else if (name == "step")
      status = scalar(int32_t(result.step));
    else if (name == "bias_correction1")
      status = scalar(correction(beta1));
    else if (name == "bias_correction2")
      status = scalar(correction(beta2));
    else
      status = runtime::invalid("tables.bin: there is nothing to fill input "
                                "'{}' with",
                                name);
    HEDDLE_RT_TRY(status);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Trainer::readOutputs(StepResult &result) {
  for (const auto &[name, output] : tables.outputs) {
    char raw[8] = {};
    HEDDLE_RT_TRY(rank.download(raw, output, bytesOf(output.dtype)));
    double value = 0;
    const auto as = [&]<class T>(T typed) {
      memcpy(&typed, raw, sizeof typed);
      return double(typed);
    };
    switch (output.dtype) {
    case HEDDLE_RT_F32:
      value = as(float());
      break;
    case HEDDLE_RT_F64:
      value = as(double());
      break;
    case HEDDLE_RT_I32:
      value = as(int32_t());
      break;
    case HEDDLE_RT_I64:
      value = as(int64_t());
      break;
    default:
      return runtime::invalid("tables.bin: output {} is no f32, f64, i32 or "
                              "i64",
                              name);
    }
    if (name == "loss")
      result.loss = value;
    if (name == "gradient_norm") {
      result.gradientNorm = value;
      result.hasNorm = true;
    }
    if (name == "count" && int64_t(value) != result.counted)
      return runtime::fail(HEDDLE_RT_CHECK_FAILED,
                           "step {}: the program counted {} labels, the data "
                           "has {}",
                           result.step, int64_t(value), result.counted);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Trainer::report(const StepResult &result) {
  progress.step(result);
  if (!log)
    return HEDDLE_RT_OK;
  const std::string line = logLine(result) + "\n";
  if (std::fputs(line.c_str(), log.get()) < 0 || std::fflush(log.get()) != 0)
    return runtime::invalid("{}: cannot write: {}", job.options.log,
                            strerror(errno));
  return HEDDLE_RT_OK;
}

/// Why training cannot go on, or "".
std::string Trainer::whyStopped(const StepResult &result) {
  if (result.counted == 0)
    return "";
  if (result.skipped && lossScale.skippedAtLeast() == kMostSkipped)
    return fmt::format("step {}: gradients overflowed in {} steps in a row at "
                       "the least loss scale {:g}; training stopped (a lower "
                       "learning rate or loss_scale.minimum may help)",
                       result.step, kMostSkipped, result.lossScale);
  if (result.skipped)
    return "";
  if (!std::isfinite(result.loss))
    return fmt::format("step {}: the loss is {}; training stopped (a lower "
                       "learning rate or clipping may help)",
                       result.step, result.loss);
  if (result.hasNorm && !std::isfinite(result.gradientNorm))
    return fmt::format("step {}: the norm of the gradients is {}; training "
                       "stopped, and no parameter was changed in this step (a "
                       "lower learning rate may help)",
                       result.step, result.gradientNorm);
  return "";
}

/// Each rank decides for itself from the same numbers.
heddle_rt_status Trainer::checkLossScale(int64_t step) {
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(
      rank.gather({std::bit_cast<int64_t>(lossScale.value()), overflows}, all));
  for (size_t i = 0; i < all.size(); i += 2)
    if (all[i] != all[0] || all[i + 1] != all[1])
      return runtime::fail(HEDDLE_RT_CHECK_FAILED,
                           "step {}: rank {} has loss scale {:g} behind {} "
                           "overflows, rank 0 has "
                           "{:g} behind {}",
                           step, i / 2, std::bit_cast<double>(all[i]),
                           all[i + 1], std::bit_cast<double>(all[0]), all[1]);
  return HEDDLE_RT_OK;
}

heddle_rt_status Trainer::checkResult(const StepResult &result) {
  if (const std::string why = whyStopped(result); !why.empty()) {
    // Not before the first rank has written its line of the log.
    HEDDLE_RT_TRY(rank.barrier());
    common = true;
    return runtime::fail(HEDDLE_RT_CHECK_FAILED, "{}", why);
  }
  const int64_t every = job.options.replicaCheck;
  if (every == 0 || result.step % every != 0)
    return HEDDLE_RT_OK;
  heddle_rt_status status = checkReplicas(rank, result.step);
  if (status == HEDDLE_RT_OK && scalesLoss)
    status = checkLossScale(result.step);
  return checked(status);
}

heddle_rt_status Trainer::dump(const StepResult &result) {
  const auto scalar = [](const char *name, TensorType type, auto value) {
    std::string bytes(sizeof value, 0);
    memcpy(bytes.data(), &value, sizeof value);
    return ScalarTensor{name, type, bytes};
  };
  std::vector<ScalarTensor> scalars = {
      scalar("loss", TensorType::F32, float(result.loss)),
      scalar("counted_labels", TensorType::I64, result.counted)};
  if (result.hasNorm)
    scalars.push_back(
        scalar("gradient_norm", TensorType::F32, float(result.gradientNorm)));
  return writeStates(
      rank, job.options.dump,
      {{"parameter", ""},
       {"master", "master."},
       {"gradient", "gradient.", result.lossScale > 0 ? result.lossScale : 1}},
      scalars);
}

} // namespace

heddle_rt_status trainRank(heddle_rt_context *context, const Job &job,
                           bool &common) {
  Rank rank(context, job.tables, job.numbers);
  HEDDLE_RT_TRY(rank.create());
  ranks::flightOf(context).setRole(int32_t(rank.stage));
  return Trainer(rank, job, common).run();
}

heddle_rt_status recordRank(heddle_rt_context *context, const Job &job) {
  Rank rank(context, job.tables, job.numbers);
  HEDDLE_RT_TRY(rank.create());
  HEDDLE_RT_TRY(rank.step());
  HEDDLE_RT_TRY(rank.synchronize());
  const std::string &path = job.options.trace;
  return heddle_rt_trace_write(context,
                               path.empty() ? "/dev/stdout" : path.c_str());
}

} // namespace heddle::train
