//===- Compile.cpp - heddle compile: a plan => an emitted folder ----------===//

#include "tools/heddle/CompileProgram.h"
#include "tools/heddle/Folder.h"
#include "tools/heddle/Home.h"
#include "tools/heddle/Layout.h"
#include "tools/heddle/Memory.h"
#include "tools/heddle/Prediction.h"

#include "heddle/Cost/RankSizes.h"
#include "heddle/Support/Files.h"

#include <chrono>
#include <unistd.h>

namespace cl = llvm::cl;
namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

static cl::SubCommand compile("compile",
                              "everything from a plan up to the executables");
static cl::opt<std::string> modelPath(cl::Positional, cl::Required,
                                      cl::desc("MODEL"), cl::sub(compile));
static cl::opt<std::string> clusterPath("cluster", cl::Required,
                                        cl::value_desc("file"),
                                        cl::desc("cluster.yaml"),
                                        cl::sub(compile));
static cl::opt<std::string> trainPath("train", cl::Required,
                                      cl::value_desc("file"),
                                      cl::desc("train.yaml"), cl::sub(compile));
static cl::opt<std::string> planPath("plan", cl::value_desc("file"),
                                     cl::desc("plan.json"), cl::sub(compile));
static cl::opt<std::string> output("o", cl::Required, cl::value_desc("folder"),
                                   cl::desc("what is written"),
                                   cl::sub(compile));
static cl::list<std::string>
    targets("target", cl::CommaSeparated, cl::value_desc("host,cuda"),
            cl::desc("what to build for; default: host"), cl::sub(compile));
static cl::opt<bool> dumpIr("dump-ir", cl::desc("keep the IR of each phase"),
                            cl::sub(compile));
static cl::opt<bool> apart("apart",
                           cl::desc("nothing shares memory, so that what "
                                    "`run --ranges` writes tells objects "
                                    "apart"),
                           cl::sub(compile));
static cl::opt<bool> strict("strict", cl::desc("every warning is exit code 1"),
                            cl::sub(compile));

namespace {

/// Tells on a terminal what takes time, and how long it took.
class Clock {
public:
  double tell(const char *what) {
    auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last).count();
    if (isatty(STDERR_FILENO))
      fmt::print(stderr, "{:28} {:6.2f} s\n", what, seconds);
    last = now;
    return seconds;
  }

private:
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

struct Targets {
  bool host = false, cuda = false;
};

} // namespace

static Result<Targets> readTargets() {
  Targets found;
  for (const std::string &target : targets) {
    if (target != "host" && target != "cuda")
      return Error{
          fmt::format("--target: found '{}', expected host or cuda", target)};
    (target == "host" ? found.host : found.cuda) = true;
  }
  if (targets.empty())
    found.host = true;
  if (found.cuda)
    if (auto ok = checkCuda(); !ok)
      return ok.error();
  return found;
}

/// Everything that is wanted before work begins; the warnings are told.
static Result<Inputs> readAll(std::vector<std::string> &warnings, int &code) {
  code = kBadInput;
  if (planPath.empty())
    return Error{"--plan is missing; `heddle plan -o plan.json` (the planner) "
                 "makes one"};
  Result<Inputs> inputs =
      readInputs({modelPath, clusterPath, trainPath, planPath});
  if (!inputs)
    return inputs.error();
  Result<std::vector<std::string>> found = checkInputs(*inputs);
  code = kAnswerIsNo;
  if (!found)
    return found.error();
  warnings = *found;
  return inputs;
}

/// memory.json: what the reports say, and bytes in use by ranges.
static nlohmann::ordered_json memoryOf(const CompiledProgram &program,
                                       const Inputs &inputs) {
  auto document = memoryJson(program.memory, *inputs.plan, inputs.cluster);
  for (size_t stage = 0; stage < program.touched.size(); ++stage) {
    auto &touched = document["classes"][stage]["touched"];
    for (const lowering::TouchedBytes &one : program.touched[stage])
      touched.push_back({{"ranks", one.ranks},
                         {"peak_bytes", one.peak},
                         {"sum_bytes", one.sum}});
  }
  return document;
}

/// Fills the folder with everything but the executables.
static Result<void> writeTexts(const fs::path &folder, const Targets &wanted,
                               const Inputs &inputs,
                               const CompiledProgram &program) {
  std::string message;
  const lowering::FolderOptions options = {sourceRoot(), wanted.host,
                                           wanted.cuda, fmtInclude()};
  if (failed(lowering::writeProgram(program.text, (folder / "program").string(),
                                    options, message)))
    return Error{message};
  runtime::Tables tables;
  try {
    tables = runtime::decodeTables(program.text.tables);
  } catch (const runtime::TablesError &error) {
    return Error{fmt::format("internal error: tables.bin: {}", error.what())};
  }
  const std::pair<const char *, std::string> files[] = {
      {"plan.json", writePlan(*inputs.plan)},
      {"layout.json", layoutText(tables)},
      {"cost.json",
       predictCost(inputs.model, *inputs.train, *inputs.plan).dump(1) + "\n"},
      {"memory.json", memoryOf(program, inputs).dump(1) + "\n"}};
  for (const auto &[name, text] : files)
    if (auto ok = writeFile(folder / name, text); !ok)
      return ok;
  return {};
}

/// One line on what nvcc did; a kernel that spills is a warning.
static void tellCuda(const CudaBuild &built, double emission) {
  int64_t registers = 0;
  for (const CudaKernel &kernel : built.kernels) {
    registers = std::max(registers, kernel.registers);
    if (kernel.stackBytes + kernel.spillBytes > 0)
      warn(fmt::format("kernel {} spills {} bytes and has a stack frame of {}: "
                       "it will be slow",
                       kernel.name, kernel.spillBytes, kernel.stackBytes));
  }
  fmt::print("train-cuda: {} kernels, at most {} registers; plan to program "
             "{:.1f} s, nvcc {}\n",
             built.kernels.size(), registers, emission,
             built.nvccSeconds > 0 ? fmt::format("{:.1f} s", built.nvccSeconds)
                                   : "was not needed, the object was kept");
}

static Result<void> buildAll(const fs::path &folder, const Targets &wanted,
                             const CompiledProgram &program, Clock &clock,
                             double emission) {
  if (wanted.host) {
    if (auto ok = buildHost(program.text, folder / "train-host"); !ok)
      return ok;
    clock.tell("host compiler");
  }
  if (!wanted.cuda)
    return {};
  Result<CudaBuild> built = buildCuda(program.text, folder / "train-cuda");
  if (!built)
    return built.error();
  clock.tell("train-cuda");
  tellCuda(*built, emission);
  return writeFile(folder / "cuda.json",
                   cudaKernelsJson(built->kernels).dump(1) + "\n");
}

/// What programs for GPUs cannot do: cuBLASLt multiplies codes of 8 bits where
/// all sizes are multiples of 16, and scales of blocks of 128 numbers in fp32;
/// scales that are bytes it has on later architectures.
static Result<void> checkForCuda(const Inputs &inputs) {
  const PlanPrecision &precision = inputs.plan->precision;
  if (precision.recipe == "nvfp4")
    return Error{"--target cuda: precision recipe \"nvfp4\" wants products of "
                 "4 bits, which sm_90 has not; the host emulates them: use "
                 "--target host, or set precision.recipe to \"fp8\" or "
                 "\"bf16\""};
  const std::optional<ScalingRecipe> scaling = scalingOf(precision);
  if (scaling && scaling->blockScales != "fp32")
    return Error{fmt::format("--target cuda: precision.scaling \"{}\" has "
                             "scales of 8 bits, which Blackwell multiplies and "
                             "H100 does not; use --target host, or set it to "
                             "\"block_power_of_two\"",
                             precision.scaling)};
  constexpr std::int64_t kBlockLength = 128;
  if (scaling && scaling->blockLength > 0 &&
      scaling->blockLength != kBlockLength)
    return Error{fmt::format("--target cuda: precision.block_length is {}, but "
                             "H100 multiplies blocks of {} numbers; set it to "
                             "that, or use --target host",
                             scaling->blockLength, kBlockLength)};
  Result<RankSizes> sizes =
      rankSizes(inputs.model, *inputs.train, *inputs.plan);
  if (precision.scaling.empty() || !sizes)
    return {};
  const std::pair<const char *, int64_t> all[] = {
      {"tokens of a micro-batch", sizes->tokens()},
      {"hidden size", sizes->d},
      {"elements of query heads", sizes->g * sizes->r * sizes->k},
      {"elements of KV heads", sizes->g * sizes->k},
      {"ffn size", sizes->f}};
  for (const auto &[what, size] : all)
    if (size % 16 != 0)
      return Error{fmt::format(
          "--target cuda: products of precision recipe \"{}\" take sizes that "
          "are multiples of 16 there, found {} {} on a rank; change tp or "
          "micro_batch, use --target host, or set precision.recipe to \"bf16\"",
          precision.recipe, what, size)};
  return {};
}

static int runCompile() {
  Result<Targets> wanted = readTargets();
  if (!wanted)
    return refuse(wanted.error());
  int code = kBadInput;
  std::vector<std::string> warnings;
  Result<Inputs> inputs = readAll(warnings, code);
  if (!inputs)
    return refuse(inputs.error(), code);
  if (wanted->cuda)
    if (Result<void> checked = checkForCuda(*inputs); !checked)
      return refuse(checked.error(), kAnswerIsNo);
  Result<NewFolder> folder = NewFolder::create(output.getValue());
  if (!folder)
    return refuse(folder.error());
  std::string irFolder;
  if (dumpIr) {
    irFolder = (folder->path() / "ir").string();
    fs::create_directory(irFolder);
  }
  Clock clock;
  Result<CompiledProgram> program = compileProgram(
      inputs->model, *inputs->train, *inputs->plan, irFolder, apart);
  if (!program)
    return refuse(program.error(), kAnswerIsNo);
  const double emission = clock.tell("plan to program");
  if (auto misfit = describeMisfit(program->memory, *inputs->cluster))
    warnings.push_back(*misfit);
  for (const std::string &warning : warnings)
    warn(warning);
  if (strict && !warnings.empty())
    return refuse(
        Error{fmt::format("{} warning{}, and --strict was given; "
                          "nothing was written",
                          warnings.size(), warnings.size() == 1 ? "" : "s")},
        kAnswerIsNo);
  if (auto ok = writeTexts(folder->path(), *wanted, *inputs, *program); !ok)
    return refuse(ok.error(), kInternal);
  if (auto ok = buildAll(folder->path(), *wanted, *program, clock, emission);
      !ok)
    return refuse(ok.error(), kInternal);
  if (auto ok = folder->commit(); !ok)
    return refuse(ok.error());
  return kDone;
}

Command tool::compileCommand() { return {&compile, runCompile}; }
