//===- VerifyArenas.cpp - No buffer lies on another one that is alive -----===//
//
// What the pass promises is written once, in Passes.td. Nothing here knows how
// offsets were chosen: each byte remembers which buffer wrote it last, and who
// reads it must be that buffer.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/Passes.h"

#include "passes/Lowering/ByteRanges.h"
#include "passes/Lowering/Lowering.h"
#include "passes/Lowering/WalkProgram.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace heddle {
#define GEN_PASS_DEF_VERIFYARENASPASS
#include "passes/Lowering/Passes.h.inc"
} // namespace heddle

namespace heddle::lowering {
namespace {

/// Who wrote bytes up to `end` last.
struct Written {
  int64_t end;
  Instance instance;
  Operation *op;
  bool whole;        ///< every byte, not rows with gaps between them
  bool read = false; ///< by anybody, since
};

StringRef classOf(const Instance &instance) {
  auto name = instance.op->getAttrOfType<StringAttr>("memory_class");
  return name ? name.getValue() : "";
}

/// Buffers of one name are one object where one lies within the other: the same
/// layer's, or a family as a whole and one layer of it.
bool isSameObject(const Instance &a, const Instance &b) {
  if (rt::BufferOp(a.op).getNameAttr() != rt::BufferOp(b.op).getNameAttr())
    return false;
  return (a.begin <= b.begin && b.end <= a.end) ||
         (b.begin <= a.begin && a.end <= b.end);
}

class ArenaChecker : public ProgramVisitor {
public:
  ArenaChecker(rt::ProgramOp program, int64_t stage)
      : program(program), stage(stage) {
    written.resize(program.getArenas().size());
  }

  LogicalResult work(rt::WorkOpInterface op, ArrayRef<Touch> touches) override;
  bool isRight() const { return ok; }
  /// From now on, what the former step left counts.
  void nextStep() {
    first = false;
    for (auto &map : written) // what nobody read in its step nobody needs
      for (auto &entry : map)
        entry.second.read = true;
  }

private:
  LogicalResult checkBounds(rt::WorkOpInterface op, const Touch &touch);
  void checkRead(rt::WorkOpInterface op, const Touch &touch);
  void write(rt::WorkOpInterface op, const Touch &touch);
  void complainLost(rt::WorkOpInterface op, const Touch &touch,
                    const Written &old);
  void complainUnwritten(rt::WorkOpInterface op, const Touch &touch);

  rt::ProgramOp program;
  int64_t stage;
  std::vector<ByteRanges<Written>> written; ///< per arena
  llvm::DenseSet<std::pair<Operation *, Operation *>> told;
  bool ok = true, first = true;
};

LogicalResult ArenaChecker::checkBounds(rt::WorkOpInterface op,
                                        const Touch &touch) {
  auto arena = cast<rt::ArenaAttr>(program.getArenas()[touch.instance.arena]);
  rt::BufferOp buffer = touch.instance.op;
  int64_t bytes = arena.getBytesAt(stage);
  if (touch.instance.begin < 0 || touch.instance.end > bytes)
    return buffer.emitError()
           << "buffer '" << buffer.getName() << "' lies at bytes "
           << touch.instance.begin << " to " << touch.instance.end
           << " of arena '" << arena.getName() << "', which has " << bytes;
  if (touch.begin >= touch.instance.begin &&
      touch.begin + touch.span <= touch.instance.end)
    return success();
  InFlightDiagnostic error =
      op->emitError() << "'" << op.getLabel() << "' touches bytes "
                      << touch.begin << " to " << touch.begin + touch.span
                      << ", but buffer '" << buffer.getName() << "' has "
                      << touch.instance.begin << " to " << touch.instance.end;
  error.attachNote(buffer.getLoc()) << "the buffer";
  return error;
}

void ArenaChecker::complainUnwritten(rt::WorkOpInterface op,
                                     const Touch &touch) {
  // States, inputs and outputs are there before a step; other memory is not. A
  // buffer that does not say what it is for is taken for the former.
  bool temporary = llvm::is_contained({"saved", "workspace", "communication"},
                                      classOf(touch.instance));
  if (!first || !temporary || !told.insert({op, nullptr}).second)
    return;
  ok = false;
  op->emitError() << "'" << op.getLabel() << "' reads buffer '"
                  << rt::BufferOp(touch.instance.op).getName()
                  << "', which nothing has written in this step";
}

/// A value is saved to be read. Where its bytes are written anew before, its
/// place, or its number of several, was given away too early.
void ArenaChecker::complainLost(rt::WorkOpInterface op, const Touch &touch,
                                const Written &old) {
  bool whole = touch.run == touch.period && old.whole;
  rt::BufferOp other = old.instance.op;
  if (old.read || !whole || classOf(old.instance) != "saved" ||
      other->hasAttr(kReadBySomeName) || !told.insert({op, old.op}).second)
    return;
  ok = false;
  InFlightDiagnostic error = op->emitError()
                             << "'" << op.getLabel() << "' writes bytes from "
                             << touch.begin << " of arena '" << other.getArena()
                             << "', where buffer '" << other.getName()
                             << "' holds what is saved and nobody has read";
  error.attachNote(old.op->getLoc())
      << "by '" << cast<rt::WorkOpInterface>(old.op).getLabel() << "'";
}

void ArenaChecker::checkRead(rt::WorkOpInterface op, const Touch &touch) {
  ByteRanges<Written> &ranges = written[touch.instance.arena];
  int64_t end = touch.begin + touch.span, at = touch.begin;
  for (auto it = ranges.cut(at, end); it != ranges.end() && it->first < end;
       ++it) {
    if (it->first > at)
      complainUnwritten(op, touch);
    at = it->second.end;
    Written &by = it->second;
    by.read = true;
    if (isSameObject(by.instance, touch.instance) ||
        !told.insert({op, by.op}).second)
      continue;
    ok = false;
    rt::BufferOp mine = touch.instance.op, other = by.instance.op;
    InFlightDiagnostic error = op->emitError()
                               << "'" << op.getLabel() << "' reads buffer '"
                               << mine.getName() << "', but its bytes from "
                               << std::max(it->first, touch.begin)
                               << " of arena '" << mine.getArena()
                               << "' were written as '" << other.getName()
                               << "'" << (first ? "" : " in the step before");
    error.attachNote(by.op->getLoc())
        << "by '" << cast<rt::WorkOpInterface>(by.op).getLabel() << "'";
    error.attachNote(mine.getLoc())
        << "at bytes " << touch.instance.begin << " to " << touch.instance.end;
    error.attachNote(other.getLoc())
        << "at bytes " << by.instance.begin << " to " << by.instance.end;
  }
  if (at < end)
    complainUnwritten(op, touch);
}

void ArenaChecker::write(rt::WorkOpInterface op, const Touch &touch) {
  // The gaps between rows belong to the same buffer.
  ByteRanges<Written> &ranges = written[touch.instance.arena];
  int64_t begin = touch.begin, end = touch.begin + touch.span;
  auto first = ranges.cut(begin, end);
  for (auto it = first; it != ranges.end() && it->first < end; ++it)
    complainLost(op, touch, it->second);
  ranges.replace(first, begin,
                 {end, touch.instance, op, touch.run == touch.period});
}

LogicalResult ArenaChecker::work(rt::WorkOpInterface op,
                                 ArrayRef<Touch> touches) {
  for (const Touch &touch : touches) {
    if (touch.span == 0)
      continue;
    if (failed(checkBounds(op, touch)))
      return failure();
    if (touch.reads)
      checkRead(op, touch);
  }
  for (const Touch &touch : touches)
    if (touch.writes && touch.span != 0)
      write(op, touch);
  return success();
}

struct VerifyArenasPass : impl::VerifyArenasPassBase<VerifyArenasPass> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<rt::ProgramOp>())
      if (failed(verify(program)))
        return signalPassFailure();
  }

  LogicalResult verify(rt::ProgramOp program) {
    ProgramWalker walker(program);
    return walker.forEachKind([&](int64_t rank) -> LogicalResult {
      // Twice: a state may be overwritten after its last use in a step.
      ArenaChecker checker(program, stageOf(program, rank));
      if (failed(walker.walk(rank, checker)))
        return failure();
      checker.nextStep();
      return failure(failed(walker.walk(rank, checker)) || !checker.isRight());
    });
  }
};

} // namespace
} // namespace heddle::lowering
