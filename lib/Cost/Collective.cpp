#include "heddle/Cost/Collective.h"

#include "CollectiveTable.h"

#include "heddle/Cluster/MeasuredTimes.h"
#include "heddle/Support/Check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace heddle;
using namespace heddle::detail;

namespace {

/// A rail's rate over that of its NIC: 365.84 GB/s over 8 NICs of 50 on 4
/// nodes (nccl-tests #309). Of one message to one peer: 47 of 50 (#290).
constexpr double kRail = 0.9146, kSend = 0.94;
/// Bus bandwidth of rings, and with sums in switches, over an NVLink of 450
/// GB/s (NVIDIA, GTC 2024).
constexpr double kRingInNode = 370e9, kNvls = 480e9;
/// One message between two H200 of a node (396 GB/s, same NVLink).
constexpr double kSendInNode = 396e9;
/// What each doubling of nodes beyond 4 costs of the rate: 365.84 GB/s on 4,
/// 350 on 248 (nccl-tests #283).
constexpr double kSlowdown = 0.0076;

/// NCCL's latencies in seconds (src/graph/tuning.cc of 2.28.7, as of 2.12:
/// baseLatencies, hwLatencies of NVLink; of the network 4.0 and 14 us for
/// rings, 8.5 and 14 for trees, here over the 4.0 of a hop).
struct Protocol {
  double ringBase, treeBase;
  double ringInNode, treeInNode;
  double ringHop, treeHop; ///< added to, times, the latency of a network hop
  double rate;             ///< of the link's
};
constexpr Protocol kProtocols[] = {
    {14e-6, 14e-6, 1.9e-6, 1.25e-6, 0, 2.125, 0.92},    // LL128
    {8.4e-6, 8.4e-6, 3.4e-6, 4.0e-6, 10e-6, 3.5, 1.00}, // Simple
};
constexpr double kHop = 4.0e-6; ///< of LL128's ring, where no file says

double real(std::int64_t value) { return static_cast<double>(value); }

/// Seconds of a row at \p bytes: straight between sizes, and beyond the last
/// one as between the two before it. What lies above the latency is scaled.
double interpolate(std::span<const double> row, double bytes, double scale) {
  double micros = row[0];
  if (bytes > firstBytes) {
    const auto last = static_cast<int>(row.size()) - 2;
    const int at = std::min(std::ilogb(bytes / firstBytes), last);
    const double size = std::ldexp(firstBytes, at);
    const auto i = static_cast<std::size_t>(at);
    micros = row[i] + (row[i + 1] - row[i]) * (bytes - size) / size;
  }
  return (row[0] + (micros - row[0]) * scale) * 1e-6;
}

/// Over any number of devices: between 2, 4 and 8 by their logarithm; over more
/// than 8 as over 8, by the bytes that each sends.
double interpolate(const Rows &rows, double ranks, double bytes, double scale) {
  if (ranks >= 8)
    return interpolate(rows[2], bytes, scale) * (ranks - 1) / ranks * 8 / 7;
  const double at = std::log2(ranks) - 1;
  const std::size_t i = at >= 1 ? 1 : 0;
  const double low = interpolate(rows[i], bytes, scale);
  if (at == static_cast<double>(i))
    return low;
  return low + (interpolate(rows[i + 1], bytes, scale) - low) *
                   (at - static_cast<double>(i));
}

} // namespace

double heddle::idealSeconds(double bytesPerRank, double slowestBytesPerSecond) {
  return bytesPerRank > 0 ? bytesPerRank / slowestBytesPerSecond : 0;
}

std::string_view heddle::algorithmName(CollectiveAlgorithm algorithm) {
  static constexpr std::string_view names[] = {
      "none", "ring", "tree", "nvls", "nvls_tree", "in_network", "direct"};
  return names[static_cast<std::size_t>(algorithm)];
}

CollectiveTimes::CollectiveTimes(const Cluster &cluster)
    : devicesPerNode(cluster.devicesPerNode),
      railsPerDevice(
          std::min(1.0, real(cluster.nicsPerNode > 0 ? cluster.nicsPerNode
                                                     : cluster.devicesPerNode) /
                            real(cluster.devicesPerNode))),
      nodeScale(measuredLink / cluster.links.front().bytesPerSecond),
      addsInNode(cluster.links.front().inNetworkReduction),
      links(cluster.links) {
  if (!cluster.device.measured)
    return;
  static const std::map<std::string_view, CollectiveKind> kinds = {
      {"all_reduce", CollectiveKind::AllReduce},
      {"all_gather", CollectiveKind::AllGather},
      {"reduce_scatter", CollectiveKind::ReduceScatter},
      {"all_to_all", CollectiveKind::AllToAll}};
  for (const MeasuredCollective &each : cluster.device.measured->collectives)
    measured[kinds.at(each.kind)][real(each.ranks)][real(each.bytes)] =
        each.seconds;
  // A longer message never takes less.
  for (auto &[kind, byRanks] : measured)
    for (auto &[ranks, row] : byRanks)
      for (double longest = 0; auto &[bytes, seconds] : row)
        seconds = longest = std::max(longest, seconds);
}

/// Straight between two sizes; beyond the longest in proportion to bytes.
static double secondsOf(const std::map<double, double> &row, double bytes) {
  const auto above = row.lower_bound(bytes);
  if (above == row.begin())
    return above->second;
  const auto below = std::prev(above);
  if (above == row.end())
    return below->second * bytes / below->first;
  return below->second + (above->second - below->second) *
                             (bytes - below->first) /
                             (above->first - below->first);
}

double CollectiveTimes::measuredSeconds(CollectiveKind kind, double ranks,
                                        double bytes) const {
  const auto &byRanks = measured.at(kind);
  const auto above = byRanks.lower_bound(ranks);
  if (above == byRanks.end()) {
    const auto &[most, row] = *std::prev(above);
    return secondsOf(row, bytes) * ranks / most;
  }
  const double high = secondsOf(above->second, bytes);
  if (above == byRanks.begin())
    return high;
  const auto &[fewer, row] = *std::prev(above);
  const double low = secondsOf(row, bytes);
  return low + (high - low) * std::log2(ranks / fewer) /
                   std::log2(above->first / fewer);
}

/// Of a group, in the worst of the blocks of \p unit consecutive ranks.
static std::int64_t ranksWithin(std::span<const AxisOnRanks> axes,
                                std::int64_t unit) {
  std::int64_t ranks = 1;
  for (const AxisOnRanks &axis : axes)
    ranks *= std::max<std::int64_t>(1, std::gcd(axis.size * axis.stride, unit) /
                                           axis.stride);
  return ranks;
}

GroupOnCluster CollectiveTimes::place(std::span<const AxisOnRanks> axes) const {
  GroupOnCluster group;
  for (const AxisOnRanks &axis : axes)
    group.ranks *= axis.size;
  group.ranksPerNode = ranksWithin(axes, devicesPerNode);
  group.nodes = group.ranks / group.ranksPerNode;
  const double inNode = links.front().bytesPerSecond;
  group.slowestBytesPerSecond = inNode;
  group.ringBytesPerSecond = kRingInNode / nodeScale;
  group.spreadBytesPerSecond = group.sendBytesPerSecond =
      kSendInNode / nodeScale;
  if (group.isInNode())
    return group;
  if (group.ranksPerNode == 1)
    group.slowestBytesPerSecond = group.ringBytesPerSecond =
        std::numeric_limits<double>::infinity();
  group.addsBetweenNodes = true;
  std::int64_t below = group.ranksPerNode; // ranks of the group in one unit
  double rails = railsPerDevice;
  while (below < group.ranks && group.level + 1 < links.size()) {
    const Link &link = links[++group.level];
    const double rate = link.bytesPerSecond * rails;
    const double all = rate / link.oversubscription;
    group.slowestBytesPerSecond =
        std::min(group.slowestBytesPerSecond, link.bytesPerSecond);
    group.ringBytesPerSecond =
        std::min(group.ringBytesPerSecond, real(below) * all * kRail);
    group.spreadBytesPerSecond =
        std::min(group.spreadBytesPerSecond, all * kRail);
    group.sendBytesPerSecond = std::min(
        group.sendBytesPerSecond, std::min(rate, real(below) * all) * kSend);
    group.hopSeconds =
        std::max(group.hopSeconds, link.latencySeconds.value_or(kHop));
    group.addsBetweenNodes &= link.inNetworkReduction;
    below = ranksWithin(axes, link.nodes * devicesPerNode);
  }
  if (group.nodes > 4)
    group.ringBytesPerSecond /=
        1 + kSlowdown * std::log2(real(group.nodes) / 4);
  return group;
}

CollectiveTime CollectiveTimes::inNode(CollectiveKind kind, double ranks,
                                       double bytes) const {
  if (measured.contains(kind))
    return {measuredSeconds(kind, ranks, bytes), CollectiveAlgorithm::Direct};
  auto of = [&](const Rows &rows) {
    return interpolate(rows, ranks, bytes, nodeScale);
  };
  switch (kind) {
  case CollectiveKind::AllGather:
    return {of(gathers), CollectiveAlgorithm::Ring};
  case CollectiveKind::ReduceScatter:
    return {of(scatters), CollectiveAlgorithm::Ring};
  case CollectiveKind::AllToAll:
    return {of(exchanges), CollectiveAlgorithm::Direct};
  case CollectiveKind::AllReduce:
    break;
  case CollectiveKind::Send:
    return {interpolate(gather2, firstBytes, nodeScale) +
                bytes * nodeScale / kSendInNode,
            CollectiveAlgorithm::Direct};
  }
  // Switches add where more than 4 take part: what was measured over 2 and 4
  // are rings. Over 8 a ring takes as long as its two halves.
  double ring = of(reductions);
  if (ranks > 4) {
    const double four = interpolate(reductions[1], bytes, nodeScale);
    const double halves = interpolate(gathers[2], bytes, nodeScale) +
                          interpolate(scatters[2], bytes, nodeScale);
    const double part = std::min(1.0, std::log2(ranks) - 2);
    const double sum = std::max(four, four + (halves - four) * part);
    if (addsInNode && ring < sum)
      return {ring, CollectiveAlgorithm::Nvls};
    ring = std::max(ring, sum);
  }
  return {ring, CollectiveAlgorithm::Ring};
}

/// Steps of a ring: all-reduce goes round twice.
double CollectiveTimes::ringSeconds(CollectiveKind kind,
                                    const GroupOnCluster &group,
                                    double bytes) const {
  const double rounds = kind == CollectiveKind::AllReduce ? 2 : 1;
  const double n = real(group.ranks), nodes = real(group.nodes);
  const double volume = rounds * gatherOrScatterBytes(bytes, group.ranks);
  double best = std::numeric_limits<double>::infinity();
  for (const Protocol &protocol : kProtocols)
    best = std::min(
        best,
        protocol.ringBase +
            rounds * ((n - nodes) * protocol.ringInNode +
                      (nodes - 1) * (group.hopSeconds + protocol.ringHop)) +
            volume / (group.ringBytesPerSecond * protocol.rate));
  return best;
}

/// Up and down a tree of nodes, a chain in each; trees reach 0.9 of a ring's
/// rate (tuning.cc).
double CollectiveTimes::treeSeconds(const GroupOnCluster &group,
                                    double bytes) const {
  const double depth = std::ceil(std::log2(real(group.nodes)));
  double best = std::numeric_limits<double>::infinity();
  for (const Protocol &protocol : kProtocols)
    best = std::min(
        best, protocol.treeBase +
                  2 * (real(group.ranksPerNode - 1) * protocol.treeInNode +
                       depth * protocol.treeHop * group.hopSeconds) +
                  allReduceBytes(bytes, group.ranks) /
                      (0.9 * group.ringBytesPerSecond * protocol.rate));
  return best;
}

/// Switches add in a node, one rank of each goes on: at a ring's rate, without
/// the chain inside. 512 MiB over 248 nodes: 327 GB/s here, about 350 and
/// unstable there (nccl-tests #283).
double CollectiveTimes::nvlsTreeSeconds(const GroupOnCluster &group,
                                        double bytes) const {
  const Protocol &protocol = kProtocols[0];
  const double depth = std::ceil(std::log2(real(group.nodes)));
  return protocol.treeBase +
         2 * (kProtocols[1].treeInNode +
              depth * protocol.treeHop * group.hopSeconds) +
         allReduceBytes(bytes, group.ranks) / group.ringBytesPerSecond;
}

double CollectiveTimes::send(const GroupOnCluster &group, double bytes) const {
  return kProtocols[1].ringBase + group.hopSeconds +
         bytes / group.sendBytesPerSecond;
}

CollectiveTime CollectiveTimes::betweenNodes(CollectiveKind kind,
                                             const GroupOnCluster &group,
                                             double bytes) const {
  if (kind == CollectiveKind::Send)
    return {send(group, bytes), CollectiveAlgorithm::Direct};
  if (kind == CollectiveKind::AllToAll) {
    // Rounds of one message to each other node, and what stays inside.
    const double outside =
        bytes * real(group.ranks - group.ranksPerNode) / real(group.ranks);
    const double inside =
        gatherOrScatterBytes(bytes / real(group.nodes), group.ranksPerNode);
    return {kProtocols[1].ringBase + real(group.nodes - 1) * group.hopSeconds +
                std::max(outside / group.spreadBytesPerSecond,
                         inside * nodeScale / kSendInNode),
            CollectiveAlgorithm::Direct};
  }
  CollectiveTime best = {ringSeconds(kind, group, bytes),
                         CollectiveAlgorithm::Ring};
  if (kind != CollectiveKind::AllReduce)
    return best;
  auto offer = [&](double seconds, CollectiveAlgorithm algorithm) {
    if (seconds < best.seconds)
      best = {seconds, algorithm};
  };
  offer(treeSeconds(group, bytes), CollectiveAlgorithm::Tree);
  if (addsInNode && group.ranksPerNode > 1)
    offer(nvlsTreeSeconds(group, bytes), CollectiveAlgorithm::NvlsTree);
  if (group.addsBetweenNodes) {
    // Each rank's part crosses once instead of twice; inside it is a ring, or
    // switches add there too.
    const double inside = group.ranksPerNode == 1
                              ? std::numeric_limits<double>::infinity()
                              : (addsInNode ? kNvls : kRingInNode) / nodeScale;
    const double rate = std::min(2 * group.ringBytesPerSecond, inside);
    offer(kProtocols[1].treeBase +
              2 * (real(group.ranksPerNode - 1) * kProtocols[1].treeInNode +
                   group.hopSeconds) +
              allReduceBytes(bytes, group.ranks) / rate,
          CollectiveAlgorithm::InNetwork);
  }
  return best;
}

CollectiveTime CollectiveTimes::time(CollectiveKind kind,
                                     const GroupOnCluster &group,
                                     double bytes) const {
  if (group.ranks <= 1 || bytes <= 0)
    return {};
  return group.isInNode() ? inNode(kind, real(group.ranks), bytes)
                          : betweenNodes(kind, group, bytes);
}
