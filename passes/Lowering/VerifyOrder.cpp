//===- VerifyOrder.cpp - Happens-before over the bytes of an rt.program ---===//
//
// What the pass promises is written once, in Passes.td.
//
// Every stream has a vector clock: how many pieces of work of each stream are
// known to be done before what is queued on it next. Two pieces of work that
// touch a byte, one writing it, must be ordered by these clocks. All iterations
// are walked, not a few: what an event orders in one depends on which record it
// saw, and unrolled first, second and last iterations would miss a buffer that
// comes round after three.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/Passes.h"

#include "passes/Lowering/ByteRanges.h"
#include "passes/Lowering/WalkProgram.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace heddle {
#define GEN_PASS_DEF_VERIFYORDERPASS
#include "passes/Lowering/Passes.h.inc"
} // namespace heddle

namespace heddle::lowering {
namespace {

using Clock = SmallVector<int64_t, 4>;

/// An access that something may still have to be ordered after.
struct Past {
  Operation *op;
  int64_t stream, time;
  bool writes;
  int64_t begin, span, run, period;

  /// Whether both touch a byte; never "no" where they do.
  bool overlaps(const Past &other) const {
    if (begin >= other.begin + other.span || other.begin >= begin + span)
      return false;
    if (period != other.period || run == period)
      return true;
    // Rows of one distance: they meet where their places in the row do.
    int64_t shift = ((other.begin - begin) % period + period) % period;
    return shift < run || shift + other.run > period;
  }
  /// Whether `other`, where both lie, touches no byte that this does not.
  bool covers(const Past &other) const {
    if (run == period)
      return true;
    int64_t shift = ((other.begin - begin) % period + period) % period;
    return period == other.period && shift + other.run <= run;
  }
};

/// Bytes up to `end` that were touched alike.
struct Segment {
  int64_t end = 0;
  SmallVector<Past, 2> past;
};

class OrderChecker : public ProgramVisitor {
public:
  explicit OrderChecker(rt::ProgramOp program) : program(program) {
    size_t streams = program.getStreams().size();
    clocks.assign(streams, Clock(streams, 0));
    last.assign(streams, nullptr);
    segments.resize(program.getArenas().size());
    clocks[0][0] = 1; // the beginning of the step
  }

  LogicalResult work(rt::WorkOpInterface op, ArrayRef<Touch> touches) override;
  LogicalResult record(rt::RecordOp op, StringRef event) override;
  LogicalResult wait(rt::WaitOp op, StringRef name) override;
  /// Checks the end of the step; whether all was right.
  LogicalResult finish();

private:
  StringRef nameOf(int64_t stream) {
    return cast<rt::StreamAttr>(program.getStreams()[stream]).getName();
  }
  void check(const Past &now, const Touch &touch);
  void complain(const Past &now, const Past &past, const Touch &touch);
  int64_t streamOf(rt::WorkOpInterface op);

  rt::ProgramOp program;
  std::vector<Clock> clocks;                    ///< of streams
  std::vector<Operation *> last;                ///< latest work of each stream
  llvm::StringMap<Clock> events;                ///< of this step
  llvm::DenseMap<Operation *, int64_t> streams; ///< of work
  std::vector<ByteRanges<Segment>> segments;    ///< per arena
  llvm::MapVector<Operation *, bool>
      waits; ///< whether a wait ever ordered anything
  llvm::DenseSet<std::pair<Operation *, Operation *>> told;
  bool ok = true;
};

int64_t OrderChecker::streamOf(rt::WorkOpInterface op) {
  auto [known, isNew] = streams.try_emplace(op);
  if (isNew)
    known->second = program.getStreamIndex(op.getStreamName());
  return known->second;
}

void OrderChecker::complain(const Past &now, const Past &past,
                            const Touch &touch) {
  ok = false;
  if (!told.insert({now.op, past.op}).second)
    return;
  auto label = [](Operation *op) {
    return cast<rt::WorkOpInterface>(op).getLabel();
  };
  InFlightDiagnostic error = now.op->emitError()
                             << "'" << label(now.op) << "' on stream '"
                             << nameOf(now.stream) << "' "
                             << (now.writes ? "writes" : "reads") << " what '"
                             << label(past.op) << "' on stream '"
                             << nameOf(past.stream) << "' "
                             << (past.writes ? "writes" : "reads")
                             << "; no event orders them";
  error.attachNote(rt::BufferOp(touch.instance.op).getLoc())
      << "bytes " << std::max(now.begin, past.begin) << " to "
      << std::min(now.begin + now.span, past.begin + past.span) << " of arena '"
      << rt::BufferOp(touch.instance.op).getArena() << "', buffer '"
      << rt::BufferOp(touch.instance.op).getName() << "'";
  error.attachNote(past.op->getLoc())
      << "record an event on '" << nameOf(past.stream)
      << "' behind this, and wait for it on '" << nameOf(now.stream) << "'";
}

void OrderChecker::check(const Past &now, const Touch &touch) {
  ByteRanges<Segment> &ranges = segments[touch.instance.arena];
  int64_t at = now.begin, end = now.begin + now.span;
  const Clock &clock = clocks[now.stream];
  for (auto it = ranges.cut(at, end); at < end; at = (it++)->second.end) {
    int64_t next = it == ranges.end() ? end : std::min(end, it->first);
    if (at < next) // bytes that nothing has touched yet
      it = ranges.add(it, at, Segment{next, {}});
    SmallVector<Past, 2> &past = it->second.past;
    llvm::erase_if(past, [&](const Past &p) {
      if (p.op == now.op && p.stream == now.stream && p.time == now.time)
        return now.writes && !p.writes && now.covers(p);
      bool before = p.stream == now.stream || clock[p.stream] >= p.time;
      if (!before && (now.writes || p.writes) && now.overlaps(p))
        complain(now, p, touch);
      // Whoever is ordered after `now` is ordered after what it replaces.
      return now.covers(p) && before &&
             (now.writes || (!p.writes && p.stream == now.stream));
    });
    past.push_back(now);
  }
}

LogicalResult OrderChecker::work(rt::WorkOpInterface op,
                                 ArrayRef<Touch> touches) {
  int64_t stream = streamOf(op);
  Clock &clock = clocks[stream];
  if (clock[0] == 0 && told.insert({op, nullptr}).second) {
    ok = false;
    op->emitError() << "'" << op.getLabel() << "' on stream '" << nameOf(stream)
                    << "' may run before the step begins; let the stream wait "
                       "for an event of this step first";
  }
  int64_t time = ++clock[stream];
  last[stream] = op;
  for (const Touch &touch : touches)
    if (touch.span > 0)
      check({op, stream, time, touch.writes, touch.begin, touch.span, touch.run,
             touch.period},
            touch);
  return success();
}

LogicalResult OrderChecker::record(rt::RecordOp op, StringRef event) {
  events[event] = clocks[program.getStreamIndex(op.getStream())];
  return success();
}

LogicalResult OrderChecker::wait(rt::WaitOp op, StringRef name) {
  auto event = events.find(name);
  if (event == events.end())
    return op.emitError()
           << "waits for event '" << name
           << "', which this step has not recorded; no event may cross a step";
  Clock &clock = clocks[program.getStreamIndex(op.getStream())];
  bool orders = false;
  for (auto [mine, recorded] : llvm::zip(clock, event->second)) {
    orders |= recorded > mine;
    mine = std::max(mine, recorded);
  }
  waits[op] |= orders;
  return success();
}

LogicalResult OrderChecker::finish() {
  for (size_t stream = 1; stream < clocks.size(); ++stream) {
    if (!last[stream] || clocks[0][stream] >= clocks[stream][stream])
      continue;
    ok = false;
    last[stream]->emitError()
        << "stream '" << nameOf(stream) << "' still has '"
        << cast<rt::WorkOpInterface>(last[stream]).getLabel()
        << "' when the step ends; record "
        << "an event behind it and wait for it on '" << nameOf(0) << "'";
  }
  for (auto [op, orders] : waits)
    if (!orders)
      op->emitRemark() << "waits for event '" << cast<rt::WaitOp>(op).getEvent()
                       << "', which orders nothing that is not ordered already";
  return success(ok);
}

struct VerifyOrderPass : impl::VerifyOrderPassBase<VerifyOrderPass> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<rt::ProgramOp>())
      if (failed(verify(program)))
        return signalPassFailure();
  }

  LogicalResult verify(rt::ProgramOp program) {
    ProgramWalker walker(program);
    return walker.forEachKind([&](int64_t rank) -> LogicalResult {
      OrderChecker checker(program);
      return failure(failed(walker.walk(rank, checker)) ||
                     failed(checker.finish()));
    });
  }
};

} // namespace
} // namespace heddle::lowering
