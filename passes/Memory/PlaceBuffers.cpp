//===- PlaceBuffers.cpp - an offset for every buffer ----------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

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

/// The memory of one program: the step's objects, and a frame that the
/// functions it calls share.
class ProgramMemory {
public:
  explicit ProgramMemory(rt::ProgramOp program) : program(program) {
    for (auto function : program.getBody().front().getOps<rt::FuncOp>()) {
      if (function.getSymName() == program.getEntry())
        step = findObjects(function);
      else
        frames.push_back(findObjects(function));
    }
    sort(step, persistent, transient);
  }

  void place() {
    int64_t end = 0;
    for (Object *object : persistent) {
      object->offset = llvm::alignTo(end, kAlignment);
      end = object->offset + object->bytes;
    }
    end = std::max(end, pack(transient, llvm::alignTo(end, kAlignment)));
    int64_t base = llvm::alignTo(end, kAlignment);
    for (FunctionObjects &frame : frames) {
      SmallVector<Object *> states, locals;
      sort(frame, states, locals);
      end = std::max(end, pack(locals, base));
    }
    arenaBytes = end;
    write(step);
    for (FunctionObjects &frame : frames)
      write(frame);
    Builder builder(program.getContext());
    program.setArenasAttr(builder.getArrayAttr(
        {rt::ArenaAttr::get(program.getContext(), "compute", arenaBytes,
                            rt::MemoryClass::compute)}));
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
  static void sort(FunctionObjects &function,
                   SmallVectorImpl<Object *> &persistent,
                   SmallVectorImpl<Object *> &transient) {
    for (auto &[name, object] : function.objects)
      (object.isPersistent() ? persistent : transient).push_back(&object);
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

  static void write(FunctionObjects &function) {
    for (auto &[name, object] : function.objects)
      for (rt::BufferOp buffer : object.buffers)
        buffer.setOffset(object.offset + buffer.getOffset() - object.begin);
  }

  rt::ProgramOp program;
  FunctionObjects step;
  SmallVector<FunctionObjects> frames;
  SmallVector<Object *> persistent, transient;
  int64_t arenaBytes = 0;
};

} // namespace

MemoryReport heddle::getMemoryReport(ModuleOp module) {
  MemoryReport result;
  for (auto program : module.getOps<rt::ProgramOp>()) {
    ProgramMemory memory(program);
    result = memory.report();
    for (Attribute arena : program.getArenas())
      result.arenaBytes += cast<rt::ArenaAttr>(arena).getBytes();
    memory.forEach([&](FunctionObjects &function, Object &object) {
      result.objects.push_back({object.name, object.memoryClass,
                                function.function.getSymName().str(),
                                object.reason, object.bytes, object.begin,
                                object.layerStride});
    });
  }
  return result;
}

namespace heddle {
namespace {
struct PlaceBuffersPass : impl::PlaceBuffersPassBase<PlaceBuffersPass> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<rt::ProgramOp>()) {
      if (failed(verifyBounds(program)))
        return signalPassFailure();
      ProgramMemory(program).place();
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
