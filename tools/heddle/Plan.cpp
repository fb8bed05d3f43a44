//===- Plan.cpp - heddle plan: the best plans for a model and a cluster ---===//

#include "tools/heddle/PlanReport.h"
#include "tools/heddle/PlanSearch.h"
#include "tools/heddle/Reasons.h"

#include "heddle/Support/Files.h"

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
static cl::opt<std::int64_t> top("top", cl::init(5), cl::value_desc("K"),
                                 cl::desc("different plans to tell; default 5"),
                                 cl::sub(plan));
static cl::list<std::string>
    fixed("fix", cl::value_desc("CHOICE=VALUE[,VALUE...]"),
          cl::desc("demand a choice (tp=8), or forbid it (zero!=3); may be "
                   "given several times"),
          cl::sub(plan));
static cl::list<std::string>
    pinned("pin", cl::value_desc("PARAMETER=replicated"),
           cl::desc("a parameter that is whole on each rank; may be given "
                    "several times"),
           cl::sub(plan));
static cl::opt<std::int64_t>
    limit("limit", cl::init(500000), cl::value_desc("N"),
          cl::desc("stop after N plans and tell the gap to the best possible; "
                   "default 500000; 0: search all"),
          cl::sub(plan));
static cl::opt<bool> asJson("json", cl::desc("one JSON object on stdout"),
                            cl::sub(plan));

static Result<void> writeBest(const PlanProblem &problem,
                              const CostedPlan &best) {
  if (output.empty())
    return {};
  return writeFile(output.getValue(),
                   writePlan(planOf(best.point, problem.model)));
}

static int runPlan() {
  const SearchRequest request = {
      {fixed.begin(), fixed.end()}, limit, top, {pinned.begin(), pinned.end()}};
  if (Result<void> checked = request.check(); !checked)
    return refuse(checked.error());
  Result<Inputs> inputs = readInputs({modelPath, clusterPath, trainPath, ""});
  if (!inputs)
    return refuse(inputs.error());
  Result<std::unique_ptr<PlanSearch>> found = readSearch(*inputs, request);
  if (!found)
    return refuse(found.error());
  const PlanSearch &search = **found;
  Result<PlanAnswer> answer = runSearch(search, request);
  if (!answer)
    return refuse(answer.error(), kInternal);
  if (!answer->fits())
    return tellConflict(search, asJson);
  const std::vector<PlanDecision> decisions =
      decisionsOf(search.problem, answer->best.front(), search.times,
                  search.memory, plansForRunnerUp, answer->ofChoices);
  if (Result<void> done = writeBest(search.problem, answer->best.front());
      !done)
    return refuse(done.error());
  const PlanReport report = {search.problem, search.times, search.memory,
                             *answer, decisions};
  if (asJson)
    fmt::print("{}\n", reportJson(report).dump());
  else
    printReport(report);
  return kDone;
}

Command tool::planCommand() { return {&plan, runPlan}; }
