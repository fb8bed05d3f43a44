#include "tools/heddle/Measured.h"

#include "tools/heddle/Report.h"

#include "heddle/Support/Files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

static bool isOptimizer(const MeasuredPiece &piece) {
  return piece.label.starts_with("gradient_norm:") ||
         piece.label.ends_with("_next") ||
         piece.label.ends_with("_next_rounded");
}

std::string_view MeasuredPiece::kind() const {
  if (operation == "collective")
    return track;
  if (operation == "gemm")
    return "products";
  if (operation.starts_with("attention"))
    return "attention";
  return isOptimizer(*this) ? "optimizer" : "memory_bound";
}

std::string MeasuredPiece::part() const {
  if (operation == "collective")
    return label;
  if (isOptimizer(*this))
    return label.starts_with("gradient_norm:") ? "norm" : "optimizer";
  static constexpr std::pair<std::string_view, std::string_view> parts[] = {
      {"attn", "attention"},  {"input_layernorm", "attention"},
      {"mlp", "mlp"},         {"post_attention_layernorm", "mlp"},
      {"embed", "embedding"}, {"lm_head", "head"},
      {"model.norm", "head"}, {"loss", "head"}};
  for (const auto &[word, name] : parts)
    if (label.find(word) != label.npos)
      return std::string(name);
  return operation.starts_with("attention") ? "attention" : label;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// A rank's file: its pieces in seconds of the machine's clock; an empty
/// optional where it is not what a rank writes.
static std::optional<std::vector<MeasuredPiece>>
piecesOf(const json &file, std::int64_t rank, std::int64_t size) {
  constexpr double nanoseconds = 1e9;
  if (!file.is_object() || file.value("version", json()) != 1 ||
      file.value("rank", json()) != rank ||
      file.value("size", json()) != size || !file.contains("pieces") ||
      !file["pieces"].is_array())
    return std::nullopt;
  std::vector<MeasuredPiece> pieces;
  for (const json &piece : file["pieces"]) {
    const bool right = piece.is_array() && piece.size() == 5 &&
                       piece[0].is_string() && piece[1].is_string() &&
                       piece[2].is_string() && piece[3].is_number_integer() &&
                       piece[4].is_number_integer();
    if (!right)
      return std::nullopt;
    pieces.push_back({piece[0], piece[1], piece[2],
                      piece[3].get<double>() / nanoseconds,
                      piece[4].get<double>() / nanoseconds});
    if (pieces.back().end < pieces.back().start)
      return std::nullopt;
  }
  return pieces;
}

static Result<json> readTimes(const std::string &folder, std::int64_t rank) {
  Result<std::string> text =
      readFile(fmt::format("{}/times.{}.json", folder, rank));
  if (!text)
    return text.error();
  return json::parse(*text, nullptr, false);
}

Result<MeasuredStep> tool::readMeasured(const std::string &folder) {
  constexpr std::int64_t mostRanks = 1 << 20;
  MeasuredStep step;
  double begin = 0, end = 0;
  for (std::int64_t rank = 0, size = 1; rank < size; ++rank) {
    Result<json> file = readTimes(folder, rank);
    if (!file)
      return file.error();
    if (rank == 0 && file->is_object() && file->contains("size") &&
        (*file)["size"].is_number_integer())
      size = std::clamp<std::int64_t>((*file)["size"], 1, mostRanks);
    const auto pieces = piecesOf(*file, rank, size);
    if (!pieces || pieces->empty())
      return Error{fmt::format(
          "{}/times.{}.json: is not what rank {} of a run writes of its last "
          "step; run again with `heddle run --timeline` and a new folder",
          folder, rank, rank)};
    const double first = pieces->front().start;
    begin = rank == 0 ? first : std::min(begin, first);
    for (const MeasuredPiece &piece : *pieces)
      end = std::max(end, piece.end);
    step.ranks.push_back(*pieces);
  }
  for (std::vector<MeasuredPiece> &rank : step.ranks)
    for (MeasuredPiece &piece : rank)
      piece.start -= begin, piece.end -= begin;
  step.seconds = end - begin;
  return step;
}

//===----------------------------------------------------------------------===//
// Beside the estimate
//===----------------------------------------------------------------------===//

static json kindJson(std::string_view name, std::optional<double> predicted,
                     double measured) {
  const bool comparable = predicted && measured > 0;
  return {{"name", name},
          {"predicted_seconds", predicted ? json(*predicted) : json()},
          {"measured_seconds", roundedSeconds(measured)},
          {"error", comparable ? json(*predicted / measured - 1) : json()}};
}

static json kindsJson(const MeasuredStep &step, const PlanPoint &point,
                      const json &estimate) {
  // Places over pp are neighbours of ranks: pp is the outermost axis.
  const std::int64_t ofPlace = point.ranks() / point.pp;
  const std::int64_t first =
      estimate["compute"]["place"].get<std::int64_t>() * ofPlace;
  std::map<std::string, double> measured;
  for (std::int64_t rank = first; rank < first + ofPlace; ++rank)
    for (const MeasuredPiece &piece :
         step.ranks[static_cast<std::size_t>(rank)])
      measured[std::string(piece.kind())] +=
          (piece.end - piece.start) / static_cast<double>(ofPlace);
  json kinds = json::array();
  const auto add = [&](const std::string &name, double predicted) {
    kinds.push_back(kindJson(name, predicted, measured[name]));
    measured.erase(name);
  };
  kinds.push_back(
      kindJson("step", estimate["step_seconds"].get<double>(), step.seconds));
  for (const auto &[name, seconds] : estimate["compute"]["seconds"].items())
    add(name, seconds);
  for (const auto &[axis, of] : estimate["communication"].items())
    add(axis, of["seconds"]);
  for (const auto &[name, seconds] : measured)
    kinds.push_back(kindJson(name, std::nullopt, seconds));
  return kinds;
}

static json placeJson(const std::vector<MeasuredPiece> &rank,
                      std::int64_t number) {
  json tracks = {"compute"}, pieces = json::array();
  for (const MeasuredPiece &piece : rank) {
    if (std::find(tracks.begin(), tracks.end(), piece.track) == tracks.end())
      tracks.push_back(piece.track);
    pieces.push_back({piece.track, piece.part(), piece.kind(), piece.label,
                      roundedSeconds(piece.start), roundedSeconds(piece.end)});
  }
  return {{"name", fmt::format("rank {}, measured", number)},
          {"tracks", std::move(tracks)},
          {"pieces", std::move(pieces)}};
}

Result<json> tool::measuredJson(const MeasuredStep &step,
                                const PlanPoint &point, const json &estimate) {
  const auto ranks = static_cast<std::int64_t>(step.ranks.size());
  if (ranks != point.ranks())
    return Error{fmt::format("--measured: found a step of {} ranks, the plan "
                             "has {}",
                             ranks, point.ranks())};
  json places = json::array();
  for (std::int64_t place = 0; place < point.pp; ++place) {
    const std::int64_t rank = place * (ranks / point.pp);
    places.push_back(
        placeJson(step.ranks[static_cast<std::size_t>(rank)], rank));
  }
  return json{{"seconds", roundedSeconds(step.seconds)},
              {"ranks", ranks},
              {"kinds", kindsJson(step, point, estimate)},
              {"places", std::move(places)}};
}

std::string tool::addMeasured(const std::string &trace, const json &measured) {
  constexpr double microseconds = 1e6;
  json all = json::parse(trace);
  json &events = all["traceEvents"];
  std::int64_t process = 0;
  for (const json &event : events)
    process = std::max(process, event["pid"].get<std::int64_t>() + 1);
  const auto name = [&](const char *what, std::int64_t track,
                        const json &text) {
    events.push_back({{"name", what},
                      {"ph", "M"},
                      {"pid", process},
                      {"tid", track},
                      {"args", {{"name", text}}}});
  };
  for (const json &place : measured["places"]) {
    name("process_name", 0, place["name"]);
    std::map<std::string, std::int64_t> numbers;
    for (const json &track : place["tracks"]) {
      const auto number = static_cast<std::int64_t>(numbers.size());
      numbers[track] = number;
      name("thread_name", number, track);
    }
    for (const json &piece : place["pieces"])
      events.push_back(
          {{"name", piece[1]},
           {"cat", piece[2]},
           {"ph", "X"},
           {"ts", piece[4].get<double>() * microseconds},
           {"dur",
            (piece[5].get<double>() - piece[4].get<double>()) * microseconds},
           {"pid", process},
           {"tid", numbers[piece[0]]},
           {"args", {{"label", piece[3]}}}});
    ++process;
  }
  return all.dump() + "\n";
}
