//===- Lifetimes.cpp - when objects of memory are needed ------------------===//

#include "passes/Memory/Lifetimes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::memory;

bool Object::isPersistent() const {
  return memoryClass != "saved" && memoryClass != "workspace" &&
         memoryClass != "communication";
}

/// Bytes of an object on each stage, where they are not what its buffers span.
static constexpr llvm::StringLiteral kBytesByStageName = "bytes_by_stage";

namespace {

struct Touch {
  int64_t position;
  bool reads;
  SmallVector<Region *> scopes; ///< loops and cases around it, outermost first
};

/// Whether the first thing that happens to each argument of a function is a
/// read.
SmallVector<bool> readsFirst(rt::FuncOp function) {
  SmallVector<std::optional<bool>> first(function.getNumArguments());
  function.walk([&](rt::WorkOpInterface work) {
    for (const rt::Access &access : work.getAccesses()) {
      Value buffer = access.buffer;
      while (auto view = buffer.getDefiningOp<rt::ViewOp>())
        buffer = view.getSource();
      auto argument = dyn_cast<BlockArgument>(buffer);
      if (!argument || argument.getOwner() != &function.getBody().front())
        continue;
      std::optional<bool> &entry = first[argument.getArgNumber()];
      if (!entry)
        entry = access.reads;
    }
  });
  SmallVector<bool> result;
  for (std::optional<bool> entry : first)
    result.push_back(entry.value_or(true));
  return result;
}

class Finder {
public:
  Finder(rt::FuncOp function, int64_t stage) : stage(stage) {
    found.function = function;
  }

  FunctionObjects run() {
    visit(found.function.getBody().front());
    for (auto &[name, object] : found.objects)
      setLifetime(object, touches[name]);
    return std::move(found);
  }

private:
  void visit(Block &block) {
    for (Operation &op : block) {
      int64_t position = found.positions.size();
      found.positions.push_back(&op);
      if (isa<rt::ForOp, rt::SwitchOp>(op)) {
        for (Region &region : op.getRegions())
          if (isRun(op, region))
            visitScope(region, position);
          else
            addInputs(region);
      } else if (auto buffer = dyn_cast<rt::BufferOp>(op)) {
        addBuffer(buffer);
      } else if (auto group = dyn_cast<rt::GroupOp>(op)) {
        visit(group.getBody().front());
      } else if (auto work = dyn_cast<rt::WorkOpInterface>(op)) {
        for (const rt::Access &access : work.getAccesses()) {
          touch(access.buffer, position, access.reads);
          if (work.getStreamName() != mainStream())
            queued[work.getStreamName()].insert(objectOf(access.buffer));
        }
      } else if (auto record = dyn_cast<rt::RecordOp>(op)) {
        recorded[record.getEvent()] = record.getStream();
      } else if (auto wait = dyn_cast<rt::WaitOp>(op)) {
        if (wait.getStream() == mainStream())
          touchQueued(recorded.lookup(wait.getEvent()), position);
      } else if (auto call = dyn_cast<rt::CallOp>(op)) {
        visitCall(call, position);
      }
    }
  }

  /// What a number may be on this stage: an entry of a table, or a part of one.
  /// None where it is another number.
  std::optional<SmallVector<int64_t>> valuesOf(Value number) {
    if (auto quotient = number.getDefiningOp<arith::DivSIOp>())
      return partsOf(quotient, [](int64_t a, int64_t b) { return a / b; });
    if (auto remainder = number.getDefiningOp<arith::RemSIOp>())
      return partsOf(remainder, [](int64_t a, int64_t b) { return a % b; });
    auto lookup = number.getDefiningOp<rt::LookupOp>();
    if (!lookup)
      return std::nullopt;
    auto table = SymbolTable::lookupNearestSymbolFrom<rt::NumbersOp>(
        lookup, lookup.getTableAttr());
    return llvm::to_vector(table.getRow(table.getAxis() ? stage : 0));
  }

  std::optional<SmallVector<int64_t>>
  partsOf(Operation *op, llvm::function_ref<int64_t(int64_t, int64_t)> part) {
    auto values = valuesOf(op->getOperand(0));
    APInt by;
    if (!values || !matchPattern(op->getOperand(1), m_ConstantInt(&by)) ||
        by.isZero())
      return std::nullopt;
    for (int64_t &value : *values)
      value = part(value, by.getSExtValue());
    return values;
  }

  /// Whether a region is run on this stage: no case is whose number its table
  /// does not have, and no loop that has no iteration.
  bool isRun(Operation &op, Region &region) {
    if (auto loop = dyn_cast<rt::ForOp>(op)) {
      std::optional<int64_t> upper = largestUpper(loop);
      return !upper || *upper > smallestLower(loop);
    }
    auto cases = dyn_cast<rt::SwitchOp>(op);
    auto all = cases ? valuesOf(cases.getSelector()) : std::nullopt;
    return !all || llvm::is_contained(
                       *all, cases.getValues()[region.getRegionNumber()]);
  }

  /// The largest upper bound that a loop has; none where it is not known.
  std::optional<int64_t> largestUpper(rt::ForOp loop) {
    if (loop.getUpper())
      return *loop.getUpper();
    auto all = valuesOf(loop.getUpperValue());
    return all ? std::optional(*llvm::max_element(*all)) : std::nullopt;
  }

  /// The smallest lower bound that a loop has; 0 where it is not known.
  int64_t smallestLower(rt::ForOp loop) {
    if (loop.getLower())
      return *loop.getLower();
    auto all = valuesOf(loop.getLowerValue());
    return all ? *llvm::min_element(*all) : 0;
  }

  /// Inputs are given to every stage, whether it reads them or not.
  void addInputs(Region &region) {
    region.walk([&](rt::BufferOp buffer) {
      if (classOf(buffer) == "inputs")
        addBuffer(buffer);
    });
  }

  static StringRef classOf(rt::BufferOp buffer) {
    return buffer->getAttrOfType<StringAttr>("memory_class").getValue();
  }

  void visitScope(Region &region, int64_t begin) {
    scopes.push_back(&region);
    begins[&region] = begin;
    visit(region.front());
    ends[&region] = static_cast<int64_t>(found.positions.size()) - 1;
    scopes.pop_back();
  }

  void visitCall(rt::CallOp call, int64_t position) {
    found.calls.emplace_back(position, call);
    auto callee = SymbolTable::lookupNearestSymbolFrom<rt::FuncOp>(
        call, call.getCalleeAttr());
    SmallVector<bool> reads = readsFirst(callee);
    for (auto [i, operand] : llvm::enumerate(call.getOperands()))
      if (isa<rt::BufType>(operand.getType()))
        touch(operand, position, reads[i]);
  }

  void addBuffer(rt::BufferOp buffer) {
    SmallVector<int64_t> place = buffer.getPlaceAt(stage);
    int64_t offset = place.front();
    Object &object = found.objects[buffer.getName()];
    if (object.buffers.empty()) {
      object.name = buffer.getName().str();
      object.reason = buffer.getReason().str();
      object.memoryClass = classOf(buffer).str();
      object.arena = buffer.getArena().str();
      object.begin = offset;
    }
    int64_t begin = std::min<int64_t>(object.begin, offset);
    object.bytes += object.begin - begin;
    object.begin = begin;
    int64_t end = offset + buffer.getType().getSpanBytes();
    for (auto [index, stride] :
         llvm::zip(buffer.getIndices(), ArrayRef(place).drop_front())) {
      object.layerStride = std::max(object.layerStride, stride);
      // A slot is a number modulo the number of slots.
      if (auto slot = index.getDefiningOp<arith::RemSIOp>())
        if (auto count = slot.getRhs().getDefiningOp<arith::ConstantIndexOp>())
          end += stride * (count.value() - 1);
      if (auto argument = dyn_cast<BlockArgument>(index))
        if (auto loop = dyn_cast<rt::ForOp>(argument.getOwner()->getParentOp()))
          end += stride * (largestUpper(loop).value_or(1) - 1);
    }
    auto byStage = buffer->getAttrOfType<DenseI64ArrayAttr>(kBytesByStageName);
    object.bytes =
        byStage ? byStage[stage] : std::max(object.bytes, end - object.begin);
    object.buffers.push_back(buffer);
  }

  /// The name of the object that a buffer is a part of; "" for an argument.
  static StringRef objectOf(Value value) {
    while (auto view = value.getDefiningOp<rt::ViewOp>())
      value = view.getSource();
    auto buffer = value.getDefiningOp<rt::BufferOp>();
    return buffer ? buffer.getName() : "";
  }

  void touch(Value value, int64_t position, bool reads) {
    if (StringRef name = objectOf(value); !name.empty())
      touches[name].push_back({position, reads, scopes});
  }

  /// The stream in whose order objects begin and end: the program's first.
  StringRef mainStream() {
    auto program = found.function->getParentOfType<rt::ProgramOp>();
    return cast<rt::StreamAttr>(program.getStreams()[0]).getName();
  }

  /// Work of another stream goes on until the main one waits for it.
  void touchQueued(StringRef stream, int64_t position) {
    for (StringRef name : queued[stream])
      if (!name.empty())
        touches[name].push_back({position, true, scopes});
    queued[stream].clear();
  }

  /// The loop over slots, where any of these is in it; "" for none.
  StringRef loopOf(ArrayRef<Touch> list) {
    if (!found.function->getParentOfType<rt::ProgramOp>().getStages())
      return "";
    for (const Touch &touch : list) {
      if (touch.scopes.empty())
        continue;
      auto loop = dyn_cast<rt::ForOp>(touch.scopes.front()->getParentOp());
      bool calls =
          loop && loop.getBody()
                      .walk([](rt::CallOp) { return WalkResult::interrupt(); })
                      .wasInterrupted();
      if (calls)
        return loop.getName();
    }
    return "";
  }

  /// What running some code does to an object: whether it may read what was
  /// there before, and whether it surely writes.
  struct Effect {
    bool mayRead = false, writes = false;
  };

  /// Of touches in one region, `depth` scopes deep, in the program's order.
  Effect effectOf(ArrayRef<Touch> list, size_t depth) {
    Effect all;
    while (!list.empty()) {
      const Touch &first = list.front();
      bool isNested = first.scopes.size() > depth;
      Operation *op = isNested ? first.scopes[depth]->getParentOp() : nullptr;
      ArrayRef<Touch> same = list.take_while([&](const Touch &touch) {
        return isNested ? touch.scopes.size() > depth &&
                              touch.scopes[depth]->getParentOp() == op
                        : touch.position == first.position;
      });
      Effect one = isNested ? effectOf(op, same, depth) : effectOfWork(same);
      all.mayRead |= one.mayRead && !all.writes;
      all.writes |= one.writes;
      list = list.drop_front(same.size());
    }
    return all;
  }

  static Effect effectOfWork(ArrayRef<Touch> list) {
    auto reads = [](const Touch &touch) { return touch.reads; };
    return {llvm::any_of(list, reads), !llvm::all_of(list, reads)};
  }

  Effect effectOf(Operation *op, ArrayRef<Touch> list, size_t depth) {
    Effect all = {false, alwaysRuns(op)};
    for (Region &region : op->getRegions()) {
      ArrayRef<Touch> inside = list.take_while(
          [&](const Touch &touch) { return touch.scopes[depth] == &region; });
      list = list.drop_front(inside.size());
      if (!isRun(*op, region))
        continue;
      Effect one = effectOf(inside, depth + 1);
      all.mayRead |= one.mayRead;
      all.writes &= one.writes;
    }
    return all;
  }

  /// Whether one of an op's regions runs whenever the op does, on this stage. A
  /// loop whose results are read has iterations.
  bool alwaysRuns(Operation *op) {
    if (isa<rt::ForOp>(op))
      return true;
    auto cases = cast<rt::SwitchOp>(op);
    auto all = valuesOf(cases.getSelector());
    return all && llvm::all_of(*all, [&](int64_t value) {
             return llvm::is_contained(cases.getValues(), value);
           });
  }

  void setLifetime(Object &object, ArrayRef<Touch> list) {
    if (list.empty())
      return;
    // The scopes around all touches, of which each run begins anew.
    ArrayRef<Region *> first = list.front().scopes;
    size_t common = first.size();
    for (const Touch &touch : list) {
      size_t same = 0;
      while (same < common && same < touch.scopes.size() &&
             touch.scopes[same] == first[same])
        ++same;
      common = same;
    }
    while (common > 0 && effectOf(list, common).mayRead)
      --common;
    if (common == 0)
      object.heldIn = loopOf(list);
    object.first = std::numeric_limits<int64_t>::max();
    for (const Touch &touch : list) {
      bool inside = touch.scopes.size() > common;
      object.first = std::min(
          object.first, inside ? begins[touch.scopes[common]] : touch.position);
      object.last = std::max(object.last, inside ? ends[touch.scopes[common]]
                                                 : touch.position);
    }
  }

  int64_t stage;
  FunctionObjects found;
  SmallVector<Region *> scopes;
  DenseMap<Region *, int64_t> begins, ends;
  llvm::StringMap<SmallVector<Touch>> touches;
  llvm::StringMap<llvm::SetVector<StringRef>> queued; ///< objects, by stream
  llvm::StringMap<StringRef> recorded; ///< the stream of an event's record
};

} // namespace

FunctionObjects memory::findObjects(rt::FuncOp function, int64_t stage) {
  return Finder(function, stage).run();
}
