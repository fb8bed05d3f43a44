#include "heddle/Cluster/Cluster.h"

#include "heddle/Cluster/MeasuredTimes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace heddle;

static constexpr double gib = 1024.0 * 1024.0 * 1024.0;
static constexpr double giga = 1e9;
static constexpr double tera = 1e12;
static constexpr IntegerRange countRange = {1, std::int64_t{1} << 24};
/// Above what exists, and low enough that bytes fit into 63 bits.
static constexpr NumberRange memoryRange = {0, 1e9, true, false};
/// Of GB/s and TFLOP/s: far outside what exists, and within it times and their
/// products are numbers.
static constexpr NumberRange rateRange = {1e-6, 1e9};

std::int64_t Cluster::planBytesPerDevice() const {
  std::int64_t sharing = device.isHost ? devicesPerNode : 1;
  return (device.memoryBytes - memoryReserveBytes) / sharing;
}

/// Numbers of a map, over those of the file that its `tables` names, if it
/// does. The file's errors have its own name and line.
static Result<Device> readDeviceNumbers(MapReader &reader) {
  Device device;
  device.name = "custom";
  if (std::string tables = reader.string("tables", ""); !tables.empty()) {
    Result<Device> measured = readDeviceFile(
        std::filesystem::path(reader.file()).parent_path() / tables);
    if (!measured)
      return measured.error();
    device = std::move(*measured);
  }
  auto byDefault = [&](double value) {
    return device.measured ? std::optional(value) : std::nullopt;
  };
  device.memoryBytes = static_cast<std::int64_t>(
      reader.number("memory_gib", memoryRange,
                    byDefault(static_cast<double>(device.memoryBytes) / gib)) *
      gib);
  device.memoryBytesPerSecond =
      giga * reader.number("memory_gbytes_per_s", rateRange,
                           byDefault(device.memoryBytesPerSecond / giga));
  device.multiprocessors =
      reader.integer("multiprocessors", countRange, device.multiprocessors);
  auto peaks = device.measured ? reader.map("peak_tflops")
                               : reader.requiredMap("peak_tflops");
  if (peaks)
    for (const char *format : {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"})
      if (auto peak = peaks->optionalNumber(format, rateRange))
        device.peakFlops[format] = tera * *peak;
  if (reader.ok() && device.peakFlops.empty())
    reader.fail("peak_tflops", "found no format, expected at least one of "
                               "fp32, tf32, bf16, fp16, fp8, fp4");
  return device;
}

/// A name that heddle knows, or a map of numbers.
static Result<Device> readDevice(MapReader &reader) {
  const DocumentValue *found = reader.value("device");
  if (found && found->isMap()) {
    auto numbers = reader.map("device");
    return readDeviceNumbers(*numbers);
  }
  std::string name = reader.string("device");
  if (std::optional<Device> device = deviceByName(name))
    return *device;
  if (!name.empty()) {
    auto near = nearestName(name, deviceNames());
    reader.fail(
        "device",
        fmt::format("found \"{}\", expected one of {}, or a map with "
                    "memory_gib, memory_gbytes_per_s, peak_tflops{}",
                    name, fmt::join(deviceNames(), ", "),
                    near ? fmt::format("; did you mean '{}'?", *near) : ""));
  }
  return Device();
}

static Link readLink(MapReader &reader, std::int64_t byDefault) {
  Link link;
  link.level = reader.string("level");
  link.nodes = reader.integer("nodes", countRange, byDefault);
  link.bytesPerSecond = giga * reader.number("gbytes_per_s", rateRange);
  if (auto latency =
          reader.optionalNumber("latency_us", NumberRange::nonNegative()))
    link.latencySeconds = *latency * 1e-6;
  link.oversubscription = reader.number("oversubscription", {1}, 1.0);
  link.inNetworkReduction = reader.boolean("in_network_reduction", false);
  return link;
}

/// Each level must span more nodes than the one inside it, in whole groups,
/// and the last must span all.
static void checkLink(MapReader &reader, const Cluster &cluster,
                      const Link &link) {
  const Link *inner = cluster.links.empty() ? nullptr : &cluster.links.back();
  for (const Link &other : cluster.links)
    if (other.level == link.level)
      reader.fail("level", fmt::format("found \"{}\" twice, expected a name of "
                                       "its own",
                                       link.level));
  if (!inner && link.nodes != 1)
    reader.fail("nodes", fmt::format("found {}, expected 1: the innermost "
                                     "level is inside a node",
                                     link.nodes));
  if (inner && (link.nodes <= inner->nodes || link.nodes % inner->nodes != 0) &&
      link.nodes < cluster.nodes)
    reader.fail("nodes", fmt::format("found {}, expected a multiple of the {} "
                                     "nodes of level {}, and more",
                                     link.nodes, inner->nodes, inner->level));
  if (link.nodes > cluster.nodes)
    reader.fail("nodes", fmt::format("found {}, expected at most the "
                                     "cluster's {}",
                                     link.nodes, cluster.nodes));
  if (inner && inner->nodes >= cluster.nodes)
    reader.fail("level", fmt::format("found \"{}\" outside level {}, which "
                                     "spans all {} nodes already; remove one",
                                     link.level, inner->level, cluster.nodes));
}

static void readLinks(MapReader &reader, Cluster &cluster) {
  std::vector<MapReader> readers = reader.maps("links");
  for (MapReader &each : readers) {
    // The innermost level is the node; any other spans all unless it says so.
    Link link = readLink(each, cluster.links.empty() ? 1 : cluster.nodes);
    if (reader.ok())
      checkLink(each, cluster, link);
    cluster.links.push_back(std::move(link));
  }
  if (!reader.ok())
    return;
  if (readers.empty())
    return reader.fail("links", "found none, expected at least one, such as "
                                "{level: node, gbytes_per_s: 450}");
  if (cluster.links.back().nodes != cluster.nodes)
    reader.fail("links",
                fmt::format("found levels that span {} of {} nodes, expected "
                            "the last to span all; add one, such as {{level: "
                            "cluster, gbytes_per_s: 50}}",
                            cluster.links.back().nodes, cluster.nodes));
}

static void readRates(MapReader &reader, Cluster &cluster) {
  cluster.mtbfHoursPerDevice =
      reader.optionalNumber("mtbf_hours_per_device", NumberRange::positive());
  if (auto rate = reader.optionalNumber("storage_gbytes_per_s", rateRange))
    cluster.storageBytesPerSecond = giga * *rate;
  if (auto rate = reader.optionalNumber("host_link_gbytes_per_s", rateRange))
    cluster.hostLinkBytesPerSecond = giga * *rate;
  auto checkpoint = reader.map("checkpoint");
  if (!checkpoint)
    return;
  std::string mode =
      checkpoint->choice("mode", {"sync", "two_phase"}, "two_phase");
  cluster.checkpoint =
      mode == "sync" ? CheckpointMode::Sync : CheckpointMode::TwoPhase;
  cluster.checkpointPauseSeconds =
      checkpoint->optionalNumber("pause_s", NumberRange::nonNegative());
}

Result<Cluster> heddle::readCluster(const Document &document) {
  Cluster cluster;
  MapReader reader(document);
  std::filesystem::path path = document.file();
  cluster.name = reader.string("name", path.stem().string());
  cluster.nodes = reader.integer("nodes", countRange);
  cluster.devicesPerNode = reader.integer("devices_per_node", countRange);
  Result<Device> device = readDevice(reader);
  if (!device)
    return device.error();
  cluster.device = std::move(*device);
  NumberRange reserve = memoryRange;
  reserve.minExcluded = false;
  cluster.memoryReserveBytes = static_cast<std::int64_t>(
      gib * reader.number("memory_reserve_gib", reserve, 0.0));
  cluster.nicsPerNode =
      reader.integer("nics_per_node", countRange, cluster.devicesPerNode);
  readLinks(reader, cluster);
  readRates(reader, cluster);
  if (reader.ok() && cluster.memoryReserveBytes >= cluster.device.memoryBytes)
    reader.fail(
        "memory_reserve_gib",
        fmt::format("found {}, expected less than the {:.4g} GiB of {}",
                    static_cast<double>(cluster.memoryReserveBytes) / gib,
                    static_cast<double>(cluster.device.memoryBytes) / gib,
                    cluster.device.isHost ? "this machine" : "a device"));
  if (auto done = reader.finish(); !done)
    return done.error();
  return cluster;
}

Result<Cluster> heddle::readCluster(const std::filesystem::path &path) {
  Result<Document> document = Document::read(path);
  if (!document)
    return document.error();
  return readCluster(*document);
}
