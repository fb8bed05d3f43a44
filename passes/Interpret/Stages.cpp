//===- Stages.cpp - slots, what passes between stages ---------------------===//

#include "passes/Interpret/Rank.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using namespace heddle::stage;

/// The rank at another place, equal in all else.
static int64_t rankAt(Frame &frame, int64_t place) {
  const Program &program = frame.rank.program;
  Builder builder(program.mesh.getContext());
  return program.mesh.getGroup(frame.rank.number,
                               builder.getStrArrayAttr({kStageAxis}))[place];
}

namespace {
/// The slots of one place.
class SlotRunner {
public:
  SlotRunner(RunOp op, Frame &frame)
      : op(op), frame(frame), stages(*frame.rank.program.stages),
        place(frame.rank.place()) {}

  LogicalResult run() {
    for (Value init : op.getInits())
      carried.push_back(frame.getDatum(init));
    for (auto [i, slot] : llvm::enumerate(stages.schedule.rows[place])) {
      index = i;
      if (failed(run(slot)))
        return failure();
    }
    for (auto [result, datum] : llvm::zip(op.getResults(), carried))
      frame.setDatum(result, datum);
    return success();
  }

private:
  using Key = std::pair<int64_t, int64_t>; ///< chunk and micro-batch

  LogicalResult run(Slot slot) {
    Key key = {slot.chunk(), slot.microBatch()};
    switch (slot.kind()) {
    case SlotKind::Forward:
      return runForward(key);
    case SlotKind::InputGrad:
      return runBackward(key);
    case SlotKind::WeightGrad:
      return runWeight(key);
    case SlotKind::Backward:
      return failed(runBackward(key)) ? failure() : runWeight(key);
    case SlotKind::Optimizer:
      return success(); // what stands behind the run
    }
    llvm_unreachable("all kinds are listed");
  }

  void begin(Region &region, Key key) {
    frame.rank.lastOfChunk =
        stages.isLast(place, index, &region == &op.getWeight());
    frame.setDatum(RunOp::getChunk(region), key.first);
    frame.setDatum(RunOp::getMicroBatch(region), key.second);
  }

  static void set(Frame &frame, ValueRange values, ArrayRef<Datum> data) {
    for (auto [value, datum] : llvm::zip(values, data))
      frame.setDatum(value, datum);
  }
  SmallVector<Datum> get(ValueRange values) {
    SmallVector<Datum> data;
    for (Value value : values)
      data.push_back(frame.getDatum(value));
    return data;
  }

  LogicalResult runForward(Key key) {
    Region &region = op.getForward();
    begin(region, key);
    if (failed(receive(key, -1, op.getReceived(true))) ||
        failed(frame.run(region.front())))
      return failure();
    YieldOp yield = RunOp::getYield(region);
    saved[key] = get(yield.getSaved());
    return send(key, 1, yield);
  }

  LogicalResult runBackward(Key key) {
    Region &region = op.getBackward();
    begin(region, key);
    set(frame, op.getCarried(), carried);
    auto entry = saved.find(key);
    if (entry == saved.end())
      return frame.fail(op, "runs a backward slot before its forward slot");
    set(frame, op.getSaved(region), entry->second);
    if (failed(receive(key, 1, op.getReceived(false))) ||
        failed(frame.run(region.front())))
      return failure();
    YieldOp yield = RunOp::getYield(region);
    carried = get(yield.getCarried());
    if (op.getWeight().empty())
      saved.erase(key);
    else
      kept[key] = get(yield.getSaved());
    return send(key, -1, yield);
  }

  LogicalResult runWeight(Key key) {
    if (op.getWeight().empty())
      return success(); // backward does all
    Region &region = op.getWeight();
    begin(region, key);
    auto entry = kept.find(key);
    if (entry == kept.end())
      return frame.fail(op, "runs a weight slot before its backward slot");
    set(frame, op.getSaved(region), saved[key]);
    set(frame, op.getKept(), entry->second);
    saved.erase(key);
    kept.erase(key);
    return frame.run(region.front());
  }

  /// `shift` as in StageTable::neighbour.
  std::string nameOf(Key key, PlanPlace to, int64_t shift, size_t value) {
    return "value " + std::to_string(value) + " of micro-batch " +
           std::to_string(key.second) + (shift > 0 ? " forward" : " backward") +
           " to chunk " + std::to_string(to.chunk);
  }

  LogicalResult send(Key key, int64_t shift, YieldOp yield) {
    auto to = stages.neighbour(place, key.first, shift);
    if (!to)
      return success();
    for (auto [i, value] : llvm::enumerate(yield.getSent())) {
      std::string what = nameOf(key, *to, shift, i);
      if (isUndefined(frame.getDatum(value)))
        return frame.fail(yield, "sends " + what + " of rank " +
                                     llvm::Twine(rankAt(frame, to->rank)) +
                                     ", which is undefined here");
      frame.exchange.send(frame.rank.number, rankAt(frame, to->rank), what,
                          frame.getPtr(value));
    }
    return success();
  }

  LogicalResult receive(Key key, int64_t from, ValueRange values) {
    auto source = stages.neighbour(place, key.first, from);
    for (auto [i, value] : llvm::enumerate(values)) {
      TensorPtr tensor;
      if (source) {
        tensor = frame.exchange.receive(
            frame.rank.number, op, rankAt(frame, source->rank),
            nameOf(key, {place, key.first}, -from, i));
        if (!tensor)
          return failure();
      }
      frame.setDatum(value, tensor);
    }
    return success();
  }

  RunOp op;
  Frame &frame;
  const StageTable &stages;
  int64_t place;
  size_t index = 0; ///< of the slot that is run
  SmallVector<Datum> carried;
  std::map<Key, SmallVector<Datum>> saved, kept;
};
} // namespace

static LogicalResult evaluate(RunOp op, Frame &frame) {
  return SlotRunner(op, frame).run();
}

/// The number that a value gives a chunk.
static FailureOr<int64_t> chunkOf(Operation *op, Value value, Frame &frame) {
  int64_t chunk = frame.getIndex(value);
  int64_t chunks = frame.rank.program.stages->chunks();
  if (chunk < 0 || chunk >= chunks)
    return frame.fail(op, "asks for chunk " + llvm::Twine(chunk) + " of " +
                              llvm::Twine(chunks));
  return chunk;
}

static FailureOr<bool> hasPart(WhereOp op, Frame &frame) {
  if (op.getPart() == Part::Last)
    return frame.rank.lastOfChunk;
  const StageTable &stages = *frame.rank.program.stages;
  if (!op.getChunk())
    return stages.has(op.getPart(), frame.rank.place());
  FailureOr<int64_t> chunk = chunkOf(op, op.getChunk(), frame);
  if (failed(chunk))
    return failure();
  return stages.has(op.getPart(), frame.rank.place(), *chunk);
}

static LogicalResult evaluate(WhereOp op, Frame &frame) {
  FailureOr<bool> has = hasPart(op, frame);
  if (failed(has))
    return failure();
  Region &region = *has ? op.getBody() : op.getOtherwise();
  if (region.empty())
    return success();
  if (failed(frame.run(region.front())))
    return failure();
  for (auto [result, value] :
       llvm::zip(op.getResults(), WhereOp::getYield(region).getCarried()))
    frame.setDatum(result, frame.getDatum(value));
  return success();
}

static LogicalResult evaluate(UndefinedOp op, Frame &frame) {
  if (isa<transformer::StackType>(op.getType()))
    frame.setDatum(op.getResult(), std::vector<TensorPtr>());
  else
    frame.setDatum(op.getResult(), TensorPtr());
  return success();
}

static LogicalResult evaluate(LayersOp op, Frame &frame) {
  const StageTable &stages = *frame.rank.program.stages;
  int64_t place = frame.rank.place();
  if (!op.getChunk()) {
    frame.setDatum(op.getResult(), stages.heldBy(place));
    return success();
  }
  FailureOr<int64_t> chunk = chunkOf(op, op.getChunk(), frame);
  if (failed(chunk))
    return failure();
  frame.setDatum(op.getResult(), stages.countOf(place, *chunk));
  return success();
}

static LogicalResult evaluate(LayerOp op, Frame &frame) {
  FailureOr<int64_t> chunk = chunkOf(op, op.getChunk(), frame);
  if (failed(chunk))
    return failure();
  frame.setDatum(op.getResult(), frame.rank.program.stages->firstOf(
                                     frame.rank.place(), *chunk) +
                                     frame.getIndex(op.getIndex()));
  return success();
}

static LogicalResult evaluate(SumEndsOp op, Frame &frame) {
  const StageTable &stages = *frame.rank.program.stages;
  int64_t first = stages.placeOfEnd(Part::Embedding, 0),
          last = stages.placeOfEnd(Part::Head, 0), own = frame.rank.place();
  if (own != first && own != last)
    return frame.fail(op, "is at a place that has no end of the chain");
  TensorPtr value = frame.getPtr(op.getInput());
  if (first == last) {
    frame.setDatum(op.getResult(), value);
    return success();
  }
  int64_t other = rankAt(frame, own == first ? last : first);
  const std::string what = "what its end of the chain has";
  frame.exchange.send(frame.rank.number, other, what, value);
  TensorPtr theirs = frame.exchange.receive(frame.rank.number, op, other, what);
  if (!theirs)
    return failure();
  Reading reading = frame.getReading(op.getResult());
  frame.set(op.getResult(), own == first
                                ? addTensors(*value, *theirs, reading)
                                : addTensors(*theirs, *value, reading));
  return success();
}

void heddle::interpret::addStages(Evaluators &evaluators) {
  evaluators.add<RunOp>(evaluate);
  evaluators.add<WhereOp>(evaluate);
  evaluators.add<UndefinedOp>(evaluate);
  evaluators.add<LayersOp>(evaluate);
  evaluators.add<LayerOp>(evaluate);
  evaluators.add<SumEndsOp>(evaluate);
}
