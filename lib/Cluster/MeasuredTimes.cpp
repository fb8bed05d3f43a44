#include "heddle/Cluster/MeasuredTimes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace heddle;

static constexpr double gib = 1024.0 * 1024.0 * 1024.0;
static constexpr std::size_t kFewest = 3; ///< a curve's numbers

namespace {

class FileReader {
public:
  explicit FileReader(const Document &document) : reader(document) {}
  Result<Device> read();

private:
  void readNumbers();
  void readKernels();
  void readCollectives();
  /// A list of at least `kFewest` maps.
  std::vector<MapReader> curve(const char *key);
  std::int64_t count(MapReader &of, const char *key) {
    return of.integer(key, IntegerRange::positive());
  }
  double seconds(MapReader &of, const char *key = "seconds") {
    return of.number(key, NumberRange::positive());
  }

  MapReader reader;
  Device device;
  MeasuredTimes times;
};

} // namespace

void FileReader::readNumbers() {
  auto numbers = reader.requiredMap("device");
  if (!numbers)
    return;
  device.isHost = numbers->boolean("host");
  device.name = device.isHost ? "host" : "custom";
  device.memoryBytes = static_cast<std::int64_t>(
      numbers->number("memory_gib", {0, 1e9, true, false}) * gib);
  device.memoryBytesPerSecond =
      1e9 * numbers->number("memory_gbytes_per_s", NumberRange::positive());
  device.multiprocessors =
      numbers->integer("multiprocessors", {1, std::int64_t{1} << 24});
  if (auto peaks = numbers->requiredMap("peak_tflops"))
    for (const char *format : {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"})
      if (auto peak = peaks->optionalNumber(format, NumberRange::positive()))
        device.peakFlops[format] = 1e12 * *peak;
}

std::vector<MapReader> FileReader::curve(const char *key) {
  std::vector<MapReader> items = reader.maps(key);
  if (reader.ok() && items.size() < kFewest)
    reader.fail(key, fmt::format("found {} times, expected at least {}",
                                 items.size(), kFewest));
  return items;
}

void FileReader::readKernels() {
  std::map<std::string, std::size_t> counts;
  for (MapReader &item : curve("products")) {
    MeasuredProduct &product = times.products.emplace_back();
    product.format = item.choice("format", {"fp32", "bf16", "fp8", "fp4"});
    product.m = count(item, "m");
    product.n = count(item, "n");
    product.k = count(item, "k");
    product.seconds = seconds(item);
    ++counts[product.format];
    if (reader.ok() && device.peak(product.format) <= 0)
      item.fail("format", fmt::format("found {}, expected a format with a peak "
                                      "in device.peak_tflops",
                                      product.format));
  }
  for (const auto &[format, number] : counts)
    if (reader.ok() && number < kFewest)
      reader.fail("products", fmt::format("found {} times in {}, expected at "
                                          "least {}",
                                          number, format, kFewest));
  for (MapReader &item : curve("attention")) {
    MeasuredAttention &attention = times.attention.emplace_back();
    attention.heads = count(item, "heads");
    attention.queries = count(item, "queries");
    attention.headSize = count(item, "head_size");
    attention.forwardSeconds = seconds(item, "forward_seconds");
    attention.backwardSeconds = seconds(item, "backward_seconds");
  }
  for (MapReader &item : curve("memory"))
    times.memory.push_back({count(item, "bytes"), seconds(item)});
}

void FileReader::readCollectives() {
  for (MapReader &item : reader.maps("collectives")) {
    MeasuredCollective found;
    found.kind = item.choice(
        "kind", {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"});
    found.ranks = item.integer("ranks", {2, std::int64_t{1} << 24});
    found.bytes = count(item, "bytes");
    found.seconds = seconds(item);
    for (const MeasuredCollective &other : times.collectives) {
      if (!reader.ok() || other.kind != found.kind ||
          other.ranks != found.ranks)
        continue;
      const bool isLonger = found.bytes > other.bytes;
      if (other.bytes == found.bytes)
        item.fail("bytes", fmt::format("found {} over {} ranks of {} bytes "
                                       "twice, expected each once",
                                       found.kind, found.ranks, found.bytes));
      else if ((isLonger ? found : other).seconds <
               0.5 * (isLonger ? other : found).seconds)
        item.fail("seconds",
                  fmt::format("found {:.3g} for {} bytes and {:.3g} for {}, "
                              "expected longer messages to take longer; "
                              "calibrate again on a quiet machine",
                              found.seconds, found.bytes, other.seconds,
                              other.bytes));
    }
    times.collectives.push_back(found);
  }
}

Result<Device> FileReader::read() {
  reader.integer("version", {1, 1});
  readNumbers();
  readKernels();
  readCollectives();
  if (Result<void> done = reader.finish(); !done)
    return done.error();
  device.measured = std::make_shared<const MeasuredTimes>(std::move(times));
  return device;
}

Result<Device> heddle::readDeviceFile(const std::filesystem::path &path) {
  Result<Document> document = Document::read(path);
  if (!document)
    return document.error();
  return FileReader(*document).read();
}

std::string heddle::writeDeviceFile(const Device &device) {
  std::string text = fmt::format(
      "# Measured by heddle calibrate. A cluster.yaml names this file:\n"
      "# device: {{tables: FILE}}\n"
      "version: 1\ndevice: {{host: {}, memory_gib: {:.6g}, "
      "memory_gbytes_per_s: {:.6g}, multiprocessors: {},\n"
      "         peak_tflops: {{",
      device.isHost, static_cast<double>(device.memoryBytes) / gib,
      device.memoryBytesPerSecond / 1e9, device.multiprocessors);
  std::vector<std::string> peaks;
  for (const auto &[format, peak] : device.peakFlops)
    peaks.push_back(fmt::format("{}: {:.6g}", format, peak / 1e12));
  text += fmt::format("{}}}}}\nproducts:\n", fmt::join(peaks, ", "));
  const MeasuredTimes &times = *device.measured;
  for (const MeasuredProduct &each : times.products)
    text += fmt::format(
        "  - {{format: {}, m: {}, n: {}, k: {}, seconds: {:.4g}}}\n",
        each.format, each.m, each.n, each.k, each.seconds);
  text += "attention:\n";
  for (const MeasuredAttention &each : times.attention)
    text += fmt::format("  - {{heads: {}, queries: {}, head_size: {}, "
                        "forward_seconds: {:.4g}, backward_seconds: {:.4g}}}\n",
                        each.heads, each.queries, each.headSize,
                        each.forwardSeconds, each.backwardSeconds);
  text += "memory:\n";
  for (const MeasuredMemory &each : times.memory)
    text += fmt::format("  - {{bytes: {}, seconds: {:.4g}}}\n", each.bytes,
                        each.seconds);
  text += times.collectives.empty() ? "collectives: []\n" : "collectives:\n";
  for (const MeasuredCollective &each : times.collectives)
    text +=
        fmt::format("  - {{kind: {}, ranks: {}, bytes: {}, seconds: {:.4g}}}\n",
                    each.kind, each.ranks, each.bytes, each.seconds);
  return text;
}
