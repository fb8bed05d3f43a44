//===- Pull.cpp - functions of a layer under one choice -------------------===//
//
// A saved argument of backward becomes a copy of the op that makes it, whose
// operands become arguments. First it is decided which ops are repeated in
// front of which op, then regions are made of them.
//
//===----------------------------------------------------------------------===//

#include "passes/Recompute/Pull.h"

#include "heddle/Support/Check.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"

#include <deque>

using namespace mlir;
using namespace heddle;
using namespace heddle::recompute;
using namespace heddle::transformer;

namespace {

/// Ops of forward that are repeated together, in front of an op of backward.
struct Group {
  Operation *before = nullptr;
  llvm::SetVector<Operation *> ops;
};

/// One of the functions of backward.
struct Half {
  func::FuncOp from, made;
  llvm::MapVector<Value, BlockArgument> gone; ///< arguments, by what they were
  SmallVector<Group> groups;
  llvm::DenseSet<Operation *> repeats; ///< of all groups
  llvm::SetVector<Value> kept;         ///< what it takes of the half before
  IRMapping copies;                    ///< of its ops and arguments
  DenseMap<Value, Value> values;       ///< what it has of forward
};

class Puller {
public:
  Puller(Forward &forward, const Repeated &repeated, const Choice &choice)
      : forward(forward), repeated(repeated), choice(choice),
        builder(forward.getFunction().getContext()) {}

  Pulled run(ArrayRef<func::FuncOp> functions, StringRef suffix) {
    for (func::FuncOp function : functions) {
      halves.emplace_back();
      halves.back().from = function;
      plan(halves.back());
    }
    for (size_t i = 0; i < halves.size(); ++i) {
      build(halves[i], suffix,
            i + 1 < halves.size() ? halves[i + 1].kept.getArrayRef()
                                  : ArrayRef<Value>());
      pulled.halves.push_back(halves[i].made);
    }
    return std::move(pulled);
  }

private:
  bool isRepeated(Operation *op) {
    return op && (repeated.contains(op) || forward.isAlwaysRepeated(op));
  }

  //===--------------------------------------------------------------------===//
  // What is repeated where
  //===--------------------------------------------------------------------===//

  void plan(Half &half) {
    for (BlockArgument argument : half.from.getArguments()) {
      auto name = half.from.getArgAttrOfType<StringAttr>(
          argument.getArgNumber(), kSavedName);
      Value value = name ? forward.saved(name.getValue()) : Value();
      if (!value)
        continue;
      if (isRepeated(value.getDefiningOp()))
        half.gone[value] = argument;
      else
        pulled.saved.insert(value);
    }
    DenseMap<Value, Value> gone;
    for (auto &[value, argument] : half.gone)
      gone[argument] = value;
    for (Operation &op : half.from.getBody().front()) {
      Group group{&op, {}};
      for (Value operand : op.getOperands())
        if (Value value = gone.lookup(operand))
          visit(value, half, group);
      if (half.groups.empty() && &half == &halves.front() && choice.whole)
        visitAll(half, group);
      if (!group.ops.empty())
        half.groups.push_back(std::move(group));
    }
  }

  /// What nothing reads, too, where it takes time.
  void visitAll(Half &half, Group &group) {
    for (Operation &op :
         forward.getFunction().getBody().front().without_terminator())
      if (isRepeated(&op) && Forward::isCostly(&op))
        for (Value result : op.getResults())
          visit(result, half, group);
      else if (choice.kind == Choice::Kind::Selective &&
               Forward::readsProbabilities(&op))
        repeat(&op, half, group);
  }

  /// What has to be there for a value to be there.
  void visit(Value value, Half &half, Group &group) {
    Operation *op = value.getDefiningOp();
    if (!op || half.repeats.contains(op))
      return;
    if (!isRepeated(op)) {
      pulled.saved.insert(value);
      return;
    }
    if (isBetterKept(value, half)) {
      half.kept.insert(value);
      return;
    }
    repeat(op, half, group);
  }

  void repeat(Operation *op, Half &half, Group &group) {
    for (Value operand : op->getOperands())
      visit(operand, half, group);
    half.repeats.insert(op);
    group.ops.insert(op);
  }

  /// Whether the half before has a value which it costs to compute once more:
  /// time, or, for what is made of it, more bytes that are kept.
  bool isBetterKept(Value value, Half &half) {
    if (&half == &halves.front() ||
        !halves.front().repeats.contains(value.getDefiningOp()))
      return false;
    int64_t bytes = bytesToKeep(value.getDefiningOp(), half);
    return Forward::isCostly(value.getDefiningOp()) ||
           (bytes > 0 && bytes >= bytesOf(value));
  }

  /// Bytes that have to be kept if an op is repeated.
  int64_t bytesToKeep(Operation *op, Half &half) {
    int64_t bytes = 0;
    for (Value operand : op->getOperands()) {
      Operation *maker = operand.getDefiningOp();
      if (!isRepeated(maker) || half.repeats.contains(maker) ||
          half.kept.contains(operand))
        continue;
      bytes += Forward::isCostly(maker)
                   ? bytesOf(operand)
                   : std::min(bytesOf(operand), bytesToKeep(maker, half));
    }
    return bytes;
  }

  //===--------------------------------------------------------------------===//
  // Functions
  //===--------------------------------------------------------------------===//

  void build(Half &half, StringRef suffix, ArrayRef<Value> keeps) {
    builder.setInsertionPointAfter(half.from);
    half.made = cast<func::FuncOp>(
        builder.clone(*half.from.getOperation(), half.copies));
    half.made.setSymName((half.from.getName() + suffix).str());
    for (BlockArgument argument : half.from.getArguments())
      noteArgument(half, argument);
    for (Value value : half.kept)
      half.values[value] = addArgument(half, value, kKeptName);
    SmallVector<Value> wanted(keeps);
    for (Group &group : half.groups)
      makeRegion(half, group, wanted);
    SmallVector<BlockArgument> gone;
    for (auto &[value, argument] : half.gone) {
      auto copy = cast<BlockArgument>(half.copies.lookup(Value(argument)));
      copy.replaceAllUsesWith(half.values.lookup(value));
      gone.push_back(copy);
    }
    for (BlockArgument argument : gone)
      (void)half.made.eraseArgument(argument.getArgNumber());
    keep(half, keeps);
  }

  /// Finds what an argument has of forward: what is saved, or an argument too.
  void noteArgument(Half &half, BlockArgument argument) {
    unsigned index = argument.getArgNumber();
    Value copy = half.copies.lookup(Value(argument));
    if (auto name = half.from.getArgAttrOfType<StringAttr>(index, kSavedName)) {
      Value value = forward.saved(name.getValue());
      if (value && !half.gone.contains(value))
        half.values[value] = copy;
      return;
    }
    for (BlockArgument other : forward.getFunction().getArguments())
      if (getName(other) == getName(argument))
        half.values[other] = copy;
  }

  BlockArgument addArgument(Half &half, Value value, StringRef kind) {
    NamedAttrList attributes;
    unsigned at = 0;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      attributes.append(
          forward.getFunction().getArgAttrDict(argument.getArgNumber()));
      at = half.made.getNumArguments();
    } else {
      auto name = builder.getStringAttr(forward.nameToSave(value));
      attributes.set(kArgumentName, name);
      attributes.set(kind, name);
    }
    (void)half.made.insertArgument(
        at, value.getType(), attributes.getDictionary(builder.getContext()),
        value.getLoc());
    return half.made.getArgument(at);
  }

  /// What a half has of a value of forward; an argument where it has nothing.
  Value valueIn(Half &half, Value value) {
    Value &known = half.values[value];
    if (!known)
      known = addArgument(half, value, kSavedName);
    return known;
  }

  void makeRegion(Half &half, Group &group, ArrayRef<Value> keeps) {
    llvm::SetVector<Value> inputs;
    SmallVector<Value> results;
    for (Operation *op : group.ops) {
      for (Value operand : op->getOperands())
        if (!group.ops.contains(operand.getDefiningOp()))
          inputs.insert(operand);
      for (Value result : op->getResults())
        if (isRead(half, group, result, keeps))
          results.push_back(result);
    }
    SmallVector<Value> operands;
    for (Value input : inputs)
      operands.push_back(valueIn(half, input));
    Operation *before = half.copies.lookup(group.before);
    builder.setInsertionPoint(before);
    Location location =
        results.empty() ? before->getLoc() : results.front().getLoc();
    auto made =
        RecomputeOp::create(builder, location, ValueRange(results).getTypes(),
                            operands, reasonFor(half, group));
    Block &body = made.getBody().emplaceBlock();
    IRMapping map;
    for (Value input : inputs)
      map.map(input, body.addArgument(input.getType(), input.getLoc()));
    builder.setInsertionPointToEnd(&body);
    for (Operation *op : group.ops)
      builder.clone(*op, map);
    SmallVector<Value> yielded;
    SmallVector<std::string> names;
    for (auto [value, result] : llvm::zip(results, made.getResults())) {
      yielded.push_back(map.lookup(value));
      names.push_back(forward.nameToSave(value));
      half.values[value] = result;
    }
    YieldOp::create(builder, location, yielded, ValueRange());
    setNames(made, names);
  }

  /// Whether anything outside of a group reads what it makes.
  bool isRead(Half &half, Group &group, Value value, ArrayRef<Value> keeps) {
    if (half.gone.contains(value) || llvm::is_contained(keeps, value))
      return true;
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return half.repeats.contains(user) && !group.ops.contains(user);
    });
  }

  /// "listed: n1, n1_rstd are not saved (12288 bytes)".
  std::string reasonFor(Half &half, Group &group) {
    SmallVector<std::string> names;
    int64_t bytes = 0;
    for (auto &[value, argument] : half.gone)
      if (group.ops.contains(value.getDefiningOp())) {
        names.push_back(forward.nameToSave(value));
        bytes += bytesOf(value);
      }
    if (names.empty())
      return choice.text().str() + ": what others are made of";
    return choice.text().str() + ": " + llvm::join(names, ", ") +
           (names.size() == 1 ? " is" : " are") + " not saved (" +
           std::to_string(bytes) + " bytes)";
  }

  /// Returns what the next half takes.
  void keep(Half &half, ArrayRef<Value> keeps) {
    Operation *end = half.made.getBody().front().getTerminator();
    for (Value value : keeps) {
      auto name = builder.getStringAttr(forward.nameToSave(value));
      NamedAttrList attributes;
      attributes.set(kArgumentName, name);
      attributes.set(kKeptName, name);
      unsigned at = half.made.getNumResults();
      (void)half.made.insertResult(
          at, value.getType(), attributes.getDictionary(builder.getContext()));
      Value own = half.values.lookup(value);
      HEDDLE_CHECK(own, "{} is kept, but was not computed", name.str());
      end->insertOperands(at, own);
    }
  }

  Forward &forward;
  const Repeated &repeated;
  const Choice &choice;
  OpBuilder builder;
  std::deque<Half> halves;
  Pulled pulled;
};

} // namespace

Pulled recompute::pull(Forward &forward, const Repeated &repeated,
                       const Choice &choice, ArrayRef<func::FuncOp> halves,
                       StringRef suffix) {
  return Puller(forward, repeated, choice).run(halves, suffix);
}
