//===- Explain.cpp - heddle explain: what a model and a plan are ----------===//

#include "tools/heddle/ExplainCost.h"
#include "tools/heddle/ExplainEstimate.h"
#include "tools/heddle/ExplainProgram.h"
#include "tools/heddle/ExplainSchedule.h"
#include "tools/heddle/FamilyLayout.h"
#include "tools/heddle/Inputs.h"
#include "tools/heddle/Memory.h"
#include "tools/heddle/Offload.h"

#include "heddle/Model/Parameters.h"
#include "heddle/Schedule/Timeline.h"
#include "heddle/Support/Files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

static cl::SubCommand
    explain("explain",
            "tensors of a model; layouts, stages and memory of a plan");
static cl::opt<std::string> modelPath(cl::Positional, cl::Required,
                                      cl::desc("MODEL"), cl::sub(explain));
static cl::opt<std::string> clusterPath("cluster", cl::value_desc("file"),
                                        cl::desc("cluster.yaml"),
                                        cl::sub(explain));
static cl::opt<std::string> trainPath("train", cl::value_desc("file"),
                                      cl::desc("train.yaml"), cl::sub(explain));
static cl::opt<std::string> planPath("plan", cl::value_desc("file"),
                                     cl::desc("plan.json"), cl::sub(explain));
static cl::opt<bool> showMemory("memory",
                                cl::desc("memory of the plan, every buffer"),
                                cl::sub(explain));
static cl::opt<std::string>
    timelinePath("timeline", cl::value_desc("file"),
                 cl::desc("write when slots of the schedule run, for Perfetto"),
                 cl::sub(explain));
static cl::opt<double>
    tokens("tokens", cl::value_desc("N"),
           cl::desc("tell how long it takes to train N tokens (15e12); "
                    "default: the steps of train.yaml, if it says"),
           cl::sub(explain));
static cl::opt<bool>
    decisions("decisions", cl::init(true),
              cl::desc("search the runner-up of each decision; default true, "
                       "seconds on thousands of devices"),
              cl::sub(explain));
static cl::opt<bool> asJson("json", cl::desc("one JSON object on stdout"),
                            cl::sub(explain));

namespace {

/// Everything that is told, text or JSON.
struct Explanation {
  Inputs inputs;
  std::vector<ParameterFamily> families;
  std::vector<FamilyLayout> layouts; ///< beside families; empty without a plan
  std::vector<NeutralKey> neutral;   ///< those that the config has
  std::vector<std::string> warnings;
  double flops = 0;
  std::int64_t sequences = 1, length = 0;
  std::optional<ProgramFacts> program;
  std::optional<json> cost;
  std::optional<ScheduleFacts> schedule;
  std::optional<json> estimate; ///< where there is a cluster, too
  std::optional<json> offload;  ///< the same
};

} // namespace

/// The neutral keys that the model's config file has.
static std::vector<NeutralKey> findNeutralKeys(const std::string &path) {
  std::filesystem::path file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    file /= "config.json";
  std::vector<NeutralKey> found;
  Result<Document> document = Document::read(file);
  if (!document) // cannot be: the model was read from it
    return found;
  for (const NeutralKey &key : neutralKeys())
    if (document->root().find(key.key))
      found.push_back(key);
  return found;
}

static Result<Explanation> explainInputs() {
  Result<Inputs> inputs =
      readInputs({modelPath, clusterPath, trainPath, planPath});
  if (!inputs)
    return inputs.error();
  Explanation e;
  e.inputs = std::move(*inputs);
  const ModelConfig &model = e.inputs.model;
  e.families = parameters(model);
  e.neutral = findNeutralKeys(modelPath);
  if (e.inputs.plan)
    for (const ParameterFamily &family : e.families) {
      Result<FamilyLayout> layout = familyLayout(*e.inputs.plan, model, family);
      if (!layout)
        return layout.error();
      e.layouts.push_back(std::move(*layout));
    }
  e.length =
      e.inputs.train ? e.inputs.train->sequenceLength : model.maxPositions;
  e.sequences = e.inputs.train ? e.inputs.train->globalBatch : 1;
  e.flops = modelFlopsPerStep(model, e.sequences, e.length);
  return e;
}

static json tensorsJson(const Explanation &e) {
  json tensors = json::array();
  for (std::size_t i = 0; i < e.families.size(); ++i) {
    const ParameterFamily &family = e.families[i];
    for (std::int64_t layer = 0; layer < family.layers; ++layer) {
      json tensor = {{"name", family.instanceName(layer)},
                     {"shape", family.file.shape},
                     {"logical_shape", family.shape},
                     {"letters", family.letters},
                     {"decay", family.decay},
                     {"initializer", initializerName(family.init.kind)}};
      if (!family.alias.empty())
        tensor["alias"] = family.alias;
      if (!e.layouts.empty())
        tensor["layout"] = {{"dims", e.layouts[i].dims},
                            {"local_shape", e.layouts[i].local}};
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

static json paddingJson(const Explanation &e) {
  json padding = json::object();
  auto padded = paddedSizes(*e.inputs.plan, e.inputs.model);
  for (const auto &[letter, size] : factorSizes(*e.inputs.plan, e.inputs.model))
    if (padded[letter] != size)
      padding[letter] = {{"size", size}, {"padded", padded[letter]}};
  return padding;
}

static void printJson(const Explanation &e) {
  json answer = {{"model", e.inputs.model.name},
                 {"family", familyName(e.inputs.model.family)},
                 {"parameters", parameterCount(e.inputs.model)},
                 {"flops",
                  {{"per_step", e.flops},
                   {"sequences", e.sequences},
                   {"sequence_length", e.length}}}};
  json neutral = json::object();
  for (const NeutralKey &key : e.neutral)
    neutral[std::string(key.key)] = key.reason;
  answer["neutral_keys"] = neutral;
  if (e.inputs.plan) {
    answer["mesh"] = meshOfPlan(*e.inputs.plan, e.inputs.model).axes;
    answer["padding"] = paddingJson(e);
  }
  answer["warnings"] = e.warnings;
  if (e.estimate)
    answer.update(*e.estimate);
  if (e.offload)
    answer["offload"] = *e.offload;
  if (e.cost)
    answer["cost"] = *e.cost;
  if (e.schedule)
    answer["schedule"] = scheduleJson(*e.schedule);
  if (e.program && !e.program->memory.empty())
    answer["memory"].update(
        memoryJson(e.program->memory, *e.inputs.plan, e.inputs.cluster));
  if (e.program) {
    answer["values"] = valuesJson(*e.program);
    answer["reshards"] = reshardsJson(*e.program);
  }
  answer["tensors"] = tensorsJson(e);
  fmt::print("{}\n", answer.dump());
}

static void printText(const Explanation &e) {
  const ModelConfig &model = e.inputs.model;
  fmt::print("{} ({}): {} parameters in {} layers\n", model.name,
             familyName(model.family), parameterCount(model), model.layers);
  fmt::print("{:.4g} FLOPs for {} sequence{} of {} tokens, forward and "
             "backward\n\n",
             e.flops, e.sequences, e.sequences == 1 ? "" : "s", e.length);
  fmt::print("{:52} {:>6} {:22} {:8}{}\n", "tensor", "layers", "shape", "decay",
             e.layouts.empty() ? "" : " factors and axes");
  for (std::size_t i = 0; i < e.families.size(); ++i) {
    const ParameterFamily &family = e.families[i];
    std::string layout;
    if (!e.layouts.empty()) {
      std::vector<std::string> letters = splitWords(family.letters);
      for (std::size_t dim = 0; dim < letters.size(); ++dim)
        layout += fmt::format(
            " {}={}{}", letters[dim], e.layouts[i].local[dim],
            e.layouts[i].dims[dim].empty()
                ? ""
                : fmt::format("({})", fmt::join(e.layouts[i].dims[dim], " ")));
    }
    fmt::print("{:52} {:>6} {:22} {:8}{}\n", family.name, family.layers,
               fmt::format("{}", fmt::join(family.file.shape, " x ")),
               family.decay ? "yes" : "no", layout);
    if (!family.alias.empty())
      fmt::print("  also {}\n", family.alias);
  }
  for (const NeutralKey &key : e.neutral)
    fmt::print("key {} changes nothing: {}\n", key.key, key.reason);
  if (e.inputs.plan) {
    const json padding = paddingJson(e);
    for (const auto &[letter, sizes] : padding.items())
      fmt::print("factor {} is padded from {} to {}\n", letter,
                 sizes["size"].dump(), sizes["padded"].dump());
  }
  if (e.program)
    printReshards(*e.program);
  if (e.schedule)
    printSchedule(*e.schedule);
  if (e.cost)
    printCost(*e.cost);
  if (e.program && !e.program->memory.empty())
    printMemory(e.program->memory, showMemory);
  if (e.offload)
    printOffload(*e.offload);
  if (e.estimate)
    printEstimate(*e.estimate);
}

/// Times and sizes on the cluster; a warning says why there are none.
static Result<void> estimate(Explanation &e, const PlanPoint &point) {
  Result<json> found = estimateJson(e.inputs, point, tokens, {decisions, {}});
  if (!found)
    return found.error();
  e.estimate = std::move(*found);
  return {};
}

/// A plan of what is not compiled yet has no program to look at. None: all of
/// it is compiled.
static Result<std::optional<PlanPoint>> onlyPlanned(const Inputs &inputs) {
  Result<PlanPoint> point = pointOf(*inputs.plan, inputs.model);
  if (!point && whyNotCompiled(inputs.model))
    return point.error();
  if (!point || notCompiledYet(*point, inputs.model).empty())
    return std::optional<PlanPoint>();
  if (!inputs.train || !inputs.cluster)
    return Error{
        fmt::format("not compiled yet: {}; --cluster and --train are "
                    "needed to estimate such a plan",
                    fmt::join(notCompiledYet(*point, inputs.model), ", "))};
  return std::optional(*std::move(point));
}

/// What of a plan that is not compiled can be asked without a program.
static Result<void> explainPoint(Explanation &e, const PlanPoint &point) {
  const Inputs &inputs = e.inputs;
  Result<std::vector<std::string>> warnings =
      checkTrainSettings(inputs.model, *inputs.train);
  if (!warnings)
    return warnings.error();
  e.warnings = *warnings;
  if (Result<void> fits = checkExtent(inputs, point); !fits)
    return fits;
  e.warnings.push_back(
      fmt::format("not compiled yet, so estimated only: {}",
                  fmt::join(notCompiledYet(point, inputs.model), ", ")));
  return estimate(e, point);
}

/// Compiles the plan. Without training settings: one step of sequences as long
/// as the model takes, and no figures of memory.
static Result<void> explainPlan(Explanation &e) {
  Result<std::optional<PlanPoint>> planned = onlyPlanned(e.inputs);
  if (!planned)
    return planned.error();
  if (*planned)
    return explainPoint(e, **planned);
  Inputs inputs = e.inputs;
  const bool isTrained = inputs.train.has_value();
  if (!isTrained) {
    inputs.train.emplace();
    inputs.train->sequenceLength = e.length;
    inputs.train->globalBatch = inputs.plan->globalBatch();
  }
  Result<std::vector<std::string>> warnings = checkInputs(inputs);
  if (!warnings)
    return warnings.error();
  if (isTrained)
    e.warnings = *warnings;
  e.cost = costJson(inputs.model, *inputs.train, *inputs.plan);
  Result<std::optional<ScheduleFacts>> schedule = findSchedule(inputs);
  if (!schedule)
    return schedule.error();
  e.schedule = std::move(*schedule);
  Result<ProgramFacts> program = findProgram(inputs, isTrained);
  if (!program)
    return program.error();
  e.program = std::move(*program);
  if (!e.program->memory.empty() && inputs.cluster)
    if (auto misfit = describeMisfit(e.program->memory, *inputs.cluster))
      e.warnings.push_back(*misfit);
  if (!isTrained || !inputs.cluster)
    return {};
  if (!inputs.plan->offload.saved.empty())
    if (Result<OffloadTime> time = offloadTimeOf(inputs))
      e.offload = offloadJson(*time);
  Result<PlanPoint> point = pointOf(*inputs.plan, inputs.model);
  Result<void> estimated =
      point ? estimate(e, *point) : Result<void>(point.error());
  if (!estimated)
    e.warnings.push_back("times are not estimated: " + estimated.message());
  return {};
}

static Result<void> writeTimelineOf(const Explanation &e) {
  if (timelinePath.empty())
    return {};
  if (!e.schedule)
    return Error{"--timeline wants a --plan with a schedule of stages: without "
                 "one there are no slots"};
  return writeFile(timelinePath.getValue(),
                   writeTimeline(e.schedule->table, e.schedule->timing()));
}

/// Options that ask for what was not given.
static Result<void> checkOptions() {
  if (showMemory && (planPath.empty() || trainPath.empty()))
    return Error{"--memory wants --plan and --train: there is no program "
                 "without them"};
  if (tokens.getNumOccurrences() == 0)
    return {};
  if (Result<void> checked = checkTokens(tokens); !checked)
    return checked;
  if (clusterPath.empty() || trainPath.empty() || planPath.empty())
    return Error{"--tokens wants --cluster, --train and --plan: without them "
                 "no step has a time"};
  return {};
}

static int runExplain() {
  if (Result<void> checked = checkOptions(); !checked)
    return refuse(checked.error());
  Result<Explanation> explanation = explainInputs();
  if (!explanation)
    return refuse(explanation.error());
  Explanation &e = *explanation;
  if (e.inputs.plan)
    if (Result<void> done = explainPlan(e); !done)
      return refuse(done.error(), kAnswerIsNo);
  if (Result<void> done = writeTimelineOf(e); !done)
    return refuse(done.error());
  for (const std::string &warning : e.warnings)
    warn(warning);
  asJson ? printJson(e) : printText(e);
  return kDone;
}

Command tool::explainCommand() { return {&explain, runExplain}; }
