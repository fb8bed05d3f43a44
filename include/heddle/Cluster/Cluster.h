//===- Cluster.h - Machines, devices and links ------------------*- C++ -*-===//
//
// cluster.yaml as a value. Units are in the names: bytes, bytes per second per
// device and direction, seconds, FLOP/s. In the file: GiB = 2^30 bytes,
// GB = 1e9 bytes, TFLOP/s = 1e12.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_CLUSTER_CLUSTER_H
#define HEDDLE_CLUSTER_CLUSTER_H

#include "heddle/Support/Document.h"
#include "heddle/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

struct MeasuredTimes;

/// A kind of device.
struct Device {
  std::string name;                ///< "h100-sxm-80gb", "host", or "custom"
  bool isHost = false;             ///< ranks of one machine share its memory
  std::int64_t memoryBytes = 0;    ///< of a device; host: of the machine
  double memoryBytesPerSecond = 0; ///< 0: not known
  /// Dense peak by format: fp32, tf32, bf16, fp16, fp8, fp4. Absent: the
  /// device does not have it, or (host) nobody measured it.
  std::map<std::string, double> peakFlops;
  std::int64_t multiprocessors = 0; ///< 0: not known
  /// What large products, the best fused attention, and FlashAttention-2 reach
  /// of the peak, over what they reach of it on an H100 SXM, whose kernels were
  /// measured.
  double productRatio = 1, attentionRatio = 1, flash2Ratio = 1;
  /// What `heddle calibrate` measured on it (MeasuredTimes.h), or none: times
  /// of an H100 stand for it, by peaks and rates.
  std::shared_ptr<const MeasuredTimes> measured;

  /// 0 where the device has no figure for the format.
  double peak(std::string_view format) const;
};

/// The device of a name that heddle knows; none for others. "host" is this
/// machine, asked when called.
std::optional<Device> deviceByName(std::string_view name);
std::vector<std::string> deviceNames();

/// One level of the network.
struct Link {
  std::string level;         ///< "node", "pod", "cluster", ...
  std::int64_t nodes = 1;    ///< nodes that one group of this level spans
  double bytesPerSecond = 0; ///< per device, before oversubscription
  std::optional<double> latencySeconds; ///< per hop; none: measured table
  double oversubscription = 1; ///< divides the rate when all talk at once
  bool inNetworkReduction = false;
};

enum class CheckpointMode { Sync, TwoPhase };

struct Cluster {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t devicesPerNode = 1;
  Device device;
  /// Not for plans. Of each device; of a host, of the whole machine.
  std::int64_t memoryReserveBytes = 0;
  std::int64_t nicsPerNode = 0; ///< default: as many as devices
  std::vector<Link> links;      ///< innermost first; the last spans all nodes
  std::optional<double> mtbfHoursPerDevice;
  std::optional<double> storageBytesPerSecond;
  std::optional<double> hostLinkBytesPerSecond;
  CheckpointMode checkpoint = CheckpointMode::TwoPhase;
  std::optional<double> checkpointPauseSeconds;

  std::int64_t devices() const { return nodes * devicesPerNode; }
  /// Bytes that a plan may use on one device: memory less the reserve; on a
  /// host an equal share of the machine's.
  std::int64_t planBytesPerDevice() const;
};

/// Defaults: name = the file's, nics_per_node = devices_per_node,
/// memory_reserve_gib 0, nothing known about failures, storage, host link.
Result<Cluster> readCluster(const std::filesystem::path &path);
Result<Cluster> readCluster(const Document &document);

} // namespace heddle

#endif
