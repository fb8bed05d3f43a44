//===- Plan.cpp - heddle plan: the best plans for a model and a cluster ---===//

#include "tools/heddle/Inputs.h"
#include "tools/heddle/PlanReport.h"

#include "heddle/Planner/Verify.h"
#include "heddle/Support/Files.h"

#include <unistd.h>

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::tool;

static cl::SubCommand plan("plan",
                           "the fastest plans that fit a cluster, and why");
static cl::opt<std::string> modelPath(cl::Positional, cl::Required,
                                      cl::desc("MODEL"), cl::sub(plan));
static cl::opt<std::string> clusterPath("cluster", cl::Required,
                                        cl::value_desc("file"),
                                        cl::desc("cluster.yaml"),
                                        cl::sub(plan));
static cl::opt<std::string> trainPath("train", cl::Required,
                                      cl::value_desc("file"),
                                      cl::desc("train.yaml"), cl::sub(plan));
static cl::opt<std::string> output("o", cl::value_desc("file"),
                                   cl::desc("where plan.json of the best plan "
                                            "is written"),
                                   cl::sub(plan));
static cl::opt<unsigned> top("top", cl::init(5), cl::value_desc("K"),
                             cl::desc("different plans to tell; default 5"),
                             cl::sub(plan));
static cl::list<std::string>
    fixed("fix", cl::value_desc("CHOICE=VALUE[,VALUE...]"),
          cl::desc("demand a choice (tp=8), or forbid it (zero!=3); may be "
                   "given several times"),
          cl::sub(plan));
static cl::opt<std::int64_t>
    limit("limit", cl::init(500000), cl::value_desc("N"),
          cl::desc("stop after N plans and tell the gap to the best possible; "
                   "default 500000; 0: search all"),
          cl::sub(plan));
static cl::opt<bool> asJson("json", cl::desc("one JSON object on stdout"),
                            cl::sub(plan));

/// The demands, and what the files say.
static Result<PlanProblem> readProblem() {
  PlanProblem problem;
  for (const std::string &text : fixed) {
    Result<PlanDemand> demand = parseDemand(text);
    if (!demand)
      return Error{"--fix: " + demand.message()};
    problem.demands.push_back(std::move(*demand));
  }
  if (limit < 0)
    return Error{fmt::format("--limit: found {}, expected at least 0",
                             limit.getValue())};
  if (top < 1)
    return Error{"--top: found 0, expected at least 1"};
  Result<Inputs> inputs = readInputs({modelPath, clusterPath, trainPath, ""});
  if (!inputs)
    return inputs.error();
  problem.model = std::move(inputs->model);
  problem.train = *inputs->train;
  problem.cluster = *inputs->cluster;
  return problem;
}

static SearchOptions searchOptions() {
  SearchOptions options;
  options.top = static_cast<int>(top);
  if (limit > 0)
    options.mostPlans = limit;
  if (isatty(STDERR_FILENO))
    options.progress = [](double part) {
      fmt::print(stderr, "\rsearching: {:3.0f} %", 100 * part);
    };
  return options;
}

static int tellConflict(const PlanProblem &problem, const StepTimes &times,
                        const MemoryEstimator &memory) {
  const PlanConflict conflict = explainConflict(problem, times, memory);
  if (asJson)
    fmt::print("{}\n", conflictJson(conflict).dump());
  std::fflush(stdout);
  const std::vector<std::string> lines = conflict.lines();
  for (std::size_t i = 0; i < lines.size(); ++i)
    fmt::print(stderr, "{}{}\n", i == 0 ? "error: " : "  ", lines[i]);
  return kAnswerIsNo;
}

static Result<void> writeBest(const PlanProblem &problem,
                              const CostedPlan &best) {
  if (output.empty())
    return {};
  Result<AtomicFile> file = AtomicFile::create(output.getValue());
  if (!file)
    return file.error();
  if (Result<void> done =
          file->append(writePlan(planOf(best.point, problem.model)));
      !done)
    return done;
  return file->commit();
}

static int runPlan() {
  Result<PlanProblem> problem = readProblem();
  if (!problem)
    return refuse(problem.error());
  Result<std::vector<std::string>> warnings = problem->check();
  if (!warnings)
    return refuse(warnings.error());
  for (const std::string &warning : *warnings)
    warn(warning);
  Result<StepTimes> times =
      StepTimes::of(problem->model, problem->train, problem->cluster);
  Result<StepTimes> slow = StepTimes::of(problem->model, problem->train,
                                         withSlowLink(problem->cluster));
  if (!times || !slow)
    return refuse(times ? slow.error() : times.error());
  const MemoryEstimator memory(problem->model, problem->train,
                               problem->cluster);
  const SearchOptions options = searchOptions();
  const PlanAnswer answer =
      findPlans(*problem, *times, &*slow, memory, options);
  if (options.progress)
    fmt::print(stderr, "\r                \r");
  if (!answer.fits())
    return tellConflict(*problem, *times, memory);
  for (const CostedPlan &each : answer.best)
    if (Result<void> done = verifyPlan(*problem, each, memory); !done)
      return refuse(done.error(), kInternal);
  constexpr std::int64_t plansForRunnerUp = 2000;
  const std::vector<PlanDecision> decisions =
      decisionsOf(*problem, answer.best.front(), *times, memory,
                  plansForRunnerUp, answer.costed);
  if (Result<void> done = writeBest(*problem, answer.best.front()); !done)
    return refuse(done.error());
  const PlanReport report = {*problem, *times, memory, answer, decisions};
  if (asJson)
    fmt::print("{}\n", reportJson(report).dump());
  else
    printReport(report);
  return kDone;
}

Command tool::planCommand() { return {&plan, runPlan}; }
