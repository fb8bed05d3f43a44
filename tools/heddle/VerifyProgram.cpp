//===- VerifyProgram.cpp - Plan and one device as emitted programs
//---------===//
//
// One after the other, each leaving its tensors in files, which are compared
// tensor by tensor: there are never two copies in memory.
//
//===----------------------------------------------------------------------===//

#include "tools/heddle/CompareFiles.h"
#include "tools/heddle/CompileProgram.h"
#include "tools/heddle/Folder.h"
#include "tools/heddle/Launch.h"
#include "tools/heddle/Verify.h"

#include "heddle/Support/Document.h"
#include "passes/Pipelines/Pipelines.h"

#include <filesystem>
#include <sstream>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

namespace {
/// `adamW`: of parameters after its step. It divides a gradient by its own
/// size: where an element is not far above epsilon, or its moments cancel, the
/// step has the element's relative error instead of the tensor's.
struct Tolerance {
  double loss, gradient, parameter, adamW;
};
} // namespace

/// DESIGN 8.
static constexpr Tolerance kFp32 = {1e-5, 1e-4, 1e-5, 1e-3};
/// 8 bits, in what the plan adds in another order, or rounds between kernels
/// where one device does not. Measured: 3e-6, 1.5e-2 and 1.1e-3 over 48 ways to
/// store one model over 8 ranks; up to 3.1e-2 of a gradient, and 2.9e-2 of
/// parameters after AdamW, in plans of tools/matrix.
static constexpr Tolerance kBf16 = {1e-3, 1e-1, 1e-2, 1e-1};
/// 11 bits. Measured over plans of tools/matrix: 4.5e-6, 4.7e-3, 8.5e-4, and
/// 9.8e-3 after AdamW.
static constexpr Tolerance kFp16 = {1e-4, 2e-2, 3e-3, 3e-2};
/// bf16 between products whose operands have 3 and 2 bits: where bf16 rounds
/// one way and not the other, a code is its neighbour, 1/8 or 1/4 away.
/// Measured on plans of dp, tp, sp, stages and ZeRO 3: 2.6e-5, 1.2e-1 and
/// 9.7e-3; with scales of blocks 1.1e-4, 6.0e-2 and 5.0e-3. On weights drawn
/// with a deviation of 0.1 and 0.3, and on 12 tokens, over tp: 3.7e-3, 2.7e-1
/// and 1.8e-2, with scales of blocks 6.6e-3, 2.6e-1 and 1.5e-2; of that 4.8e-4,
/// 5.0e-2 and 1.7e-3 are bf16's.
static constexpr Tolerance kFp8 = {2e-2, 4e-1, 5e-2, 4e-1};
/// The same of 1 bit: a neighbour is 1/4 to 1 away, and a gradient's code is it
/// as often as its number is far from it. Measured on plans of tp, sp, stages,
/// recompute and exceptions: 2.0e-5, 2.6e-1 and 1.7e-2; of dp, ZeRO and zb_h1,
/// whose products are those of one device, 1.3e-7, 1.0e-7 and 1.9e-8.
static constexpr Tolerance kNvfp4 = {2e-2, 8e-1, 1e-1, 8e-1};

static const Tolerance &toleranceOf(const PlanPrecision &precision) {
  return precision.recipe == "fp32"    ? kFp32
         : precision.recipe == "fp16"  ? kFp16
         : precision.recipe == "fp8"   ? kFp8
         : precision.recipe == "nvfp4" ? kNvfp4
                                       : kBf16;
}

/// A gradient below this part of the norm of all is rounding alone.
static constexpr double kNegligible = 1e-6;

namespace {

/// What an emitted program left.
struct Leftovers {
  fs::path first;      ///< dump of the first step
  fs::path parameters; ///< after the last step; `first` where there is one
  std::vector<double> losses;
  std::string fault; ///< of replicas; "" where they are equal
};

/// One of the two programs: built, run, asked.
class Side {
public:
  Side(const VerifyJob &job, const Plan &plan, const char *name,
       const fs::path &scratch, const std::string &batch)
      : job(job), plan(plan), name(name), batch(batch), folder(scratch / name),
        files(job.dump.empty() ? scratch : fs::path(job.dump)) {}

  std::optional<VerifyFailure> build();
  std::optional<VerifyFailure> run(Leftovers &left);

private:
  /// Runs some steps; what the program says on failure is the message.
  std::optional<VerifyFailure>
  runSteps(int64_t steps, const std::vector<std::string> &arguments,
           Leftovers &left);
  std::optional<VerifyFailure> start(std::vector<std::string> arguments,
                                     std::string &errors);

  const VerifyJob &job;
  const Plan &plan;
  std::string name, batch;
  fs::path folder, files;
};

} // namespace

static std::optional<VerifyFailure> fail(const Error &error, int code) {
  return VerifyFailure{error, code};
}

std::optional<VerifyFailure> Side::build() {
  Result<CompiledProgram> program = compileProgram(job.model, job.train, plan);
  if (!program)
    return fail(program.error(), kAnswerIsNo);
  std::error_code error;
  fs::create_directories(folder, error);
  if (auto ok = writeFile(folder / "tables.bin", program->text.tables); !ok)
    return fail(ok.error(), kBadInput);
  if (auto ok = writeFile(folder / "numbers.bin", program->text.numbers); !ok)
    return fail(ok.error(), kBadInput);
  if (auto ok = buildHost(program->text, folder / "train-host"); !ok)
    return fail(ok.error(), kInternal);
  return std::nullopt;
}

std::optional<VerifyFailure> Side::start(std::vector<std::string> arguments,
                                         std::string &errors) {
  Ranks ranks{plan.ranks(), !job.processes};
  Result<Outcome> outcome =
      launch((folder / "train-host").string(), ranks, arguments, Capture::Both);
  if (!outcome)
    return fail(outcome.error(), kBadInput);
  errors = outcome->errors;
  if (outcome->code == 0)
    return std::nullopt;
  std::string text = errors;
  if (size_t at = text.find("error: "); at != std::string::npos)
    text = text.substr(at + 7);
  while (!text.empty() && text.back() == '\n')
    text.pop_back();
  bool known = outcome->code == kAnswerIsNo || outcome->code == kBadInput;
  return fail(Error{fmt::format("the program of the {} ended with exit code "
                                "{}: {}",
                                name == "plan" ? "plan" : "one device",
                                outcome->code, text)},
              known ? outcome->code : kInternal);
}

/// The losses of a log of `run`. A step that was skipped has loss 0.
static Result<std::vector<double>> readLosses(const fs::path &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.error();
  std::vector<double> losses;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    Result<DocumentValue> value = parseJson(line, path.string());
    if (!value)
      return value.error();
    const DocumentValue *loss = value->find("loss");
    losses.push_back(loss ? loss->number : 0);
  }
  return losses;
}

std::optional<VerifyFailure>
Side::runSteps(int64_t steps, const std::vector<std::string> &arguments,
               Leftovers &left) {
  fs::path log = folder / "log.jsonl";
  std::vector<std::string> all = {"--batch", batch,
                                  "--log",   log.string(),
                                  "--steps", std::to_string(steps)};
  if (job.weights.empty())
    all.push_back("--test-init");
  else
    all.insert(all.end(), {"--weights", job.weights});
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<std::string> checked = all;
  checked.insert(checked.end(), {"--replica-check", std::to_string(steps)});
  std::string errors;
  auto failure = start(checked, errors);
  if (failure && errors.find("the copies of") != std::string::npos) {
    left.fault = failure->error.message;
    failure = start(all, errors); // the rest is wanted nevertheless
  }
  if (failure)
    return failure;
  Result<std::vector<double>> losses = readLosses(log);
  if (!losses)
    return fail(losses.error(), kInternal);
  left.losses = *losses;
  return std::nullopt;
}

std::optional<VerifyFailure> Side::run(Leftovers &left) {
  left.first = files / (name + ".safetensors");
  left.parameters = files / (name + ".parameters.safetensors");
  std::vector<std::string> dump = {"--dump", left.first.string()};
  std::vector<std::string> save = {"--save", left.parameters.string()};
  if (job.steps() > 1) {
    if (auto failure = runSteps(1, dump, left))
      return failure;
    return runSteps(job.steps(), save, left);
  }
  // The dump has the parameters too; who asks for files gets them apart.
  if (job.dump.empty())
    left.parameters = left.first;
  else
    dump.insert(dump.end(), save.begin(), save.end());
  return runSteps(1, dump, left);
}

namespace {
/// The files of both sides, mapped.
struct Mapped {
  SafetensorsFile plan, reference;

  static Result<Mapped> open(const fs::path &plan, const fs::path &reference) {
    Result<SafetensorsFile> a = SafetensorsFile::open(plan);
    if (!a)
      return a.error();
    Result<SafetensorsFile> b = SafetensorsFile::open(reference);
    if (!b)
      return b.error();
    return Mapped{std::move(*a), std::move(*b)};
  }
  Result<Pair> scalar(const char *name) const {
    Result<double> a = readScalar(plan, name);
    Result<double> b = readScalar(reference, name);
    if (!a || !b)
      return a ? b.error() : a.error();
    return Pair{*a, *b};
  }
};
} // namespace

static Result<void> compareFirst(const Mapped &first, VerifyAnswer &answer) {
  Result<std::vector<interpret::Difference>> gradients =
      compareFiles(first.reference, first.plan, TensorKind::Gradient);
  if (!gradients)
    return gradients.error();
  answer.gradients = std::move(*gradients);
  for (auto [name, to] : {std::pair("gradient_norm", &answer.norm),
                          std::pair("counted_labels", &answer.count)}) {
    Result<Pair> pair = first.scalar(name);
    if (!pair)
      return pair.error();
    *to = *pair;
  }
  return {};
}

static Result<void> compareAll(const VerifyJob &job, const Leftovers &plan,
                               const Leftovers &one, VerifyAnswer &answer) {
  Result<Mapped> first = Mapped::open(plan.first, one.first);
  if (!first)
    return first.error();
  if (auto ok = compareFirst(*first, answer); !ok)
    return ok;
  Result<Mapped> last = Mapped::open(plan.parameters, one.parameters);
  if (!last)
    return last.error();
  Result<std::vector<interpret::Difference>> parameters =
      compareFiles(last->reference, last->plan, TensorKind::Parameter);
  if (!parameters)
    return parameters.error();
  answer.parameters = std::move(*parameters);
  if (job.train.optimizer.kind == OptimizerKind::AdamW)
    for (const std::string &name :
         findNegligible(first->reference, TensorKind::Gradient, kNegligible))
      answer.unjudged.insert({name, "master." + name});
  for (size_t i = 0; i < one.losses.size(); ++i)
    answer.losses.push_back({plan.losses[i], one.losses[i]});
  if (!plan.fault.empty())
    answer.faults.push_back(plan.fault);
  return {};
}

VerifyResult tool::verifyProgram(const VerifyJob &job) {
  Result<ScratchFolder> scratch = ScratchFolder::create();
  if (!scratch)
    return VerifyFailure{scratch.error(), kBadInput};
  if (!job.dump.empty()) {
    std::error_code error;
    fs::create_directories(job.dump, error);
    if (error)
      return VerifyFailure{Error{fmt::format("{}: cannot make the folder: {}",
                                             job.dump, error.message())},
                           kBadInput};
  }
  std::string batch = job.batchPath;
  if (batch.empty()) {
    batch = (scratch->path() / "batch.safetensors").string();
    if (auto ok = writeBatch(job.batch.whole, batch); !ok)
      return VerifyFailure{ok.error(), kBadInput};
  }
  Leftovers left[2];
  const std::pair<const Plan *, const char *> sides[] = {
      {&job.plan, "plan"}, {&job.one, "reference"}};
  for (size_t i = 0; i < 2; ++i) {
    Side side(job, *sides[i].first, sides[i].second, scratch->path(), batch);
    if (auto failure = side.build())
      return *failure;
    if (auto failure = side.run(left[i]))
      return *failure;
  }
  VerifyAnswer answer;
  answer.mode = "program";
  const Tolerance &tolerance = toleranceOf(job.plan.precision);
  answer.lossTolerance = tolerance.loss;
  answer.gradientTolerance = tolerance.gradient;
  answer.parameterTolerance = job.train.optimizer.kind == OptimizerKind::AdamW
                                  ? tolerance.adamW
                                  : tolerance.parameter;
  if (auto ok = compareAll(job, left[0], left[1], answer); !ok)
    return VerifyFailure{ok.error(), kInternal};
  if (job.bisect && !answer.isEqual()) {
    auto phase = findFirstDifferentPhase(job);
    if (auto *failure = std::get_if<VerifyFailure>(&phase))
      return *failure;
    // What the interpreter runs is equal: it is the way to the program.
    answer.firstDifferentPhase =
        std::get<0>(phase).value_or(phaseName(Phase::Lowering));
  }
  return answer;
}
