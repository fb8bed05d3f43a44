#include "tools/heddle/Dry.h"

#include "heddle/Support/Files.h"
#include "heddle/Support/Printable.h"
#include "tools/heddle/Folder.h"
#include "tools/heddle/Launch.h"
#include "tools/heddle/Memory.h"
#include "tools/heddle/Prediction.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

namespace {

/// What one rank recorded.
struct Recording {
  int64_t rank = 0;
  json trace;
  std::string error; ///< why there is no trace
  int code = kDone;
};

} // namespace

/// Every place on the other axes, at both ends of those that dp stands for.
static std::vector<int64_t> representativeRanks(const runtime::Tables &tables) {
  std::set<int64_t> ranks = {0};
  for (const auto &[axis, size] : tables.mesh) {
    std::set<int64_t> longer;
    for (int64_t before : ranks)
      for (int64_t place = 0; place < size; ++place)
        if ((axis != "dp" && !axis.starts_with("dp.")) || place == 0 ||
            place == size - 1)
          longer.insert(before * size + place);
    ranks = std::move(longer);
  }
  return {ranks.begin(), ranks.end()};
}

static void record(const std::string &program, const fs::path &scratch,
                   Recording &recording) {
  std::string rank = std::to_string(recording.rank);
  std::string path = (scratch / (rank + ".json")).string();
  Result<Outcome> outcome = execute(
      {program, "--dry", "--rank", rank, "--trace", path}, Capture::Both);
  if (!outcome || outcome->code != 0) {
    recording.error = outcome ? outcome->errors : outcome.message();
    recording.code =
        outcome && outcome->code <= kInternal ? outcome->code : kInternal;
    return;
  }
  Result<std::string> text = readFile(path);
  recording.trace = text ? json::parse(*text, nullptr, false) : json();
  if (recording.trace.is_object())
    return;
  recording.error = text ? path + ": no JSON object" : text.message();
  recording.code = kInternal;
}

/// Records all of them, as many at a time as there are cores.
static std::vector<Recording> recordAll(const std::string &program,
                                        const fs::path &scratch,
                                        const std::vector<int64_t> &ranks) {
  std::vector<Recording> recordings(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i)
    recordings[i].rank = ranks[i];
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < ranks.size(); i = next++)
      record(program, scratch, recordings[i]);
  };
  std::vector<std::thread> others;
  for (size_t i = 1;
       i < std::min<size_t>(std::thread::hardware_concurrency(), ranks.size());
       ++i)
    others.emplace_back(work);
  work();
  for (std::thread &other : others)
    other.join();
  return recordings;
}

/// The first communicator whose recorded members do not make the same
/// collectives, or, where all members are recorded, do not receive the messages
/// that they send; "" where all agree.
static std::string findDisagreement(const std::vector<Recording> &recordings) {
  struct Seen {
    int64_t rank;
    json communicator;
    int64_t members = 0;
    uint64_t messages = 0; ///< sent less received
  };
  std::map<std::string, Seen> all;
  for (const Recording &recording : recordings) {
    // A communicator is known by its axes, its group and how many of the same
    // came before.
    std::map<std::string, int> seen;
    for (const json &communicator : recording.trace["communicators"]) {
      std::string key = fmt::format("{} group {}", communicator["axis"].dump(),
                                    communicator["color"].dump());
      key += fmt::format(" number {}", seen[key]++);
      Seen &first = all.try_emplace(key, Seen{recording.rank, communicator})
                        .first->second;
      for (const char *field : {"size", "collectives", "hash"})
        if (first.communicator[field] != communicator[field])
          return fmt::format("communicator {}: ranks {} and {} make other "
                             "collectives ({} is {} and {})",
                             key, first.rank, recording.rank, field,
                             first.communicator[field].dump(),
                             communicator[field].dump());
      ++first.members;
      first.messages +=
          std::stoull(communicator["messages"].get<std::string>(), nullptr, 16);
    }
  }
  for (const auto &[key, one] : all)
    if (one.messages != 0 && one.communicator["size"] == one.members)
      return fmt::format("communicator {} of rank {}: not every message is "
                         "received as it is sent",
                         key, one.rank);
  return "";
}

/// How many of the recorded ranks do something else than those before: two are
/// alike when they make the same calls, and the same collectives in each
/// communicator. Offsets that only select data do not tell ranks apart.
static size_t countClasses(const std::vector<Recording> &recordings) {
  std::set<std::string> classes;
  for (const Recording &recording : recordings) {
    const json &trace = recording.trace;
    std::string key;
    for (const char *field :
         {"calls", "gemm_flops", "attention_flops", "axes", "allocations"})
      key += trace[field].dump() + "\n";
    for (const json &communicator : trace["communicators"])
      for (const char *field : {"axis", "hash", "messages"})
        key += communicator[field].dump() + "\n";
    classes.insert(key);
  }
  return classes.size();
}

/// arena_bytes and live_peak_bytes of memory.json: of a stage, of the fullest
/// one without.
static json readMemory(const std::string &folder,
                       std::optional<int64_t> stage = std::nullopt) {
  Result<std::string> text = readFile(fs::path(folder) / "memory.json");
  json document = text ? json::parse(*text, nullptr, false) : json();
  if (!document.is_object())
    return json::object();
  const json &classes = document.at("classes");
  if (classes.empty())
    return json::object();
  if (stage)
    return classes.at(size_t(*stage));
  return *std::max_element(classes.begin(), classes.end(),
                           [](const json &a, const json &b) {
                             return a.at("arena_bytes") < b.at("arena_bytes");
                           });
}

/// What lib/Cost said when the folder was made.
static json readPrediction(const std::string &folder) {
  Result<std::string> text = readFile(fs::path(folder) / "cost.json");
  json prediction = text ? json::parse(*text, nullptr, false) : json();
  if (prediction.is_object())
    return prediction;
  return {{"computed", false}, {"reason", "there is no cost.json"}};
}

/// The first figure of a recording that is not as lib/Cost predicted; "" if
/// none, or if nothing was predicted.
static std::string
firstMisprediction(const json &predicted, const std::string &folder,
                   const runtime::Tables &tables,
                   const std::vector<Recording> &recordings) {
  if (!predicted.value("computed", true))
    return "";
  for (const Recording &recording : recordings) {
    const int64_t stage = tables.stageOf(recording.rank);
    if (std::string why =
            tool::findMisprediction(predicted.at("places").at(size_t(stage)),
                                    recording.trace, readMemory(folder, stage));
        !why.empty())
      return fmt::format("rank {}: {}", recording.rank, why);
  }
  return "";
}

static json summarize(const std::string &folder, const runtime::Tables &tables,
                      const std::vector<Recording> &recordings) {
  json memory = readMemory(folder), predicted = readPrediction(folder);
  const bool isPredicted = predicted.value("computed", true);
  json ranks = json::array();
  for (const Recording &recording : recordings) {
    const json &trace = recording.trace;
    ranks.push_back({{"rank", recording.rank},
                     {"calls", trace["calls"]},
                     {"gemm_flops", trace["gemm_flops"]},
                     {"attention_flops", trace["attention_flops"]},
                     {"axes", trace["axes"]},
                     {"allocations", trace["allocations"]}});
  }
  return {{"ranks", tables.ranks()},
          {"classes", countClasses(recordings)},
          {"recorded", ranks},
          {"collectives_agree", true},
          {"as_predicted", isPredicted ? json(true) : json()},
          {"not_compared", isPredicted ? json() : predicted.at("reason")},
          {"arena_bytes", memory.value("arena_bytes", json())},
          {"live_peak_bytes", memory.value("live_peak_bytes", json())}};
}

static void printSummary(const json &summary) {
  const json &first = summary["recorded"].at(0);
  fmt::print("{} ranks, {} of them recorded, of {} class{}; collectives "
             "agree\n",
             summary["ranks"].dump(), summary["recorded"].size(),
             summary["classes"].dump(), summary["classes"] == 1 ? "" : "es");
  fmt::print("rank {}: {} calls, {} FLOPs in products, {} in attention\n",
             first["rank"].dump(), first["calls"].dump(),
             first["gemm_flops"].dump(), first["attention_flops"].dump());
  for (const auto &[axis, use] : first["axes"].items())
    fmt::print("  axis {}: {} calls, {} bytes sent\n", axis,
               use["calls"].dump(), use["bytes"].dump());
  for (const json &allocation : first["allocations"])
    fmt::print("  arena {}: {} bytes, touched up to {}\n",
               allocation["name"].get<std::string>(),
               allocation["bytes"].dump(), allocation["highest"].dump());
  fmt::print("memory.json: arena {} bytes, live at the peak {}\n",
             summary["arena_bytes"].dump(), summary["live_peak_bytes"].dump());
  if (summary["as_predicted"] == true)
    fmt::print("FLOPs, bytes sent and live peak are what lib/Cost says from "
               "model and plan alone\n");
  else
    fmt::print("nothing is compared with lib/Cost: {}\n",
               summary["not_compared"].get<std::string>());
}

/// The first arena whose last touched byte is not its end; "" if none.
static std::string findLooseArena(const runtime::Tables &tables,
                                  const std::vector<Recording> &recordings) {
  for (const Recording &recording : recordings) {
    int64_t bytes = 0, highest = 0;
    for (const json &allocation : recording.trace["allocations"]) {
      int64_t size = allocation["bytes"].get<int64_t>();
      for (const runtime::Arena &arena : tables.arenas)
        if (allocation["name"] == arena.name &&
            arena.bytesAt(tables.stageOf(recording.rank)) == size) {
          bytes += size;
          highest += allocation["highest"].get<int64_t>();
        }
    }
    if (highest != bytes)
      return fmt::format("rank {} touches memory up to byte {}, its arenas "
                         "have {}",
                         recording.rank, highest, bytes);
  }
  return "";
}

static int runRecordings(const std::string &folder,
                         const runtime::Tables &tables, bool asJson) {
  Result<ScratchFolder> scratch = ScratchFolder::create();
  if (!scratch)
    return refuse(scratch.error());
  std::string program = fs::absolute(fs::path(folder) / "train-host").string();
  std::vector<Recording> recordings =
      recordAll(program, scratch->path(), representativeRanks(tables));
  for (const Recording &recording : recordings)
    if (recording.code != kDone)
      return refuse(
          Error{fmt::format("rank {}: {}", recording.rank, recording.error)},
          recording.code);
  if (std::string why = findDisagreement(recordings); !why.empty())
    return refuse(Error{why}, kAnswerIsNo);
  if (std::string why = firstMisprediction(readPrediction(folder), folder,
                                           tables, recordings);
      !why.empty())
    return refuse(Error{why}, kAnswerIsNo);
  if (std::string why = findLooseArena(tables, recordings); !why.empty())
    warn(why);
  json summary = summarize(folder, tables, recordings);
  if (asJson)
    fmt::print("{}\n", summary.dump());
  else
    printSummary(summary);
  return kDone;
}

int tool::runDry(const std::string &folder, const runtime::Tables &tables,
                 bool asJson) {
  try {
    return runRecordings(folder, tables, asJson);
  } catch (const json::exception &error) {
    return refuse(Error{fmt::format("{}: memory.json, cost.json or what the "
                                    "program records has not the form that "
                                    "heddle writes: {}; compile again",
                                    folder, printable(error.what()))});
  }
}
