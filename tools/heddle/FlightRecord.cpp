#include "tools/heddle/FlightRecord.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>

using namespace heddle;
using namespace heddle::tool;
using namespace heddle::supervisor;
using nlohmann::ordered_json;

static const char *nameOf(Process state) {
  switch (state) {
  case Process::Running:
    return "running";
  case Process::Stopped:
    return "stopped";
  case Process::Gone:
    return "gone";
  case Process::Unknown:
    break;
  }
  return "unknown";
}

static constexpr const char *kSectionWords[kSections] = {
    "start", "load", "step", "save", "finish"};

std::string tool::reportOf(const std::vector<RankView> &views) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < std::min(views.size(), kShown); ++i)
    text +=
        fmt::format("  rank {}: {}\n", views[i].rank,
                    views[i].ended                       ? "has ended"
                    : views[i].state == Process::Unknown ? "has not started"
                                                         : whereIs(views[i]));
  if (views.size() > kShown)
    text += fmt::format("  and {} more\n", views.size() - kShown);
  return text;
}

static ordered_json operationJson(const RankView &view,
                                  const Operation &operation) {
  ordered_json json = {{"sequence", operation.sequence},
                       {"step", operation.step},
                       {"name", operation.name}};
  if (operation.comm < 0)
    return json;
  const CommView &comm = view.comms[size_t(operation.comm)];
  json["communicator"] = {{"axis", comm.axis},
                          {"split", comm.split},
                          {"color", comm.color},
                          {"place", comm.place},
                          {"size", comm.size}};
  if (operation.call > 0)
    json["call"] = operation.call;
  if (operation.peer >= 0)
    json["peer"] = operation.peer;
  json["elements"] = operation.elements;
  json["dtype"] = operation.dtype;
  return json;
}

static ordered_json rankJson(const RankView &view) {
  ordered_json operations = ordered_json::array();
  for (const Operation &operation : view.operations)
    operations.push_back(operationJson(view, operation));
  ordered_json json = {{"rank", view.rank},
                       {"process", view.process},
                       {"state", nameOf(view.state)},
                       {"signal", view.signal},
                       {"role", view.role},
                       {"section", kSectionWords[int(view.section)]},
                       {"step", view.step},
                       {"sequence", view.sequence},
                       {"waiting", view.waiting}};
  json["waits_for_places"] = view.pending;
  json["operations"] = operations;
  return json;
}

static Result<void> appendLine(const std::string &path,
                               const ordered_json &line) {
  // Names come from memory that a failing process wrote.
  const std::string text =
      line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  std::FILE *file = std::fopen(path.c_str(), "a");
  const bool written =
      file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!file || std::fclose(file) != 0 || !written)
    return Error{fmt::format("{}: cannot write: {}", path, strerror(errno))};
  return {};
}

Result<void> tool::appendEnd(const std::string &path, int64_t restarts,
                             int code, int64_t step, int64_t windows) {
  return appendLine(path, {{"version", 1},
                           {"restarts", restarts},
                           {"cause", "ended"},
                           {"code", code},
                           {"step", step},
                           {"windows", windows}});
}

Result<void> tool::appendRecord(const std::string &path, int64_t restarts,
                                const Verdict &verdict,
                                const std::vector<RankView> &views) {
  ordered_json ranks = ordered_json::array();
  for (const RankView &view : views)
    ranks.push_back(rankJson(view));
  const ordered_json line = {{"version", 1},
                             {"restarts", restarts},
                             {"cause", supervisor::nameOf(verdict.blame.cause)},
                             {"blamed", verdict.blame.ranks},
                             {"message", verdict.text()},
                             {"silent_seconds", verdict.silent},
                             {"limit_seconds", verdict.limit},
                             {"step", verdict.step},
                             {"ranks", ranks}};
  return appendLine(path, line);
}
