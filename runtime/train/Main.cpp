#include "heddle/Runtime/Train.h"

#include "runtime/common/Ending.h"
#include "runtime/common/Launch.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"
#include "runtime/train/Guard.h"
#include "runtime/train/Trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>

using namespace heddle;
using namespace heddle::train;

namespace {

int exitCodeOf(heddle_rt_status status) {
  switch (status) {
  case HEDDLE_RT_OK:
    return 0;
  case HEDDLE_RT_CHECK_FAILED:
    return 1;
  case HEDDLE_RT_INVALID_ARGUMENT:
    return 2;
  default:
    return 3;
  }
}

/// Whether this process speaks for all: under a launcher, every one of them
/// sees the same bad option.
bool isSpeaker() { return runtime::launchedRank().value_or(0) == 0; }

/// Ends with the message. It is left for who started the ranks where it is not
/// told: a launcher may end the speaker before its turn.
int refuse(const std::string &message) {
  if (isSpeaker())
    fmt::print(stderr, "error: {}\n", message);
  runtime::recordEnding(2, isSpeaker() ? "" : message);
  return 2;
}

Result<runtime::Tables> readTables(const std::string &path) {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    return bytes.error();
  try {
    return runtime::decodeTables(*bytes);
  } catch (const runtime::TablesError &error) {
    return Error{fmt::format("{}: {}", path, error.what())};
  }
}

/// Everything that is read before a rank starts.
struct Prepared {
  Job job;
  std::unique_ptr<Data> data;
  std::unique_ptr<Weights> weights;
};

Result<void> prepare(Prepared &p) {
  const Options &options = p.job.options;
  Result<runtime::Tables> tables = readTables(options.tables);
  if (!tables)
    return tables.error();
  p.job.tables = std::move(*tables);
  // Beside the tables. Where there are none, the program says so if it needs
  // them.
  const std::filesystem::path numbers =
      std::filesystem::path(options.tables).replace_filename("numbers.bin");
  std::error_code ignored;
  if (std::filesystem::exists(numbers, ignored)) {
    Result<std::string> bytes = readFile(numbers.string());
    if (!bytes)
      return bytes.error();
    p.job.numbers = std::move(*bytes);
  }
  const runtime::Tables &t = p.job.tables;
  p.job.steps = options.steps      ? options.steps
                : t.schedule.steps ? t.schedule.steps
                                   : 1;
  if (options.dry) {
    if (options.rank >= t.ranks())
      return Error{fmt::format("--rank: found {}, expected less than the "
                               "program's {} ranks",
                               options.rank, t.ranks())};
    return {};
  }
  Result<std::unique_ptr<Data>> data = Data::open(
      options.data, {t.globalBatch, t.sequenceLength, t.vocabularySize,
                     uint64_t(t.seed), options.tokenBytes});
  if (!data)
    return data.error();
  p.data = std::move(*data);
  p.job.data = p.data.get();
  if (options.weights.empty())
    return {};
  Result<Weights> weights = Weights::open(options.weights);
  if (!weights)
    return weights.error();
  if (auto ok = weights->check(t); !ok)
    return ok;
  const std::vector<std::string> unused = weights->unused(t);
  if (!unused.empty() && isSpeaker())
    fmt::print(stderr,
               "note: {}: {} tensors are no parameters of this program: {}\n",
               options.weights, unused.size(), fmt::join(unused, ", "));
  p.weights = std::make_unique<Weights>(std::move(*weights));
  p.job.weights = p.weights.get();
  return {};
}

heddle_rt_options runtimeOptions(const Options &options) {
  heddle_rt_options o = {};
  o.compute_threads = int32_t(options.computeThreads);
  if (options.check) {
    o.mode = HEDDLE_RT_MODE_LATE;
    o.seed = uint64_t(options.seed);
    o.checking = HEDDLE_RT_CHOICE_ON;
  }
  return o;
}

int runThreads(const Job &job) {
  const ranks::RunResult result =
      ranks::runRanks(int(job.tables.ranks()), runtimeOptions(job.options),
                      [&](heddle_rt_context *context) {
                        bool common = false;
                        return trainRank(context, job, common);
                      });
  if (!result)
    fmt::print(stderr, "error: rank {}: {}\n", result.rank, result.message);
  return exitCodeOf(result.status);
}

/// Ends a rank that is a process. A failure that all ranks share is told once.
int endProcess(heddle_rt_context *context, heddle_rt_status status,
               bool common) {
  if (status == HEDDLE_RT_OK) {
    status = heddle_rt_finalize(context);
    if (status != HEDDLE_RT_OK)
      fmt::print(stderr, "error: {}\n", heddle_rt_last_error());
    return exitCodeOf(status);
  }
  const std::string why = heddle_rt_last_error();
  int32_t rank = 0, size = 1;
  heddle_rt_rank(context, &rank, &size);
  const int code = exitCodeOf(status);
  if (size == 1)
    fmt::print(stderr, "error: {}\n", why);
  else if (!common || rank == 0)
    heddle_rt_abort(context, code, why.c_str());
  heddle_rt_finalize(context);
  return code;
}

int runProcess(const Job &job) {
  heddle_rt_options options = runtimeOptions(job.options);
  if (job.options.dry) {
    options.mode = HEDDLE_RT_MODE_RECORD;
    options.rank = int32_t(job.options.rank);
    options.size = int32_t(job.tables.ranks());
  }
  heddle_rt_context *context = nullptr;
  if (heddle_rt_status status = heddle_rt_init(&options, &context)) {
    fmt::print(stderr, "error: {}\n", heddle_rt_last_error());
    return exitCodeOf(status);
  }
  bool common = false;
  const heddle_rt_status status = job.options.dry
                                      ? recordRank(context, job)
                                      : trainRank(context, job, common);
  return endProcess(context, status, common);
}

} // namespace

int heddle_train_main(int argc, char **argv) {
  Result<Options> options = parseOptions(argc, argv);
  if (!options)
    return refuse(options.message());
  if (options->help) {
    fmt::print("{}", usage());
    return 0;
  }
  if (!options->dry)
    guardRank();
  Prepared prepared;
  prepared.job.options = *options;
  if (auto ok = prepare(prepared); !ok)
    return refuse(ok.message());
  const int code = options->threads && !options->dry ? runThreads(prepared.job)
                                                     : runProcess(prepared.job);
  runtime::recordEnding(code);
  return code;
}
