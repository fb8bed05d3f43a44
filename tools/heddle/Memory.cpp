#include "tools/heddle/Memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

using namespace heddle;
using json = nlohmann::ordered_json;

namespace {
/// From the class that lasts longest to the one that is gone first.
constexpr std::array<const char *, 8> kClasses = {
    "parameters", "optimizer", "gradients",     "inputs",
    "outputs",    "saved",     "communication", "workspace"};

/// An object's bytes begin or end.
struct Edge {
  int64_t at;
  size_t rank; ///< of its class in kClasses
  bool begins;
};
} // namespace

static size_t rankOf(const std::string &memoryClass) {
  return size_t(std::find(kClasses.begin(), kClasses.end(), memoryClass) -
                kClasses.begin());
}

std::map<std::string, int64_t> tool::bytesByClass(const MemoryReport &report) {
  std::vector<Edge> edges;
  for (const MemoryObject &object : report.objects) {
    // Of another stage, or on the host.
    if (object.bytes == 0 || object.arena == "host")
      continue;
    // A class that is not known here is working memory like any other.
    size_t rank = std::min(rankOf(object.memoryClass), kClasses.size() - 1);
    edges.push_back({object.offset, rank, true});
    edges.push_back({object.offset + object.bytes, rank, false});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge &a, const Edge &b) { return a.at < b.at; });
  std::map<std::string, int64_t> bytes;
  for (const char *name : kClasses)
    bytes[name] = 0;
  std::multiset<size_t> open;
  int64_t from = 0;
  for (const Edge &edge : edges) {
    if (!open.empty())
      bytes[kClasses[*open.begin()]] += edge.at - from;
    from = edge.at;
    if (edge.begins)
      open.insert(edge.rank);
    else
      open.erase(open.find(edge.rank));
  }
  return bytes;
}

namespace {
/// Memory of one rank's device: all of it, and what is kept from plans.
struct Capacity {
  int64_t bytes, reserve;
};
} // namespace

static Capacity capacityOf(const Cluster &cluster) {
  int64_t bytes = cluster.device.memoryBytes;
  if (cluster.device.isHost)
    bytes /= cluster.devicesPerNode;
  return {bytes, bytes - cluster.planBytesPerDevice()};
}

static json buffersJson(const MemoryReport &report) {
  json buffers = json::array();
  for (const MemoryObject &object : report.objects)
    buffers.push_back({{"name", object.name},
                       {"class", object.memoryClass},
                       {"arena", object.arena},
                       {"function", object.function},
                       {"reason", object.reason},
                       {"bytes", object.bytes},
                       {"offset", object.offset},
                       {"layer_stride", object.layerStride},
                       {"held_in", object.heldIn}});
  return buffers;
}

/// Of the ranks of a stage; `ranks` says which, `count` how many.
static json classJson(const MemoryReport &report, const std::string &ranks,
                      int64_t count, const std::optional<Cluster> &cluster) {
  json one = {{"ranks", ranks},
              {"count", count},
              {"live_peak_bytes", report.livePeakBytes},
              {"arena_bytes", report.arenaBytes},
              {"host_bytes", report.hostBytes},
              {"reserve_bytes", nullptr},
              {"capacity_bytes", nullptr},
              {"fits", nullptr}};
  if (cluster) {
    Capacity capacity = capacityOf(*cluster);
    one["reserve_bytes"] = capacity.reserve;
    one["capacity_bytes"] = capacity.bytes;
    one["fits"] = report.arenaBytes + capacity.reserve <= capacity.bytes;
  }
  one["peak"] = {{"function", report.peakFunction}, {"op", report.peakOp}};
  one["by_class"] = tool::bytesByClass(report);
  one["libraries"] = json::array();
  one["buffers"] = buffersJson(report);
  return one;
}

json tool::memoryJson(const std::vector<MemoryReport> &reports,
                      const Plan &plan, const std::optional<Cluster> &cluster) {
  const auto stages = int64_t(reports.size());
  json classes = json::array();
  for (int64_t stage = 0; stage < stages; ++stage)
    classes.push_back(
        classJson(reports[size_t(stage)],
                  stages == 1 ? "all" : fmt::format("pp={}", stage),
                  plan.ranks() / stages, cluster));
  return {{"version", 1}, {"classes", classes}};
}

size_t tool::fullestStage(const std::vector<MemoryReport> &reports) {
  return size_t(std::max_element(reports.begin(), reports.end(),
                                 [](const auto &a, const auto &b) {
                                   return a.arenaBytes < b.arenaBytes;
                                 }) -
                reports.begin());
}

std::optional<std::string>
tool::describeMisfit(const std::vector<MemoryReport> &reports,
                     const Cluster &cluster) {
  const size_t stage = fullestStage(reports);
  const int64_t bytes = reports[stage].arenaBytes;
  Capacity capacity = capacityOf(cluster);
  if (bytes + capacity.reserve <= capacity.bytes)
    return std::nullopt;
  return fmt::format(
      "the plan does not fit: a rank{} needs {} bytes ({}), a device of "
      "cluster \"{}\" has {} for it ({} less {} reserved); {} too much",
      reports.size() > 1 ? fmt::format(" of stage {}", stage) : "", bytes,
      describeBytes(double(bytes)), cluster.name,
      describeBytes(double(capacity.bytes - capacity.reserve)),
      describeBytes(double(capacity.bytes)),
      describeBytes(double(capacity.reserve)),
      describeBytes(double(bytes + capacity.reserve - capacity.bytes)));
}

std::string tool::describeBytes(double bytes) {
  const char *unit = "B";
  for (const char *next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (bytes < 1024)
      break;
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", bytes, *unit == 'B' ? 0 : 2, unit);
}
