//===- ProgramFaults.cpp - Wrong queued work and places, as rt ------------===//

#include "tools/mutate/Fault.h"

#include "dialects/Rt/Rt.h"
#include "passes/Lowering/WalkProgram.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

bool isCollective(Operation *op) {
  return isa<rt::AllReduceOp, rt::ReduceScatterOp, rt::AllGatherOp,
             rt::AllToAllOp, rt::PermuteOp>(op);
}

/// The buffer that a value is a part of; null for an argument.
rt::BufferOp bufferOf(Value value) {
  while (auto view = value.getDefiningOp<rt::ViewOp>())
    value = view.getSource();
  return value.getDefiningOp<rt::BufferOp>();
}

/// A temporary that has its own place; others belong to the caller.
bool isTemporary(rt::BufferOp buffer) {
  auto what = buffer->getAttrOfType<StringAttr>("memory_class");
  return what &&
         (what.getValue() == "saved" || what.getValue() == "workspace" ||
          what.getValue() == "communication");
}

class ProgramFaults {
public:
  ProgramFaults(rt::ProgramOp program, bool placed)
      : program(program), placed(placed) {}

  std::vector<Fault> find() {
    SmallVector<rt::BufferOp> buffers;
    program.walk([&](Operation *op) {
      if (isCollective(op))
        findCollective(op);
      if (auto gemm = dyn_cast<rt::GemmOp>(op))
        findScale(gemm);
      if (isa<rt::WaitOp, rt::RecordOp>(op))
        findEvent(op);
      if (auto buffer = dyn_cast<rt::BufferOp>(op);
          buffer && isTemporary(buffer))
        buffers.push_back(buffer);
    });
    if (placed)
      for (size_t i = 0; i < buffers.size(); ++i)
        findPlace(buffers, i);
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::string equivalent,
           std::function<void()> plant, bool proven = false,
           const std::string &how = "") {
    faults.push_back({kind, describe(op) + how, std::move(plant),
                      std::move(equivalent), proven});
  }

  bool isMaximum(Operation *op) {
    auto reduce = dyn_cast<rt::AllReduceOp>(op);
    return reduce && reduce.getReduction() == rt::Reduction::max;
  }

  void findCollective(Operation *op) {
    auto axes = op->getAttrOfType<ArrayAttr>("axes");
    bool inPlace = op->getOperand(0) == op->getOperand(1);
    const char *one =
        program.getGroupSize(axes) == 1 ? "the group has one rank" : "";
    if (inPlace)
      add("delete a collective", op, one, [op] { op->erase(); });
    rt::BufferOp from = bufferOf(op->getOperand(0)),
                 to = bufferOf(op->getOperand(1));
    // A function's own buffers are no part of what it is given.
    bool apart = from && to ? from.getName() != to.getName() : !from != !to;
    // The runtime refuses all other ways for the two to overlap.
    bool ownPart = isa<rt::AllGatherOp>(op) && !apart && from && to;
    add("duplicate a collective", op,
        isMaximum(op) ? "the maximum of equal values is that value"
        : ownPart     ? "each rank's part is again what it gave"
        : apart       ? "the second one reads the same and writes the same"
                      : one,
        [op] {
          OpBuilder builder(op->getContext());
          builder.setInsertionPointAfter(op);
          builder.clone(*op);
        });
    for (auto other : program.getCommunicators().getAsRange<ArrayAttr>())
      if (other != axes)
        add(
            "retarget a collective", op,
            haveEqualGroups(axes, other)
                ? "each rank is in a group of the same ranks, in one order"
                : "",
            [op, other] { op->setAttr("axes", other); }, false,
            " to " + std::to_string(program.getGroupSize(other)) + " ranks");
    if (auto reduce = dyn_cast<rt::AllReduceOp>(op))
      exchangeReduction(reduce, one);
    if (auto reduce = dyn_cast<rt::ReduceScatterOp>(op))
      exchangeReduction(reduce, one);
  }

  /// Whether both cut the ranks into the same groups, each in the same order:
  /// as `pp` and its mirror do with two places.
  bool haveEqualGroups(ArrayAttr some, ArrayAttr other) {
    int64_t ranks = 1;
    for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>())
      ranks *= axis.getSize();
    for (int64_t rank = 0; rank < ranks; ++rank)
      if (lowering::firstOfGroup(program, some, rank) !=
              lowering::firstOfGroup(program, other, rank) ||
          lowering::placeOver(program, some, rank) !=
              lowering::placeOver(program, other, rank))
        return false;
    return true;
  }

  template <class Op>
  void exchangeReduction(Op reduce, const char *one) {
    // The only maximum is the loss's, equal on all ranks either way.
    // Over stages go the loss, and the norm in fp64.
    bool isLoss =
        program.getStages() && reduce.getAxes().size() == 1 &&
        cast<StringAttr>(reduce.getAxes()[0]) == *program.getStages() &&
        reduce.getInput().getType().getElementType().isF32();
    add("exchange sum and maximum", reduce,
        isMaximum(reduce) ? "a softmax's maximum only shifts exponents"
        : isLoss ? "a loss is above zero where the head is, and zero elsewhere"
                 : one,
        [reduce]() mutable {
          bool sums = reduce.getReduction() == rt::Reduction::sum;
          reduce.setReduction(sums ? rt::Reduction::max : rt::Reduction::sum);
        });
  }

  void findScale(rt::GemmOp gemm) {
    add("scale by an axis size", gemm, "", [gemm]() mutable {
      gemm.setAlphaAttr(FloatAttr::get(Float32Type::get(gemm.getContext()),
                                       gemm.getAlpha().convertToFloat() * 2));
    });
  }

  void findEvent(Operation *op) {
    add(
        isa<rt::WaitOp>(op) ? "drop a wait" : "drop a record", op, "",
        [op] { op->erase(); }, /*proven=*/true);
    auto record = dyn_cast<rt::RecordOp>(op);
    Operation *before = op->getPrevNode();
    while (record && before && !queuesOn(before, record.getStream()))
      before = before->getPrevNode();
    if (record && before)
      add(
          "record one launch early", op, "",
          [op, before] { op->moveBefore(before); }, /*proven=*/true);
  }

  static bool queuesOn(Operation *op, StringRef stream) {
    return op
        ->walk([&](rt::WorkOpInterface work) {
          return work.getStreamName() == stream ? WalkResult::interrupt()
                                                : WalkResult::advance();
        })
        .wasInterrupted();
  }

  /// Offsets of a buffer on all stages.
  static SmallVector<int64_t *> offsets(MutableArrayRef<int64_t> byStage,
                                        size_t width) {
    SmallVector<int64_t *> all;
    for (size_t i = 0; i < byStage.size(); i += width)
      all.push_back(&byStage[i]);
    return all;
  }

  static bool canShift(rt::BufferOp buffer, int64_t bytes) {
    SmallVector<int64_t> rows(
        buffer.getByStage().value_or(ArrayRef<int64_t>()));
    return buffer.getOffset() + bytes >= 0 &&
           llvm::all_of(
               offsets(rows, 1 + buffer.getStrides().size()),
               [&](const int64_t *offset) { return *offset + bytes >= 0; });
  }

  static void shift(rt::BufferOp buffer, int64_t bytes) {
    buffer.setOffset(buffer.getOffset() + bytes);
    if (!buffer.getByStage())
      return;
    SmallVector<int64_t> rows(*buffer.getByStage());
    for (int64_t *offset : offsets(rows, 1 + buffer.getStrides().size()))
      *offset += bytes;
    buffer.setByStage(rows);
  }

  void findPlace(ArrayRef<rt::BufferOp> buffers, size_t i) {
    rt::BufferOp buffer = buffers[i];
    add(
        "shift an offset", buffer, "", [buffer] { shift(buffer, 64); },
        /*proven=*/true);
    // Onto the next object of another name: as if its lifetime had ended.
    for (size_t k = 1; k < buffers.size(); ++k) {
      rt::BufferOp other = buffers[(i + k) % buffers.size()];
      if (other.getName() == buffer.getName() ||
          other.getArena() != buffer.getArena())
        continue;
      int64_t bytes = int64_t(other.getOffset()) - int64_t(buffer.getOffset());
      SmallVector<rt::BufferOp> all;
      for (rt::BufferOp each : buffers)
        if (each.getName() == buffer.getName())
          all.push_back(each);
      bool inside = llvm::all_of(
          all, [&](rt::BufferOp each) { return canShift(each, bytes); });
      if (bytes == 0 || !inside)
        continue;
      add(
          "shorten a lifetime", buffer, "",
          [all, bytes] {
            for (rt::BufferOp each : all)
              shift(each, bytes);
          },
          /*proven=*/true, " onto '" + other.getName().str() + "'");
      return;
    }
  }

  rt::ProgramOp program;
  bool placed;
  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findProgramFaults(ModuleOp module, bool placed) {
  for (auto program : module.getOps<rt::ProgramOp>())
    return ProgramFaults(program, placed).find();
  return {};
}
