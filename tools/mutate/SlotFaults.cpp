//===- SlotFaults.cpp - Wrong slots, groups, runs and masks, as rt --------===//

#include "tools/mutate/Fault.h"

#include "dialects/Rt/Rt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

constexpr const char *kShift = "a softmax's maximum only shifts exponents";
constexpr const char *kZero = "what is shared is zero";

/// The slot behind `slot`, of `count`.
Value nextSlot(Value slot, int64_t count) {
  OpBuilder builder(slot.getContext());
  builder.setInsertionPointAfterValue(slot);
  auto constant = [&](int64_t value) {
    return arith::ConstantIndexOp::create(builder, slot.getLoc(), value);
  };
  Value one = constant(1), all = constant(count);
  Value next = arith::AddIOp::create(builder, slot.getLoc(), slot, one);
  return arith::RemSIOp::create(builder, slot.getLoc(), next, all);
}

class SlotFaults {
public:
  explicit SlotFaults(rt::ProgramOp program)
      : program(program), zeros(zeroed()) {}

  std::vector<Fault> find() {
    program.walk([&](Operation *op) {
      if (auto record = dyn_cast<rt::RecordOp>(op))
        findEvent(record, "record another slot's event");
      else if (auto wait = dyn_cast<rt::WaitOp>(op))
        findEvent(wait, "wait for another slot");
      else if (auto buffer = dyn_cast<rt::BufferOp>(op))
        findSlot(buffer);
      else if (auto group = dyn_cast<rt::GroupOp>(op))
        findGroup(group);
      else if (auto gather = dyn_cast<rt::AllGatherOp>(op))
        findLayer(gather);
      else if (auto place = dyn_cast<rt::RankIndexOp>(op))
        findPlace(place);
      else if (isa<rt::ZeroOp>(op))
        add("drop a zero", op, [op] { op->erase(); });
      else
        findMask(op);
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::function<void()> plant,
           bool proven = false, const std::string &how = "",
           std::string equivalent = "") {
    faults.push_back({kind, describe(op) + how, std::move(plant),
                      std::move(equivalent), proven});
  }

  template <class Op>
  void findEvent(Op op, const char *kind) {
    if (op.getSlot() && op.getSlots().value_or(1) > 1)
      add(
          kind, op,
          [op]() mutable {
            op.getSlotMutable().assign(nextSlot(op.getSlot(), *op.getSlots()));
          },
          /*proven=*/true);
  }

  void findSlot(rt::BufferOp buffer) {
    for (OpOperand &index : buffer.getIndicesMutable()) {
      auto slot = index.get().getDefiningOp<arith::RemSIOp>();
      APInt count;
      if (slot && matchPattern(slot.getRhs(), m_ConstantInt(&count)) &&
          count.getSExtValue() > 1)
        add("use another slot", buffer, [&index, count] {
          index.set(nextSlot(index.get(), count.getSExtValue()));
        });
    }
  }

  void findGroup(rt::GroupOp group) {
    add("drop a group", group, [group]() mutable { group.erase(); });
    for (Operation &op : group.getBody().front()) {
      if (!isa<rt::WorkOpInterface>(op))
        continue;
      bool alone =
          op.getOperand(0) == op.getOperand(1) &&
          program.getGroupSize(op.getAttrOfType<ArrayAttr>("axes")) == 1;
      add(
          "drop a member of a group", &op, [&op] { op.erase(); }, false, "",
          alone ? "the group has one rank" : "");
      add(
          "take a member out of a group", &op,
          [&op, group]() mutable { op.moveBefore(group); }, /*proven=*/true);
    }
  }

  /// What is gathered is another layer's.
  void findLayer(rt::AllGatherOp gather) {
    auto buffer = gather.getInput().getDefiningOp<rt::BufferOp>();
    if (!buffer || buffer.getIndices().size() != 1)
      return;
    add("gather another layer's parameters", gather,
        [gather, buffer]() mutable {
          OpBuilder builder(buffer);
          auto other = cast<rt::BufferOp>(builder.clone(*buffer));
          // Of the first two layers the one that it is not.
          other.getIndicesMutable().assign(nextSlot(buffer.getIndices()[0], 2));
          gather.getInputMutable().assign(other);
        });
  }

  /// Names of buffers that hold nothing but zeros.
  llvm::StringSet<> zeroed() {
    llvm::StringSet<> names, others;
    auto note = [](llvm::StringSet<> &to, Value place) {
      while (auto view = place.getDefiningOp<rt::ViewOp>())
        place = view.getSource();
      if (auto buffer = place.getDefiningOp<rt::BufferOp>())
        to.insert(buffer.getName());
    };
    program.walk([&](Operation *op) {
      if (auto work = dyn_cast<rt::WorkOpInterface>(op))
        for (const rt::Access &access : work.getAccesses())
          if (access.writes)
            note(isa<rt::ZeroOp>(op) ? names : others, access.buffer);
      if (auto call = dyn_cast<rt::CallOp>(op))
        for (Value operand : call.getOperands())
          note(others, operand);
    });
    for (const auto &name : others)
      names.erase(name.getKey());
    return names;
  }

  static bool launches(Operation *op, StringRef kernel) {
    auto launch = dyn_cast<rt::KernelLaunchOp>(op);
    return launch && launch.getKernel().starts_with(kernel);
  }

  static bool isMakePartial(Operation *op) {
    return launches(op, "make_partial");
  }

  /// Whether a place only says which ranks keep a zero.
  bool placesZero(rt::RankIndexOp place) {
    return llvm::all_of(place.getResult().getUsers(), [&](Operation *op) {
      auto read = isMakePartial(op)
                      ? op->getOperand(1).getDefiningOp<rt::BufferOp>()
                      : rt::BufferOp();
      return read && zeros.contains(read.getName());
    });
  }

  /// Whether only the first place over the stages' axis comes to an op: it, or
  /// what calls its function, is in a case of a part that no other place has.
  bool runsAtFirst(Operation *op) {
    for (Operation *outer = op; outer != program; outer = outer->getParentOp())
      if (auto choice = dyn_cast<rt::SwitchOp>(outer->getParentOp()))
        if (auto lookup = choice.getSelector().getDefiningOp<rt::LookupOp>()) {
          unsigned number = outer->getParentRegion()->getRegionNumber();
          auto numbers = program.lookupSymbol<rt::NumbersOp>(lookup.getTable());
          bool first = choice.getValues()[number] == 1 &&
                       lookup.getTable().contains("has_");
          for (int64_t row = 1; first && row < numbers.getNumRows(); ++row)
            first = llvm::all_of(numbers.getRow(row),
                                 [](int64_t value) { return value == 0; });
          if (first)
            return true;
        }
    bool all = true;
    StringRef function = op->getParentOfType<rt::FuncOp>().getSymName();
    bool any = false;
    program.walk([&](rt::CallOp call) {
      if (call.getCallee() == function) {
        any = true;
        all &= runsAtFirst(call);
      }
    });
    return any && all;
  }

  void findPlace(rt::RankIndexOp place) {
    bool unused = place.getResult().use_empty(), ofZero = placesZero(place),
         shifts = llvm::all_of(place.getResult().getUsers(), [](Operation *op) {
           return launches(op, "row_max");
         });
    for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>()) {
      auto other = Builder(place.getContext()).getStrArrayAttr(axis.getName());
      if (other == place.getAxes())
        continue;
      bool same = program.getGroupSize(place.getAxes()) == 1 &&
                  program.getGroupSize(other) == 1;
      bool atFirst = program.getStages() == axis.getName() &&
                     program.getGroupSize(place.getAxes()) == 1 &&
                     runsAtFirst(place);
      add(
          "stand in another group", place,
          [place, other]() mutable { place.setAxesAttr(other); }, false,
          " in place of " + axis.getName().str(),
          unused    ? "nothing reads the value"
          : same    ? "both groups have one rank"
          : atFirst ? "only the first stage's place asks"
          : ofZero  ? kZero
          : shifts  ? kShift
                    : "");
    }
    bool asksForFirst =
        llvm::all_of(place.getResult().getUsers(), isMakePartial);
    add(
        "misplace a run", place,
        [place]() mutable { place.setStep(place.getStep() * 2); }, false, "",
        program.getGroupSize(place.getAxes()) == 1 ? "the group has one rank"
        : unused                                   ? "nothing reads the value"
        : asksForFirst ? "only whether it is zero counts"
        : shifts       ? kShift
                       : "");
  }

  void findMask(Operation *op) {
    if (auto random = dyn_cast<rt::RandomOp>(op))
      add("drop out as at another place", op,
          [random]() mutable { random.setSite((random.getSite() + 1) % 4); });
    if (auto attention = dyn_cast<rt::AttentionOp>(op))
      findAttention(attention);
    if (auto gradient = dyn_cast<rt::AttentionGradOp>(op))
      findAttention(gradient);
    if (auto call = dyn_cast<rt::CallOp>(op))
      for (OpOperand &operand : call->getOpOperands())
        if (auto buffer = operand.get().getDefiningOp<rt::BufferOp>()) {
          findSeed(call, operand, buffer);
          findNumbers(call, operand, buffer);
        }
  }

  /// A call that draws what another layer draws, or what stands outside of
  /// layers.
  void findSeed(rt::CallOp call, OpOperand &operand, rt::BufferOp buffer) {
    if (buffer.getName() == "inputs.layer_dropout_seeds")
      add("take another layer's seed", call, [&operand, buffer]() mutable {
        OpBuilder builder(buffer);
        auto other = cast<rt::BufferOp>(builder.clone(*buffer));
        // Of the first two layers the one that it is not.
        other.getIndicesMutable().assign(nextSlot(buffer.getIndices()[0], 2));
        operand.set(other);
      });
    if (buffer.getName() != "inputs.dropout_seed")
      return;
    rt::BufferOp ofLayers;
    program.walk([&](rt::BufferOp each) {
      if (each.getName() == "inputs.layer_dropout_seeds")
        ofLayers = each;
    });
    if (ofLayers)
      add("take another layer's seed", call,
          [call, &operand, ofLayers]() mutable {
            OpBuilder builder(call);
            auto first = cast<rt::BufferOp>(builder.clone(*ofLayers));
            first.getIndicesMutable().assign(
                arith::ConstantIndexOp::create(builder, call.getLoc(), 0));
            operand.set(first);
          });
  }

  void findNumbers(rt::CallOp call, OpOperand &operand, rt::BufferOp buffer) {
    if (buffer.getName() != "inputs.token_numbers")
      return;
    for (Value other : call.getOperands())
      if (auto its = other.getDefiningOp<rt::BufferOp>();
          its && its != buffer && its.getType() == buffer.getType())
        add(
            "take other numbers for tokens'", call,
            [&operand, other] { operand.set(other); }, false,
            ": '" + its.getName().str() + "'");
  }

  template <class Op>
  void findAttention(Op op) {
    FloatAttr rate = op.getDropoutAttr();
    if (!rate)
      return;
    add("change a dropout's rate", op, [op, rate]() mutable {
      op.setDropoutAttr(
          FloatAttr::get(rate.getType(), rate.getValueAsDouble() / 2));
    });
    add("take other numbers for tokens'", op, [op]() mutable {
      op.getTokenNumbersMutable().assign(op.getQueryPositions());
    });
    if (op.getFirstGroup() != op.getFirstHead())
      add(
          "exchange the numbers of groups and heads", op,
          [op]() mutable {
            Value group = op.getFirstGroup();
            op.getFirstGroupMutable().assign(op.getFirstHead());
            op.getFirstHeadMutable().assign(group);
          },
          false, "",
          op.getGroupHeads().value_or(0) == 1
              ? "with one head in a group only the sum of both counts"
              : "");
  }

  rt::ProgramOp program;
  llvm::StringSet<> zeros; ///< buffers of zeros
  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findSlotFaults(ModuleOp module) {
  for (auto program : module.getOps<rt::ProgramOp>())
    return SlotFaults(program).find();
  return {};
}
