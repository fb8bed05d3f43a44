//===- RtVerify.cpp - verifiers of program, control flow, places ----------===//

#include "dialects/Rt/Rt.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

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

/// Whether `axes` are axes of the mesh, each once.
static LogicalResult verifyAxes(Operation *op, ProgramOp program,
                                ArrayAttr axes) {
  llvm::StringSet<> seen;
  for (StringRef axis : axes.getAsValueRange<StringAttr>()) {
    if (program.getAxisSize(axis) == 0)
      return op->emitOpError() << "the mesh has no axis '" << axis << "'";
    if (!seen.insert(axis).second)
      return op->emitOpError() << "names axis '" << axis << "' twice";
  }
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
  for (AxisAttr axis : getMesh().getAsRange<AxisAttr>())
    if (axis.getSize() < 1) // C1
      return emitOpError() << "axis '" << axis.getName() << "' has size "
                           << axis.getSize() << ", expected at least 1";
  for (ArenaAttr arena : getArenas().getAsRange<ArenaAttr>())
    if (arena.getBytes() < 0) // C1
      return emitOpError() << "arena '" << arena.getName() << "' has "
                           << arena.getBytes() << " bytes";
  if (getStreams().empty()) // C2
    return emitOpError() << "has no stream to begin and end its step on";
  for (ArrayAttr axes : getCommunicators().getAsRange<ArrayAttr>())
    if (failed(verifyAxes(*this, *this, axes))) // C3
      return failure();
  return success();
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
  if (getLower() < 0 || getLower() > getUpper()) // C1
    return emitOpError() << "runs from " << getLower() << " to " << getUpper()
                         << ", expected 0 <= from <= to";
  if (getBody().getNumArguments() != 1 ||
      !getInductionVariable().getType().isIndex())
    return emitOpError() << "its block must have one index argument";
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

static LogicalResult verifyAffine(Operation *op, int64_t offset,
                                  OperandRange indices,
                                  ArrayRef<int64_t> strides) {
  if (indices.size() != strides.size())
    return op->emitOpError() << "has " << indices.size() << " indices and "
                             << strides.size() << " strides";
  if (offset < 0)
    return op->emitOpError() << "offset " << offset << " is negative";
  for (int64_t stride : strides)
    if (stride < 0)
      return op->emitOpError() << "stride " << stride << " is negative";
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
  if (failed(
          verifyAffine(*this, getOffset(), getIndices(), getStrides()))) // C2
    return failure();
  auto arena = cast<ArenaAttr>(program->getArenas()[index]);
  int64_t end = getOffset() + getType().getSpanBytes();
  if (getIndices().empty() && end > arena.getBytes()) // C3
    return emitOpError() << "ends at byte " << end << " of arena '"
                         << arena.getName() << "', which has "
                         << arena.getBytes();
  int64_t bytes = getType().getElementBytes();
  if (getOffset() % bytes != 0 || llvm::any_of(getStrides(), [&](int64_t s) {
        return s % bytes != 0;
      })) // C4
    return emitOpError()
           << "offset and strides must be multiples of the element's " << bytes
           << " bytes";
  return success();
}

LogicalResult ViewOp::verify() {
  BufType source = getSource().getType(), result = getType();
  if (source.getElementType() != result.getElementType()) // C1
    return emitOpError() << "changes the element type from "
                         << source.getElementType() << " to "
                         << result.getElementType();
  if (failed(
          verifyAffine(*this, getOffset(), getIndices(), getStrides()))) // C2
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

template <class Op>
static LogicalResult verifyEvent(Op op) {
  FailureOr<ProgramOp> program = getProgram(op);
  if (failed(program))
    return failure();
  for (int64_t slot = 0; slot < op.getSlots().value_or(1); ++slot) {
    std::string event = op.getEvent().str();
    if (op.getSlots())
      event += "." + std::to_string(slot);
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
  for (Operation &op : getBody().front()) {
    if (isa<ViewOp, BufferOp, RankIndexOp>(op))
      continue;
    auto work = dyn_cast<WorkOpInterface>(op);
    if (!work || !op.hasAttr("axes")) // C1
      return op.emitOpError() << "is no collective, so it cannot be in a group";
    if (!stream.empty() && work.getStreamName() != stream)
      return op.emitOpError() << "is on stream '" << work.getStreamName()
                              << "', others of its group on '" << stream << "'";
    stream = work.getStreamName();
  }
  return success();
}

LogicalResult RecordOp::verify() { return verifyEvent(*this); }
LogicalResult WaitOp::verify() { return verifyEvent(*this); }
