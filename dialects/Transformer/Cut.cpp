//===- Cut.cpp - one function cut into two --------------------------------===//

#include "dialects/Transformer/Cut.h"

#include "heddle/Support/Check.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace heddle::transformer;

namespace {
/// What one of the two functions is made of.
struct Half {
  SmallVector<Operation *> ops;
  SmallVector<unsigned> results; ///< of the joint function
};

class Cutter {
public:
  Cutter(func::FuncOp joint, StringRef crossing,
         llvm::function_ref<bool(Operation *)> repeat)
      : joint(joint), crossing(crossing), repeat(repeat), builder(joint),
        ending(joint.getBody().front().getTerminator()) {}

  CutFunctions run(unsigned results, StringRef firstName,
                   StringRef secondName) {
    divide(results);
    findCrossing();
    CutFunctions made;
    made.first = build(firstName, first, /*isFirst=*/true);
    made.second = build(secondName, second, /*isFirst=*/false);
    joint.erase();
    return made;
  }

private:
  void divide(unsigned results) {
    inFirst = slice(ending->getOperands().take_front(results));
    for (unsigned i = 0; i < ending->getNumOperands(); ++i) {
      Operation *made = ending->getOperand(i).getDefiningOp();
      bool early = i < results || (made && inFirst.contains(made));
      (early ? first : second).results.push_back(i);
    }
    llvm::DenseSet<Operation *> inSecond = sliceSecond();
    for (Operation &op : joint.getBody().front().without_terminator()) {
      if (inFirst.contains(&op))
        first.ops.push_back(&op);
      if (inSecond.contains(&op))
        second.ops.push_back(&op);
    }
  }

  /// What the second's results need and the first does not hand over.
  llvm::DenseSet<Operation *> sliceSecond() {
    llvm::DenseSet<Operation *> ops;
    SmallVector<Value> open;
    for (unsigned i : second.results)
      open.push_back(ending->getOperand(i));
    while (!open.empty()) {
      Operation *op = open.pop_back_val().getDefiningOp();
      if (op && (!inFirst.contains(op) || repeat(op)) && ops.insert(op).second)
        open.append(op->operand_begin(), op->operand_end());
    }
    return ops;
  }

  static llvm::DenseSet<Operation *> slice(ValueRange values) {
    llvm::DenseSet<Operation *> ops;
    SmallVector<Value> open(values.begin(), values.end());
    while (!open.empty()) {
      Operation *op = open.pop_back_val().getDefiningOp();
      if (op && ops.insert(op).second)
        open.append(op->operand_begin(), op->operand_end());
    }
    return ops;
  }

  void findCrossing() {
    for (Operation *op : second.ops)
      for (Value operand : op->getOperands()) {
        Operation *made = operand.getDefiningOp();
        if (!made || !inFirst.contains(made) || repeat(made))
          continue;
        HEDDLE_CHECK(!getName(operand).empty(), "a result of {} has no name",
                     made->getName().getStringRef().str());
        readers[operand].insert(op);
      }
    // In the order in which they are made, not read: the first function's.
    for (Operation *op : first.ops)
      for (Value result : op->getResults())
        if (readers.count(result))
          crossed.push_back(result);
  }

  /// `rms_norm_grad (d_x1), contract (d_wq)`.
  std::string reasonOf(Value value) {
    std::string text = "read by ";
    for (auto [i, reader] : llvm::enumerate(readers[value])) {
      text += (i ? ", " : "") + reader->getName().stripDialect().str();
      if (StringRef name = getName(reader->getResult(0)); !name.empty())
        text += " (" + name.str() + ")";
    }
    return text;
  }

  DictionaryAttr crossingAttributes(Value value, bool isFirst) {
    StringAttr name = builder.getStringAttr(getName(value));
    NamedAttrList attributes;
    attributes.set(kArgumentName, name);
    attributes.set(crossing, name);
    if (isFirst)
      attributes.set(kReasonName, builder.getStringAttr(reasonOf(value)));
    return attributes.getDictionary(joint.getContext());
  }

  func::FuncOp build(StringRef name, const Half &half, bool isFirst) {
    builder.setInsertionPoint(joint);
    auto function = func::FuncOp::create(builder, joint.getLoc(), name,
                                         builder.getFunctionType({}, {}));
    Block *body = function.addEntryBlock();
    IRMapping map;
    auto addArgument = [&](Value value, DictionaryAttr attributes) {
      (void)function.insertArgument(function.getNumArguments(), value.getType(),
                                    attributes, value.getLoc());
      map.map(value, body->getArguments().back());
    };
    if (!isFirst)
      for (Value value : crossed)
        addArgument(value, crossingAttributes(value, false));
    llvm::DenseSet<Value> read;
    for (Operation *op : half.ops)
      read.insert(op->operand_begin(), op->operand_end());
    for (unsigned i : half.results)
      read.insert(ending->getOperand(i));
    for (BlockArgument argument : joint.getArguments())
      if (read.contains(argument))
        addArgument(argument, joint.getArgAttrDict(argument.getArgNumber()));
    builder.setInsertionPointToEnd(body);
    for (Operation *op : half.ops)
      builder.clone(*op, map);
    finish(function, half, isFirst, map);
    return function;
  }

  void finish(func::FuncOp function, const Half &half, bool isFirst,
              const IRMapping &map) {
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> attributes;
    for (unsigned i : half.results) {
      results.push_back(map.lookup(ending->getOperand(i)));
      attributes.push_back(joint.getResultAttrDict(i));
    }
    if (isFirst)
      for (Value value : crossed) {
        results.push_back(map.lookup(value));
        attributes.push_back(crossingAttributes(value, true));
      }
    func::ReturnOp::create(builder, ending->getLoc(), results);
    function.setFunctionType(builder.getFunctionType(
        function.getArgumentTypes(), ValueRange(results).getTypes()));
    for (auto [i, dictionary] : llvm::enumerate(attributes))
      if (dictionary)
        function.setResultAttrs(i, dictionary);
  }

  func::FuncOp joint;
  StringRef crossing;
  llvm::function_ref<bool(Operation *)> repeat;
  OpBuilder builder;
  Operation *ending;
  Half first, second;
  llvm::DenseSet<Operation *> inFirst;
  llvm::DenseMap<Value, llvm::SetVector<Operation *>> readers;
  SmallVector<Value> crossed;
};
} // namespace

CutFunctions
heddle::transformer::cut(func::FuncOp joint, unsigned results,
                         StringRef firstName, StringRef secondName,
                         StringRef crossing,
                         llvm::function_ref<bool(Operation *)> repeat) {
  return Cutter(joint, crossing, repeat).run(results, firstName, secondName);
}
