#include "tools/heddle/PlanSearch.h"

#include "tools/heddle/PlanReport.h"

#include "heddle/Planner/Verify.h"

#include <unistd.h>

using namespace heddle;
using namespace heddle::tool;

Result<void> SearchRequest::check() const {
  if (limit < 0)
    return Error{fmt::format("--limit: found {}, expected at least 0", limit)};
  constexpr std::int64_t mostTold = 1000;
  if (top < 1 || top > mostTold)
    return Error{
        fmt::format("--top: found {}, expected 1 to {}", top, mostTold)};
  return {};
}

Result<std::unique_ptr<PlanSearch>>
tool::readSearch(const Inputs &inputs, const SearchRequest &request) {
  PlanProblem problem = {inputs.model, *inputs.train, *inputs.cluster, {}};
  for (const std::string &text : request.demands) {
    Result<PlanDemand> demand = parseDemand(text);
    if (!demand)
      return Error{"--fix: " + demand.message()};
    problem.demands.push_back(std::move(*demand));
  }
  for (const std::string &text : request.pins) {
    Result<std::vector<PlanDemand>> demands = parsePin(text, problem.model);
    if (!demands)
      return Error{"--pin: " + demands.message()};
    problem.demands.insert(problem.demands.end(), demands->begin(),
                           demands->end());
  }
  Result<std::vector<std::string>> warnings = problem.check();
  if (!warnings)
    return warnings.error();
  for (const std::string &warning : *warnings)
    warn(warning);
  Result<StepTimes> times =
      StepTimes::of(problem.model, problem.train, problem.cluster);
  if (!times)
    return times.error();
  Result<StepTimes> slow = StepTimes::of(problem.model, problem.train,
                                         withSlowLink(problem.cluster));
  if (!slow)
    return slow.error();
  return std::make_unique<PlanSearch>(std::move(problem), std::move(*times),
                                      std::move(*slow));
}

Result<PlanAnswer> tool::runSearch(const PlanSearch &search,
                                   const SearchRequest &request) {
  SearchOptions options;
  options.top = static_cast<int>(request.top);
  if (request.limit > 0)
    options.mostPlans = request.limit;
  if (isatty(STDERR_FILENO))
    options.progress = [](double part) {
      fmt::print(stderr, "\rsearching: {:3.0f} %", 100 * part);
    };
  PlanAnswer answer = findPlans(search.problem, search.times, &search.slowLink,
                                search.memory, options);
  if (options.progress)
    fmt::print(stderr, "\r                \r");
  for (const CostedPlan &each : answer.best)
    if (Result<void> done = verifyPlan(search.problem, each, search.memory);
        !done)
      return done.error();
  return answer;
}

int tool::tellConflict(const PlanSearch &search, bool asJson) {
  const PlanConflict conflict =
      explainConflict(search.problem, search.times, search.memory);
  if (asJson)
    fmt::print("{}\n", conflictJson(conflict).dump());
  std::fflush(stdout);
  const std::vector<std::string> lines = conflict.lines();
  for (std::size_t i = 0; i < lines.size(); ++i)
    fmt::print(stderr, "{}{}\n", i == 0 ? "error: " : "  ", lines[i]);
  return kAnswerIsNo;
}
