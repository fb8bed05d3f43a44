//===- Verify.cpp - heddle verify: is the plan the same step? -------------===//

#include "tools/heddle/Verify.h"

#include <algorithm>

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::tool;

static cl::SubCommand verify("verify", "a plan against one device");
static cl::opt<std::string> modelPath(cl::Positional, cl::Required,
                                      cl::desc("MODEL"), cl::sub(verify));
static cl::opt<std::string> planPath("plan", cl::Required,
                                     cl::value_desc("file"),
                                     cl::desc("plan.json"), cl::sub(verify));
static cl::opt<std::string>
    trainPath("train", cl::value_desc("file"),
              cl::desc("train.yaml; default: SGD, learning rate 0.1"),
              cl::sub(verify));
static cl::opt<bool> byInterpreter("interpret",
                                   cl::desc("the interpreter in fp64 instead "
                                            "of the emitted program"),
                                   cl::sub(verify));
static cl::opt<std::string>
    batchPath("batch", cl::value_desc("file"),
              cl::desc("sequences of one or more steps (.safetensors, .json); "
                       "default: random ones"),
              cl::sub(verify));
static cl::opt<std::string>
    weights("weights", cl::value_desc("file"),
            cl::desc("parameters (.safetensors, or a folder of them); default: "
                     "random ones"),
            cl::sub(verify));
static cl::opt<std::string> dumpFolder(
    "dump", cl::value_desc("folder"),
    cl::desc("where loss, gradients and parameters of both are kept"),
    cl::sub(verify));
static cl::opt<bool> bisect("bisect",
                            cl::desc("name the first phase that differs"),
                            cl::sub(verify));
static cl::opt<bool> processes("mpi",
                               cl::desc("ranks are MPI processes instead of "
                                        "threads"),
                               cl::sub(verify));
static cl::opt<uint64_t> seed("seed", cl::init(1),
                              cl::desc("of random parameters and sequences"),
                              cl::sub(verify));
static cl::opt<bool> asJson("json", cl::desc("one JSON object on stdout"),
                            cl::sub(verify));

/// Tokens of a sequence where neither settings nor batch say it.
static constexpr int64_t kLength = 32;

/// SGD with 0.1 on steps of the plan's size.
static TrainSettings makeSettings(const ModelConfig &model, const Plan &plan,
                                  const BatchFile *batch) {
  TrainSettings train;
  train.precision = {plan.precision.recipe};
  train.optimizer.kind = OptimizerKind::Sgd;
  train.optimizer.lr = 0.1;
  train.globalBatch = plan.globalBatch();
  train.sequenceLength = batch ? batch->length : kLength;
  if (!batch && model.maxPositions > 0)
    train.sequenceLength = std::min(kLength, model.maxPositions);
  return train;
}

/// Takes the given batch, or makes one.
static Result<void> setBatch(VerifyJob &job, std::optional<BatchFile> given) {
  if (!given) {
    job.batch = {job.train.globalBatch, job.train.sequenceLength,
                 interpret::makeTestBatch(job.train.globalBatch,
                                          job.train.sequenceLength,
                                          job.model.vocabulary, seed)};
    return {};
  }
  if (given->length != job.train.sequenceLength)
    return Error{
        fmt::format("{}: found sequences of {} tokens, expected the {} "
                    "of sequence_length in {}",
                    batchPath.getValue(), given->length,
                    job.train.sequenceLength, trainPath.getValue())};
  job.batch = std::move(*given);
  job.batchPath = batchPath;
  return checkBatch(job.batch, job.model.vocabulary, batchPath);
}

/// Reads everything; `code` is that of an error.
static Result<VerifyJob> makeJob(int &code) {
  code = kBadInput;
  Result<Inputs> inputs = readInputs({modelPath, "", trainPath, planPath});
  if (!inputs)
    return inputs.error();
  std::optional<BatchFile> batch;
  if (!batchPath.empty()) {
    Result<BatchFile> file = readBatch(batchPath);
    if (!file)
      return file.error();
    batch = std::move(*file);
  }
  if (!inputs->train)
    inputs->train =
        makeSettings(inputs->model, *inputs->plan, batch ? &*batch : nullptr);
  inputs->train->seed = int64_t(seed.getValue());
  code = kAnswerIsNo;
  Result<std::vector<std::string>> warnings = checkInputs(*inputs);
  if (!warnings)
    return warnings.error();
  for (const std::string &warning : *warnings)
    warn(warning);
  Result<Plan> one = oneDevicePlan(*inputs->plan, inputs->model);
  if (!one)
    return one.error();
  code = kBadInput;
  VerifyJob job{inputs->model, *inputs->train, *inputs->plan, *one,     {}, "",
                weights,       dumpFolder,     bisect,        processes};
  if (auto ok = setBatch(job, std::move(batch)); !ok)
    return ok.error();
  return job;
}

static int runVerify() {
  if (byInterpreter && processes)
    return refuse(Error{"--mpi: the interpreter has no processes; leave it or "
                        "--interpret out"});
  int code = kBadInput;
  Result<VerifyJob> job = makeJob(code);
  if (!job)
    return refuse(job.error(), code);
  VerifyResult result =
      byInterpreter ? verifyByInterpreter(*job) : verifyProgram(*job);
  if (auto *failure = std::get_if<VerifyFailure>(&result))
    return refuse(failure->error, failure->code);
  const VerifyAnswer &answer = std::get<VerifyAnswer>(result);
  constexpr unsigned kShown = 8;
  say(asJson, "{}", answer.describe(kShown));
  if (asJson)
    fmt::print("{}\n", answer.json());
  return answer.isEqual() ? kDone : kAnswerIsNo;
}

Command tool::verifyCommand() { return {&verify, runVerify}; }
