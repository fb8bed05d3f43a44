#include "heddle/Cost/Collective.h"
#include "heddle/Cluster/MeasuredTimes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace heddle;

namespace {

/// Nodes of 8 H100 with 8 NICs of 50 GB/s.
Cluster cluster(std::int64_t nodes) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.devicesPerNode = cluster.nicsPerNode = 8;
  cluster.device = *deviceByName("h100-sxm-80gb");
  cluster.links = {{"node", 1, 450e9, std::nullopt, 1, true}};
  if (nodes > 1)
    cluster.links.push_back({"cluster", nodes, 50e9, 5e-6, 1, false});
  return cluster;
}

/// Pods of 384 nodes, 1:7 oversubscribed between them.
Cluster pods() {
  Cluster cluster = ::cluster(384);
  cluster.nodes = 2048;
  cluster.links.push_back({"cluster", 2048, 50e9, 10e-6, 7, false});
  return cluster;
}

double allReduce(const Cluster &cluster,
                 std::initializer_list<AxisOnRanks> axes, double bytes) {
  const CollectiveTimes times(cluster);
  return times.seconds(CollectiveKind::AllReduce, times.place(axes), bytes);
}

constexpr double kGradients = 2 * 8030261248.0; // of 8B, in bf16
constexpr double kActivation = 134217728;       // b 1, s 8192, h 8192, bf16

} // namespace

TEST(Ideal, IsVolumeOverTheSlowestLink) {
  EXPECT_EQ(idealSeconds(0, 50e9), 0);
  EXPECT_EQ(idealSeconds(100e9, 50e9), 2);
  // validation/README.md 9: rows 2, 4 and 5.
  EXPECT_NEAR(idealSeconds(allReduceBytes(kGradients, 64), 50e9), 0.632, 5e-4);
  const double step = 320 * allReduceBytes(kActivation, 8);
  EXPECT_NEAR(step, 75.16e9, 0.01e9);
  EXPECT_NEAR(idealSeconds(step, 450e9), 0.167, 5e-4);
  EXPECT_NEAR(idealSeconds(step, 50e9), 1.503, 5e-4);
}

TEST(Ideal, HasNothingOfWhatNcclNeeds) {
  // Latency, rails, switches that add and oversubscription change one figure
  // and not the other.
  Cluster slow = cluster(8), fast = slow;
  fast.links[1].latencySeconds = 0;
  fast.links[1].inNetworkReduction = true;
  const GroupOnCluster a = CollectiveTimes(slow).place({{64, 1}}),
                       b = CollectiveTimes(fast).place({{64, 1}});
  EXPECT_EQ(a.slowestBytesPerSecond, b.slowestBytesPerSecond);
  EXPECT_GT(allReduce(slow, {{64, 1}}, kGradients),
            1.2 * allReduce(fast, {{64, 1}}, kGradients));
  // Nor are they in a fixed ratio to each other.
  const double ratio = allReduce(slow, {{64, 1}}, kGradients) /
                       idealSeconds(allReduceBytes(kGradients, 64), 50e9);
  EXPECT_LT(ratio, 0.2);
  EXPECT_GT(allReduce(slow, {{64, 1}}, 1e6) /
                idealSeconds(allReduceBytes(1e6, 64), 50e9),
            1);
}

TEST(Place, CountsRanksOfANode) {
  const CollectiveTimes times(cluster(64));
  const GroupOnCluster inner = times.place({{8, 1}});
  EXPECT_EQ(inner.ranksPerNode, 8);
  EXPECT_EQ(inner.nodes, 1);
  EXPECT_EQ(inner.level, 0u);
  EXPECT_EQ(inner.slowestBytesPerSecond, 450e9);
  // One rank in each node: rails are not joined.
  const GroupOnCluster rail = times.place({{64, 8}});
  EXPECT_EQ(rail.ranksPerNode, 1);
  EXPECT_EQ(rail.nodes, 64);
  EXPECT_EQ(rail.level, 1u);
  EXPECT_EQ(rail.slowestBytesPerSecond, 50e9);
  // Two axes with another between them: 2 x 2 of a node's 8.
  const GroupOnCluster two = times.place({{2, 1}, {8, 4}});
  EXPECT_EQ(two.ranks, 16);
  EXPECT_EQ(two.ranksPerNode, 4);
  EXPECT_EQ(two.nodes, 4);
  // Groups of 6 in nodes of 8: some are cut after 2.
  EXPECT_EQ(times.place({{6, 1}}).ranksPerNode, 2);
  EXPECT_EQ(times.place({{1, 1}}).ranks, 1);
}

TEST(InNode, IsWhatWasMeasured) {
  const CollectiveTimes times(cluster(1));
  const GroupOnCluster node = times.place({{8, 1}});
  const CollectiveTime reduce =
      times.time(CollectiveKind::AllReduce, node, kActivation);
  EXPECT_DOUBLE_EQ(reduce.seconds, 586.4e-6);
  EXPECT_EQ(reduce.algorithm, CollectiveAlgorithm::Nvls);
  EXPECT_NEAR(320 * reduce.seconds, 0.188, 5e-4); // row 4's note
  // 192 MiB: half-way between 586.4 and 1112.5 us.
  EXPECT_DOUBLE_EQ(
      times.seconds(CollectiveKind::AllReduce, node, 1.5 * kActivation),
      849.45e-6);
  // 64 GiB: beyond the table, as between its last two sizes.
  EXPECT_NEAR(times.seconds(CollectiveKind::AllReduce, node, 68719476736.0),
              62.648e-3 + 3 * 31.341e-3 * 2, 1e-6);
  EXPECT_EQ(times.seconds(CollectiveKind::AllReduce, times.place({{1, 1}}), 8),
            0);
}

// test/lib/Cluster/device.yaml: n us and 2 n x 1e-10 s a byte over n = 2 and 4.
TEST(InNode, OfAMeasuredMachineIsInterpolated) {
  Cluster host;
  host.devicesPerNode = 24;
  host.device =
      *readDeviceFile(HEDDLE_SOURCE_DIR "/test/lib/Cluster/device.yaml");
  host.links = {{"node", 1, 10e9, std::nullopt, 1, false}};
  const CollectiveTimes times(host);
  auto reduce = [&](std::int64_t ranks, double bytes) {
    return times.seconds(CollectiveKind::AllReduce, times.place({{ranks, 1}}),
                         bytes);
  };
  EXPECT_NEAR(reduce(2, 65536), 2e-6 + 4 * 65536e-10, 1e-9);
  EXPECT_NEAR(reduce(4, 300000), 4e-6 + 8 * 300000e-10, 1e-9);
  EXPECT_EQ(reduce(4, 8), reduce(4, 4096));
  EXPECT_NEAR(reduce(2, 4 * 1048576), 4 * reduce(2, 1048576), 1e-9);
  EXPECT_NEAR(reduce(8, 65536), 2 * reduce(4, 65536), 1e-9);
  EXPECT_LT(reduce(2, 65536), reduce(3, 65536));
  EXPECT_LT(reduce(3, 65536), reduce(4, 65536));
  // A kind that was not measured has NCCL's time, scaled by the link.
  EXPECT_GT(times.seconds(CollectiveKind::AllToAll, times.place({{4, 1}}), 1e6),
            0);
}

TEST(InNode, WithoutSwitchesTakesBothHalves) {
  Cluster plain = cluster(1);
  plain.links[0].inNetworkReduction = false;
  const CollectiveTimes times(plain);
  const GroupOnCluster node = times.place({{8, 1}});
  const CollectiveTime reduce =
      times.time(CollectiveKind::AllReduce, node, kActivation);
  EXPECT_EQ(reduce.algorithm, CollectiveAlgorithm::Ring);
  EXPECT_NEAR(
      reduce.seconds,
      times.seconds(CollectiveKind::AllGather, node, kActivation) +
          times.seconds(CollectiveKind::ReduceScatter, node, kActivation),
      1e-12);
}

TEST(InNode, ScalesWhatLiesAboveTheLatency) {
  // A100: 300 GB/s. 10.362 us + 1.5 x (392.49 - 10.362) us.
  Cluster a100 = cluster(1);
  a100.links[0].bytesPerSecond = 300e9;
  const CollectiveTimes times(a100);
  EXPECT_NEAR(times.seconds(CollectiveKind::AllGather, times.place({{8, 1}}),
                            kActivation),
              583.55e-6, 1e-8);
}

TEST(BetweenNodes, RailsOfANodeAreJoined) {
  // 31.62 GB at 365.84 GB/s, less 0.76 % as 8 nodes are twice 4.
  EXPECT_NEAR(allReduce(cluster(8), {{64, 1}}, kGradients), 0.0871, 1e-3);
  // One rank in each node: 45.7 GB/s (row 5's note, 1.64 s), 0.76 % less, and
  // 8.4 + 14 x (5 + 10) us each.
  EXPECT_NEAR(320 * allReduce(cluster(8), {{8, 8}}, kActivation),
              1.644 * 1.0076 + 320 * 218.4e-6, 1e-3);
}

TEST(BetweenNodes, RingByHand) {
  // 4 nodes of 8, 1e9 bytes: 31 steps, of them 3 between nodes; "simple" takes
  // 8.4 + 28 x 3.4 + 3 x (5 + 10) us, then 31/32 of the bytes at 8 x 45.73.
  const CollectiveTimes times(cluster(4));
  EXPECT_NEAR(
      times.seconds(CollectiveKind::AllGather, times.place({{32, 1}}), 1e9),
      148.6e-6 + 0.96875e9 / (8 * 50e9 * 0.9146), 1e-9);
  // 1 KiB: "LL128", 14 + 28 x 1.9 + 3 x 5 us.
  EXPECT_NEAR(
      times.seconds(CollectiveKind::AllGather, times.place({{32, 1}}), 1024),
      82.2e-6, 1e-8);
}

TEST(BetweenNodes, TreesCarryShortMessages) {
  Cluster plain = cluster(128);
  plain.links[0].inNetworkReduction = false;
  const CollectiveTimes times(plain);
  const GroupOnCluster all = times.place({{1024, 1}});
  // 14 + 2 x (7 x 1.25 + 7 x 2.125 x 5) us.
  const CollectiveTime small = times.time(CollectiveKind::AllReduce, all, 8);
  EXPECT_EQ(small.algorithm, CollectiveAlgorithm::Tree);
  EXPECT_NEAR(small.seconds, 180.25e-6, 1e-8);
  EXPECT_EQ(times.time(CollectiveKind::AllReduce, all, 64e9).algorithm,
            CollectiveAlgorithm::Ring);
}

TEST(BetweenNodes, SwitchesInNodesShortenTheTree) {
  const CollectiveTimes times(cluster(128));
  const GroupOnCluster all = times.place({{1024, 1}});
  // 14 + 2 x (4 + 7 x 2.125 x 5) us.
  const CollectiveTime small = times.time(CollectiveKind::AllReduce, all, 8);
  EXPECT_EQ(small.algorithm, CollectiveAlgorithm::NvlsTree);
  EXPECT_NEAR(small.seconds, 170.75e-6, 1e-8);
  // One rank in a node has no switch to add in.
  const GroupOnCluster rail = times.place({{128, 8}});
  EXPECT_EQ(times.time(CollectiveKind::AllReduce, rail, 8).algorithm,
            CollectiveAlgorithm::Tree);
  EXPECT_EQ(algorithmName(small.algorithm), "nvls_tree");
  // #283: 248 nodes, 512 MiB, about 350 GB/s.
  const CollectiveTimes big(cluster(248));
  const double seconds =
      big.seconds(CollectiveKind::AllReduce, big.place({{1984, 1}}), 536870912);
  EXPECT_NEAR(allReduceBytes(536870912, 1984) / seconds, 350e9, 25e9);
}

TEST(BetweenNodes, SwitchesThatAddSaveOneWay) {
  Cluster sharp = cluster(4);
  sharp.links[1].inNetworkReduction = true;
  const CollectiveTimes times(sharp);
  const GroupOnCluster all = times.place({{32, 1}});
  const CollectiveTime sum = times.time(CollectiveKind::AllReduce, all, 8e9);
  EXPECT_EQ(sum.algorithm, CollectiveAlgorithm::InNetwork);
  // GTC 2024: 480 GB/s of bus bandwidth, what the node's switches reach.
  EXPECT_NEAR(allReduceBytes(8e9, 32) / sum.seconds, 480e9, 5e9);
}

TEST(BetweenNodes, DevicesThatShareANicShareItsRate) {
  Cluster half = cluster(8);
  half.nicsPerNode = 4;
  const CollectiveTimes times(half);
  EXPECT_DOUBLE_EQ(
      times.place({{64, 1}}).ringBytesPerSecond,
      CollectiveTimes(cluster(8)).place({{64, 1}}).ringBytesPerSecond / 2);
  // The textbook's figure does not know of it.
  EXPECT_EQ(times.place({{64, 1}}).slowestBytesPerSecond, 50e9);
}

TEST(BetweenNodes, OversubscriptionIsSharedByTheRanksBelow) {
  const CollectiveTimes times(pods());
  // dp over pods, one rank in each: 50 / 7 leave it. With 64 ranks of the group
  // in a pod there are fewer groups: a ring's one way out has its rail in full.
  const GroupOnCluster one = times.place({{5, 3072}});
  EXPECT_EQ(one.level, 2u);
  EXPECT_NEAR(one.ringBytesPerSecond, 50e9 * 0.9146 / 7, 0.02e9);
  const GroupOnCluster many = times.place({{5, 3072}, {64, 48}});
  EXPECT_EQ(many.level, 2u);
  EXPECT_GT(many.ringBytesPerSecond, 0.95 * 50e9 * 0.9146);
  EXPECT_NEAR(many.spreadBytesPerSecond, 50e9 * 0.9146 / 7, 1e6);
}

TEST(BetweenNodes, SendsToOneAndToAll) {
  const CollectiveTimes times(cluster(4));
  // 8.4 + 5 us, 47 of 50 GB/s.
  EXPECT_NEAR(times.seconds(CollectiveKind::Send, times.place({{4, 8}}), 47e6),
              1.0134e-3, 1e-9);
  // 24 of 32 parts leave by the rank's own NIC: 8.4 + 3 x 5 us.
  EXPECT_NEAR(
      times.seconds(CollectiveKind::AllToAll, times.place({{32, 1}}), 61e6),
      23.4e-6 + 45.75e6 / (50e9 * 0.9146), 1e-9);
}

TEST(Collectives, LongerMessagesNeverTakeLess) {
  const Cluster clusters[] = {cluster(1), cluster(8), pods()};
  for (const Cluster &cluster : clusters) {
    const CollectiveTimes times(cluster);
    for (const GroupOnCluster &group :
         {times.place({{2, 1}}), times.place({{3, 1}}), times.place({{8, 1}}),
          times.place({{8, 1}, {cluster.nodes, 8}})})
      for (CollectiveKind kind :
           {CollectiveKind::AllReduce, CollectiveKind::AllGather,
            CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
            CollectiveKind::Send}) {
        double before = 0;
        for (double bytes = 1; bytes < 1e12; bytes *= 1.1) {
          const double seconds = times.seconds(kind, group, bytes);
          ASSERT_GE(seconds, before) << bytes;
          before = seconds;
        }
      }
  }
}

TEST(Collectives, BetterLinksAreNeverSlower) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    Cluster base = i % 2 ? pods() : cluster(1 << i % 7);
    Cluster better = base;
    Link &link = better.links[random() % better.links.size()];
    switch (random() % 4) {
    case 0:
      link.bytesPerSecond *= 1.3;
      break;
    case 1:
      link.latencySeconds = 1e-6;
      break;
    case 2:
      link.inNetworkReduction = true;
      break;
    default:
      base.nicsPerNode = 4;
    }
    const CollectiveTimes slow(base), fast(better);
    const std::int64_t inner = std::int64_t{1} << random() % 4,
                       outer = std::int64_t{1} << random() % 6;
    const std::initializer_list<AxisOnRanks> axes = {{inner, 1}, {outer, 8}};
    if (inner * outer > base.nodes * 8 || outer > base.nodes)
      continue;
    const double bytes = std::exp2(static_cast<double>(random() % 35));
    for (CollectiveKind kind :
         {CollectiveKind::AllReduce, CollectiveKind::AllGather,
          CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
          CollectiveKind::Send})
      ASSERT_LE(fast.seconds(kind, fast.place(axes), bytes),
                slow.seconds(kind, slow.place(axes), bytes) * (1 + 1e-12));
  }
}
