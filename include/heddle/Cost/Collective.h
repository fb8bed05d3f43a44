//===- Collective.h - How long collectives take -----------------*- C++ -*-===//
//
// Two figures that share nothing: `idealSeconds`, the textbook's bytes over
// rate, and `CollectiveTimes`, what NCCL needs.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_COLLECTIVE_H
#define HEDDLE_COST_COLLECTIVE_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Cost/Traffic.h"

#include <initializer_list>
#include <map>
#include <span>
#include <string>

namespace heddle {

/// \p bytesPerRank, which each rank sends (Traffic.h: a ring's volume), over
/// the per-device rate of the slowest link: no latency, no other traffic, no
/// rails shared or joined.
double idealSeconds(double bytesPerRank, double slowestBytesPerSecond);

/// An axis of a group: ranks along it, and how far apart two neighbours are in
/// the order of ranks. Ranks fill nodes one after the other.
struct AxisOnRanks {
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// How one group of ranks lies on a cluster.
struct GroupOnCluster {
  std::int64_t ranks = 1;
  /// In one node. Where groups do not fit into nodes in whole, of the group
  /// that is cut most: the greatest common divisor.
  std::int64_t ranksPerNode = 1;
  std::int64_t nodes = 1;
  /// The outermost level of links that it crosses, from 0.
  std::size_t level = 0;
  /// Per-device rate of the slowest link that it crosses, as the file has it.
  double slowestBytesPerSecond = 0;

  // What CollectiveTimes computes with.
  /// Of a ring: bytes per second that leave each rank, in and between nodes.
  double ringBytesPerSecond = 0;
  /// Of one rank that sends to ranks in all other nodes while all others do.
  double spreadBytesPerSecond = 0;
  /// Of one rank that sends to its neighbour in the group while all others do.
  double sendBytesPerSecond = 0;
  bool addsBetweenNodes = false; ///< all levels that it crosses
  double hopSeconds = 0;         ///< from node to node

  bool isInNode() const { return nodes == 1; }
};

enum class CollectiveAlgorithm {
  None,      ///< one rank: nothing moves
  Ring,      ///< in a node, or along all ranks and rails
  Tree,      ///< up and down, in short messages of many nodes
  Nvls,      ///< switches inside a node add (in_network_reduction)
  NvlsTree,  ///< those, and a tree of nodes
  InNetwork, ///< switches between nodes add
  Direct,    ///< each pair by itself
};
std::string_view algorithmName(CollectiveAlgorithm algorithm); ///< "ring"

struct CollectiveTime {
  double seconds = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::None;
};

/// Of one cluster. In a node: measured times of 2, 4 and 8 H100 over NVLink and
/// its switches (lib/Cost/CollectiveTable.cpp), between them and their sizes by
/// interpolation, what lies above the latency scaled by the node's rate.
/// Between nodes: a group of g ranks in each node drives g rails, so a ring's
/// volume leaves at g times a rail's rate (0.914 of a NIC's: 365.8 GB/s over 8
/// of 50, nccl-tests #309), at most at the rate inside; devices that share a
/// NIC share its rate; a level that is oversubscribed gives each rank that a
/// group has below it its share. Hops take NCCL's own latencies (tuning.cc).
/// Rings lose 0.76 % of their rate each time nodes double beyond 4 (248 nodes
/// reach 350 GB/s, nccl-tests #283). A device with measured times has its own
/// in a node: straight between sizes, by the logarithm between numbers of
/// ranks, in proportion to them beyond the most that were measured.
class CollectiveTimes {
public:
  explicit CollectiveTimes(const Cluster &cluster);

  GroupOnCluster place(std::span<const AxisOnRanks> axes) const;
  GroupOnCluster place(std::initializer_list<AxisOnRanks> axes) const {
    return place(std::span(axes.begin(), axes.size()));
  }

  /// \p bytes: the whole tensor, as StepCollective counts elements; of a Send,
  /// what one rank sends. The fastest of the algorithms that there are.
  CollectiveTime time(CollectiveKind kind, const GroupOnCluster &group,
                      double bytes) const;
  double seconds(CollectiveKind kind, const GroupOnCluster &group,
                 double bytes) const {
    return time(kind, group, bytes).seconds;
  }

private:
  double measuredSeconds(CollectiveKind kind, double ranks, double bytes) const;
  CollectiveTime inNode(CollectiveKind kind, double ranks, double bytes) const;
  CollectiveTime betweenNodes(CollectiveKind kind, const GroupOnCluster &group,
                              double bytes) const;
  double ringSeconds(CollectiveKind kind, const GroupOnCluster &group,
                     double bytes) const;
  double treeSeconds(const GroupOnCluster &group, double bytes) const;
  double nvlsTreeSeconds(const GroupOnCluster &group, double bytes) const;
  double send(const GroupOnCluster &group, double bytes) const;

  std::int64_t devicesPerNode = 1;
  double railsPerDevice = 1; ///< NICs per device, at most 1
  double nodeScale = 1;      ///< measured link's rate over the node's
  bool addsInNode = false;
  std::vector<Link> links;
  /// Measured ones: by kind and ranks, from bytes to seconds.
  std::map<CollectiveKind, std::map<double, std::map<double, double>>> measured;
};

} // namespace heddle

#endif // HEDDLE_COST_COLLECTIVE_H
