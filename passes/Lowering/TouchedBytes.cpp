//===- TouchedBytes.cpp - Bytes that are in use, range by range -----------===//

#include "passes/Lowering/TouchedBytes.h"

#include "passes/Lowering/ByteRanges.h"
#include "passes/Lowering/WalkProgram.h"

#include <map>
#include <set>

using namespace mlir;

namespace heddle::lowering {
namespace {

StringRef mainStream(rt::ProgramOp program) {
  return cast<rt::StreamAttr>(program.getStreams()[0]).getName();
}

/// Numbers the work of a rank, and finds the last number at which each piece
/// may still be going on.
class Endings : public ProgramVisitor {
public:
  explicit Endings(rt::ProgramOp program) : main(mainStream(program)) {}

  LogicalResult work(rt::WorkOpInterface op, ArrayRef<Touch>) override {
    StringRef stream = op.getStreamName();
    clocks[stream][stream] = last.size();
    if (stream != main)
      open[stream].push_back(last.size());
    last.push_back(last.size());
    return success();
  }
  LogicalResult record(rt::RecordOp op, StringRef event) override {
    events[event] = clocks[op.getStream()];
    return success();
  }
  LogicalResult wait(rt::WaitOp op, StringRef event) override {
    Clock &clock = clocks[op.getStream()];
    for (auto &known : events[event]) {
      int64_t &time =
          clock.try_emplace(known.getKey(), known.getValue()).first->second;
      time = std::max(time, known.getValue());
    }
    if (op.getStream() == main)
      for (auto &known : clock)
        close(open[known.getKey()], known.getValue());
    return success();
  }

  /// Per piece of work, once all were walked.
  std::vector<int64_t> finish() {
    for (auto &stream : open)
      close(stream.second, last.size());
    return std::move(last);
  }

private:
  /// Of other streams and of its own, the last work that is known to be done.
  using Clock = llvm::StringMap<int64_t>;

  void close(std::vector<int64_t> &queued, int64_t until) {
    llvm::erase_if(queued, [&](int64_t time) {
      if (time > until)
        return false;
      last[time] = static_cast<int64_t>(last.size()) - 1;
      return true;
    });
  }

  StringRef main;
  std::vector<int64_t> last;
  llvm::StringMap<Clock> clocks, events;
  llvm::StringMap<std::vector<int64_t>> open; ///< not waited for yet
};

/// What is in use at each piece of work.
class Profile : public ProgramVisitor {
public:
  Profile(rt::ProgramOp program, std::vector<int64_t> last)
      : last(std::move(last)), change(this->last.size() + 1),
        arenas(program.getArenas().size()) {
    for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>())
      onHost.push_back(arena.getMemory() == rt::MemoryClass::host);
  }

  LogicalResult work(rt::WorkOpInterface op, ArrayRef<Touch> touches) override {
    // Products and attention say what their rows leave out; kernels do not.
    bool byRow = isa<rt::GemmOp, rt::AttentionOp, rt::AttentionGradOp>(op);
    for (bool writes : {false, true})
      for (const Touch &touch : touches)
        if ((writes ? touch.writes : touch.reads) &&
            !onHost[touch.instance.arena])
          forEachRun(touch, byRow, [&](int64_t begin, int64_t end) {
            writes ? write(arenas[touch.instance.arena], begin, end)
                   : read(arenas[touch.instance.arena], begin, end);
          });
    ++now;
    return success();
  }

  TouchedBytes finish() {
    for (Ranges &ranges : arenas)
      for (auto &[begin, range] : ranges)
        release(begin, range, range.readFirst ? now : range.last + 1);
    TouchedBytes found;
    int64_t bytes = 0;
    for (int64_t each : change) {
      found.peak = std::max(found.peak, bytes += each);
      found.sum += bytes;
    }
    return found;
  }

private:
  struct Range {
    int64_t end, written, last; ///< last: at which it must still be there
    bool readFirst;
  };
  using Ranges = ByteRanges<Range>;

  template <class Visit>
  static void forEachRun(const Touch &touch, bool byRow, Visit visit) {
    int64_t end = touch.begin + touch.span;
    if (!byRow || touch.run == touch.period) {
      if (touch.span)
        visit(touch.begin, end);
      return;
    }
    for (int64_t begin = touch.begin; begin < end; begin += touch.period)
      visit(begin, std::min(end, begin + touch.run));
  }

  void read(Ranges &ranges, int64_t begin, int64_t end) {
    int64_t at = begin;
    for (auto it = ranges.cut(begin, end); at < end; ++it) {
      int64_t next = it == ranges.end() ? end : std::min(it->first, end);
      if (at < next)
        it = ranges.add(it, at, Range{next, 0, last[now], true});
      it->second.last = std::max(it->second.last, last[now]);
      at = it->second.end;
    }
  }

  void write(Ranges &ranges, int64_t begin, int64_t end) {
    int64_t at = begin;
    for (auto it = ranges.cut(begin, end); at < end; ++it) {
      int64_t next = it == ranges.end() ? end : std::min(it->first, end);
      if (at < next)
        it = ranges.add(it, at, Range{next, now, now, false});
      else // each byte counts once, in what it holds from now on
        release(at, it->second, std::min(it->second.last + 1, now));
      it->second.written = now;
      it->second.last = last[now];
      at = it->second.end;
    }
  }

  void release(int64_t begin, const Range &range, int64_t end) {
    if (end <= range.written)
      return;
    change[range.written] += range.end - begin;
    change[end] -= range.end - begin;
  }

  std::vector<int64_t> last, change;
  std::vector<bool> onHost; ///< by arena
  std::vector<Ranges> arenas;
  int64_t now = 0;
};

/// Which ranks use their bytes alike. A rank's part of a row begins a multiple
/// of its place further; between ranks whose part lies between the same ends of
/// ranges that do not depend on the rank (the tensor that the row begins with),
/// nothing differs but the addresses.
class RankKinds {
public:
  explicit RankKinds(rt::ProgramOp program)
      : program(program), ofData(axesOfData(program)) {
    for (int64_t stage = 0; stage < program.getNumStages(); ++stage)
      findTurns(stage);
  }

  /// Equal for ranks of one kind.
  std::vector<int64_t> of(int64_t rank) {
    std::vector<int64_t> kind = {stageOf(program, rank)};
    Builder builder(program.getContext());
    for (const auto &axis : ofData)
      kind.push_back(
          placeOver(program, builder.getStrArrayAttr({axis.getKey()}), rank));
    for (const auto &[axes, places] : turns[kind.front()]) {
      auto list = cast<ArrayAttr>(Attribute::getFromOpaquePointer(axes));
      auto next = places.upper_bound(placeOver(program, list, rank));
      kind.push_back(std::distance(places.begin(), next));
    }
    return kind;
  }

private:
  /// The part of an object that a rank has: from `begin` on, `step` bytes
  /// further on the next place.
  struct Part {
    ArrayAttr axes;
    int64_t begin, step;
  };
  struct Object {
    std::vector<Part> parts;
    std::set<int64_t> ends; ///< of what is the same on every rank
  };

  void findTurns(int64_t stage) {
    std::map<std::string, Object> objects;
    program.walk([&](rt::BufferOp buffer) {
      add(objects[buffer.getName().str()], buffer,
          buffer.getPlaceAt(stage).front());
    });
    auto &ofStage = turns.emplace_back();
    for (const auto &[name, object] : objects)
      for (const Part &part : object.parts)
        for (int64_t end : object.ends)
          addTurn(ofStage[part.axes.getAsOpaquePointer()], part, end);
  }

  /// A buffer or a view that begins at `begin`, and the views of it.
  void add(Object &object, Value buffer, int64_t begin) {
    auto type = cast<rt::BufType>(buffer.getType());
    object.ends.insert({begin, begin + type.getSpanBytes()});
    for (Operation *user : buffer.getUsers()) {
      auto view = dyn_cast<rt::ViewOp>(user);
      if (!view)
        continue;
      int64_t at = begin + view.getOffset() * type.getElementBytes();
      bool isPart = false;
      for (auto [index, stride] :
           llvm::zip(view.getIndices(), view.getStrides()))
        if (auto place = index.getDefiningOp<rt::RankIndexOp>()) {
          isPart = true;
          object.parts.push_back(
              {place.getAxes(), at,
               place.getStep() * stride * type.getElementBytes()});
        }
      if (!isPart)
        add(object, view, at);
    }
  }

  void addTurn(std::set<int64_t> &places, const Part &part, int64_t end) {
    int64_t bytes = end - part.begin;
    if (bytes <= 0 || part.step <= 0)
      return;
    places.insert(bytes / part.step);
    if (bytes % part.step != 0)
      places.insert(bytes / part.step + 1);
  }

  rt::ProgramOp program;
  llvm::StringSet<> ofData;
  /// By stage and list of axes: places from which on it is another kind.
  std::vector<std::map<const void *, std::set<int64_t>>> turns;
};

int64_t countRanks(rt::ProgramOp program) {
  int64_t ranks = 1;
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>())
    ranks *= axis.getSize();
  return ranks;
}

void addRank(std::vector<TouchedBytes> &list, const TouchedBytes &found,
             int64_t rank) {
  auto same = llvm::find_if(list, [&](const TouchedBytes &other) {
    return other.peak == found.peak && other.sum == found.sum;
  });
  if (same == list.end())
    same = list.insert(same, {found.peak, found.sum, {}});
  if (same->ranks.empty() || same->ranks.back().second != rank - 1)
    same->ranks.emplace_back(rank, rank);
  same->ranks.back().second = rank;
}

FailureOr<TouchedBytes> measure(rt::ProgramOp program, ProgramWalker &walker,
                                int64_t rank) {
  Endings endings(program);
  if (failed(walker.walk(rank, endings)))
    return failure();
  Profile profile(program, endings.finish());
  if (failed(walker.walk(rank, profile)))
    return failure();
  return profile.finish();
}

} // namespace

FailureOr<std::vector<std::vector<TouchedBytes>>>
touchedBytes(ModuleOp module) {
  std::vector<std::vector<TouchedBytes>> stages;
  for (auto program : module.getOps<rt::ProgramOp>()) {
    stages.resize(program.getNumStages());
    ProgramWalker walker(program);
    RankKinds kinds(program);
    std::map<std::vector<int64_t>, TouchedBytes> known;
    int64_t ranks = countRanks(program);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      auto [kind, isNew] = known.try_emplace(kinds.of(rank));
      if (isNew) {
        FailureOr<TouchedBytes> found = measure(program, walker, rank);
        if (failed(found))
          return failure();
        kind->second = *found;
      }
      addRank(stages[stageOf(program, rank)], kind->second, rank);
    }
  }
  return stages;
}

} // namespace heddle::lowering
