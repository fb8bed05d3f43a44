//===- Run.cpp - heddle run: trains what compile wrote --------------------===//

#include "tools/heddle/Dry.h"
#include "tools/heddle/Elastic.h"
#include "tools/heddle/Layout.h"
#include "tools/heddle/Lives.h"

#include "heddle/Support/Files.h"

#include <algorithm>
#include <filesystem>

namespace cl = llvm::cl;
namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

static cl::SubCommand run("run", "trains an emitted program");
static cl::opt<std::string> folder(cl::Positional, cl::Required,
                                   cl::desc("DIR"), cl::sub(run));
static cl::opt<std::string>
    target("target", cl::value_desc("host or cuda"),
           cl::desc("which of the folder's programs; default: the one that is "
                    "there, host where both are"),
           cl::sub(run));
static cl::opt<bool> threads("threads",
                             cl::desc("ranks are threads of one process "
                                      "instead of MPI processes"),
                             cl::sub(run));
static cl::opt<bool> dry("dry", cl::desc("record instead of running"),
                         cl::sub(run));
static cl::opt<bool> asJson("json",
                            cl::desc("with --dry: one JSON object on "
                                     "stdout"),
                            cl::sub(run));

// Handed to the program as they are.
static cl::opt<std::string> data("data", cl::value_desc("file"),
                                 cl::desc("text, tokens (.bin) or sequences "
                                          "(.safetensors, .json)"),
                                 cl::sub(run));
static cl::opt<std::string> logPath("log", cl::value_desc("file"),
                                    cl::desc("a JSON line per step; default: "
                                             "DIR/log.jsonl"),
                                    cl::sub(run));
static cl::opt<std::string> weights("weights", cl::value_desc("file"),
                                    cl::desc("initial parameters"),
                                    cl::sub(run));
static cl::opt<std::string> save("save", cl::value_desc("file"),
                                 cl::desc("parameters after the last step"),
                                 cl::sub(run));
static cl::opt<std::string> dump("dump", cl::value_desc("file"),
                                 cl::desc("loss, gradients and parameters "
                                          "after the last step"),
                                 cl::sub(run));
static cl::opt<std::string>
    saveEvery("save-every", cl::value_desc("n or auto"),
              cl::desc("a checkpoint every n steps, or as often as loses "
                       "least"),
              cl::sub(run));
static cl::opt<std::string> checkpoints("checkpoints", cl::value_desc("folder"),
                                        cl::desc("default: DIR/checkpoints"),
                                        cl::sub(run));
static cl::opt<uint64_t> keep("keep", cl::value_desc("n"),
                              cl::desc("checkpoints that stay; default: 2"),
                              cl::sub(run));
static cl::opt<bool> resume("resume",
                            cl::desc("go on from the newest checkpoint that "
                                     "is whole"),
                            cl::sub(run));
static cl::opt<bool> anyOwner("any-owner",
                              cl::desc("take a folder of checkpoints that "
                                       "another user owns"),
                              cl::sub(run));
static cl::opt<uint64_t> steps("steps", cl::desc("default: the schedule's"),
                               cl::sub(run));
static cl::opt<uint64_t> replicaCheck("replica-check", cl::value_desc("n"),
                                      cl::desc("compare replicas every n "
                                               "steps"),
                                      cl::sub(run));
static cl::opt<uint64_t> sumCheck("sum-check", cl::value_desc("n"),
                                  cl::desc("in every nth step, sums over "
                                           "ranks against sums of parts"),
                                  cl::sub(run));
static cl::opt<uint64_t> replay("replay", cl::value_desc("n"),
                                cl::desc("run every nth step twice, and "
                                         "compare bit by bit"),
                                cl::sub(run));
static cl::opt<uint64_t> guard("guard", cl::value_desc("n"),
                               cl::desc("pass over at most n steps in a row "
                                        "whose gradients are no numbers, and "
                                        "name rank and tensor"),
                               cl::sub(run));
static cl::opt<uint64_t> normLimit("norm-limit", cl::value_desc("k"),
                                   cl::desc("stop where the norm of gradients "
                                            "is more than k times as usual"),
                                   cl::sub(run));
static cl::opt<uint64_t> tokenBytes("token-bytes", cl::value_desc("2 or 4"),
                                    cl::desc("of a .bin; default: by the "
                                             "vocabulary"),
                                    cl::sub(run));
static cl::opt<uint64_t> computeThreads("compute-threads", cl::value_desc("n"),
                                        cl::desc("threads of one rank"),
                                        cl::sub(run));
static cl::opt<bool> check("check",
                           cl::desc("checking mode: streams run late "
                                    "in a random order"),
                           cl::sub(run));
static cl::opt<std::string> ranges("ranges", cl::value_desc("folder"),
                                   cl::desc("with --check: the bytes that the "
                                            "last step of each rank touches"),
                                   cl::sub(run));
static cl::opt<std::string>
    timeline("timeline", cl::value_desc("folder"),
             cl::desc("when each piece of work of the last step ran, for "
                      "`heddle report --measured`"),
             cl::sub(run));
static cl::opt<uint64_t> seed("seed", cl::desc("of --check"), cl::sub(run));
static cl::opt<std::string> elastic(
    "elastic", cl::value_desc("command"),
    cl::desc("each start, the first too, takes as many ranks as this prints; "
             "where they are not DIR's, the best plan for them, with the same "
             "global batch, is searched and compiled below DIR/elastic; wants "
             "--save-every, --model, --cluster and --train"),
    cl::sub(run));
static cl::opt<std::string> modelPath("model", cl::value_desc("file"),
                                      cl::desc("of --elastic"), cl::sub(run));
static cl::opt<std::string> clusterPath("cluster", cl::value_desc("file"),
                                        cl::desc("of --elastic"), cl::sub(run));
static cl::opt<std::string> trainPath("train", cl::value_desc("file"),
                                      cl::desc("of --elastic"), cl::sub(run));
static cl::opt<uint64_t> hangLimit(
    "hang-limit", cl::init(60), cl::value_desc("seconds"),
    cl::desc("a step's ranks without progress for so long, or for five times "
             "as long as is usual, are ended; ten times as long outside of "
             "steps; 0: never; default: 60"),
    cl::sub(run));
static cl::opt<uint64_t>
    restarts("restarts", cl::value_desc("n"),
             cl::desc("with --save-every: how often a run that dies or hangs "
                      "is started again from its newest checkpoint; default: "
                      "0"),
             cl::sub(run));
static cl::opt<std::string>
    inject("inject", cl::value_desc("fault@step"),
           cl::desc("a fault, to see what becomes of it: --rank has it in that "
                    "step (train-host --help lists them)"),
           cl::sub(run));
static cl::opt<uint64_t> faultyRank("rank", cl::desc("of --inject; default: 0"),
                                    cl::sub(run));
static cl::opt<bool> testInit("test-init",
                              cl::desc("random biases and norm "
                                       "weights too"),
                              cl::sub(run));

/// What the program gets of the command line; where it is started again, it
/// goes on from a checkpoint.
static std::vector<std::string> passOn(bool startedAgain) {
  std::vector<std::string> arguments;
  if (startedAgain && !resume)
    arguments.push_back("--resume");
  // All programs of an elastic run have one log, and one folder.
  if (!elastic.empty())
    for (const auto &[option, name] : {std::pair(&logPath, "log.jsonl"),
                                       std::pair(&checkpoints, "checkpoints")})
      if (!option->getNumOccurrences())
        arguments.insert(arguments.end(),
                         {"--" + option->ArgStr.str(),
                          (fs::path(folder.getValue()) / name).string()});
  for (cl::opt<std::string> *option :
       {&data, &logPath, &weights, &save, &dump, &ranges, &saveEvery,
        &checkpoints, &inject})
    if (option->getNumOccurrences() && !(startedAgain && option == &weights))
      arguments.insert(arguments.end(),
                       {"--" + option->ArgStr.str(), option->getValue()});
  for (cl::opt<uint64_t> *option :
       {&steps, &replicaCheck, &sumCheck, &replay, &guard, &normLimit,
        &tokenBytes, &computeThreads, &seed, &keep, &faultyRank})
    if (option->getNumOccurrences())
      arguments.insert(arguments.end(), {"--" + option->ArgStr.str(),
                                         std::to_string(option->getValue())});
  for (cl::opt<bool> *option : {&check, &testInit, &resume, &anyOwner})
    if (*option)
      arguments.push_back("--" + option->ArgStr.str());
  return arguments;
}

Result<runtime::Tables> tool::readProgramTables(const std::string &path,
                                                const std::string &program) {
  std::error_code ignored;
  if (!fs::exists(fs::path(path) / program, ignored))
    return Error{fmt::format("{}: found no {}, expected a folder that "
                             "`heddle compile --target {}` wrote",
                             path, program,
                             program == "train-cuda" ? "cuda" : "host")};
  std::string tables = (fs::path(path) / "program" / "tables.bin").string();
  Result<std::string> bytes = readFile(tables);
  if (!bytes)
    return bytes.error();
  try {
    return runtime::decodeTables(*bytes);
  } catch (const runtime::TablesError &error) {
    return Error{fmt::format("{}: {}", tables, error.what())};
  }
}

/// "train-host" or "train-cuda".
static std::string programName() {
  std::error_code ignored;
  const fs::path in = folder.getValue();
  const bool onlyCuda = fs::exists(in / "train-cuda", ignored) &&
                        !fs::exists(in / "train-host", ignored);
  const bool cuda = target.empty() ? onlyCuda && !dry : target == "cuda";
  return cuda ? "train-cuda" : "train-host";
}

/// The command of one life: of DIR's program, or of one for as many ranks as
/// there are.
static Result<LifeCommand> makeCommand(int64_t ranks, bool resumes) {
  std::string at = folder;
  if (!elastic.empty()) {
    const Result<int64_t> counted = countRanks(elastic);
    if (!counted)
      return counted.error();
    if (*counted != ranks) {
      Result<std::string> found = programFor(
          *counted, folder, {elastic, modelPath, clusterPath, trainPath});
      if (!found)
        return found.error();
      at = *found;
      ranks = *counted;
    }
  }
  const std::string program = at == folder ? programName() : "train-host";
  auto command = rankCommand(fs::absolute(fs::path(at) / program).string(),
                             {ranks, threads}, passOn(resumes));
  if (!command)
    return command.error();
  return LifeCommand{std::move(*command), ranks};
}

/// That layout.json still says what the program does: whoever plans with it
/// (what a rank stores, what is read where a run goes on) is right then.
static Result<void> checkLayout(const runtime::Tables &tables) {
  const std::string path =
      (fs::path(folder.getValue()) / "layout.json").string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) // nobody plans with it then
    return {};
  const Result<std::string> text = readFile(path);
  if (!text)
    return text.error();
  const std::string own = layoutText(tables);
  if (*text == own)
    return {};
  const auto at =
      std::mismatch(own.begin(), own.end(), text->begin(), text->end());
  return Error{fmt::format(
      "{}:{}: is not the layout of the program beside it (program/tables.bin), "
      "by which checkpoints are written and read; compile it again",
      path, 1 + std::count(own.begin(), at.first, '\n'))};
}

/// Ranks write below --timeline's folder, which holds no other run's files.
static Result<void> askForTimes() {
  if (timeline.empty())
    return {};
  std::error_code error;
  fs::create_directories(timeline.getValue(), error);
  if (!error && !fs::is_empty(timeline.getValue(), error) && !error)
    return Error{fmt::format("--timeline: {} is not empty; name a new folder",
                             timeline.getValue())};
  if (error)
    return Error{fmt::format("--timeline: cannot use {}: {}",
                             timeline.getValue(), error.message())};
  setenv("HEDDLE_TIMELINE", fs::absolute(timeline.getValue()).c_str(), 1);
  return {};
}

static int train(const runtime::Tables &tables) {
  if (data.empty())
    return refuse(
        Error{"there is no data: give --data FILE (any text will do)"});
  if (!elastic.empty())
    if (auto right = checkElastic({elastic, modelPath, clusterPath, trainPath});
        !right)
      return refuse(right.error());
  if (resume || !saveEvery.empty())
    if (Result<void> right = checkLayout(tables); !right)
      return refuse(right.error());
  if (auto ok = askForTimes(); !ok)
    return refuse(ok.error());
  LivesOptions options;
  options.limits.step = double(hangLimit);
  options.record = (fs::path(folder.getValue()) / "flight.jsonl").string();
  std::error_code ignored;
  fs::remove(options.record, ignored); // of an earlier run
  if (!saveEvery.empty())
    options.checkpoints =
        checkpoints.empty()
            ? (fs::path(folder.getValue()) / "checkpoints").string()
            : checkpoints.getValue();
  options.restarts = int64_t(restarts);
  const auto make = [&](int64_t, bool resumes) {
    return makeCommand(tables.ranks(), resumes);
  };
  const Result<int> code = runLives(make, options);
  return code ? *code : refuse(code.error());
}

static int runRun() {
  if (seed.getNumOccurrences() && !check)
    return refuse(Error{"--seed is that of --check; training's is in the "
                        "training settings"});
  if (ranges.getNumOccurrences() && !check)
    return refuse(Error{"--ranges wants --check: only checking mode looks at "
                        "ranges"});
  if (!timeline.empty() && (check || dry || programName() == "train-cuda"))
    return refuse(Error{"--timeline wants a run on the host without --check "
                        "and --dry: only there times are measured"});
  if (restarts.getNumOccurrences() && saveEvery.empty())
    return refuse(Error{"--restarts wants --save-every: a run is started again "
                        "from a checkpoint"});
  if (!elastic.empty() && (saveEvery.empty() || modelPath.empty() ||
                           clusterPath.empty() || trainPath.empty()))
    return refuse(Error{"--elastic wants --save-every, --model, --cluster and "
                        "--train: a plan is searched from these"});
  if (asJson && !dry)
    return refuse(Error{"--json wants --dry; a run writes its log as JSON "
                        "lines (--log)"});
  if (!target.empty() && target != "host" && target != "cuda")
    return refuse(Error{fmt::format("--target: found '{}', expected host or "
                                    "cuda",
                                    target.getValue())});
  if (target == "cuda" && dry)
    return refuse(Error{"--dry records on the host: leave --target out"});
  if (target == "cuda" && !elastic.empty())
    return refuse(Error{"--elastic compiles for the host: leave --target out"});
  if (target == "cuda" && threads)
    return refuse(Error{"--threads: ranks on GPUs are processes, one per GPU"});
  Result<runtime::Tables> tables = readProgramTables(folder, programName());
  if (!tables)
    return refuse(tables.error());
  return dry ? runDry(folder, *tables, asJson) : train(*tables);
}

Command tool::runCommand() { return {&run, runRun}; }
