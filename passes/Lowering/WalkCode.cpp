//===- WalkCode.cpp - Functions of an rt.program, decoded once ------------===//

#include "passes/Lowering/WalkCode.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace heddle::lowering {
namespace {

using Kind = Instruction::Kind;

class Decoder {
public:
  explicit Decoder(rt::ProgramOp program) : program(program) {}

  WalkCode decode(rt::FuncOp function) {
    Block &block = function.getBody().front();
    for (BlockArgument argument : block.getArguments())
      cellOf(argument);
    WalkCode code;
    code.body = decodeBlock(block);
    code.cells = unsigned(cells.size());
    return code;
  }

private:
  Cell cellOf(Value value) {
    return cells.try_emplace(value, unsigned(cells.size())).first->second;
  }
  void take(Instruction &made, ValueRange operands) {
    for (Value operand : operands)
      made.operands.push_back(cellOf(operand));
  }

  Instruction::Body decodeBlock(Block &block) {
    Instruction::Body body;
    for (Operation &op : block)
      if (!isa<rt::ReturnOp, rt::EndOp>(op))
        body.push_back(decodeOp(op));
    return body;
  }

  Instruction decodeOp(Operation &op) {
    Instruction made{Kind::Fold, &op};
    llvm::TypeSwitch<Operation *>(&op)
        .Case([&](rt::BufferOp buffer) { decode(made, buffer); })
        .Case([&](rt::ViewOp view) { decode(made, view); })
        .Case([&](rt::RankIndexOp) { made.kind = Kind::RankIndex; })
        .Case([&](rt::ForOp loop) { decode(made, loop); })
        .Case([&](rt::SwitchOp choice) {
          made.kind = Kind::Switch;
          take(made, choice.getSelector());
          made.cases = choice.getValues();
          for (Region &region : choice.getCases())
            made.bodies.push_back(decodeBlock(region.front()));
        })
        .Case([&](rt::LookupOp lookup) {
          made.kind = Kind::Lookup;
          if (lookup.getIndex())
            take(made, lookup.getIndex());
        })
        .Case([&](rt::GroupOp group) {
          made.kind = Kind::Group;
          made.bodies.push_back(decodeBlock(group.getBody().front()));
        })
        .Case([&](rt::CallOp call) {
          made.kind = Kind::Call;
          take(made, call.getOperands());
          made.callee = program.lookupSymbol<rt::FuncOp>(call.getCallee());
        })
        .Case([&](rt::RecordOp record) { event(made, Kind::Record, record); })
        .Case([&](rt::WaitOp wait) { event(made, Kind::Wait, wait); })
        .Case([&](rt::WorkOpInterface work) {
          made.kind = Kind::Work;
          for (const rt::Access &access : work.getAccesses())
            made.accesses.push_back({cellOf(access.buffer), access.span,
                                     access.run, access.period, access.reads,
                                     access.writes});
        })
        .Default([&](Operation *) { compute(made, op); });
    if (op.getNumResults() == 1)
      made.result = cellOf(op.getResult(0));
    return made;
  }

  void decode(Instruction &made, rt::BufferOp op) {
    made.kind = Kind::Buffer;
    take(made, op.getIndices());
    made.strides = op.getStrides();
    made.byStage = op.getByStage().value_or(ArrayRef<int64_t>());
    made.offset = op.getOffset();
    made.bytes = op.getType().getSpanBytes();
    made.arena = program.getArenaIndex(op.getArena());
  }

  void decode(Instruction &made, rt::ViewOp op) {
    made.kind = Kind::View;
    take(made, op.getIndices());
    made.source = cellOf(op.getSource());
    made.strides = op.getStrides();
    made.bytes = op.getType().getElementBytes();
    made.offset = op.getOffset() * made.bytes;
  }

  void decode(Instruction &made, rt::ForOp op) {
    auto bound = [&](std::optional<int64_t> constant, Value value) {
      return Instruction::Bound{constant, constant ? 0 : cellOf(value)};
    };
    made.kind = Kind::For;
    made.lower = bound(op.getLower(), op.getLowerValue());
    made.upper = bound(op.getUpper(), op.getUpperValue());
    made.reversed = op.getReversed();
    made.operands = {cellOf(op.getInductionVariable())};
    made.bodies.push_back(decodeBlock(op.getBody().front()));
  }

  template <class Op>
  void event(Instruction &made, Kind kind, Op op) {
    made.kind = kind;
    made.event = op.getEvent().str();
    if (op.getSlot())
      take(made, op.getSlot());
  }

  /// Sums and products of indices without their fold, which makes an attribute
  /// of every number.
  void compute(Instruction &made, Operation &op) {
    take(made, op.getOperands());
    APInt constant;
    if (matchPattern(&op, m_ConstantInt(&constant))) {
      made.kind = Kind::Constant;
      made.offset = constant.getSExtValue();
      return;
    }
    if (op.getNumResults() != 1 || !op.getResult(0).getType().isIndex())
      return;
    made.compute =
        llvm::TypeSwitch<Operation *, Instruction::Compute>(&op)
            .Case([](arith::AddIOp) {
              return +[](int64_t a, int64_t b) { return a + b; };
            })
            .Case([](arith::SubIOp) {
              return +[](int64_t a, int64_t b) { return a - b; };
            })
            .Case([](arith::MulIOp) {
              return +[](int64_t a, int64_t b) { return a * b; };
            })
            .Case([](arith::MinSIOp) {
              return +[](int64_t a, int64_t b) { return std::min(a, b); };
            })
            .Case([](arith::MaxSIOp) {
              return +[](int64_t a, int64_t b) { return std::max(a, b); };
            })
            .Case([&](arith::DivSIOp) { return divisor(op, true); })
            .Case([&](arith::RemSIOp) { return divisor(op, false); })
            .Default(Instruction::Compute(nullptr));
    if (made.compute)
      made.kind = Kind::Compute;
  }

  /// Only by a positive constant: anything else may have no result.
  static Instruction::Compute divisor(Operation &op, bool quotient) {
    APInt by;
    if (!matchPattern(op.getOperand(1), m_ConstantInt(&by)) ||
        !by.isStrictlyPositive())
      return nullptr;
    return quotient ? +[](int64_t a, int64_t b) { return a / b; }
                    : +[](int64_t a, int64_t b) { return a % b; };
  }

  rt::ProgramOp program;
  llvm::DenseMap<Value, Cell> cells;
};

} // namespace

WalkCode decodeFunction(rt::ProgramOp program, rt::FuncOp function) {
  return Decoder(program).decode(function);
}

} // namespace heddle::lowering
