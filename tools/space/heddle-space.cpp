// How large the space of plans is, and whether the search's answer is the best
// of plans drawn from it.
//
// Usage: heddle-space MODEL CLUSTER TRAIN [--fix CHOICE]... [--count]
// [--random N] [--verify N]
//
// --fix: what plans must have, as `heddle plan` takes it (tp=8, zero!=3).
// Without options: the search's answer and what it took. --count: all plans
// that fit, each once, whatever its cut into stages and however many layers it
// computes again; and N drawn ones go through verifyPlan (--verify, default
// 1000). --random: N plans drawn by a seed, each
// verified, costed by the full simulator and held against the answer.

#include "heddle/Planner/Sample.h"
#include "heddle/Planner/Verify.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <ctime>

using namespace heddle;

namespace {

constexpr int kDone = 0, kAnswerIsNo = 1, kBadInput = 2;

struct Options {
  std::vector<std::string> files; ///< model, cluster, train
  std::vector<PlanDemand> demands;
  bool counts = false;
  std::int64_t random = 0, verify = 1000;
};

Result<std::int64_t> numberOf(const std::string &option,
                              const std::string &text) {
  std::int64_t number = 0;
  const char *end = text.data() + text.size();
  const auto [at, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || at != end || number < 0)
    return Error{fmt::format("{}: found \"{}\", expected an integer of at "
                             "least 0",
                             option, text)};
  return number;
}

Result<Options> readOptions(int count, char **words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--count") {
      options.counts = true;
    } else if (word == "--fix") {
      Result<PlanDemand> demand =
          parseDemand(i + 1 < count ? words[++i] : std::string());
      if (!demand)
        return demand.error();
      options.demands.push_back(std::move(*demand));
    } else if (word == "--random" || word == "--verify") {
      if (i + 1 == count)
        return Error{word + ": expected a number behind it"};
      Result<std::int64_t> number = numberOf(word, words[++i]);
      if (!number)
        return number.error();
      (word == "--random" ? options.random : options.verify) = *number;
    } else if (word.starts_with("--")) {
      return Error{fmt::format("unknown option {}; options are --fix "
                               "CHOICE, --count, --random N, --verify N",
                               word)};
    } else {
      options.files.push_back(word);
    }
  }
  if (options.files.size() != 3)
    return Error{fmt::format("found {} files, expected three: config.json, "
                             "cluster.yaml, train.yaml",
                             options.files.size())};
  return options;
}

Result<PlanProblem> readProblem(const Options &options) {
  Result<ModelConfig> model =
      readModelConfig(std::filesystem::path(options.files[0]));
  if (!model)
    return model.error();
  Result<Cluster> cluster =
      readCluster(std::filesystem::path(options.files[1]));
  if (!cluster)
    return cluster.error();
  Result<TrainSettings> train =
      readTrainSettings(std::filesystem::path(options.files[2]));
  if (!train)
    return train.error();
  PlanProblem problem = {*model, *train, *cluster, options.demands};
  if (Result<std::vector<std::string>> checked = problem.check(); !checked)
    return checked.error();
  return problem;
}

double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

CostedPlan costed(const PlanPoint &point, const MemoryEstimator &memory) {
  CostedPlan plan;
  plan.point = point;
  if (auto peak = memory.peak(point))
    plan.peakBytes = peak->first;
  return plan;
}

PlanAnswer answerOf(const PlanProblem &problem, const StepTimes &times,
                    const MemoryEstimator &memory) {
  const double start = seconds();
  PlanAnswer answer = findPlans(problem, times, nullptr, memory);
  const SearchCounts &counts = answer.counts;
  fmt::print("search: {:.2f} s of CPU, {}; {} of {} meshes, {} of {} "
             "schedules, {} storages, {} plans bounded, {} simulated\n",
             seconds() - start, answer.isExact() ? "exact" : "no plan fits",
             counts.expandedMeshes, counts.meshes, counts.expandedSchedules,
             counts.schedules, counts.storages, counts.bounded,
             counts.evaluations);
  if (!answer.fits())
    return answer;
  const CostedPlan &best = answer.best.front();
  fmt::print("answer: {:.6f} s, {}\n", best.seconds, best.point.text());
  if (Result<StepTime> step = times.simulate(best.point)) {
    fmt::print("MFU {:.1f} %, {:.0f} tokens/s a device, peak {:.1f} GiB, "
               "bubble {:.1f} %; exposed",
               100 * step->mfu(), step->tokensPerSecondPerDevice(),
               static_cast<double>(best.peakBytes) / (1 << 30),
               100 * step->bubbleFraction);
    for (int axis = 0; axis < timeAxes; ++axis)
      fmt::print(" {} {:.3f} s", timeAxisName(static_cast<TimeAxis>(axis)),
                 step->axes[static_cast<std::size_t>(axis)].exposed);
    fmt::print("\n");
  }
  return answer;
}

/// All, and whether drawn ones are plans.
int count(const PlanProblem &problem, const MemoryEstimator &memory,
          std::int64_t verified) {
  std::int64_t all = 0, asked = 0, refused = 0;
  visitPlans(problem, memory, [&](const PlanPoint &) { ++all; });
  const PlanSampler sampler(problem, memory);
  std::mt19937_64 random(2);
  for (; asked < verified; ++asked) {
    const std::optional<PlanPoint> point = sampler.draw(random);
    if (!point)
      break;
    Result<void> done = verifyPlan(problem, costed(*point, memory), memory);
    if (!done && ++refused == 1)
      fmt::print("refused: {}: {}\n", point->text(), done.message());
  }
  fmt::print("space: {} plans fit; of {} drawn ones {} are refused\n", all,
             asked, refused);
  return refused ? kAnswerIsNo : kDone;
}

int holdAgainst(const PlanAnswer &answer, const PlanProblem &problem,
                const StepTimes &times, const MemoryEstimator &memory,
                std::int64_t number) {
  const PlanSampler sampler(problem, memory);
  std::mt19937_64 random(1);
  std::int64_t drawn = 0, faster = 0, refused = 0;
  double fastest = std::numeric_limits<double>::infinity();
  for (; drawn < number; ++drawn) {
    const std::optional<PlanPoint> point = sampler.draw(random);
    if (!point)
      break;
    if (Result<void> done = verifyPlan(problem, costed(*point, memory), memory);
        !done && ++refused == 1)
      fmt::print("refused: {}: {}\n", point->text(), done.message());
    Result<StepTime> step = times.simulate(*point);
    if (!step)
      continue;
    fastest = std::min(fastest, step->seconds);
    faster += !answer.fits() || step->seconds < answer.best.front().seconds;
  }
  fmt::print("random: {} plans that fit, {} refused, the fastest takes {:.6f} "
             "s; {} faster than the answer\n",
             drawn, refused, fastest, faster);
  return faster || refused ? kAnswerIsNo : kDone;
}

} // namespace

int main(int number, char **words) {
  Result<Options> options = readOptions(number, words);
  Result<PlanProblem> problem =
      options ? readProblem(*options) : options.error();
  Result<StepTimes> times =
      problem ? StepTimes::of(problem->model, problem->train, problem->cluster)
              : problem.error();
  if (!times) {
    fmt::print(stderr, "error: {}\n", times.message());
    return kBadInput;
  }
  const MemoryEstimator memory(problem->model, problem->train,
                               problem->cluster);
  const PlanAnswer answer = answerOf(*problem, *times, memory);
  int result = kDone;
  if (options->counts)
    result = count(*problem, memory, options->verify);
  if (options->random > 0)
    result = std::max(
        result, holdAgainst(answer, *problem, *times, memory, options->random));
  return result;
}
