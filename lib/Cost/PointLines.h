//===- PointLines.h - What bounds need of a point ---------------*- C++ -*-===//
//
// Two halves, which many plans share: what one layer takes in line, whatever
// the plan stores where, and what its states take along dp, whatever the rest
// is. Both are kept in StepTimes::State.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_LIB_COST_POINTLINES_H
#define HEDDLE_LIB_COST_POINTLINES_H

#include "NumbersHash.h"
#include "Slots.h"

#include "heddle/Schedule/Simulate.h"

#include <array>
#include <unordered_map>

namespace heddle::detail {

/// Numbers of a point that decide something, as a key.
using PointKey = std::array<std::int64_t, 8>;
/// Of mesh, order, micro-batch, format, sequence parallelism and context.
PointKey lineKey(const PlanPoint &point);
/// Of that, what layers and ends depend on: of the axes that they use, how many
/// ranks, and how far apart.
PointKey layerKey(const PlanPoint &point);
/// Of mesh, order, formats, and what of ZeRO decides how long one collective
/// takes: its last number is one of three kinds, from a bit on, and the shard
/// group.
PointKey stateKey(const PlanPoint &point);
inline constexpr int kShardingShift = 40;

/// Of all that decides what the slots of a chunk take.
using SlotKey = std::array<std::int64_t, 12>;
SlotKey slotKey(const PlanPoint &point, const ChunkContent &chunk);

/// What a chunk's slots take, and how long in them nothing is computed.
struct SlotTimes {
  ChunkTimes times;
  std::array<double, numStreams> exposed = {}; ///< of one micro-batch
};

/// One number for each kind of slot.
struct OfSlots {
  double forward = 0;
  double backward = 0;   ///< D
  double inputGrad = 0;  ///< B
  double weightGrad = 0; ///< W
};

/// Seconds of one micro-batch in the slots of one layer or end: computation and
/// what stands in line with it, none of it along dp.
struct LineTimes : OfSlots {
  std::array<double, 3> again = {}; ///< by PointRecompute
  /// Of these, computation alone; nothing where something of the layer waits
  /// for what runs beside it: that would hide what is slowed.
  OfSlots computed;
};

struct PointLines {
  LineTimes plain, sparse, embedding, head;
  double transfer = 0; ///< between two stages
  double norm = 0;     ///< the sum that clips gradients
};

/// Along dp, and of the optimizer.
struct StateLines {
  struct Segment {
    double gather = 0, sum = 0; ///< seconds
    double elements = 0, expertElements = 0;
    /// By which factor they slow what runs beside them.
    double gatherSlows = 1, sumSlows = 1;
  };
  Segment plain, sparse, embedding, head;
  std::array<OptimizerTimes, 2> optimizer; ///< on the device, on the host
};

/// Of layers and ends alone. \p joins: exchanges of experts are hidden by other
/// slots.
PointLines layerLines(const StepTimes::State &state, const PlanPoint &point,
                      bool joins);
/// With \p layers, what lies between stages too.
PointLines pointLines(const StepTimes::State &state, const PlanPoint &point,
                      PointLines layers);
StateLines stateLines(const StepTimes::State &state, const PlanPoint &point);

/// Values that many points share, made once. Forgets all where it holds many.
template <class Value, class Key = PointKey>
class PointCache {
public:
  template <class Make>
  const Value &get(const Key &key, Make make) {
    auto found = values.find(key);
    if (found != values.end())
      return found->second;
    if (values.size() >= kMost)
      values.clear();
    return values.emplace(key, make()).first->second;
  }

private:
  static constexpr std::size_t kMost = 1 << 16;
  std::unordered_map<Key, Value, NumbersHash> values;
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_POINTLINES_H
