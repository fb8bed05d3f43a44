//===- Report.cpp - heddle report: a plan as one page of pictures ---------===//

#include "tools/heddle/Report.h"

#include "tools/heddle/ExplainEstimate.h"
#include "tools/heddle/Measured.h"
#include "tools/heddle/PlanReport.h"

#include "heddle/Model/Parameters.h"
#include "heddle/Support/Files.h"

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

static cl::SubCommand report("report",
                             "one HTML page: timeline, schedule, memory, "
                             "search and sharding of a plan");
static cl::opt<std::string> modelPath(cl::Positional, cl::Required,
                                      cl::desc("MODEL"), cl::sub(report));
static cl::opt<std::string> clusterPath("cluster", cl::Required,
                                        cl::value_desc("file"),
                                        cl::desc("cluster.yaml"),
                                        cl::sub(report));
static cl::opt<std::string> trainPath("train", cl::Required,
                                      cl::value_desc("file"),
                                      cl::desc("train.yaml"), cl::sub(report));
static cl::opt<std::string> planPath("plan", cl::value_desc("file"),
                                     cl::desc("plan.json; default: the best "
                                              "that is found"),
                                     cl::sub(report));
static cl::opt<std::string> output("o", cl::Required, cl::value_desc("file"),
                                   cl::desc("where the page is written"),
                                   cl::sub(report));
static cl::opt<std::string>
    timelinePath("timeline", cl::value_desc("file"),
                 cl::desc("write the timeline for Perfetto too"),
                 cl::sub(report));
static cl::opt<std::string>
    measuredPath("measured", cl::value_desc("folder"),
                 cl::desc("with --plan: a step that `heddle run --timeline` "
                          "measured, drawn beside the estimate"),
                 cl::sub(report));
static cl::list<std::string>
    fixed("fix", cl::value_desc("CHOICE=VALUE[,VALUE...]"),
          cl::desc("demand a choice of the search, as `heddle plan` does"),
          cl::sub(report));
static cl::opt<std::int64_t>
    limit("limit", cl::init(SearchRequest{}.limit), cl::value_desc("N"),
          cl::desc("stop the search after N plans; default 500000; 0: search "
                   "all"),
          cl::sub(report));
static cl::opt<double> tokens("tokens", cl::value_desc("N"),
                              cl::desc("how long it takes to train N tokens"),
                              cl::sub(report));
static cl::opt<bool> asJson("json",
                            cl::desc("what the page is drawn from, as one JSON "
                                     "object on stdout"),
                            cl::sub(report));

/// The plan that is told: the user's, or the best.
static Result<PlanPoint> toldPlan(const Inputs &inputs,
                                  const PlanAnswer &answer) {
  if (!inputs.plan)
    return answer.best.front().point;
  Result<PlanPoint> point = pointOf(*inputs.plan, inputs.model);
  if (!point)
    return Error{"no times are known of this plan: " + point.message()};
  if (Result<void> fits = checkExtent(inputs, *point); !fits)
    return fits.error();
  return point;
}

static json foundJson(const PlanSearch &search, const PlanAnswer &answer) {
  const json all =
      reportJson({search.problem, search.times, search.memory, answer, {}});
  json plans = json::array();
  for (const json &plan : all["plans"])
    plans.push_back({{"text", plan["text"]},
                     {"step_seconds", plan["step_seconds"]},
                     {"head_room_bytes", plan["memory"]["head_room_bytes"]},
                     {"slow_link_step_seconds", plan["slow_link_step_seconds"]},
                     {"mfu", plan["mfu"]}});
  return {{"plans", std::move(plans)},
          {"front", all["front"]},
          {"search", all["search"]}};
}

/// Null where nothing is measured.
static Result<json> measuredOf(const PlanPoint &point, const json &estimate) {
  if (measuredPath.empty())
    return json();
  Result<MeasuredStep> step = readMeasured(measuredPath);
  if (!step)
    return step.error();
  return measuredJson(*step, point, estimate);
}

static Result<json> dataOf(const Inputs &inputs, const PlanSearch &search,
                           const PlanAnswer &answer, const PlanPoint &point,
                           const StepTimeline &timeline) {
  const Plan plan = inputs.plan ? *inputs.plan : planOf(point, inputs.model);
  Result<json> estimate =
      estimateJson(inputs, point, tokens, {true, search.problem.demands});
  if (!estimate)
    return estimate.error();
  Result<json> memory = memoryCurvesJson(timeline, point, search);
  if (!memory)
    return memory.error();
  Result<json> sharding = shardingJson(point, plan, inputs.model);
  if (!sharding)
    return sharding.error();
  Result<json> measured = measuredOf(point, *estimate);
  if (!measured)
    return measured.error();
  return json{{"model", inputs.model.name},
              {"parameters", parameterCount(inputs.model)},
              {"cluster", inputs.cluster->name},
              {"device", inputs.cluster->device.name},
              {"devices", inputs.cluster->devices()},
              {"sequence_length", inputs.train->sequenceLength},
              {"global_batch", inputs.train->globalBatch},
              {"plan", point.text()},
              {"is_given", inputs.plan.has_value()},
              {"not_compiled_yet", notCompiledYet(point, inputs.model)},
              {"estimate", std::move(*estimate)},
              {"found", foundJson(search, answer)},
              {"timeline", timelineJson(timeline)},
              {"memory", std::move(*memory)},
              {"measured", std::move(*measured)},
              {"sharding", std::move(*sharding)}};
}

static Result<void> writeFiles(const json &data, const StepTimeline &timeline) {
  Result<std::string> page = reportPage(data);
  if (!page)
    return page.error();
  if (Result<void> done = writeFile(output.getValue(), *page); !done)
    return done;
  if (timelinePath.empty())
    return {};
  const std::string trace = writeTimeline(timeline);
  return writeFile(timelinePath.getValue(),
                   data["measured"].is_null()
                       ? trace
                       : addMeasured(trace, data["measured"]));
}

/// The estimate's error, line by line.
static void tellMeasured(const json &measured) {
  if (measured.is_null())
    return;
  fmt::print("{:14} {:>12} {:>12} {:>8}\n", "", "predicted", "measured",
             "error");
  const auto seconds = [](const json &value) {
    return value.is_null() ? "-" : fmt::format("{:.4g} s", value.get<double>());
  };
  for (const json &kind : measured["kinds"])
    fmt::print(
        "{:14} {:>12} {:>12} {:>8}\n", kind["name"].get<std::string>(),
        seconds(kind["predicted_seconds"]), seconds(kind["measured_seconds"]),
        kind["error"].is_null()
            ? "-"
            : fmt::format("{:+.0f} %", 100 * kind["error"].get<double>()));
}

/// Of what was read and found; the exit code.
static int tellReport(const Inputs &inputs, const PlanSearch &search,
                      const PlanAnswer &answer) {
  Result<PlanPoint> point = toldPlan(inputs, answer);
  if (!point)
    return refuse(point.error(), kAnswerIsNo);
  Result<StepTimeline> timeline = search.times.timeline(*point);
  if (!timeline)
    return refuse(timeline.error(), kAnswerIsNo);
  Result<json> data = dataOf(inputs, search, answer, *point, *timeline);
  if (!data)
    return refuse(data.error(), kAnswerIsNo);
  if (Result<void> done = writeFiles(*data, *timeline); !done)
    return refuse(done.error());
  if (asJson)
    fmt::print("{}\n", data->dump());
  say(asJson, "{}: {}, {:.4g} s a step\n", output.getValue(), point->text(),
      timeline->seconds);
  if (!asJson)
    tellMeasured((*data)["measured"]);
  return kDone;
}

static int runReport() {
  const SearchRequest request = {{fixed.begin(), fixed.end()}, limit};
  if (Result<void> checked = request.check(); !checked)
    return refuse(checked.error());
  if (!measuredPath.empty() && planPath.empty())
    return refuse(
        Error{"--measured wants --plan: that of the program that ran"});
  if (tokens.getNumOccurrences() > 0)
    if (Result<void> checked = checkTokens(tokens); !checked)
      return refuse(checked.error());
  Result<Inputs> inputs =
      readInputs({modelPath, clusterPath, trainPath, planPath});
  if (!inputs)
    return refuse(inputs.error());
  Result<std::unique_ptr<PlanSearch>> search = readSearch(*inputs, request);
  if (!search)
    return refuse(search.error());
  Result<PlanAnswer> answer = runSearch(**search, request);
  if (!answer)
    return refuse(answer.error(), kInternal);
  if (!answer->fits() && !inputs->plan)
    return tellConflict(**search, false);
  return tellReport(*inputs, **search, *answer);
}

Command tool::reportCommand() { return {&report, runReport}; }
