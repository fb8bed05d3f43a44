//===- WalkProgram.cpp - An rt.program step by step, with numbers ---------===//

#include "passes/Lowering/WalkProgram.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace heddle::lowering {

/// Ranks from one place on an axis to the next.
static int64_t distanceOn(rt::ProgramOp program, StringRef name) {
  int64_t below = 1;
  for (Attribute entry : llvm::reverse(program.getMesh())) {
    auto axis = cast<rt::AxisAttr>(entry);
    if (axis.getName() == name)
      break;
    below *= axis.getSize();
  }
  return below;
}

int64_t placeOver(rt::ProgramOp program, ArrayAttr axes, int64_t rank) {
  int64_t place = 0;
  for (StringRef name : axes.getAsValueRange<StringAttr>()) {
    int64_t size = program.getAxisSize(name);
    place = place * size + rank / distanceOn(program, name) % size;
  }
  return place;
}

int64_t firstOfGroup(rt::ProgramOp program, ArrayAttr axes, int64_t rank) {
  int64_t first = rank;
  for (StringRef name : axes.getAsValueRange<StringAttr>()) {
    int64_t distance = distanceOn(program, name);
    first -= rank / distance % program.getAxisSize(name) * distance;
  }
  return first;
}

int64_t peerOf(rt::ProgramOp program, rt::ChannelAttr channel, int64_t rank,
               int64_t direction) {
  int64_t distance = distanceOn(program, channel.getAxis()),
          size = program.getAxisSize(channel.getAxis()),
          place = rank / distance % size;
  int64_t other = (place + direction * channel.getShift()) % size;
  return rank + ((other + size) % size - place) * distance;
}

int64_t stageOf(rt::ProgramOp program, int64_t rank) {
  if (!program.getStages())
    return 0;
  Builder builder(program.getContext());
  return placeOver(program, builder.getStrArrayAttr({*program.getStages()}),
                   rank);
}

SmallVector<int64_t> ranksAtEnds(rt::ProgramOp program) {
  SmallVector<int64_t> ranks = {0};
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>()) {
    SmallVector<int64_t> more;
    int64_t last = axis.getSize() - 1;
    int64_t step =
        axis.getName() == program.getStages() ? 1 : std::max(last, int64_t(1));
    for (int64_t rank : ranks)
      for (int64_t place = 0; place <= last; place += step)
        more.push_back(rank * axis.getSize() + place);
    ranks = more;
  }
  return ranks;
}

LogicalResult ProgramWalker::walk(int64_t ofRank, ProgramVisitor &visits) {
  visitor = &visits;
  rank = ofRank;
  stage = stageOf(program, rank);
  Frame frame;
  return walkBlock(
      program.lookupSymbol<rt::FuncOp>(program.getEntry()).getBody().front(),
      frame);
}

LogicalResult ProgramWalker::walkBlock(Block &block, Frame &frame) {
  for (Operation &op : block)
    if (failed(walkOp(op, frame)))
      return failure();
  return success();
}

int64_t ProgramWalker::sum(OperandRange indices, ArrayRef<int64_t> strides,
                           Frame &frame) {
  int64_t total = 0;
  for (auto [index, stride] : llvm::zip(indices, strides)) {
    Number number = frame.numbers.lookup(index);
    differs |= number.ofRank;
    total += number.value * stride;
  }
  return total;
}

LogicalResult ProgramWalker::walkOp(Operation &op, Frame &frame) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](rt::BufferOp buffer) {
        SmallVector<int64_t> place = buffer.getPlaceAt(stage);
        differs |= buffer.getByStage().has_value();
        int64_t begin = place[0] + sum(buffer.getIndices(),
                                       ArrayRef(place).drop_front(), frame);
        Instance instance{buffer, program.getArenaIndex(buffer.getArena()),
                          begin, begin + buffer.getType().getSpanBytes()};
        frame.places[buffer] = {instance, begin};
        return success();
      })
      .Case([&](rt::ViewOp view) {
        Place place = frame.places.lookup(view.getSource());
        int64_t elements =
            view.getOffset() + sum(view.getIndices(), view.getStrides(), frame);
        place.address += elements * view.getType().getElementBytes();
        frame.places[view] = place;
        return success();
      })
      .Case([&](rt::RankIndexOp index) {
        int64_t place = placeOver(program, index.getAxes(), rank);
        frame.numbers[index] = {place * index.getStep(),
                                program.getGroupSize(index.getAxes()) > 1};
        return success();
      })
      .Case([&](rt::LookupOp lookup) { return walkLookup(lookup, frame); })
      .Case([&](rt::SwitchOp cases) { return walkSwitch(cases, frame); })
      .Case([&](rt::ForOp loop) { return walkFor(loop, frame); })
      .Case([&](rt::GroupOp group) {
        return walkBlock(group.getBody().front(), frame);
      })
      .Case([&](rt::CallOp call) { return walkCall(call, frame); })
      .Case([&](rt::RecordOp record) {
        return visitor->record(record, eventOf(record, frame));
      })
      .Case([&](rt::WaitOp wait) {
        return visitor->wait(wait, eventOf(wait, frame));
      })
      .Case([&](rt::WorkOpInterface work) { return walkWork(work, frame); })
      .Case<rt::ReturnOp, rt::EndOp>([](auto) { return success(); })
      .Default([&](Operation *) { return evaluate(op, frame); });
}

template <class Op>
std::string ProgramWalker::eventOf(Op op, Frame &frame) {
  std::string name = op.getEvent().str();
  if (op.getSlot())
    name += "." + std::to_string(frame.numbers.lookup(op.getSlot()).value);
  return name;
}

LogicalResult ProgramWalker::walkFor(rt::ForOp op, Frame &frame) {
  auto bound = [&](std::optional<int64_t> constant, Value value) {
    if (constant)
      return *constant;
    Number number = frame.numbers.lookup(value);
    differs |= number.ofRank;
    return number.value;
  };
  int64_t lower = bound(op.getLower(), op.getLowerValue()),
          upper = bound(op.getUpper(), op.getUpperValue());
  for (int64_t step = lower; step < upper; ++step) {
    int64_t i = op.getReversed() ? upper - 1 - (step - lower) : step;
    frame.numbers[op.getInductionVariable()] = {i, false};
    if (failed(walkBlock(op.getBody().front(), frame)))
      return failure();
  }
  return success();
}

LogicalResult ProgramWalker::walkLookup(rt::LookupOp op, Frame &frame) {
  auto table = program.lookupSymbol<rt::NumbersOp>(op.getTable());
  int64_t place = 0;
  if (StringAttr axis = table.getAxisAttr())
    place = placeOver(program, ArrayAttr::get(op.getContext(), {axis}), rank);
  Number index = op.getIndex() ? frame.numbers.lookup(op.getIndex()) : Number();
  if (index.value < 0 || index.value >= table.getWidth())
    return op.emitOpError() << "reads number " << index.value << " of a row of "
                            << table.getWidth() << " on rank " << rank;
  frame.numbers[op] = {table.getRow(place)[index.value],
                       index.ofRank || table.getNumRows() > 1};
  return success();
}

LogicalResult ProgramWalker::walkSwitch(rt::SwitchOp op, Frame &frame) {
  Number selector = frame.numbers.lookup(op.getSelector());
  differs |= selector.ofRank;
  for (auto [value, body] : llvm::zip(op.getValues(), op.getCases()))
    if (value == selector.value)
      return walkBlock(body.front(), frame);
  return success();
}

LogicalResult ProgramWalker::walkCall(rt::CallOp op, Frame &frame) {
  rt::FuncOp &callee = functions[op.getCalleeAttr()];
  if (!callee)
    callee = program.lookupSymbol<rt::FuncOp>(op.getCallee());
  Frame inner;
  for (auto [argument, operand] :
       llvm::zip(callee.getBody().getArguments(), op.getOperands())) {
    if (isa<rt::BufType>(operand.getType()))
      inner.places[argument] = frame.places.lookup(operand);
    else
      inner.numbers[argument] = frame.numbers.lookup(operand);
  }
  return walkBlock(callee.getBody().front(), inner);
}

LogicalResult ProgramWalker::walkWork(rt::WorkOpInterface op, Frame &frame) {
  auto [cached, isNew] = accesses.try_emplace(op);
  if (isNew)
    cached->second = op.getAccesses();
  SmallVector<Touch> touches;
  for (const rt::Access &access : cached->second) {
    Place place = frame.places.lookup(access.buffer);
    touches.push_back({place.instance, place.address, access.span, access.run,
                       access.period, access.reads, access.writes});
  }
  return visitor->work(op, touches);
}

LogicalResult ProgramWalker::evaluate(Operation &op, Frame &frame) {
  Builder builder(&op);
  SmallVector<Attribute> operands;
  bool ofRank = false;
  for (Value operand : op.getOperands()) {
    Number number = frame.numbers.lookup(operand);
    ofRank |= number.ofRank;
    operands.push_back(builder.getIntegerAttr(operand.getType(), number.value));
  }
  SmallVector<OpFoldResult> results;
  if (failed(op.fold(operands, results)) || results.size() != 1)
    return op.emitOpError() << "cannot be computed from numbers, so what it "
                               "addresses cannot be checked";
  if (auto attribute = dyn_cast<Attribute>(results[0])) {
    if (auto number = dyn_cast<IntegerAttr>(attribute)) {
      frame.numbers[op.getResult(0)] = {number.getInt(), ofRank};
      return success();
    }
  } else {
    frame.numbers[op.getResult(0)] =
        frame.numbers.lookup(cast<Value>(results[0]));
    return success();
  }
  return op.emitOpError() << "does not make an integer";
}

} // namespace heddle::lowering
