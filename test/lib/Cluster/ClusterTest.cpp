#include "heddle/Cluster/MeasuredTimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

using namespace heddle;
using testing::HasSubstr;

static constexpr std::int64_t gib = std::int64_t{1} << 30;

static Result<Cluster> parse(const std::string &text) {
  Result<Document> document =
      Document::parse(text, "cluster.yaml", Document::Syntax::Yaml);
  if (!document)
    return document.error();
  return readCluster(*document);
}

static Cluster accept(const std::string &text) {
  Result<Cluster> cluster = parse(text);
  EXPECT_TRUE(cluster) << cluster.message();
  return cluster ? *cluster : Cluster();
}

static std::string refuse(const std::string &text) {
  Result<Cluster> cluster = parse(text);
  EXPECT_FALSE(cluster) << text;
  return cluster ? "" : cluster.message();
}

static const std::string sizes = "nodes: 4\ndevices_per_node: 8\n";
static const std::string h100 = "device: h100-sxm-80gb\n";
static const std::string links = "links: [{level: node, gbytes_per_s: 450}, "
                                 "{level: cluster, gbytes_per_s: 50}]\n";

TEST(Cluster, TakesDefaults) {
  Cluster c = accept(sizes + h100 + links);
  EXPECT_EQ(c.name, "cluster");
  EXPECT_EQ(c.devices(), 32);
  EXPECT_EQ(c.memoryReserveBytes, 0);
  EXPECT_EQ(c.nicsPerNode, 8);
  EXPECT_EQ(c.checkpoint, CheckpointMode::TwoPhase);
  EXPECT_FALSE(c.mtbfHoursPerDevice || c.storageBytesPerSecond ||
               c.hostLinkBytesPerSecond || c.checkpointPauseSeconds);
  ASSERT_EQ(c.links.size(), 2u);
  EXPECT_EQ(c.links[0].nodes, 1);
  EXPECT_EQ(c.links[0].bytesPerSecond, 450e9);
  EXPECT_EQ(c.links[0].latencySeconds, std::nullopt);
  EXPECT_EQ(c.links[0].oversubscription, 1);
  EXPECT_FALSE(c.links[0].inNetworkReduction);
  EXPECT_EQ(c.links[1].nodes, 4); // all
}

TEST(Cluster, ReadsEveryKey) {
  Cluster c = accept(
      "name: big\nnodes: 8\ndevices_per_node: 4\nmemory_reserve_gib: 1.5\n"
      "device: {memory_gib: 96, memory_gbytes_per_s: 2400, multiprocessors: "
      "114, peak_tflops: {bf16: 800, fp8: 1600}}\n"
      "nics_per_node: 2\n"
      "links:\n"
      "  - {level: node, gbytes_per_s: 450, in_network_reduction: true}\n"
      "  - {level: pod, nodes: 4, gbytes_per_s: 50, latency_us: 5}\n"
      "  - {level: cluster, gbytes_per_s: 50, oversubscription: 7}\n"
      "mtbf_hours_per_device: 50700\nstorage_gbytes_per_s: 2000\n"
      "host_link_gbytes_per_s: 64\n"
      "checkpoint: {mode: sync, pause_s: 60}\n");
  EXPECT_EQ(c.name, "big");
  EXPECT_EQ(c.device.name, "custom");
  EXPECT_EQ(c.device.memoryBytes, 96 * gib);
  EXPECT_EQ(c.device.memoryBytesPerSecond, 2.4e12);
  EXPECT_EQ(c.device.multiprocessors, 114);
  EXPECT_EQ(c.device.measured, nullptr);
  EXPECT_EQ(c.device.peak("fp8"), 1600e12);
  EXPECT_EQ(c.device.peak("fp32"), 0);
  EXPECT_EQ(c.nicsPerNode, 2);
  EXPECT_EQ(c.memoryReserveBytes, gib + gib / 2);
  EXPECT_EQ(c.planBytesPerDevice(), 96 * gib - gib - gib / 2);
  EXPECT_TRUE(c.links[0].inNetworkReduction);
  EXPECT_EQ(c.links[1].nodes, 4);
  EXPECT_DOUBLE_EQ(*c.links[1].latencySeconds, 5e-6);
  EXPECT_EQ(c.links[2].oversubscription, 7);
  EXPECT_EQ(c.mtbfHoursPerDevice, 50700);
  EXPECT_EQ(c.storageBytesPerSecond, 2e12);
  EXPECT_EQ(c.hostLinkBytesPerSecond, 64e9);
  EXPECT_EQ(c.checkpoint, CheckpointMode::Sync);
  EXPECT_EQ(c.checkpointPauseSeconds, 60);
}

TEST(Device, IsKnownByName) {
  for (const std::string &name : deviceNames())
    EXPECT_EQ(deviceByName(name)->name, name);
  Device h100 = *deviceByName("h100-sxm-80gb");
  EXPECT_EQ(h100.memoryBytes, 80 * gib);
  // 132 SMs x 4 tensor cores x 512 multiply-adds at 1.83 GHz; fp8 twice that.
  EXPECT_NEAR(h100.peak("bf16"), 132.0 * 4 * 512 * 2 * 1.83e9, 1e11);
  EXPECT_NEAR(h100.peak("fp8"), 2 * h100.peak("bf16"), 2e11);
  EXPECT_EQ(h100.peak("fp4"), 0);
  EXPECT_EQ(deviceByName("a100"), std::nullopt);
  Device a100 = *deviceByName("a100-sxm-80gb");
  // 108 SMs x 4 tensor cores x 256 multiply-adds at 1.41 GHz.
  EXPECT_NEAR(a100.peak("fp16"), 108.0 * 4 * 256 * 2 * 1.41e9, 2e11);
  EXPECT_EQ(a100.peak("fp8"), 0);
  // Of the peak 85.9 % instead of 80.3 % in the best products.
  EXPECT_NEAR(a100.productRatio, 257.0 / 312 / 0.7033, 2e-3);
  EXPECT_EQ(deviceByName("h200-sxm-141gb")->peakFlops, h100.peakFlops);
  EXPECT_GT(deviceByName("b200-sxm-180gb")->peak("fp4"), 0);
}

TEST(Device, HostRanksShareTheMachine) {
  Cluster c = accept("nodes: 1\ndevices_per_node: 8\ndevice: host\n"
                     "links: [{level: node, gbytes_per_s: 5}]\n");
  EXPECT_TRUE(c.device.isHost);
  EXPECT_GT(c.device.memoryBytes, 0);
  EXPECT_EQ(c.planBytesPerDevice(), c.device.memoryBytes / 8);
}

TEST(Cluster, RefusesWithLineAndReason) {
  EXPECT_EQ(refuse(sizes + "device: h100\n" + links),
            "cluster.yaml:3: key 'device': found \"h100\", expected one of "
            "a100-sxm-40gb, a100-sxm-80gb, a800-sxm-80gb, h100-pcie-80gb, "
            "h100-sxm-80gb, h200-sxm-141gb, h800-sxm-80gb, b200-sxm-180gb, "
            "host, or a map with memory_gib, memory_gbytes_per_s, "
            "peak_tflops");
  EXPECT_THAT(refuse(sizes + "device: h100-sxm-80g\n" + links),
              HasSubstr("did you mean 'h100-sxm-80gb'?"));
  EXPECT_EQ(refuse(sizes + h100 + links + "\nmtbf_hours_per_devices: 1"),
            "cluster.yaml:6: unknown key 'mtbf_hours_per_devices'; did you "
            "mean 'mtbf_hours_per_device'?");
  EXPECT_EQ(refuse("nodes: 4\n" + h100 + links),
            "cluster.yaml:1: key 'devices_per_node' is missing; add it (an "
            "integer from 1 to 16777216)");
  struct Bad {
    std::string text, message;
  };
  std::string all = sizes + h100 + links;
  std::string numbers = "memory_gib: 80, memory_gbytes_per_s: 3350";
  for (const Bad &bad : std::vector<Bad>{
           {"", "the file is empty"},
           {"5", "found 5, expected keys and values"},
           {"nodes: 0\ndevices_per_node: 8\n" + h100 + links, "found 0"},
           {"nodes: 4\ndevices_per_node: 8.0\n" + h100 + links, "found 8.0"},
           {"nodes: -4\ndevices_per_node: 8\n" + h100 + links, "found -4"},
           {sizes + links, "key 'device' is missing"},
           {sizes + "device: 5\n" + links, "found 5, expected a string"},
           {sizes + "device: {" + numbers + "}\n" + links,
            "'device.peak_tflops' is missing"},
           {sizes + "device: {" + numbers + ", peak_tflops: {}}\n" + links,
            "found no format"},
           {sizes + "device: {" + numbers + ", peak_tflops: {bf15: 1}}\n" +
                links,
            "unknown key 'device.peak_tflops.bf15'; did you mean 'bf16'?"},
           {sizes +
                "device: {memory_gib: .inf, memory_gbytes_per_s: 1, "
                "peak_tflops: {bf16: 1}}\n" +
                links,
            "found .inf"},
           {all + "memory_reserve_gib: 80", "found 80, expected less than the "
                                            "80 GiB of a device"},
           {all + "memory_reserve_gib: -1", "found -1"},
           {all + "nics_per_node: 0", "found 0"},
           {all + "mtbf_hours_per_device: 0", "above 0"},
           {all + "storage_gbytes_per_s: .nan", "found .nan"},
           {all + "host_link_gbytes_per_s: fast", "found \"fast\""},
           {all + "checkpoint: sync", "found \"sync\", expected keys"},
           {all + "checkpoint: {mode: async}", "one of sync, two_phase"},
           {all + "checkpoint: {pause_s: -1}", "found -1"},
           {all + "nodes: 4", "key 'nodes' is given twice"}})
    EXPECT_THAT(refuse(bad.text), HasSubstr(bad.message)) << bad.text;
}

TEST(Cluster, ChecksLevels) {
  auto levels = [](const std::string &list) {
    return refuse(sizes + h100 + "links: " + list);
  };
  std::string node = "{level: node, gbytes_per_s: 450}";
  EXPECT_THAT(refuse(sizes + h100), HasSubstr("key 'links': found none"));
  EXPECT_THAT(levels("[]"), HasSubstr("found none"));
  EXPECT_THAT(levels("{level: node}"), HasSubstr("expected a list of maps"));
  EXPECT_THAT(levels("[node]"), HasSubstr("key 'links[0]': found \"node\""));
  EXPECT_THAT(levels("[{gbytes_per_s: 1}]"),
              HasSubstr("'links[0].level' is missing"));
  EXPECT_THAT(levels("[{level: node}]"),
              HasSubstr("'links[0].gbytes_per_s' is missing"));
  EXPECT_THAT(levels("[{level: node, gbytes_per_s: 0}]"), HasSubstr("found 0"));
  EXPECT_THAT(levels("[" + node + "]"),
              HasSubstr("found levels that span 1 of 4 nodes"));
  EXPECT_THAT(levels("[{level: pod, nodes: 2, gbytes_per_s: 1}]"),
              HasSubstr("'links[0].nodes': found 2, expected 1"));
  EXPECT_THAT(levels("[" + node + ", " + node + "]"),
              HasSubstr("found \"node\" twice"));
  EXPECT_THAT(levels("[" + node + ", {level: a, nodes: 8, gbytes_per_s: 1}]"),
              HasSubstr("expected at most the cluster's 4"));
  EXPECT_THAT(levels("[" + node +
                     ", {level: a, nodes: 2, gbytes_per_s: 1}, "
                     "{level: b, nodes: 3, gbytes_per_s: 1}]"),
              HasSubstr("'links[2].nodes': found 3, expected a multiple of"));
  EXPECT_THAT(levels("[" + node +
                     ", {level: a, gbytes_per_s: 1}, "
                     "{level: b, gbytes_per_s: 1}]"),
              HasSubstr("found \"b\" outside level a, which spans all"));
  EXPECT_THAT(levels("[" + node +
                     ", {level: a, gbytes_per_s: 1, "
                     "oversubscription: 0.5}]"),
              HasSubstr("a number of at least 1"));
  EXPECT_THAT(levels("[" + node + ", {level: a, gbytes_per_s: 1, latency: 5}]"),
              HasSubstr("unknown key 'links[1].latency'"));
}

namespace {

const std::string kTables = HEDDLE_SOURCE_DIR "/test/lib/Cluster/device.yaml";

/// The file with a piece of text replaced; its message where it is refused.
std::string refuseTables(const std::string &from, const std::string &to) {
  std::ifstream in(kTables);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const std::string path = testing::TempDir() + "/tables-test.yaml";
  std::ofstream(path) << text.replace(at, from.size(), to);
  const Result<Device> device = readDeviceFile(path);
  EXPECT_FALSE(device) << to;
  return device ? "" : device.message();
}

} // namespace

TEST(Tables, AreNamedByACluster) {
  const std::string rest = "links: [{level: node, gbytes_per_s: 10}]\n";
  const Cluster cluster = accept("nodes: 1\ndevices_per_node: 2\ndevice: "
                                 "{tables: \"" +
                                 kTables + "\"}\n" + rest);
  EXPECT_TRUE(cluster.device.isHost);
  EXPECT_EQ(cluster.planBytesPerDevice(), 4 * gib);
  EXPECT_EQ(cluster.device.peak("fp32"), 1e11);
  ASSERT_TRUE(cluster.device.measured);
  EXPECT_EQ(cluster.device.measured->products.size(), 9u);
  EXPECT_EQ(cluster.device.measured->attention[3].queries, 512);
  EXPECT_EQ(cluster.device.measured->collectives.back().ranks, 4);
  // Numbers beside it go over the file's.
  EXPECT_EQ(accept("nodes: 1\ndevices_per_node: 2\ndevice: {memory_gib: 4, "
                   "tables: \"" +
                   kTables + "\"}\n" + rest)
                .device.memoryBytes,
            4 * gib);
  EXPECT_THAT(refuse("nodes: 1\ndevices_per_node: 2\ndevice: {tables: "
                     "none.yaml}\n" +
                     rest),
              HasSubstr("none.yaml"));
}

TEST(Tables, AreWrittenAsTheyAreRead) {
  const Result<Device> device = readDeviceFile(kTables);
  ASSERT_TRUE(device) << device.message();
  const std::string path = testing::TempDir() + "/tables-written.yaml";
  std::ofstream(path) << writeDeviceFile(*device);
  const Result<Device> again = readDeviceFile(path);
  ASSERT_TRUE(again) << again.message();
  EXPECT_EQ(writeDeviceFile(*again), writeDeviceFile(*device));
  EXPECT_EQ(again->measured->collectives.size(), 12u);
}

TEST(Tables, AreRefusedWithOneMessage) {
  EXPECT_THAT(refuseTables("version: 1", "version: 2"),
              HasSubstr("'version': found 2"));
  EXPECT_THAT(refuseTables("format: fp32", "format: fp64"),
              HasSubstr("found \"fp64\""));
  EXPECT_THAT(refuseTables("format: fp32", "format: bf16"),
              HasSubstr("expected a format with a peak"));
  EXPECT_THAT(refuseTables("m: 64", "m: 0"), HasSubstr("found 0"));
  EXPECT_THAT(refuseTables("seconds: ", "seconds: -"), HasSubstr("found -"));
  EXPECT_THAT(refuseTables("memory:", "memory: []\nold:"),
              HasSubstr("unknown key 'old'"));
  EXPECT_THAT(refuseTables("kind: all_reduce", "kind: reduce"),
              HasSubstr("found \"reduce\""));
  EXPECT_THAT(refuseTables("ranks: 2, bytes: 65536", "ranks: 2, bytes: 4096"),
              HasSubstr("twice"));
  EXPECT_THAT(refuseTables("bytes: 65536, seconds: ",
                           "bytes: 65536, seconds: 1e-9, x: "),
              HasSubstr("unknown key"));
  EXPECT_THAT(refuseTables("seconds: 2.117152e-04", "seconds: 2e-09"),
              HasSubstr("calibrate again"));
}

TEST(Examples, ClustersAreRead) {
  std::filesystem::path folder =
      std::filesystem::path(HEDDLE_SOURCE_DIR) / "tools/examples/clusters";
  std::vector<std::pair<std::string, std::int64_t>> expected = {
      {"one-host", 8}, {"8xh100", 8}, {"512xh100", 512}, {"16384xh100", 16384}};
  std::size_t files = 0;
  for ([[maybe_unused]] auto &file :
       std::filesystem::directory_iterator(folder))
    ++files;
  EXPECT_EQ(files, expected.size());
  for (auto &[name, devices] : expected) {
    // The host's reserve is checked against this machine's memory.
    Result<Cluster> cluster = readCluster(folder / (name + ".yaml"));
    ASSERT_TRUE(cluster) << cluster.message();
    EXPECT_EQ(cluster->devices(), devices) << name;
  }
}
