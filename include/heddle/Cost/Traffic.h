//===- Traffic.h - Bytes that one rank sends in a step ----------*- C++ -*-===//

#ifndef HEDDLE_COST_TRAFFIC_H
#define HEDDLE_COST_TRAFFIC_H

#include "heddle/Cost/RankSizes.h"

#include <map>
#include <string>
#include <vector>

namespace heddle {

/// Bytes each of \p ranks ranks must send to all-reduce \p bytes: 2 (n-1) / n
/// of them (reduce-scatter, then all-gather).
double allReduceBytes(double bytes, std::int64_t ranks);

/// All-reduces of one kind and size.
struct Reduction {
  std::string cause;         ///< "attention output"
  AxisList axes;             ///< of the communicator, outermost first
  std::int64_t calls = 0;    ///< in one step
  std::int64_t elements = 0; ///< of each
  std::int64_t elementBytes = 0;
  double bytes = 0; ///< sent by each rank in one step
};

/// Collectives of one optimizer step, in the order of their first call. All are
/// all-reduces: parameters are not sharded in storage here.
std::vector<Reduction> stepReductions(const RankSizes &sizes);

/// Calls and bytes per list of axes.
struct AxisTraffic {
  std::int64_t calls = 0;
  double bytes = 0;
};
std::map<AxisList, AxisTraffic>
trafficByAxes(const std::vector<Reduction> &reductions);

} // namespace heddle

#endif // HEDDLE_COST_TRAFFIC_H
