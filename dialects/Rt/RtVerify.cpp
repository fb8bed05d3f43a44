//===- RtVerify.cpp - verifiers of program, control flow, places ----------===//

#include "dialects/Rt/Bounds.h"
#include "dialects/Rt/Rt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle::rt;

//===----------------------------------------------------------------------===//
// rt.program
//===----------------------------------------------------------------------===//

template <class Range>
static LogicalResult verifyNames(ProgramOp op, StringRef what, Range names) {
  llvm::StringSet<> seen;
  for (StringRef name : names) {
    if (name.empty()) // C1
      return op.emitOpError() << "has " << what << " without a name";
    if (!seen.insert(name).second) // C1
      return op.emitOpError()
             << "has two of " << what << " called '" << name << "'";
  }
  return success();
}

/// Whether `axes` are axes of the mesh or mirrors of such, each once.
static LogicalResult verifyAxes(Operation *op, ProgramOp program,
                                ArrayAttr axes) {
  llvm::StringSet<> seen;
  for (StringRef axis : axes.getAsValueRange<StringAttr>()) {
    StringRef mirrored = program.getMirroredAxis(axis);
    if (program.getAxisSize(axis) == 0 && mirrored.empty())
      return op->emitOpError() << "the mesh has no axis '" << axis << "'";
    if (!seen.insert(mirrored.empty() ? axis : mirrored).second)
      return op->emitOpError() << "names axis '" << axis << "' twice";
  }
  return success();
}

/// Checks C6 and C7: what is said of pipeline stages.
static LogicalResult verifyStages(ProgramOp op) {
  if (op.getStages() && op.getAxisSize(*op.getStages()) == 0) // C6
    return op.emitOpError() << "stages are over axis '" << *op.getStages()
                            << "', which the mesh does not have";
  if (op.getNumStages() > kMostStages) // C6
    return op.emitOpError() << "has " << op.getNumStages()
                            << " stages, expected at most " << kMostStages;
  if (op.getChannels())
    for (auto channel : op.getChannels()->getAsRange<ChannelAttr>()) {
      int64_t size = op.getAxisSize(channel.getAxis());
      if (size == 0 || channel.getShift() % size == 0) // C6
        return op.emitOpError()
               << "channel '" << channel.getName()
               << "' leads from each place to the one " << channel.getShift()
               << " further over axis '" << channel.getAxis() << "' of size "
               << size << "; expected another place of an axis of the mesh";
    }
  for (auto arena : op.getArenas().getAsRange<ArenaAttr>()) {
    ArrayRef<int64_t> sizes = arena.getByStage();
    if (sizes.empty())
      continue;
    if (int64_t(sizes.size()) != op.getNumStages() ||
        *llvm::max_element(sizes) != arena.getBytes() ||
        *llvm::min_element(sizes) < 0) // C7
      return op.emitOpError()
             << "arena '" << arena.getName() << "' of " << arena.getBytes()
             << " bytes has sizes by stage " << sizes << "; expected "
             << op.getNumStages()
             << ", none negative, the largest of them its bytes";
  }
  return success();
}

/// Checks C1 of sizes.
static LogicalResult verifySizes(ProgramOp op) {
  int64_t ranks = 1;
  for (AxisAttr axis : op.getMesh().getAsRange<AxisAttr>()) {
    if (axis.getSize() < 1)
      return op.emitOpError() << "axis '" << axis.getName() << "' has size "
                              << axis.getSize() << ", expected at least 1";
    if (llvm::MulOverflow(ranks, axis.getSize(), ranks) || ranks > kMostRanks)
      return op.emitOpError()
             << "the mesh has more than " << kMostRanks << " ranks";
  }
  for (ArenaAttr arena : op.getArenas().getAsRange<ArenaAttr>())
    if (arena.getBytes() < 0 || arena.getBytes() > kMostBytes)
      return op.emitOpError()
             << "arena '" << arena.getName() << "' has " << arena.getBytes()
             << " bytes, expected 0 to " << kMostBytes;
  return success();
}

LogicalResult ProgramOp::verify() {
  auto nameOf = [](auto attribute) { return attribute.getName(); };
  if (failed(verifyNames(
          *this, "axes",
          llvm::map_range(getMesh().getAsRange<AxisAttr>(), nameOf))) ||
      failed(verifyNames(
          *this, "arenas",
          llvm::map_range(getArenas().getAsRange<ArenaAttr>(), nameOf))) ||
      failed(verifyNames(
          *this, "streams",
          llvm::map_range(getStreams().getAsRange<StreamAttr>(), nameOf))) ||
      failed(verifyNames(*this, "events",
                         getEvents().getAsValueRange<StringAttr>())))
    return failure();
  if (getChannels() &&
      failed(verifyNames(
          *this, "channels",
          llvm::map_range(getChannels()->getAsRange<ChannelAttr>(), nameOf))))
    return failure();
  if (failed(verifySizes(*this)))
    return failure();
  if (getStreams().empty()) // C2
    return emitOpError() << "has no stream to begin and end its step on";
  for (ArrayAttr axes : getCommunicators().getAsRange<ArrayAttr>())
    if (failed(verifyAxes(*this, *this, axes))) // C3
      return failure();
  return verifyStages(*this);
}

/// Finds a function that reaches itself by calls. `done`: known to reach none.
static FuncOp findRecursion(ProgramOp program, FuncOp func,
                            DenseSet<Operation *> &active,
                            DenseSet<Operation *> &done) {
  if (done.contains(func))
    return {};
  if (!active.insert(func).second)
    return func;
  FuncOp found;
  func.getBody().walk([&](CallOp call) {
    if (auto callee = program.lookupSymbol<FuncOp>(call.getCallee());
        callee && !found)
      found = findRecursion(program, callee, active, done);
  });
  active.erase(func);
  done.insert(func);
  return found;
}

LogicalResult ProgramOp::verifyRegions() {
  auto entry = lookupSymbol<FuncOp>(getEntry());
  if (!entry || !entry.getArgumentTypes().empty()) // C4
    return emitOpError()
           << "entry @" << getEntry()
           << " must be a function of the program without arguments";
  DenseSet<Operation *> active, done;
  for (FuncOp func : getOps<FuncOp>())
    if (FuncOp recursive = findRecursion(*this, func, active, done)) // C5
      return recursive.emitOpError() << "calls itself";
  return success();
}

//===----------------------------------------------------------------------===//
// Functions and loops
//===----------------------------------------------------------------------===//

LogicalResult FuncOp::verify() {
  for (Type type : getArgumentTypes())
    if (!isa<BufType, IndexType>(type)) // C1
      return emitOpError() << "arguments must be buffers or index, got "
                           << type;
  if (!getResultTypes().empty()) // C2
    return emitOpError() << "returns nothing, but has "
                         << getResultTypes().size() << " results";
  if (getArgNames().size() != getArgumentTypes().size()) // C2
    return emitOpError() << "needs " << getArgumentTypes().size()
                         << " argument names, got " << getArgNames().size();
  llvm::StringSet<> seen;
  for (StringRef name : getArgNames().getAsValueRange<StringAttr>()) {
    if (!isIdentifier(name)) // C2
      return emitOpError() << "argument '" << name
                           << "' is no identifier of C++";
    if (!seen.insert(name).second) // C2
      return emitOpError() << "two arguments are called '" << name << "'";
  }
  return success();
}

LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto callee = symbols.lookupNearestSymbolFrom<FuncOp>(*this, getCalleeAttr());
  if (!callee) // C1
    return emitOpError() << "the program has no function @" << getCallee();
  if (callee.getArgumentTypes() !=
      ArrayRef<Type>(llvm::to_vector(getOperandTypes()))) // C2
    return (emitOpError() << "operands do not have the types of @"
                          << getCallee() << "'s arguments")
               .attachNote(callee.getLoc())
           << "which are " << callee.getArgumentTypes();
  return success();
}

LogicalResult ForOp::verify() {
  if (bool(getLower()) == bool(getLowerValue()) ||
      bool(getUpper()) == bool(getUpperValue())) // C2
    return emitOpError()
           << "needs a constant or a value, not both, for each of its bounds";
  int64_t lower = getLower().value_or(0);
  if (lower < 0 || lower > getUpper().value_or(lower)) // C1
    return emitOpError() << "runs from " << lower << " to "
                         << getUpper().value_or(lower)
                         << ", expected 0 <= from <= to";
  if (getBody().getNumArguments() != 1 ||
      !getInductionVariable().getType().isIndex())
    return emitOpError() << "its block must have one index argument";
  return success();
}

LogicalResult SwitchOp::verify() {
  if (getValues().empty() || getLabels().size() != getValues().size() ||
      getCases().size() != getValues().size()) // C1
    return emitOpError() << "needs a label and a region for each of at least "
                            "one case, got "
                         << getValues().size() << " values, "
                         << getLabels().size() << " labels, "
                         << getCases().size() << " regions";
  DenseSet<int64_t> seen;
  for (auto [i, value] : llvm::enumerate(getValues())) {
    if (!seen.insert(value).second) // C1
      return emitOpError() << "has two cases of " << value;
    if (getLabel(i).empty()) // C2
      return emitOpError() << "case " << value << " needs a label";
    if (getCases()[i].getNumArguments() != 0) // C2
      return emitOpError() << "case " << value << " has block arguments";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Places and numbers
//===----------------------------------------------------------------------===//

static FailureOr<ProgramOp> getProgram(Operation *op) {
  auto program = op->getParentOfType<ProgramOp>();
  if (!program)
    return op->emitOpError() << "must stand in an rt.program";
  return program;
}

LogicalResult RankIndexOp::verify() {
  FailureOr<ProgramOp> program = getProgram(*this);
  if (failed(program))
    return failure();
  return verifyAxes(*this, *program, getAxes()); // C1
}

LogicalResult NumbersOp::verify() {
  int64_t rows = getNumRows();
  if (rows == 0) // C1
    return emitOpError() << "the mesh has no axis '" << *getAxis() << "'";
  if (getValues().empty() || getValues().size() % rows != 0) // C2
    return emitOpError() << "has " << getValues().size()
                         << " numbers, which are no " << rows
                         << " rows of one width";
  for (int64_t value : getValues())
    if (!llvm::isInt<32>(value)) // C3
      return emitOpError() << "number " << value << " does not fit into 32 "
                           << "bits";
  return success();
}

LogicalResult LookupOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto table =
      symbols.lookupNearestSymbolFrom<NumbersOp>(*this, getTableAttr());
  if (!table) // C1
    return emitOpError() << "the program has no numbers @" << getTable();
  int64_t width = table.getWidth();
  if (!getIndex()) {
    if (width != 1) // C2
      return emitOpError() << "needs an index: a row of @" << getTable()
                           << " has " << width << " numbers";
    return success();
  }
  APInt index;
  if (matchPattern(getIndex(), m_ConstantInt(&index)) &&
      (index.isNegative() || index.getSExtValue() >= width)) // C3
    return emitOpError() << "number " << index.getSExtValue() << " of @"
                         << getTable() << ", whose rows have " << width;
  return success();
}

static LogicalResult verifyAffine(Operation *op, int64_t offset,
                                  OperandRange indices,
                                  ArrayRef<int64_t> strides, int64_t most) {
  if (indices.size() != strides.size())
    return op->emitOpError() << "has " << indices.size() << " indices and "
                             << strides.size() << " strides";
  if (offset < 0)
    return op->emitOpError() << "offset " << offset << " is negative";
  for (int64_t stride : strides)
    if (stride < 0)
      return op->emitOpError() << "stride " << stride << " is negative";
  const int64_t largest = llvm::accumulate(
      strides, offset, [](int64_t a, int64_t b) { return std::max(a, b); });
  if (largest > most)
    return op->emitOpError() << "leads " << largest << " further, expected at "
                             << "most " << most;
  return success();
}

/// Checks C2 to C4 of a buffer, on one stage.
static LogicalResult verifyPlace(BufferOp op, ArenaAttr arena, int64_t stage) {
  SmallVector<int64_t> place = op.getPlaceAt(stage);
  ArrayRef<int64_t> strides = ArrayRef(place).drop_front();
  if (failed(verifyAffine(op, place[0], op.getIndices(), strides,
                          kMostBytes))) // C2
    return failure();
  int64_t end = place[0] + op.getType().getSpanBytes();
  // A stage need not use the buffer, so the largest arena counts.
  if (strides.empty() && end > arena.getBytes()) // C3
    return op.emitOpError()
           << "ends at byte " << end << " of arena '" << arena.getName()
           << "', which has " << arena.getBytes();
  int64_t bytes = op.getType().getElementBytes();
  if (llvm::any_of(place, [&](int64_t s) { return s % bytes != 0; })) // C4
    return op.emitOpError()
           << "offset and strides must be multiples of the element's " << bytes
           << " bytes";
  return success();
}

LogicalResult BufferOp::verify() {
  FailureOr<ProgramOp> program = getProgram(*this);
  if (failed(program))
    return failure();
  if (getName().empty() || getReason().empty()) // C5
    return emitOpError() << "needs a name and a reason";
  int64_t index = program->getArenaIndex(getArena());
  if (index < 0) // C1
    return emitOpError() << "the program has no arena '" << getArena() << "'";
  if (failed(verifyAffine(*this, getOffset(), getIndices(), getStrides(),
                          kMostBytes))) // C2
    return failure();
  int64_t stages = program->getNumStages(), width = getStrides().size() + 1;
  if (getByStage() && (int64_t(getByStage()->size()) != stages * width ||
                       getByStage()->front() != getOffset() ||
                       getByStage()->slice(1, width - 1) != getStrides())) // C6
    return emitOpError() << "by_stage needs " << stages << " rows of " << width
                         << " numbers, the first of them as written behind "
                            "'at'; got "
                         << getByStage()->size() << " numbers";
  auto arena = cast<ArenaAttr>(program->getArenas()[index]);
  // Without a table all stages have one place.
  for (int64_t stage = 0; stage < (getByStage() ? stages : 1); ++stage)
    if (failed(verifyPlace(*this, arena, stage)))
      return failure();
  return success();
}

LogicalResult ViewOp::verify() {
  BufType source = getSource().getType(), result = getType();
  if (isa<Float4E2M1FNType>(source.getElementType())) // C4
    return emitOpError() << "cannot begin within bytes that two elements share";
  if (source.getElementType() != result.getElementType()) // C1
    return emitOpError() << "changes the element type from "
                         << source.getElementType() << " to "
                         << result.getElementType();
  if (failed(verifyAffine(*this, getOffset(), getIndices(), getStrides(),
                          kMostPlaces))) // C2
    return failure();
  int64_t end = getOffset() * result.getElementBytes() + result.getSpanBytes();
  if (getIndices().empty() && end > source.getSpanBytes()) // C3
    return emitOpError() << "ends " << end
                         << " bytes behind the beginning of a buffer of "
                         << source.getSpanBytes();
  return success();
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

std::string heddle::rt::eventInRow(StringRef row, int64_t slot) {
  return (row + "[" + llvm::Twine(slot) + "]").str();
}

template <class Op>
static LogicalResult verifyEvent(Op op) {
  FailureOr<ProgramOp> program = getProgram(op);
  if (failed(program))
    return failure();
  if (!op.getSlots() && op.getEvent().ends_with("]")) // C2
    return op.emitOpError() << "names '" << op.getEvent()
                            << "', an event of a row, without its slot";
  for (int64_t slot = 0; slot < op.getSlots().value_or(1); ++slot) {
    std::string event =
        op.getSlots() ? eventInRow(op.getEvent(), slot) : op.getEvent().str();
    if (program->getEventIndex(event) < 0) // C1
      return op.emitOpError() << "the program has no event '" << event << "'";
  }
  if (program->getStreamIndex(op.getStream()) < 0) // C1
    return op.emitOpError()
           << "the program has no stream '" << op.getStream() << "'";
  return success();
}

LogicalResult GroupOp::verifyRegions() {
  StringRef stream;
  WalkResult walked = getBody().walk([&](Operation *op) -> WalkResult {
    if (isa<ViewOp, BufferOp, RankIndexOp, LookupOp, ForOp, SwitchOp, EndOp>(
            op) ||
        op->hasTrait<OpTrait::ConstantLike>() ||
        isa<arith::DivSIOp, arith::RemSIOp>(op))
      return WalkResult::advance();
    auto work = dyn_cast<WorkOpInterface>(op);
    if (!work || !(op->hasAttr("axes") || isa<SendOp, ReceiveOp>(op))) // C1
      return op->emitOpError()
             << "is no collective and no message, so it cannot be in a group";
    if (!stream.empty() && work.getStreamName() != stream)
      return op->emitOpError()
             << "is on stream '" << work.getStreamName()
             << "', others of its group on '" << stream << "'";
    stream = work.getStreamName();
    return WalkResult::advance();
  });
  return failure(walked.wasInterrupted());
}

LogicalResult RecordOp::verify() { return verifyEvent(*this); }
LogicalResult WaitOp::verify() { return verifyEvent(*this); }
