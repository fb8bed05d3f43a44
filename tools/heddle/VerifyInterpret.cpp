//===- VerifyInterpret.cpp - Plan and one device in the interpreter -------===//

#include "passes/Pipelines/Pipelines.h"
#include "tools/heddle/Diagnostics.h"
#include "tools/heddle/Verify.h"
#include "tools/heddle/Weights.h"

#include <filesystem>

using namespace heddle;
using namespace heddle::tool;
using interpret::Machine;
using transformer::StateKind;

static constexpr double kTolerance = 1e-9;

namespace {

/// One device, compiled as far as a reference needs, and how to run others
/// beside it.
class Bench {
public:
  explicit Bench(const VerifyJob &job) : job(job) {}

  Result<void> prepare() {
    auto module = compileUpTo(compiler.context, {job.model, job.train, job.one},
                              Phase::Autodiff);
    if (failed(module))
      return Error{compiler.errors()};
    reference = std::move(*module);
    return {};
  }

  /// A machine for a module, its parameters set.
  Result<Machine> start(mlir::ModuleOp module) {
    auto machine = Machine::create(module);
    if (failed(machine))
      return Error{compiler.errors()};
    if (!job.weights.empty()) {
      if (auto ok = loadParameters(*machine, job.weights); !ok)
        return ok.error();
    } else if (failed(interpret::setTestParameters(*machine,
                                                   uint64_t(job.train.seed)))) {
      return Error{compiler.errors()};
    }
    return std::move(*machine);
  }

  Result<interpret::StepComparison> step(Machine &one, Machine &plan,
                                         int64_t number) {
    interpret::CompareOptions options;
    options.learningRate =
        learningRate(job.train.optimizer, job.train.schedule, number);
    options.firstStep = number;
    options.seed = uint64_t(job.train.seed);
    auto comparison = interpret::compareSteps(
        one, plan, job.batch.step(number, job.train.globalBatch), options);
    if (failed(comparison))
      return Error{compiler.errors()};
    return std::move(*comparison);
  }

  const VerifyJob &job;
  Compiler compiler;
  mlir::OwningOpRef<mlir::ModuleOp> reference;
};

} // namespace

/// Gradients are states of their own; the answer calls them as the parameter.
static void nameAsParameters(std::vector<interpret::Difference> &gradients) {
  constexpr std::string_view suffix = ".gradient";
  for (interpret::Difference &each : gradients)
    if (each.name.ends_with(suffix))
      each.name.resize(each.name.size() - suffix.size());
}

/// Copies what the answer says of the first step, and of the last one.
static void take(VerifyAnswer &answer, interpret::StepComparison &step) {
  if (answer.losses.empty()) {
    answer.norm = {step.norm, step.referenceNorm};
    answer.count = {double(step.count), double(step.referenceCount)};
    answer.gradients = std::move(step.gradients);
    nameAsParameters(answer.gradients);
  }
  answer.losses.push_back({step.loss, step.referenceLoss});
  answer.parameters = std::move(step.parameters);
  answer.faults = std::move(step.faults);
}

static Result<void>
dump(const VerifyJob &job, const std::string &who, Machine &machine,
     const char *what, const std::vector<StateKind> &kinds,
     const std::vector<std::pair<std::string, double>> &numbers) {
  if (job.dump.empty())
    return {};
  std::error_code error;
  std::filesystem::create_directories(job.dump, error);
  return saveStates(machine, kinds, numbers,
                    fmt::format("{}/{}{}.safetensors", job.dump, who, what));
}

/// No difference, for every parameter: what steps leave that are not run.
static std::vector<interpret::Difference> listUnchanged(Machine &machine) {
  std::vector<interpret::Difference> list;
  for (transformer::StateOp state : machine.getStates())
    for (int64_t layer = 0; state.getKind() == StateKind::Parameter &&
                            layer < machine.getCount(state);
         ++layer)
      list.push_back({interpret::getInstanceName(state, layer), 0, 0});
  return list;
}

/// All steps of both machines; the dumps.
static Result<VerifyAnswer> runSteps(Bench &bench, Machine &one,
                                     Machine &plan) {
  VerifyAnswer answer;
  answer.mode = "interpret";
  answer.lossTolerance = answer.gradientTolerance = answer.parameterTolerance =
      kTolerance;
  const VerifyJob &job = bench.job;
  for (int64_t number = 1; number <= job.steps(); ++number) {
    // Without a counted label a step is not run, as in training.
    if (countLabels(job.batch.step(number, job.train.globalBatch)) == 0) {
      if (number == 1)
        answer.gradients = answer.parameters = listUnchanged(one);
      answer.losses.push_back({});
      continue;
    }
    Result<interpret::StepComparison> step = bench.step(one, plan, number);
    if (!step)
      return step.error();
    take(answer, *step);
    if (number > 1)
      continue;
    for (auto [who, machine, isPlan] : {std::tuple("plan", &plan, true),
                                        std::tuple("reference", &one, false)})
      if (auto ok = dump(
              job, who, *machine, "", {StateKind::Gradient},
              {{"loss", isPlan ? step->loss : step->referenceLoss},
               {"counted_labels",
                double(isPlan ? step->count : step->referenceCount)},
               {"gradient_norm", isPlan ? step->norm : step->referenceNorm}});
          !ok)
        return ok.error();
  }
  for (auto [who, machine] :
       {std::pair("plan", &plan), std::pair("reference", &one)})
    if (auto ok =
            dump(job, who, *machine, ".parameters", {StateKind::Parameter}, {});
        !ok)
      return ok.error();
  return answer;
}

VerifyResult tool::verifyByInterpreter(const VerifyJob &job) {
  Bench bench(job);
  if (auto ok = bench.prepare(); !ok)
    return VerifyFailure{ok.error(), kAnswerIsNo};
  auto module = compileUpTo(bench.compiler.context,
                            {job.model, job.train, job.plan}, Phase::Overlap);
  if (failed(module))
    return VerifyFailure{Error{bench.compiler.errors()}, kAnswerIsNo};
  Result<Machine> one = bench.start(*bench.reference);
  if (!one)
    return VerifyFailure{one.error(), kBadInput};
  Result<Machine> plan = bench.start(**module);
  if (!plan)
    return VerifyFailure{plan.error(), kBadInput};
  Result<VerifyAnswer> answer = runSteps(bench, *one, *plan);
  if (!answer)
    return VerifyFailure{answer.error(), kInternal};
  if (job.bisect && !answer->isEqual()) {
    auto phase = findFirstDifferentPhase(job);
    if (auto *failure = std::get_if<VerifyFailure>(&phase))
      return *failure;
    answer->firstDifferentPhase = std::get<0>(phase);
  }
  return *answer;
}

std::variant<std::optional<std::string>, VerifyFailure>
tool::findFirstDifferentPhase(const VerifyJob &job) {
  Bench bench(job);
  if (auto ok = bench.prepare(); !ok)
    return VerifyFailure{ok.error(), kAnswerIsNo};
  std::optional<std::string> found;
  std::optional<Error> error;
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    if (phase < Phase::Autodiff || found || error)
      return;
    Result<Machine> one = bench.start(*bench.reference);
    Result<Machine> plan = bench.start(module);
    if (!one || !plan) {
      error = one ? plan.error() : one.error();
      return;
    }
    Result<interpret::StepComparison> step = bench.step(*one, *plan, 1);
    if (!step)
      error = step.error();
    else if (!step->isEqual(kTolerance))
      found = phaseName(phase);
  };
  auto module =
      compileUpTo(bench.compiler.context, {job.model, job.train, job.plan},
                  Phase::Overlap, observe);
  if (error)
    return VerifyFailure{*error, kInternal};
  if (failed(module))
    return VerifyFailure{Error{bench.compiler.errors()}, kAnswerIsNo};
  return found;
}
