//===- Rank.h - one rank that runs a module ---------------------*- C++ -*-===//
//
// What an op's `evaluate` sees. For this room, its tests, and plug-ins that
// bring ops of their own.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_INTERPRET_RANK_H
#define HEDDLE_PASSES_INTERPRET_RANK_H

#include "dialects/Stage/StageTable.h"
#include "dialects/Stage/StateParts.h"
#include "passes/Interpret/Exchange.h"
#include "passes/Interpret/Tensor.h"

#include "mlir/IR/DialectInterface.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <functional>
#include <map>
#include <variant>

namespace heddle::interpret {

/// What an SSA value holds: an index, a tensor, or a stack of tensors.
using Datum = std::variant<int64_t, TensorPtr, std::vector<TensorPtr>>;

/// What a rank has of a value that only another stage makes: nothing may look
/// at it.
inline bool isUndefined(const Datum &datum) {
  const auto *tensor = std::get_if<TensorPtr>(&datum);
  return tensor && !*tensor;
}

class Frame;

/// The meaning of each op, by its name.
class Evaluators {
public:
  using Function =
      std::function<mlir::LogicalResult(mlir::Operation *, Frame &)>;

  /// Those of this room's files, and what loaded dialects bring.
  static Evaluators of(mlir::MLIRContext &context);

  template <class Op>
  void add(mlir::LogicalResult (*evaluate)(Op, Frame &)) {
    table[Op::getOperationName()] = [evaluate](mlir::Operation *op,
                                               Frame &frame) {
      return evaluate(mlir::cast<Op>(op), frame);
    };
  }
  const Function *find(llvm::StringRef name) const {
    auto entry = table.find(name);
    return entry == table.end() ? nullptr : &entry->second;
  }

private:
  llvm::StringMap<Function> table;
};

/// What a dialect that is not Heddle's own adds to itself
/// (`addInterfaces<...>()`), so that the interpreter runs its ops.
class EvaluatorInterface
    : public mlir::DialectInterface::Base<EvaluatorInterface> {
public:
  EvaluatorInterface(mlir::Dialect *dialect) : Base(dialect) {}
  virtual void addTo(Evaluators &evaluators) const = 0;
};

/// What all ranks read and none changes.
struct Program {
  mlir::ModuleOp module;
  Reading reading = Reading::Exact;
  /// Null where the module is run on whole tensors.
  dist::MeshAttr mesh;
  int64_t numRanks = 1;
  Evaluators evaluators;
  /// Where the module asks for stages: who holds what.
  std::optional<stage::StageTable> stages;
  std::optional<stage::StateParts> stateParts;
  llvm::StringMap<mlir::func::FuncOp> functions;
  llvm::StringMap<transformer::StateOp> states;
  /// The states that use the same bytes, by the state whose bytes they are.
  llvm::StringMap<llvm::SmallVector<std::string, 2>> sharing;

  static llvm::StringRef ownerOfBytes(transformer::StateOp state) {
    return state.getStorage().value_or(state.getSymName());
  }
};

/// One rank: its part of the states, and what it ran into.
class Rank {
public:
  Rank(const Program &program, int64_t number)
      : program(program), number(number) {}

  /// Runs a function; `exchange` is where collectives meet.
  mlir::FailureOr<llvm::SmallVector<Datum>>
  call(mlir::func::FuncOp function, llvm::ArrayRef<Datum> arguments,
       Exchange &exchange);
  /// Gives an instance of a state a value. Who shares its bytes has none then.
  void write(llvm::StringRef state, size_t layer, TensorPtr value);

  /// Where it stands over the stages' axis.
  int64_t place() const;
  /// Which of its instances of a state is the one of a layer; none where its
  /// place does not hold that.
  std::optional<int64_t> indexOf(transformer::StateOp state,
                                 int64_t layer) const;
  /// Whether its place holds instance `index`, by its own numbers.
  bool holds(transformer::StateOp state, int64_t index) const;

  const Program &program;
  const int64_t number;
  /// Instances of each state, null where one has no value yet.
  std::map<std::string, std::vector<TensorPtr>> states;
  std::optional<Fault> fault;
  /// Whether the region that is run by a slot is run for its chunk for the last
  /// time in this step.
  bool lastOfChunk = false;
  /// Functions being run, to stop one that calls itself.
  int64_t depth = 0;
};

/// The values of one call of a function.
class Frame {
public:
  Frame(Rank &rank, Exchange &exchange) : rank(rank), exchange(exchange) {}

  const Tensor &get(mlir::Value value) const { return *getPtr(value); }
  TensorPtr getPtr(mlir::Value value) const {
    return std::get<TensorPtr>(getDatum(value));
  }
  int64_t getIndex(mlir::Value value) const {
    return std::get<int64_t>(getDatum(value));
  }
  const Datum &getDatum(mlir::Value value) const {
    return values.find(value)->second;
  }
  void setDatum(mlir::Value value, Datum datum) {
    values[value] = std::move(datum);
  }
  /// Gives `value` a tensor, rounded to its element type.
  void set(mlir::Value value, Tensor tensor);

  /// In what sums that end in `value` are done: f64 ones are exact in both.
  Reading getReading(mlir::Value value) const;

  /// Runs the ops of a block up to its terminator.
  mlir::LogicalResult run(mlir::Block &block);

  /// Notes a fault of this rank; always a failure.
  mlir::LogicalResult fail(mlir::Operation *op, const llvm::Twine &message);

  Rank &rank;
  Exchange &exchange;

private:
  /// Fails where an op would look at a value that is undefined.
  mlir::LogicalResult checkDefined(mlir::Operation &op);

  llvm::DenseMap<mlir::Value, Datum> values;
};

// One per file; each adds the ops of its group.
void addElementwise(Evaluators &evaluators);
void addContract(Evaluators &evaluators);
void addNorms(Evaluators &evaluators);
void addAttention(Evaluators &evaluators);
void addLoss(Evaluators &evaluators);
void addStep(Evaluators &evaluators);
void addControl(Evaluators &evaluators);
void addCollectives(Evaluators &evaluators);
void addStages(Evaluators &evaluators);

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_RANK_H
