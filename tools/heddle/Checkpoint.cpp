//===- Checkpoint.cpp - heddle checkpoint: what runs have saved -----------===//

#include "runtime/checkpoint/Convert.h"
#include "runtime/checkpoint/Reshard.h"
#include "tools/heddle/Command.h"
#include "tools/heddle/Dry.h"

#include "heddle/Support/Files.h"
#include "heddle/Support/SaveInterval.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

static cl::SubCommand sub("checkpoint",
                          "lists, checks and converts checkpoints");
static cl::opt<std::string> action(cl::Positional, cl::Required,
                                   cl::desc("ACTION"), cl::sub(sub));
static cl::list<std::string> paths(cl::Positional, cl::desc("PATH..."),
                                   cl::sub(sub));
static cl::opt<std::string> program("for", cl::value_desc("DIR"),
                                    cl::desc("the compiled program whose "
                                             "layout is meant"),
                                    cl::sub(sub));
static cl::opt<std::string> config("config", cl::value_desc("file"),
                                   cl::desc("export-hf: the config.json to put "
                                            "beside the weights"),
                                   cl::sub(sub));
static cl::opt<std::string> role("role", cl::value_desc("param or master"),
                                 cl::init("param"),
                                 cl::desc("export-hf: which numbers"),
                                 cl::sub(sub));
static cl::opt<uint64_t> ranks("ranks", cl::desc("interval: devices"),
                               cl::sub(sub));
static cl::opt<double> pauseSeconds("pause", cl::value_desc("seconds"),
                                    cl::desc("interval: of one checkpoint"),
                                    cl::sub(sub));
static cl::opt<uint64_t> interruptions("interruptions", cl::value_desc("n"),
                                       cl::desc("interval: seen so far"),
                                       cl::sub(sub));
static cl::opt<double> deviceHours("device-hours", cl::value_desc("hours"),
                                   cl::desc("interval: run so far, all devices "
                                            "added up"),
                                   cl::sub(sub));
static cl::opt<bool> asJson("json", cl::desc("one JSON object on stdout"),
                            cl::sub(sub));

static FileSystem &files() { return realFileSystem(); }

static uint64_t bytesOf(const Manifest &manifest) {
  uint64_t bytes = 0;
  for (const FileRecord &file : manifest.files)
    bytes += file.bytes;
  return bytes;
}

static std::string meshText(const Manifest &manifest) {
  std::string text;
  for (const auto &[axis, size] : manifest.mesh)
    if (size > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, size);
  return text.empty() ? "one rank" : text;
}

//===----------------------------------------------------------------------===//
// Looking
//===----------------------------------------------------------------------===//

static int listAll() {
  Result<std::vector<int64_t>> steps = listSteps(files(), paths[0]);
  if (!steps)
    return refuse(steps.error());
  json all = json::array();
  for (int64_t step : *steps) {
    Result<Checkpoint> found =
        Checkpoint::open(files(), paths[0] + "/" + stepFolder(step));
    json entry = {{"step", step}, {"readable", bool(found)}};
    if (found) {
      const Manifest &m = found->manifest();
      entry["bytes"] = bytesOf(m);
      entry["files"] = m.files.size();
      entry["profile"] = m.profile;
      entry["mesh"] = m.mesh;
      say(asJson, "step {:>10}  {:>14} bytes in {} files, {}, {}\n", step,
          bytesOf(m), m.files.size(), m.profile, meshText(m));
    } else {
      entry["why"] = found.message();
      say(asJson, "step {:>10}  not readable: {}\n", step, found.message());
    }
    all.push_back(std::move(entry));
  }
  if (steps->empty())
    say(asJson, "{}: no checkpoints\n", paths[0]);
  if (asJson)
    fmt::print("{}\n", json{{"checkpoints", all}}.dump());
  return kDone;
}

static int inspect(const Checkpoint &c) {
  const Manifest &m = c.manifest();
  say(asJson, "step {}, {} bytes in {} files, {}\n", m.step, bytesOf(m),
      m.files.size(), m.profile);
  say(asJson, "written by {} ({})\n", m.program.empty() ? "heddle" : m.program,
      meshText(m));
  say(asJson, "seed {}, next sample {}, {} interruptions so far\n",
      m.progress.seed, m.progress.nextSample, m.progress.interruptions);
  json tensors = json::array();
  for (const auto &[name, states] : m.tensors)
    for (const auto &[stateRole, state] : states) {
      tensors.push_back({{"name", name},
                         {"role", stateRole},
                         {"dtype", tensorTypeName(state.type)},
                         {"shape", state.shape},
                         {"extents", state.extents.size()}});
      say(asJson, "  {} {}: {} [{}], {} extents\n", name, stateRole,
          tensorTypeName(state.type), fmt::join(state.shape, ", "),
          state.extents.size());
    }
  if (asJson)
    fmt::print("{}\n", json{{"step", m.step},
                            {"id", m.id},
                            {"profile", m.profile},
                            {"mesh", m.mesh},
                            {"next_sample", m.progress.nextSample},
                            {"tensors", tensors}}
                           .dump());
  return kDone;
}

/// All files of one checkpoint, or of all in a folder.
static int verify() {
  Result<std::vector<int64_t>> steps = listSteps(files(), paths[0]);
  if (!steps)
    return refuse(steps.error());
  std::vector<std::string> folders;
  for (int64_t step : *steps)
    folders.push_back(paths[0] + "/" + stepFolder(step));
  if (folders.empty())
    folders = {paths[0]};
  int bad = 0;
  for (const std::string &folder : folders) {
    Result<Checkpoint> found = Checkpoint::open(files(), folder);
    Result<void> whole = found ? found->verify() : found.error();
    bad += !whole;
    if (whole)
      say(asJson, "{}: whole\n", folder);
    else
      fmt::print(stderr, "error: {}\n", whole.message());
  }
  if (asJson)
    fmt::print("{}\n",
               json{{"checked", folders.size()}, {"damaged", bad}}.dump());
  return bad ? kAnswerIsNo : kDone;
}

//===----------------------------------------------------------------------===//
// Other forms
//===----------------------------------------------------------------------===//

static int done(const Result<void> &result, const std::string &what) {
  if (!result)
    return refuse(result.error());
  say(asJson, "{}\n", what);
  return kDone;
}

/// The name under which a converted one is saved; makes the folder.
static Result<SaveName> target(const Manifest &from) {
  std::error_code error;
  std::filesystem::create_directories(paths[1], error);
  if (error)
    return Error{
        fmt::format("{}: cannot be made: {}", paths[1], error.message())};
  return SaveName{paths[1], newId(), from.step};
}

static int convert(const Checkpoint &from) {
  Result<SaveName> name = target(from.manifest());
  if (!name)
    return refuse(name.error());
  if (program.empty())
    return done(writeLogical(files(), from, *name), name->final());
  Result<runtime::Tables> tables = readProgramTables(program);
  if (!tables)
    return refuse(tables.error());
  return done(writeSharded(files(), from, *tables, *name), name->final());
}

static int exportFolder(const Checkpoint &from) {
  if (role != "param" && role != "master")
    return refuse(Error{fmt::format("--role: found '{}', expected param or "
                                    "master",
                                    role.getValue())});
  std::string text;
  if (!config.empty()) {
    Result<std::string> read = readFile(config.getValue());
    if (!read)
      return refuse(read.error());
    text = std::move(*read);
  }
  return done(exportHf(files(), from, paths[1], {role.getValue()}, text),
              paths[1]);
}

static int importFolder() {
  Result<Checkpoint> from = openHf(files(), paths[0]);
  if (!from)
    return refuse(from.error());
  Result<SaveName> name = target(from->manifest());
  if (!name)
    return refuse(name.error());
  return done(writeLogical(files(), *from, *name), name->final());
}

static int reshardPlan(const Checkpoint &from) {
  if (program.empty())
    return refuse(Error{"reshard-plan wants --for DIR, a compiled program"});
  Result<runtime::Tables> tables = readProgramTables(program);
  if (!tables)
    return refuse(tables.error());
  if (auto fits = checkFits(from.manifest(), *tables); !fits)
    return refuse(fits.error(), kAnswerIsNo);
  json all = json::array();
  for (int64_t rank = 0; rank < tables->ranks(); ++rank) {
    Result<ReadPlan> plan = planReads(from.manifest(), *tables, rank);
    if (!plan)
      return refuse(plan.error());
    std::map<int64_t, int64_t> bytes; // by file
    for (const Wanted &wanted : plan->wanted)
      for (const PieceReads &piece : wanted.pieces)
        for (const Read &read : piece.reads)
          bytes[read.extent->file] +=
              read.part.elements() * tensorTypeBytes(wanted.source->type);
    json sources = json::array();
    for (const auto &[file, count] : bytes)
      sources.push_back({{"file", from.manifest().files[size_t(file)].name},
                         {"bytes", count}});
    say(asJson, "rank {:>5} reads {:>14} bytes of {} files\n", rank,
        plan->bytes(), bytes.size());
    all.push_back(
        {{"rank", rank}, {"bytes", plan->bytes()}, {"sources", sources}});
  }
  if (asJson)
    fmt::print("{}\n", json{{"ranks", all}}.dump());
  return kDone;
}

static int interval() {
  if (ranks == 0 || !(pauseSeconds > 0) || deviceHours < 0)
    return refuse(Error{"interval wants --ranks N and --pause SECONDS, both "
                        "above 0"});
  const double mtbf =
      expectedMtbf(int64_t(ranks.getValue()), int64_t(interruptions.getValue()),
                   deviceHours * 3600);
  const double best = bestInterval(pauseSeconds, mtbf);
  say(asJson,
      "every {:.0f} s: a pause of {} s, an interruption expected every {:.0f} "
      "s\n",
      best, pauseSeconds.getValue(), mtbf);
  if (asJson)
    fmt::print("{}\n", json{{"interval_s", best}, {"mtbf_s", mtbf}}.dump());
  return kDone;
}

//===----------------------------------------------------------------------===//
// The command
//===----------------------------------------------------------------------===//

namespace {
struct Action {
  const char *name, *usage;
  size_t paths;
  int (*run)();                            ///< or
  int (*ofCheckpoint)(const Checkpoint &); ///< of that in the first path
};
} // namespace

static const Action kActions[] = {
    {"list", "ROOT", 1, listAll, nullptr},
    {"inspect", "CHECKPOINT", 1, nullptr, inspect},
    {"verify", "CHECKPOINT or ROOT", 1, verify, nullptr},
    {"convert", "CHECKPOINT ROOT [--for DIR]", 2, nullptr, convert},
    {"export-hf", "CHECKPOINT FOLDER [--role ROLE] [--config FILE]", 2, nullptr,
     exportFolder},
    {"import-hf", "FOLDER ROOT", 2, importFolder, nullptr},
    {"reshard-plan", "CHECKPOINT --for DIR", 1, nullptr, reshardPlan},
    {"interval", "--ranks N --pause SECONDS", 0, interval, nullptr}};

static int runCheckpoint() {
  std::string known;
  for (const Action &each : kActions) {
    known += fmt::format("\n  {} {}", each.name, each.usage);
    if (action != each.name)
      continue;
    if (paths.size() != each.paths)
      return refuse(
          Error{fmt::format("checkpoint {}: found {} paths, expected "
                            "{} {}",
                            each.name, paths.size(), each.name, each.usage)});
    if (each.run)
      return each.run();
    Result<Checkpoint> from = Checkpoint::open(files(), paths[0]);
    return from ? each.ofCheckpoint(*from) : refuse(from.error());
  }
  return refuse(Error{fmt::format("checkpoint: found '{}', expected one of{}",
                                  action.getValue(), known)});
}

Command tool::checkpointCommand() { return {&sub, runCheckpoint}; }
