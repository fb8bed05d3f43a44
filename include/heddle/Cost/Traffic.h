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

/// Bytes each sends to gather \p bytes of which it has one part, or to reduce
/// them and keep one part: (n-1) / n of them.
double gatherOrScatterBytes(double bytes, std::int64_t ranks);

/// Collectives of one cause and size.
struct StepCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::string cause;         ///< "attention output"
  AxisList axes;             ///< of the communicator, outermost first
  std::int64_t calls = 0;    ///< in one step
  std::int64_t elements = 0; ///< of each: the whole tensor, not a part
  std::int64_t elementBytes = 0;
  double bytes = 0; ///< sent by each rank in one step
  /// Of gradients and parameters, not of what is computed with.
  bool isOfStates = false;
  /// Of `calls`, those that independent work is queued beside.
  std::int64_t hiddenCalls = 0;

  double hiddenBytes() const {
    return calls ? bytes * static_cast<double>(hiddenCalls) /
                       static_cast<double>(calls)
                 : 0;
  }
};

/// What is a call: each gradient's own reduction, as reshards have it, or what
/// is left of them in buckets.
enum class Messages { Gradients, Buckets };

/// Collectives of one optimizer step, function by function, and what goes to
/// stages at other places.
std::vector<StepCollective>
stepCollectives(const RankSizes &sizes, Messages messages = Messages::Buckets);

/// Calls and bytes per list of axes.
struct AxisTraffic {
  std::int64_t calls = 0;
  double bytes = 0;
};
std::map<AxisList, AxisTraffic>
trafficByAxes(const std::vector<StepCollective> &collectives);

} // namespace heddle

#endif // HEDDLE_COST_TRAFFIC_H
