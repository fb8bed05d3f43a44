//===- WalkProgram.cpp - An rt.program step by step, with numbers ---------===//

#include "passes/Lowering/WalkProgram.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
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

/// The axes along which places differ by more than a multiple of a number.
static llvm::StringSet<> axesOfData(rt::ProgramOp program) {
  llvm::StringSet<> axes;
  if (program.getStages())
    axes.insert(*program.getStages());
  for (auto table : program.getOps<rt::NumbersOp>())
    if (table.getAxis())
      axes.insert(*table.getAxis());
  if (program.getChannels())
    for (auto channel : program.getChannels()->getAsRange<rt::ChannelAttr>())
      axes.insert(channel.getAxis());
  return axes;
}

SmallVector<int64_t> ranksAtEnds(rt::ProgramOp program) {
  llvm::StringSet<> whole = axesOfData(program);
  SmallVector<int64_t> ranks = {0};
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>()) {
    SmallVector<int64_t> more;
    int64_t last = axis.getSize() - 1;
    int64_t step =
        whole.contains(axis.getName()) ? 1 : std::max(last, int64_t(1));
    for (int64_t rank : ranks)
      for (int64_t place = 0; place <= last; place += step)
        more.push_back(rank * axis.getSize() + place);
    ranks = more;
  }
  return ranks;
}

/// Place of a rank on an axis.
static int64_t placeOn(rt::ProgramOp program, StringRef axis, int64_t rank) {
  return rank / distanceOn(program, axis) % program.getAxisSize(axis);
}

int64_t peerOf(rt::ProgramOp program, rt::ChannelAttr channel, int64_t rank,
               int64_t direction) {
  int64_t size = program.getAxisSize(channel.getAxis()),
          place = placeOn(program, channel.getAxis(), rank),
          other = (place + direction * channel.getShift()) % size;
  return rank + ((other + size) % size - place) *
                    distanceOn(program, channel.getAxis());
}

int64_t stageOf(rt::ProgramOp program, int64_t rank) {
  return program.getStages() ? placeOn(program, *program.getStages(), rank) : 0;
}

ProgramWalker::ProgramWalker(rt::ProgramOp program, bool readsAddresses)
    : program(program), readsAddresses(readsAddresses) {
  if (!program.getStages() || !readsAddresses)
    return;
  stageAxes = bitOf(*program.getStages());
  for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>())
    if (!arena.getByStage().empty())
      axes |= stageAxes;
}

ProgramWalker::Axes ProgramWalker::bitOf(StringRef axis) {
  for (auto [i, entry] :
       llvm::enumerate(program.getMesh().getAsRange<rt::AxisAttr>()))
    if (entry.getName() == axis)
      return entry.getSize() > 1 ? Axes(1) << i : 0;
  return 0;
}

int64_t ProgramWalker::kindOf(int64_t ofRank) const {
  int64_t kind = 0, below = 1;
  ArrayAttr mesh = rt::ProgramOp(program).getMesh();
  for (size_t i = mesh.size(); i-- > 0;) {
    int64_t size = cast<rt::AxisAttr>(mesh[i]).getSize();
    if (axes >> i & 1)
      kind += ofRank / below % size * below;
    below *= size;
  }
  return kind;
}

LogicalResult
ProgramWalker::forEachKind(llvm::function_ref<LogicalResult(int64_t)> check) {
  SmallVector<int64_t> ranks = ranksAtEnds(program), walked;
  // A walk may show that more places matter: then the ranks that seemed to be
  // like one before are looked at again.
  for (Axes before = ~axes; before != axes;) {
    before = axes;
    llvm::DenseSet<int64_t> kinds;
    for (int64_t rank : walked)
      kinds.insert(kindOf(rank));
    for (int64_t ofRank : ranks) {
      if (!kinds.insert(kindOf(ofRank)).second)
        continue;
      walked.push_back(ofRank);
      if (failed(check(ofRank)))
        return failure();
      if (axes != before)
        break;
    }
  }
  return success();
}

LogicalResult ProgramWalker::walk(int64_t ofRank, ProgramVisitor &visits) {
  visitor = &visits;
  rank = ofRank;
  stage = stageOf(program, rank);
  rows.clear();
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
  for (auto [index, stride] : llvm::zip(indices, strides))
    total += (readsAddresses ? use(index, frame)
                             : frame.numbers.lookup(index).value) *
             stride;
  return total;
}

int64_t ProgramWalker::use(Value value, Frame &frame) {
  Number number = frame.numbers.lookup(value);
  axes |= number.axes;
  return number.value;
}

LogicalResult ProgramWalker::walkOp(Operation &op, Frame &frame) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](rt::BufferOp buffer) {
        return walkBuffer(buffer, frame), success();
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
        Number place{placeOver(program, index.getAxes(), rank) *
                     index.getStep()};
        for (StringRef axis : index.getAxes().getAsValueRange<StringAttr>())
          place.axes |= bitOf(axis);
        frame.numbers[index] = place;
        return success();
      })
      .Case([&](rt::ForOp loop) { return walkFor(loop, frame); })
      .Case([&](rt::SwitchOp cases) { return walkSwitch(cases, frame); })
      .Case([&](rt::LookupOp lookup) { return walkLookup(lookup, frame); })
      .Case([&](rt::GroupOp group) {
        visitor->groupBegins(group);
        LogicalResult walked = walkBlock(group.getBody().front(), frame);
        visitor->groupEnds(group);
        return walked;
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

void ProgramWalker::walkBuffer(rt::BufferOp op, Frame &frame) {
  int64_t offset = op.getOffset();
  ArrayRef<int64_t> strides = op.getStrides();
  if (std::optional<ArrayRef<int64_t>> byStage = op.getByStage()) {
    size_t width = strides.size() + 1;
    ArrayRef<int64_t> row = byStage->slice(stage * width, width);
    offset = row.front();
    strides = row.drop_front();
    axes |= stageAxes;
  }
  int64_t begin = offset + sum(op.getIndices(), strides, frame);
  Instance instance{op, program.getArenaIndex(op.getArena()), begin,
                    begin + op.getType().getSpanBytes()};
  frame.places[op] = {instance, begin};
}

LogicalResult ProgramWalker::walkSwitch(rt::SwitchOp op, Frame &frame) {
  auto found = llvm::find(op.getValues(), use(op.getSelector(), frame));
  if (found == op.getValues().end())
    return success();
  return walkBlock(op.getCases()[found - op.getValues().begin()].front(),
                   frame);
}

LogicalResult ProgramWalker::walkLookup(rt::LookupOp op, Frame &frame) {
  Row &row = rows[op.getTableAttr()];
  if (row.values.empty()) {
    auto table = program.lookupSymbol<rt::NumbersOp>(op.getTable());
    std::optional<StringRef> axis = table.getAxis();
    row.values = table.getRow(axis ? placeOn(program, *axis, rank) : 0);
    row.axes = axis ? bitOf(*axis) : 0;
  }
  Number index;
  if (op.getIndex())
    index = frame.numbers.lookup(op.getIndex());
  if (index.value < 0 || index.value >= int64_t(row.values.size()))
    return op.emitOpError() << "reads number " << index.value << " of a row of "
                            << row.values.size() << " on rank " << rank;
  frame.numbers[op] = {row.values[index.value], index.axes | row.axes};
  return success();
}

template <class Op>
std::string ProgramWalker::eventOf(Op op, Frame &frame) {
  std::string name = op.getEvent().str();
  if (op.getSlot())
    name += "." + std::to_string(use(op.getSlot(), frame));
  return name;
}

LogicalResult ProgramWalker::walkFor(rt::ForOp op, Frame &frame) {
  auto bound = [&](std::optional<int64_t> constant, Value value) {
    return constant ? *constant : use(value, frame);
  };
  int64_t lower = bound(op.getLower(), op.getLowerValue()),
          upper = bound(op.getUpper(), op.getUpperValue());
  for (int64_t step = lower; step < upper; ++step) {
    int64_t i = op.getReversed() ? upper - 1 - (step - lower) : step;
    frame.numbers[op.getInductionVariable()] = {i};
    if (failed(walkBlock(op.getBody().front(), frame)))
      return failure();
  }
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
  Axes ofAxes = 0;
  for (Value operand : op.getOperands()) {
    Number number = frame.numbers.lookup(operand);
    ofAxes |= number.axes;
    operands.push_back(builder.getIntegerAttr(operand.getType(), number.value));
  }
  SmallVector<OpFoldResult> results;
  if (failed(op.fold(operands, results)) || results.size() != 1)
    return op.emitOpError() << "cannot be computed from numbers, so what it "
                               "addresses cannot be checked";
  if (auto attribute = dyn_cast<Attribute>(results[0])) {
    if (auto number = dyn_cast<IntegerAttr>(attribute)) {
      frame.numbers[op.getResult(0)] = {number.getInt(), ofAxes};
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
