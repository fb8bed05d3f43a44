//===- PlaceBuffers.cpp - an offset for every buffer ----------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Rt/ObjectPlaces.h"
#include "passes/Memory/MemoryReport.h"
#include "passes/Memory/Packing.h"
#include "passes/Memory/Passes.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::memory;

namespace heddle {
#define GEN_PASS_DEF_PLACEBUFFERSPASS
#include "passes/Memory/Passes.h.inc"
} // namespace heddle

namespace {

/// Per buffer its offset and strides on each stage.
using Places = DenseMap<Operation *, SmallVector<int64_t>>;
/// Per object its place on the stages that have it.
using ObjectPlaces = std::map<std::string, SmallVector<std::optional<int64_t>>>;

/// The memory of one program on a pipeline stage: the step's objects, and a
/// frame that the functions it calls share.
class ProgramMemory {
public:
  ProgramMemory(rt::ProgramOp program, int64_t stage)
      : program(program), stage(stage) {
    auto entry = program.lookupSymbol<rt::FuncOp>(program.getEntry());
    step = findObjects(entry, stage);
    llvm::SmallPtrSet<Attribute, 8> called;
    for (auto &[position, call] : step.calls)
      if (called.insert(call.getCalleeAttr()).second)
        frames.push_back(findObjects(
            program.lookupSymbol<rt::FuncOp>(call.getCallee()), stage));
    sort(step, persistent, transient);
  }

  /// What is on the host shares nothing. Returns the bytes of that arena.
  int64_t placeOnHost() {
    return llvm::alignTo(placeApart(onHost, 0), kAlignment);
  }

  /// Returns the bytes of the device's arena.
  int64_t place(bool apart) {
    int64_t end = placeApart(persistent, 0);
    if (apart) {
      forEach([&](FunctionObjects &, Object &object) {
        if (!object.isPersistent() && !isOnHost(object))
          end = placeApart(&object, end);
      });
      return end;
    }
    end = std::max(end, pack(transient, llvm::alignTo(end, kAlignment)));
    int64_t base = llvm::alignTo(end, kAlignment);
    for (FunctionObjects &frame : frames) {
      SmallVector<Object *> states, locals;
      sort(frame, states, locals);
      end = std::max(end, pack(locals, base));
    }
    return end;
  }

  /// Buffers that this stage never uses lie where others of their object do, so
  /// that one object has one place in the program's text.
  void write(Places &places) {
    auto all = [&](FunctionObjects &function) {
      function.function.walk([&](rt::BufferOp buffer) {
        SmallVector<int64_t> &list = places[buffer];
        size_t width = buffer.getStrides().size() + 1;
        list.resize(program.getNumStages() * width);
        auto object = function.objects.find(buffer.getName());
        if (object == function.objects.end())
          return;
        auto to = list.begin() + stage * width;
        SmallVector<int64_t> place = buffer.getPlaceAt(stage);
        *to = std::max<int64_t>(0, object->second.offset + place.front() -
                                       object->second.begin);
        llvm::copy(ArrayRef(place).drop_front(), to + 1);
      });
    };
    all(step);
    for (FunctionObjects &frame : frames)
      all(frame);
  }

  /// Where objects that outlast the step begin.
  void writeObjects(ObjectPlaces &places) {
    for (ArrayRef<Object *> objects : {ArrayRef(persistent), ArrayRef(onHost)})
      for (Object *object : objects) {
        auto &list = places[object->name];
        list.resize(program.getNumStages());
        list[stage] = object->offset - object->begin;
      }
  }

  /// Live bytes at the peak, over the step and what it calls.
  MemoryReport report() {
    MemoryReport result;
    for (Object *object : persistent)
      result.livePeakBytes += object->bytes;
    int64_t held = result.livePeakBytes;
    auto [bytes, position] = findPeak(transient);
    result.livePeakBytes += bytes;
    setPeak(result, step, position);
    for (auto &[callPosition, call] : step.calls)
      for (FunctionObjects &frame : frames) {
        rt::CallOp here = call;
        if (frame.function.getSymName() != here.getCallee())
          continue;
        SmallVector<Object *> states, locals;
        sort(frame, states, locals);
        auto [local, where] = findPeak(locals);
        int64_t total = held + liveBytes(transient, callPosition) + local;
        if (total <= result.livePeakBytes)
          continue;
        result.livePeakBytes = total;
        setPeak(result, frame, where);
      }
    return result;
  }

  template <class Visit>
  void forEach(Visit visit) {
    auto all = [&](FunctionObjects &function) {
      for (auto &[name, object] : function.objects)
        visit(function, object);
    };
    all(step);
    for (FunctionObjects &frame : frames)
      all(frame);
  }

private:
  /// Places objects one behind the other from `end` on; returns the new end.
  static int64_t placeApart(ArrayRef<Object *> objects, int64_t end) {
    for (Object *object : objects) {
      object->offset = llvm::alignTo(end, kAlignment);
      end = object->offset + object->bytes;
    }
    return end;
  }

  bool isOnHost(const Object &object) {
    auto arena = cast<rt::ArenaAttr>(
        program.getArenas()[program.getArenaIndex(object.arena)]);
    return arena.getMemory() == rt::MemoryClass::host;
  }

  void sort(FunctionObjects &function, SmallVectorImpl<Object *> &persistent,
            SmallVectorImpl<Object *> &transient) {
    for (auto &[name, object] : function.objects)
      (isOnHost(object)        ? onHost
       : object.isPersistent() ? persistent
                               : transient)
          .push_back(&object);
  }

  static void setPeak(MemoryReport &report, FunctionObjects &function,
                      int64_t position) {
    if (position < 0)
      return;
    report.peakFunction = function.function.getSymName().str();
    // The buffer's own op stands before the work that first touches it.
    Operation *op = function.positions[position];
    auto work = dyn_cast<rt::WorkOpInterface>(op);
    report.peakOp =
        work ? work.getLabel().str() : op->getName().stripDialect().str();
  }

  rt::ProgramOp program;
  int64_t stage;
  FunctionObjects step;
  SmallVector<FunctionObjects> frames;
  SmallVector<Object *> persistent, transient;
  SmallVector<Object *> onHost; ///< of the step: functions have none
};

} // namespace

static DictionaryAttr describe(const ObjectPlaces &places, Builder &builder) {
  NamedAttrList entries;
  for (const auto &[name, list] : places) {
    SmallVector<Attribute> byStage;
    for (std::optional<int64_t> place : list)
      byStage.push_back(place ? Attribute(builder.getI64IntegerAttr(*place))
                              : builder.getUnitAttr());
    entries.set(name, builder.getArrayAttr(byStage));
  }
  return entries.getDictionary(builder.getContext());
}

/// Places all buffers of a program, on every stage.
static void placeBuffers(rt::ProgramOp program, bool apart) {
  Places places;
  ObjectPlaces objects;
  SmallVector<int64_t> bytes, hostBytes;
  for (int64_t stage = 0; stage < program.getNumStages(); ++stage) {
    ProgramMemory memory(program, stage);
    bytes.push_back(memory.place(apart));
    hostBytes.push_back(memory.placeOnHost());
    memory.write(places);
    memory.writeObjects(objects);
  }
  Builder builder(program.getContext());
  bool byStage = bytes.size() > 1;
  for (auto &[op, list] : places) {
    auto buffer = cast<rt::BufferOp>(op);
    buffer.setOffset(list.front());
    if (byStage) {
      // A stage that does not use the buffer says nothing of strides.
      buffer.setStrides(ArrayRef(list).slice(1, buffer.getStrides().size()));
      buffer.setByStageAttr(builder.getDenseI64ArrayAttr(list));
    }
  }
  program->setAttr(rt::kObjectPlacesName, describe(objects, builder));
  SmallVector<Attribute> arenas;
  for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>()) {
    bool isHost = arena.getMemory() == rt::MemoryClass::host;
    ArrayRef<int64_t> sizes = isHost ? hostBytes : bytes;
    arenas.push_back(rt::ArenaAttr::get(
        program.getContext(), arena.getName(), *llvm::max_element(sizes),
        arena.getMemory(), byStage ? sizes : ArrayRef<int64_t>()));
  }
  program.setArenasAttr(builder.getArrayAttr(arenas));
}

MemoryReport heddle::getMemoryReport(ModuleOp module, int64_t stage) {
  MemoryReport result;
  for (auto program : module.getOps<rt::ProgramOp>()) {
    ProgramMemory memory(program, stage);
    result = memory.report();
    for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>())
      (arena.getMemory() == rt::MemoryClass::host ? result.hostBytes
                                                  : result.arenaBytes) +=
          arena.getBytesAt(stage);
    memory.forEach([&](FunctionObjects &function, Object &object) {
      result.objects.push_back({object.name, object.memoryClass,
                                function.function.getSymName().str(),
                                object.reason, object.bytes, object.begin,
                                object.layerStride, object.heldIn.str(),
                                object.arena});
    });
  }
  return result;
}

std::vector<MemoryReport> heddle::getMemoryReports(ModuleOp module) {
  std::vector<MemoryReport> reports;
  for (auto program : module.getOps<rt::ProgramOp>())
    for (int64_t stage = 0; stage < program.getNumStages(); ++stage)
      reports.push_back(getMemoryReport(module, stage));
  return reports;
}

namespace heddle {
namespace {
struct PlaceBuffersPass : impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  using PlaceBuffersPassBase::PlaceBuffersPassBase;

  void runOnOperation() override {
    for (auto program : getOperation().getOps<rt::ProgramOp>()) {
      if (failed(verifyBounds(program)))
        return signalPassFailure();
      placeBuffers(program, apart);
    }
  }

  /// Objects with an entry per iteration of a loop need to know how many.
  LogicalResult verifyBounds(rt::ProgramOp program) {
    WalkResult walked = program.walk([](rt::BufferOp buffer) -> WalkResult {
      for (Value index : buffer.getIndices()) {
        auto argument = dyn_cast<BlockArgument>(index);
        auto loop =
            argument ? dyn_cast<rt::ForOp>(argument.getOwner()->getParentOp())
                     : rt::ForOp();
        if (loop && !loop.getLargestUpper())
          return buffer.emitError()
                 << "buffer '" << buffer.getName() << "' has an entry per '"
                 << loop.getName()
                 << "', but how many there are is not known; make the loop's "
                    "upper bound a constant or an rt.lookup";
      }
      return WalkResult::advance();
    });
    return failure(walked.wasInterrupted());
  }
};
} // namespace
} // namespace heddle
