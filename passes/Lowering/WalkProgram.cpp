//===- WalkProgram.cpp - An rt.program step by step, with numbers ---------===//

#include "passes/Lowering/WalkProgram.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

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

/// Place of a rank on an axis.
static int64_t placeOn(rt::ProgramOp program, StringRef axis, int64_t rank) {
  return rank / distanceOn(program, axis) % program.getAxisSize(axis);
}

int64_t placeOver(rt::ProgramOp program, ArrayAttr axes, int64_t rank) {
  int64_t place = 0;
  for (StringRef name : axes.getAsValueRange<StringAttr>()) {
    StringRef mirrored = program.getMirroredAxis(name);
    place = mirrored.empty() ? place * program.getAxisSize(name) +
                                   placeOn(program, name, rank)
                             : place * 2 + (placeOn(program, mirrored, rank) >=
                                            program.getAxisSize(mirrored) / 2);
  }
  return place;
}

int64_t firstOfGroup(rt::ProgramOp program, ArrayAttr axes, int64_t rank) {
  int64_t first = rank;
  for (StringRef name : axes.getAsValueRange<StringAttr>()) {
    StringRef mirrored = program.getMirroredAxis(name),
              axis = mirrored.empty() ? name : mirrored;
    int64_t place = placeOn(program, axis, rank), least = 0;
    if (!mirrored.empty())
      least = std::min(place, program.getAxisSize(axis) - 1 - place);
    first -= (place - least) * distanceOn(program, axis);
  }
  return first;
}

llvm::StringSet<> axesOfData(rt::ProgramOp program) {
  llvm::StringSet<> axes;
  if (program.getStages())
    axes.insert(*program.getStages());
  for (auto table : program.getOps<rt::NumbersOp>())
    if (table.getAxis())
      axes.insert(*table.getAxis());
  if (program.getChannels())
    for (auto channel : program.getChannels()->getAsRange<rt::ChannelAttr>())
      axes.insert(channel.getAxis());
  for (auto group : program.getCommunicators().getAsRange<ArrayAttr>())
    for (StringRef name : group.getAsValueRange<StringAttr>())
      if (StringRef axis = program.getMirroredAxis(name); !axis.empty())
        axes.insert(axis);
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

int64_t peerOf(rt::ProgramOp program, rt::ChannelAttr channel, int64_t rank,
               int64_t direction) {
  int64_t size = program.getAxisSize(channel.getAxis()),
          place = placeOn(program, channel.getAxis(), rank),
          other = (place + direction * (channel.getShift() % size)) % size;
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
  if (StringRef mirrored = program.getMirroredAxis(axis); !mirrored.empty())
    axis = mirrored;
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
  const WalkCode &code =
      codeOf(program.lookupSymbol<rt::FuncOp>(program.getEntry()));
  Frame frame{std::vector<Number>(code.cells), std::vector<Place>(code.cells)};
  return walkBody(code.body, frame);
}

const WalkCode &ProgramWalker::codeOf(rt::FuncOp function) {
  std::unique_ptr<WalkCode> &code = codes[function];
  if (!code)
    code = std::make_unique<WalkCode>(decodeFunction(program, function));
  return *code;
}

LogicalResult ProgramWalker::walkBody(const Instruction::Body &body,
                                      Frame &frame) {
  for (const Instruction &op : body)
    if (failed(walkOp(op, frame)))
      return failure();
  return success();
}

int64_t ProgramWalker::sum(const Instruction &op, ArrayRef<int64_t> strides,
                           Frame &frame) {
  int64_t total = 0;
  for (auto [cell, stride] : llvm::zip(op.operands, strides))
    total += (readsAddresses ? use(cell, frame) : frame.numbers[cell].value) *
             stride;
  return total;
}

int64_t ProgramWalker::use(Cell cell, Frame &frame) {
  axes |= frame.numbers[cell].axes;
  return frame.numbers[cell].value;
}

LogicalResult ProgramWalker::walkOp(const Instruction &op, Frame &frame) {
  switch (op.kind) {
  case Instruction::Kind::Buffer:
    return walkBuffer(op, frame), success();
  case Instruction::Kind::View:
    return walkView(op, frame), success();
  case Instruction::Kind::RankIndex:
    return walkRankIndex(op, frame), success();
  case Instruction::Kind::For:
    return walkFor(op, frame);
  case Instruction::Kind::Switch:
    return walkSwitch(op, frame);
  case Instruction::Kind::Lookup:
    return walkLookup(op, frame);
  case Instruction::Kind::Group: {
    auto group = cast<rt::GroupOp>(op.op);
    visitor->groupBegins(group);
    LogicalResult walked = walkBody(op.bodies.front(), frame);
    visitor->groupEnds(group);
    return walked;
  }
  case Instruction::Kind::Call:
    return walkCall(op, frame);
  case Instruction::Kind::Record:
    return visitor->record(cast<rt::RecordOp>(op.op), eventOf(op, frame));
  case Instruction::Kind::Wait:
    return visitor->wait(cast<rt::WaitOp>(op.op), eventOf(op, frame));
  case Instruction::Kind::Work:
    return walkWork(op, frame);
  case Instruction::Kind::Constant:
    frame.numbers[op.result] = {op.offset};
    return success();
  case Instruction::Kind::Compute: {
    const Number &a = frame.numbers[op.operands[0]],
                 &b = frame.numbers[op.operands[1]];
    frame.numbers[op.result] = {op.compute(a.value, b.value), a.axes | b.axes};
    return success();
  }
  case Instruction::Kind::Fold:
    return fold(op, frame);
  }
  llvm_unreachable("no other kind");
}

void ProgramWalker::walkBuffer(const Instruction &op, Frame &frame) {
  int64_t offset = op.offset;
  ArrayRef<int64_t> strides = op.strides;
  if (!op.byStage.empty()) {
    size_t width = strides.size() + 1;
    ArrayRef<int64_t> row = op.byStage.slice(stage * width, width);
    offset = row.front();
    strides = row.drop_front();
    axes |= stageAxes;
  }
  int64_t begin = offset + sum(op, strides, frame);
  Instance instance{cast<rt::BufferOp>(op.op), op.arena, begin,
                    begin + op.bytes};
  frame.places[op.result] = {instance, begin};
}

void ProgramWalker::walkView(const Instruction &op, Frame &frame) {
  Place place = frame.places[op.source];
  place.address += op.offset + sum(op, op.strides, frame) * op.bytes;
  frame.places[op.result] = place;
}

void ProgramWalker::walkRankIndex(const Instruction &op, Frame &frame) {
  auto index = cast<rt::RankIndexOp>(op.op);
  Number place{placeOver(program, index.getAxes(), rank) * index.getStep()};
  for (StringRef axis : index.getAxes().getAsValueRange<StringAttr>())
    place.axes |= bitOf(axis);
  frame.numbers[op.result] = place;
}

LogicalResult ProgramWalker::walkSwitch(const Instruction &op, Frame &frame) {
  auto found = llvm::find(op.cases, use(op.operands[0], frame));
  if (found == op.cases.end())
    return success();
  return walkBody(op.bodies[found - op.cases.begin()], frame);
}

LogicalResult ProgramWalker::walkLookup(const Instruction &op, Frame &frame) {
  auto lookup = cast<rt::LookupOp>(op.op);
  Row &row = rows[lookup.getTableAttr()];
  if (row.values.empty()) {
    auto table = program.lookupSymbol<rt::NumbersOp>(lookup.getTable());
    std::optional<StringRef> axis = table.getAxis();
    row.values = table.getRow(axis ? placeOn(program, *axis, rank) : 0);
    row.axes = axis ? bitOf(*axis) : 0;
  }
  Number index;
  if (!op.operands.empty())
    index = frame.numbers[op.operands[0]];
  if (index.value < 0 || index.value >= int64_t(row.values.size()))
    return lookup.emitOpError()
           << "reads number " << index.value << " of a row of "
           << row.values.size() << " on rank " << rank;
  frame.numbers[op.result] = {row.values[index.value], index.axes | row.axes};
  return success();
}

std::string ProgramWalker::eventOf(const Instruction &op, Frame &frame) {
  if (op.operands.empty())
    return op.event;
  return rt::eventInRow(op.event, use(op.operands[0], frame));
}

LogicalResult ProgramWalker::walkFor(const Instruction &op, Frame &frame) {
  auto valueOf = [&](const Instruction::Bound &bound) {
    return bound.constant ? *bound.constant : use(bound.cell, frame);
  };
  int64_t lower = valueOf(op.lower), upper = valueOf(op.upper);
  for (int64_t step = lower; step < upper; ++step) {
    int64_t i = op.reversed ? upper - 1 - (step - lower) : step;
    frame.numbers[op.operands[0]] = {i};
    if (failed(walkBody(op.bodies.front(), frame)))
      return failure();
  }
  return success();
}

LogicalResult ProgramWalker::walkCall(const Instruction &op, Frame &frame) {
  const WalkCode &code = codeOf(op.callee);
  Frame inner{std::vector<Number>(code.cells), std::vector<Place>(code.cells)};
  for (auto [i, cell] : llvm::enumerate(op.operands)) {
    inner.numbers[i] = frame.numbers[cell];
    inner.places[i] = frame.places[cell];
  }
  return walkBody(code.body, inner);
}

LogicalResult ProgramWalker::walkWork(const Instruction &op, Frame &frame) {
  touches.clear();
  for (const Instruction::Access &access : op.accesses) {
    const Place &place = frame.places[access.buffer];
    touches.push_back({place.instance, place.address, access.span, access.run,
                       access.period, access.reads, access.writes});
  }
  return visitor->work(cast<rt::WorkOpInterface>(op.op), touches);
}

LogicalResult ProgramWalker::fold(const Instruction &op, Frame &frame) {
  Builder builder(op.op);
  SmallVector<Attribute> operands;
  Axes ofAxes = 0;
  for (auto [cell, operand] : llvm::zip(op.operands, op.op->getOperands())) {
    const Number &number = frame.numbers[cell];
    ofAxes |= number.axes;
    operands.push_back(builder.getIntegerAttr(operand.getType(), number.value));
  }
  SmallVector<OpFoldResult> results;
  if (failed(op.op->fold(operands, results)) || results.size() != 1)
    return op.op->emitOpError() << "cannot be computed from numbers, so what "
                                   "it addresses cannot be checked";
  if (auto attribute = dyn_cast<Attribute>(results[0])) {
    if (auto number = dyn_cast<IntegerAttr>(attribute)) {
      frame.numbers[op.result] = {number.getInt(), ofAxes};
      return success();
    }
  } else {
    for (auto [cell, operand] : llvm::zip(op.operands, op.op->getOperands()))
      if (operand == cast<Value>(results[0]))
        frame.numbers[op.result] = frame.numbers[cell];
    return success();
  }
  return op.op->emitOpError() << "does not make an integer";
}

} // namespace heddle::lowering
