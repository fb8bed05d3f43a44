#include "tools/heddle/Elastic.h"

#include "heddle/Support/Files.h"
#include "tools/heddle/Launch.h"
#include "tools/heddle/PlanSearch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <filesystem>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

static double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Result<int64_t> tool::countRanks(const std::string &counter) {
  const Result<Outcome> outcome = execute({"sh", "-c", counter}, Capture::Both);
  if (!outcome)
    return outcome.error();
  std::string text = outcome->output;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.pop_back();
  int64_t ranks = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), ranks);
  constexpr int64_t kMost = 1 << 20;
  if (outcome->code != 0 || error != std::errc() ||
      end != text.data() + text.size() || ranks < 1 || ranks > kMost)
    return Error{fmt::format("--elastic '{}': found exit code {} and '{}', "
                             "expected the number of ranks on stdout",
                             counter, outcome->code, text)};
  return ranks;
}

Result<void> tool::checkElastic(const ElasticInputs &paths) {
  const Result<Inputs> inputs =
      readInputs({paths.model, paths.cluster, paths.train, ""});
  if (!inputs)
    return inputs.error();
  const auto search = readSearch(*inputs, {{"cp=1"}, 1, 1});
  return search ? Result<void>() : search.error();
}

/// The best plan for so many of the cluster's devices.
static Result<Plan> searchPlan(int64_t ranks, const ElasticInputs &paths) {
  Result<Inputs> inputs =
      readInputs({paths.model, paths.cluster, paths.train, ""});
  if (!inputs)
    return inputs.error();
  Cluster &cluster = *inputs->cluster;
  if (ranks > cluster.devices())
    return Error{fmt::format("{}: has {} devices, found {} ranks; expected at "
                             "most as many",
                             paths.cluster, cluster.devices(), ranks)};
  // Whole nodes where they make it; else as one node, whose links are faster
  // than those between nodes.
  const bool wholeNodes = ranks % cluster.devicesPerNode == 0;
  cluster.nodes = wholeNodes ? ranks / cluster.devicesPerNode : 1;
  if (!wholeNodes)
    cluster.devicesPerNode = ranks;
  // What cannot be compiled yet is not asked for.
  const SearchRequest request = {{"cp=1"}, 500000, 1};
  Result<std::unique_ptr<PlanSearch>> search = readSearch(*inputs, request);
  if (!search)
    return search.error();
  Result<PlanAnswer> answer = runSearch(**search, request);
  if (!answer)
    return answer.error();
  if (!answer->fits()) {
    (void)tellConflict(**search, false);
    return Error{fmt::format("there is no plan for {} ranks", ranks)};
  }
  return planOf(answer->best.front().point, inputs->model);
}

/// What a program was planned and compiled from.
static Result<std::string> textsOf(const ElasticInputs &inputs) {
  std::string all;
  for (const std::string &path : {inputs.model, inputs.cluster, inputs.train}) {
    std::error_code ignored;
    const bool isFolder = fs::is_directory(path, ignored); // of a model
    const Result<std::string> text =
        readFile(isFolder ? (fs::path(path) / "config.json").string() : path);
    if (!text)
      return text.error();
    all += fmt::format("{} bytes\n{}", text->size(), *text);
  }
  return all;
}

Result<std::string> tool::programFor(int64_t ranks, const std::string &folder,
                                     const ElasticInputs &inputs) {
  const fs::path root = fs::path(folder) / "elastic";
  const fs::path program = root / fmt::format("{}-ranks", ranks);
  const std::string made =
      (root / fmt::format("{}-ranks.inputs", ranks)).string();
  const Result<std::string> texts = textsOf(inputs);
  if (!texts)
    return texts.error();
  std::error_code error;
  if (fs::exists(program / "train-host", error))
    if (const auto before = readFile(made); before && *before == *texts)
      return program.string();
  fs::remove(made, error);
  fs::create_directories(root, error);
  if (error)
    return Error{
        fmt::format("{}: cannot be made: {}", root.string(), error.message())};
  const double start = now();
  const Result<Plan> plan = searchPlan(ranks, inputs);
  if (!plan)
    return plan.error();
  const std::string planFile =
      (root / fmt::format("{}-ranks.json", ranks)).string();
  if (auto written = writeFile(planFile, writePlan(*plan)); !written)
    return written.error();
  const double planned = now();
  const Result<Outcome> outcome =
      execute({fs::read_symlink("/proc/self/exe", error).string(), "compile",
               inputs.model, "--cluster", inputs.cluster, "--train",
               inputs.train, "--plan", planFile, "-o", program.string()},
              Capture::Both);
  if (!outcome)
    return outcome.error();
  if (outcome->code != 0)
    return Error{
        fmt::format("{}: cannot be compiled: {}", planFile, outcome->errors)};
  if (auto written = writeFile(made, *texts); !written)
    return written.error();
  std::vector<std::string> axes;
  for (const char *axis : {"pp", "dp", "tp"})
    axes.push_back(fmt::format("{} {}", axis, plan->axisSize(axis)));
  fmt::print(stderr,
             "a program for {} ranks ({}): planned in {:.1f} s, compiled in "
             "{:.1f} s\n",
             ranks, fmt::join(axes, ", "), planned - start, now() - planned);
  return program.string();
}
