//===- Slots.h - Slots of a schedule as tasks on streams --------*- C++ -*-===//

#ifndef HEDDLE_LIB_COST_SLOTS_H
#define HEDDLE_LIB_COST_SLOTS_H

#include "LayerTimes.h"
#include "Streams.h"

#include "heddle/Schedule/Table.h"

#include <vector>

namespace heddle::detail {

/// What a chunk of a place holds.
struct ChunkContent {
  std::int64_t plain = 0, sparse = 0; ///< layers without and with experts
  std::int64_t again = 0; ///< of all, from the first, that are computed again
  bool hasEmbedding = false, hasHead = false;

  std::int64_t layers() const { return plain + sparse; }
  bool operator==(const ChunkContent &) const = default;
};

/// What the slots of one point are made of.
struct SlotParts {
  LayerTimes plain, sparse;
  EndTimes embedding, head;
  TensorOverlap tensorOverlap = TensorOverlap::None;
  PlanContext context = PlanContext::None;
  double tp = 1;
  std::int64_t prefetch = 0;
  std::int64_t hostRows = 0;        ///< 0: no saved value is on the host
  bool overlaps = true;             ///< states beside computation
  bool gathersBetweenUnits = false; ///< Practice's
  /// Along dp in every slot: parameters gathered in forward and in backward,
  /// gradients summed.
  bool gathersForward = false, gathersBackward = false, sums = false;

  const LayerTimes &layer(const ChunkContent &chunk, std::int64_t i) const {
    return i < chunk.plain ? plain : sparse;
  }
};

/// The tasks of a slot. Backward goes through the layers from the last one;
/// all of the head is in backward, as `timesOfFlops` has it. A collective that
/// runs beside computation makes that longer by a part of its own time, at most
/// by its factor.
class SlotBuilder {
public:
  explicit SlotBuilder(const SlotParts &parts) : parts(parts) {}

  std::span<const StreamTask> build(SlotKind kind, const ChunkContent &chunk);
  /// Forward, with all parameters gathered beside it, from its beginning.
  std::span<const StreamTask> buildFirst(const ChunkContent &chunk);

private:
  int chain(int stream, double seconds);
  int beside(int stream, const Call &call, double part = 1);
  void join(int task);
  void compute(const ComputeSeconds &seconds) {
    chain(computeStream, seconds.total());
  }
  void say(TimeAxis axis, const Call &call, double times = 1);
  void between(double before, double computed, double behind,
               const LayerTimes &layer, bool hasContext, bool isBackward);
  void attentionForward(const LayerTimes &layer);
  void mlpForward(const LayerTimes &layer);
  void core(const LayerTimes &layer, double seconds, const Call &context,
            double ring);
  void runAgain(const LayerTimes &layer);
  void part(const PartTimes &part, const LayerTimes &layer, bool isAttention,
            bool withWeights);
  void begin();
  void gatherUntil(const ChunkContent &chunk, std::int64_t until,
                   bool isBackward);
  void gatherAhead(const ChunkContent &chunk, std::int64_t step,
                   bool isBackward);
  void forward(const ChunkContent &chunk, bool gathersAll);
  void backward(const ChunkContent &chunk, bool withWeights);
  void weights(const ChunkContent &chunk);
  void sumGradients(const Call &gradients);
  int copyBeside(const Call &copy, std::int64_t layer);
  void awaitRow(std::int64_t layer);
  void fetchAhead(const ChunkContent &chunk, std::int64_t step,
                  Call HostCopies::*fetch);
  void at(SlotPart part, std::int64_t layer = -1) {
    of = part;
    atLayer = static_cast<std::int16_t>(layer);
  }

  const SlotParts &parts;
  std::vector<StreamTask> tasks;
  /// Per step through the layers.
  std::vector<int> gathered, stored, fetched;
  int last = -1;
  std::array<int, StreamTask::mostNeeds - 1> joined; ///< of these, `joins`
  std::size_t joins = 0;
  double debt = 0, mostSlows = 1;    ///< of collectives beside computation
  SlotPart of = SlotPart::Attention; ///< what the next tasks are of
  std::int16_t atLayer = -1;
};

/// Never more than the tasks of a slot take: computation and what stands in
/// line with it, or all that goes along dp.
double slotBound(const SlotParts &parts, SlotKind kind,
                 const ChunkContent &chunk);

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_SLOTS_H
